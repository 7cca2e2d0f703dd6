//! Hooks in a dry run, which runs none.

use jiff::Timestamp;
use kyma_api::{HookPhase, Hooks};
use kyma_helm::hooks::{self, Event};

use crate::dry_run_result::EventHooks;
use crate::pass::Pass;

/// Counts the hooks of an event as passed and returns them; `None` if no content is loaded.
pub(crate) fn count_as_passed(pass: &mut Pass<'_>, event: Event) -> Option<EventHooks> {
    let loaded = pass.state.loaded.as_ref()?;
    let own = hooks::of_event(&loaded.prepared.hooks, event);
    let names = own.iter().map(|hook| hook.name()).collect();
    let records = &mut pass.state.recorded.hooks;
    let run = hooks::begin(records.release.as_ref(), event, &loaded.release, Timestamp::now());
    records.release = Some(Hooks { phase: HookPhase::Succeeded, ..run });
    Some(EventHooks { event: event.as_str().to_owned(), hooks: names })
}

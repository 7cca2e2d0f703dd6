//! Subscriptions of a component to the objects of its hooks.

use std::collections::BTreeSet;
use std::time::Duration;

use kyma_api::{Hooks, labels};
use kyma_controller::{Content, WatchSpec};
use kyma_helm::hooks::{self, Hook};
use kyma_object_set::GroupKind;

use super::watches::HookRunSpec;
use crate::pass::Pass;

/// Returns the mark of a run's objects.
pub(super) fn mark(pass: &Pass<'_>, run: &Hooks) -> String {
    hooks::mark(run, pass.context.resource.metadata.uid.as_deref().unwrap_or_default())
}

/// Watches the hooks of a run, so that each change requeues the component. A stream must show the end of a Job or Pod
/// before that is created: returns the time that its first list may still take.
pub(super) fn subscribe(pass: &Pass<'_>, own: &[&Hook], mark: &str) -> Option<Duration> {
    let (ending, others): (Vec<&Hook>, Vec<&Hook>) = own.iter().copied().partition(|hook| hook.has_an_end());
    for watch_spec in watch_specs(pass, &others) {
        pass.context.watch(watch_spec);
    }
    let whole = |watch_spec: WatchSpec| WatchSpec { content: Content::Whole, ..watch_spec };
    let run = HookRunSpec {
        mark: mark.to_owned(),
        watch_specs: watch_specs(pass, &ending).into_iter().map(whole).collect(),
        hooks: ending.iter().map(|hook| hook.identity()).collect(),
    };
    pass.shared.hook_watches.subscribe(&pass.context.target, &pass.key, &run)
}

/// Ends the subscriptions to hooks that are over.
pub(crate) fn unsubscribe_ended(pass: &Pass<'_>) {
    let records = pass.state.recorded.hooks.all();
    let under_way = records.filter(|record| hooks::is_under_way(Some(*record)));
    let marks: Vec<String> = under_way.map(|record| mark(pass, record)).collect();
    pass.shared.hook_watches.retain(&pass.context.target, &pass.key, &marks);
}

/// Returns the streams of hook objects of these kinds.
fn watch_specs(pass: &Pass<'_>, hooks: &[&Hook]) -> Vec<WatchSpec> {
    let kinds: BTreeSet<GroupKind> = hooks.iter().map(|hook| hook.identity().group_kind()).collect();
    let served = kinds.iter().filter_map(|kind| pass.kinds.preferred(kind));
    served.map(|mapping| WatchSpec::in_kind(&mapping.resource).marked(labels::HOOK_OF)).collect()
}

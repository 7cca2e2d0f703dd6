//! Hooks in the condition `Rendered`. Pure.

use std::collections::BTreeSet;

use kyma_api::{HookPolicy, Reason};
use kyma_helm::hooks::{Event, Hook};

use crate::report::words::list;

/// Returns the reason of the condition `Rendered` if the content is rendered.
pub(crate) fn rendered_reason(skips_hooks: bool) -> Reason {
    if skips_hooks { Reason::HooksSkipped } else { Reason::Succeeded }
}

/// Returns the note about hooks that do not run; `None` if all of them run.
pub(crate) fn skipped_note(policy: HookPolicy, hooks: &[Hook]) -> Option<String> {
    let skipped = skipped_events(policy, hooks);
    (!skipped.is_empty()).then(|| format!("the chart has hooks that are not run: {}", list(&skipped)))
}

/// Returns the events whose hooks do not run. Tests run whenever a user requests them.
fn skipped_events(policy: HookPolicy, hooks: &[Hook]) -> Vec<String> {
    let events: BTreeSet<Event> = hooks.iter().flat_map(Hook::events).collect();
    let skipped = events.into_iter().filter(|event| policy == HookPolicy::Skip && *event != Event::Test);
    skipped.map(|event| event.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use kyma_helm::hooks::HOOK;
    use serde_json::json;

    use super::*;
    use crate::actions::rollback::stored_release::tests::hook;

    #[test]
    fn skipped_hooks_are_noted_except_tests() {
        let of = |events: &str| [hook("j", &json!({HOOK: events}))];
        let skipped = of("post-install,pre-install,test");
        let note = skipped_note(HookPolicy::Skip, &skipped);
        let expected = "the chart has hooks that are not run: pre-install, post-install";
        assert_eq!(note.as_deref(), Some(expected));
        assert_eq!(skipped_note(HookPolicy::Run, &skipped), None);
        assert_eq!(skipped_note(HookPolicy::Skip, &of("test")), None);
        assert_eq!(rendered_reason(true), Reason::HooksSkipped);
        assert_eq!(rendered_reason(false), Reason::Succeeded);
    }
}

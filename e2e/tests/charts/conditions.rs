//! Checks what a component reports about itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::{HelmComponent, Reason, State};

use crate::compare::Findings;
use crate::outcome::Outcome;

/// Reasons that a retry rarely resolves.
const LASTING_REASONS: [Reason; 3] = [Reason::HookFailed, Reason::ApplyRefused, Reason::RenderFailed];
/// Reasons of a chart or its values with which helm prints nothing either.
const UNRENDERABLE_REASONS: [Reason; 2] = [Reason::RenderFailed, Reason::ValuesInvalid];
/// Words with which the component reports that the target refuses an object as invalid.
const INVALID_OBJECT_TEXT: &str = ": refused as invalid: ";

pub(crate) fn condition<'a>(component: &'a HelmComponent, aspect: &str) -> Option<&'a Condition> {
    let mut conditions = component.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == aspect)
}

/// Reports whether the chart cannot be rendered with its values, as opposed to a missing chart.
pub(crate) fn is_not_printed(component: &HelmComponent) -> bool {
    condition(component, "Rendered").is_some_and(|rendered| {
        rendered.status == "False"
            && UNRENDERABLE_REASONS.iter().any(|reason| rendered.reason == reason.as_str())
    })
}

/// Returns the failure if a retry rarely resolves it.
pub(crate) fn lasting_failure(component: &HelmComponent) -> Option<String> {
    condition(component, "Ready")
        .filter(|ready| LASTING_REASONS.iter().any(|reason| ready.reason == reason.as_str()))
        .map(|ready| format!("{}: {}", ready.reason, ready.message))
}

/// Returns the hook that failed, from the condition Ready.
pub(crate) fn failed_hook(ready_message: &str) -> Option<&str> {
    ready_message.strip_prefix("HookFailed: ")
}

/// Reports whether the target refuses the hook, which fails in helm too.
pub(crate) fn is_invalid(hook: &str) -> bool {
    hook.contains(INVALID_OBJECT_TEXT)
}

/// Reports whether nothing of the chart is applied before the hook has run.
pub(crate) fn comes_first(hook: &str) -> bool {
    hook.starts_with("pre-")
}

/// Checks that everything not Ready has a reason on the target that the component names.
pub(crate) fn explain(
    component: &HelmComponent,
    findings: Findings,
    hook: Option<&str>,
    ready_message: &str,
) -> Result<Outcome, String> {
    let message = |aspect: &str| {
        let found = condition(component, aspect).filter(|condition| condition.status == "False");
        found.map(|condition| condition.message.clone())
    };
    let dependencies = message("DependenciesReady").unwrap_or_default();
    if let Some(kind) = findings.missing.iter().find(|kind| !dependencies.contains(kind.as_str())) {
        return Err(format!("DependenciesReady does not name {kind}: {dependencies}"));
    }
    if findings.missing.is_empty() && !dependencies.is_empty() {
        return Err(format!("everything is served, but DependenciesReady says: {dependencies}"));
    }
    let applied = message("Applied").unwrap_or_default();
    if let Some(object) = findings.refused.keys().find(|object| !applied.contains(object.as_str())) {
        return Err(format!("Applied does not name {object}: {applied}"));
    }
    let state = component.status.as_ref().and_then(|status| status.state);
    let unhealthy = message("Healthy");
    let complete =
        findings.missing.is_empty() && findings.refused.is_empty() && unhealthy.is_none() && hook.is_none();
    if complete != (state == Some(State::Ready)) {
        return Err(format!("{state:?}: {ready_message}"));
    }
    let hook = hook.map(str::to_owned);
    Ok(Outcome { findings, unhealthy, hook, ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_chart_itself_gives_counts_as_not_printed() {
        let rendered = |status: &str, reason: &str| -> HelmComponent {
            let condition = json!({
                "type": "Rendered", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            serde_json::from_value(json!({
                "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {"name": "a", "namespace": "n"},
                "spec": {
                    "source": {"chart": {"url": "oci://registry.example.com/a", "version": "1.0.0"}},
                },
                "status": {"conditions": [condition]},
            }))
            .unwrap()
        };
        assert!(is_not_printed(&rendered("False", "RenderFailed")));
        assert!(is_not_printed(&rendered("False", "ValuesInvalid")));
        assert!(!is_not_printed(&rendered("False", "TargetUnreachable")));
        assert!(!is_not_printed(&rendered("False", "SourceUnreachable")));
        assert!(!is_not_printed(&rendered("True", "Succeeded")));
    }

    #[test]
    fn a_failed_hook_is_distinguished_from_other_faults() {
        let hook = failed_hook("HookFailed: post-install hook Job.batch n/a: refused as invalid: spec.x");
        assert!(hook.is_some_and(|hook| is_invalid(hook) && !comes_first(hook)));
        let late = failed_hook("HookFailed: pre-install hook Job.batch n/a: it failed");
        assert!(late.is_some_and(|hook| !is_invalid(hook) && comes_first(hook)));
        assert_eq!(failed_hook("ApplyRefused: Job.batch n/a: refused as invalid: spec.x"), None);
    }
}

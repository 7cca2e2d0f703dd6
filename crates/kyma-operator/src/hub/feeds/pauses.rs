//! Writes the status of Pauses.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as metav1, Time};
use kube::api::{Patch, PatchParams};
use kube::core::Selector;
use kube::{Api, ResourceExt};
use kyma_api::condition::{self, Condition, Status, types};
use kyma_api::{Pause, PauseStatus, Reason};
use kyma_controller::{apply_status, is_in_force};
use serde_json::json;

use crate::FIELD_MANAGER;
use crate::state::State;

/// Writes the status of each Pause when it is created, changes or ends, until the process shuts down.
pub(super) async fn report(state: Arc<State>) {
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<Pause> = Api::namespaced(state.runtime.hub.clone(), namespace);
    let mut changes = state.runtime.pauses.changes();
    loop {
        for pause in state.runtime.pauses.all().values() {
            write_status(&api, pause).await;
        }
        changes.next().await;
    }
}

async fn write_status(api: &Api<Pause>, pause: &Pause) {
    let Some(status) = next_status(pause, Timestamp::now()) else { return };
    let name = pause.name_any();
    let mut written = apply_status(api, FIELD_MANAGER, &pause.metadata, &json!(status)).await;
    if written.as_ref().is_err_and(is_not_for_applies) {
        let seen = json!({ "resourceVersion": pause.resource_version() });
        let body = json!({ "metadata": seen, "status": with_others(pause, status) });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        written = api.patch_status(&name, &params, &Patch::Merge(&body)).await;
    }
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => tracing::warn!(%error, kind = "Pause", name, "status not written"),
        Ok(_) => {}
    }
}

/// Reports whether apply fails for this object: the API server accepts an empty list in a write, but later fails on
/// every apply.
fn is_not_for_applies(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 500)
}

/// Adds the conditions of other writers: a merge patch replaces lists.
fn with_others(pause: &Pause, status: PauseStatus) -> PauseStatus {
    let stored = pause.status.iter().flat_map(|stored| stored.conditions.iter().flatten());
    let others = stored.filter(|condition| condition.type_ != types::READY).cloned();
    let conditions = others.chain(status.conditions.into_iter().flatten()).collect();
    PauseStatus { conditions: Some(conditions), ..status }
}

/// Returns the next status, or `None` if it is unchanged.
fn next_status(pause: &Pause, now: Timestamp) -> Option<PauseStatus> {
    let stored = pause.status.clone().unwrap_or_default();
    let mut conditions: Vec<metav1::Condition> = stored.conditions.unwrap_or_default();
    conditions.retain(|condition| condition.type_ == types::READY);
    let generation = pause.metadata.generation;
    let ready = ready(pause, now);
    // API objects store whole seconds.
    let now = Time(now.round(jiff::Unit::Second).unwrap_or(now));
    let changed = condition::set(&mut conditions, &ready, generation, &now);
    changed.then_some(PauseStatus { conditions: Some(conditions), observed_generation: generation })
}

fn ready(pause: &Pause, now: Timestamp) -> Condition {
    if !is_in_force(pause, now) {
        return Condition::new(types::READY, Status::False, Reason::Succeeded)
            .with_message("the Pause has ended");
    }
    let (reason, message) = match pause.spec.selector.clone().map(Selector::try_from) {
        None => (Reason::Paused, "the Pause applies to all Kymas"),
        Some(Ok(_)) => (Reason::Paused, "the Pause applies to the Kymas that the selector matches"),
        Some(Err(_)) => (
            Reason::SpecInvalid,
            "spec.selector is invalid: correct it; until then the Pause applies to all Kymas",
        ),
    };
    let message = format!("{message}{}", operator_limit(&pause.spec.operators));
    Condition::new(types::READY, Status::True, reason).with_message(message)
}

/// Returns the end of the message for a Pause that names operators. No operator knows the names of all others, so a
/// misspelled name is only visible here.
fn operator_limit(operators: &[String]) -> String {
    if operators.is_empty() {
        return String::new();
    }
    format!("; it stops only operators of these names: {}", operators.join(", "))
}

#[cfg(test)]
mod tests {
    use kyma_api::PauseSpec;

    use super::*;

    fn pause(spec: serde_json::Value) -> Pause {
        Pause::new("p", serde_json::from_value::<PauseSpec>(spec).unwrap())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_condition_reports_whether_a_pause_is_in_force() {
        let broken = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        for (spec, expected) in [
            (json!({}), ("True", "Paused")),
            (json!({"selector": {"matchLabels": {"a": "b"}}}), ("True", "Paused")),
            (json!({"selector": broken}), ("True", "SpecInvalid")),
            (json!({"until": at(5).to_string()}), ("False", "Succeeded")),
        ] {
            let conditions = next_status(&pause(spec.clone()), at(5)).unwrap().conditions.unwrap();
            assert_eq!((conditions[0].status.as_str(), conditions[0].reason.as_str()), expected, "{spec}");
        }
    }

    #[test]
    fn the_message_names_the_operators_that_are_stopped() {
        let message = |spec| next_status(&pause(spec), at(1)).unwrap().conditions.unwrap()[0].message.clone();
        let limited = json!({"operators": ["helm-component", "release-meta-syncer"]});
        let expected = "the Pause applies to all Kymas; it stops only operators of these names: helm-component, \
                        release-meta-syncer";
        assert_eq!(message(limited), expected);
        assert_eq!(message(json!({})), "the Pause applies to all Kymas");
    }

    #[test]
    fn an_unchanged_status_is_not_written_again() {
        let mut pause = pause(json!({}));
        pause.status = next_status(&pause, at(1));
        assert_eq!(next_status(&pause, at(2)), None);
    }
}

//! Describes what blocks a workload, in terms of the API.

use serde_json::Value;

use super::view::{View, is_word};

/// Reports whether objects of a kind create Pods of one template.
pub fn creates_pods(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "ReplicationController")
            | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job")
    )
}

/// Returns why a Pod does not work: the waiting reason and last end of a container, or why the scheduler found no
/// node. `None` if its status gives no reason, or it is being deleted.
pub fn pod_failure_reason(pod: &Value) -> Option<String> {
    let view = View::of(pod);
    if view.deleting() {
        return None;
    }
    let first = view.items("/status/initContainerStatuses").iter();
    let mut containers = first.chain(view.items("/status/containerStatuses"));
    if let Some(waiting) = containers.find_map(waiting) {
        return Some(waiting);
    }
    let unmet = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].into_iter();
    unmet
        .filter_map(|kind| view.condition(kind))
        .find(|one| one.is_false())
        .map(super::view::Condition::summary)
}

/// Returns why a workload cannot create its Pods: its condition `ReplicaFailure`.
pub fn replica_failure(workload: &Value) -> Option<String> {
    let condition = View::of(workload).condition("ReplicaFailure");
    condition.filter(|condition| condition.is_true()).map(super::view::Condition::summary)
}

/// Returns the waiting reason of a container, unless it is only starting.
fn waiting(status: &Value) -> Option<String> {
    let word = |pointer: &str| status.pointer(pointer)?.as_str().filter(|text| is_word(text));
    let reason = word("/state/waiting/reason").filter(|reason| !STARTUP_REASONS.contains(reason));
    let ended = word("/state/terminated/reason").filter(|reason| *reason != "Completed");
    let reason = reason.or(ended)?;
    let name = word("/name").unwrap_or_default();
    let before = word("/lastState/terminated/reason").map(|reason| format!(", ended before: {reason}"));
    Some(format!("container {name}: {reason}{}", before.unwrap_or_default()))
}

/// Waiting reasons of every container at its start.
const STARTUP_REASONS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &Value) -> Option<String> {
        pod_failure_reason(&json!({"apiVersion": "v1", "kind": "Pod", "status": status}))
    }

    #[test]
    fn a_container_that_waits_is_named_with_how_it_ended_before() {
        let crashing = json!({"containerStatuses": [
            {"name": "side", "state": {"running": {}}},
            {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "secret"}},
             "lastState": {"terminated": {"reason": "OOMKilled", "message": "secret"}}},
        ]});
        assert_eq!(
            pod(&crashing).as_deref(),
            Some("container main: CrashLoopBackOff, ended before: OOMKilled")
        );
        let pulling = json!({"initContainerStatuses": [{"name": "init", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        assert_eq!(pod(&pulling).as_deref(), Some("container init: ImagePullBackOff"));
        let ended =
            json!({"containerStatuses": [{"name": "main", "state": {"terminated": {"reason": "Error"}}}]});
        assert_eq!(pod(&ended).as_deref(), Some("container main: Error"));
    }

    #[test]
    fn else_the_first_condition_that_is_false_tells() {
        let conditions = |kind: &str, reason: &str| {
            json!({"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}],
                "conditions": [{"type": kind, "status": "False", "reason": reason, "message": "secret"}]})
        };
        let unschedulable = pod(&conditions("PodScheduled", "Unschedulable"));
        assert_eq!(unschedulable.as_deref(), Some("PodScheduled is False: Unschedulable"));
        assert_eq!(pod(&conditions("Ready", "not a word")).as_deref(), Some("Ready is False"));
        assert_eq!(pod(&json!({"phase": "Running"})), None);
        let going = json!({"metadata": {"deletionTimestamp": "x"}, "status": conditions("Ready", "x")});
        assert_eq!(pod_failure_reason(&going), None);
    }

    #[test]
    fn what_makes_no_pods_says_why() {
        let set = |status: &str| {
            replica_failure(
                &json!({"status": {"conditions": [{"type": "ReplicaFailure", "status": status, "reason": "FailedCreate"}]}}),
            )
        };
        assert_eq!(set("True").as_deref(), Some("ReplicaFailure is True: FailedCreate"));
        assert_eq!(set("False"), None);
    }
}

#![allow(clippy::needless_pass_by_value)]

use serde_json::json;

use super::HealthStatus::{Current, Failed, InProgress, Terminating};
use super::*;

mod cluster;
mod pods;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn check(api_version: &str, kind: &str, cases: &[(&str, HealthStatus, Value)]) {
    for (name, expected, body) in cases {
        let mut object = body.clone();
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        let whole = assess(&object, now());
        assert_eq!(whole.status, *expected, "{kind}: {name}: {}", whole.message);
    }
}

fn conditions(all: &[(&str, &str, &str)]) -> Value {
    all.iter().map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason, "message": "prose"})).collect()
}

#[test]
fn any_kind_by_its_generation_and_conditions() {
    let of = |all: &[(&str, &str, &str)]| json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": conditions(all)}});
    check(
        "x.io/v1",
        "Thing",
        &[
            ("no status", Current, json!({"metadata": {"generation": 1}})),
            ("deleted", Terminating, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            (
                "stale",
                InProgress,
                json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": conditions(&[("Ready", "True", "")])}}),
            ),
            ("reconciling", InProgress, of(&[("Reconciling", "True", "Work"), ("Ready", "True", "")])),
            ("stalled", Failed, of(&[("Stalled", "True", "Broken")])),
            ("ready", Current, of(&[("Ready", "True", "")])),
            ("not ready", InProgress, of(&[("Ready", "False", "Waiting")])),
            ("unknown", InProgress, of(&[("Ready", "Unknown", "")])),
            ("other conditions", Current, of(&[("Synced", "False", "")])),
            (
                "stalled and reconciling",
                InProgress,
                of(&[("Stalled", "True", ""), ("Reconciling", "True", "")]),
            ),
            ("not stalled", Current, of(&[("Stalled", "False", ""), ("Reconciling", "False", "")])),
            ("no generation", Current, json!({"status": {"observedGeneration": 7}})),
            (
                "deleted and stale",
                Terminating,
                json!({"metadata": {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"observedGeneration": 1}}),
            ),
        ],
    );
}

fn deployment(change: Value) -> Value {
    let mut object = json!({"metadata": {"generation": 1}, "spec": {"replicas": 2, "progressDeadlineSeconds": 600},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2,
        "conditions": conditions(&[("Available", "True", ""), ("Progressing", "True", "NewReplicaSetAvailable")])}});
    json_patch::merge(&mut object, &change);
    object
}

#[test]
fn deployments() {
    let progress = |reason: &str| json!({"status": {"conditions": conditions(&[("Available", "True", ""), ("Progressing", "True", reason)])}});
    check(
        "apps/v1",
        "Deployment",
        &[
            ("all there", Current, deployment(json!({}))),
            ("new", InProgress, json!({"metadata": {"generation": 1}, "spec": {}})),
            ("deadline", Failed, deployment(progress("ProgressDeadlineExceeded"))),
            (
                "not seen by its controller",
                InProgress,
                deployment(json!({"status": {"observedGeneration": null}})),
            ),
            ("nothing said", InProgress, deployment(json!({"status": {"conditions": null}}))),
            (
                "paused after the deadline",
                Failed,
                deployment(
                    json!({"spec": {"paused": true}, "status": progress("ProgressDeadlineExceeded")["status"]}),
                ),
            ),
            ("created", InProgress, deployment(json!({"status": {"replicas": 1}}))),
            ("updated", InProgress, deployment(json!({"status": {"updatedReplicas": 1}}))),
            ("old ones", InProgress, deployment(json!({"status": {"replicas": 3}}))),
            ("available", InProgress, deployment(json!({"status": {"availableReplicas": 1}}))),
            ("ready", InProgress, deployment(json!({"status": {"readyReplicas": 1}}))),
            ("progressing", InProgress, deployment(progress("ReplicaSetUpdated"))),
            (
                "no deadline",
                Current,
                deployment(
                    json!({"spec": {"progressDeadlineSeconds": 2_147_483_647}, "status": progress("x")["status"]}),
                ),
            ),
            (
                "not available",
                InProgress,
                deployment(json!({"status": {"conditions": conditions(&[("Available", "False", "")])}})),
            ),
        ],
    );
}

#[test]
fn deployments_that_are_paused_or_without_replicas() {
    check(
        "apps/v1",
        "Deployment",
        &[
            (
                "paused",
                Current,
                deployment(json!({"spec": {"paused": true}, "status": {"updatedReplicas": 0}})),
            ),
            (
                "paused, never started",
                InProgress,
                deployment(
                    json!({"spec": {"paused": true}, "status": {"replicas": 0, "updatedReplicas": 0, "availableReplicas": 0, "readyReplicas": 0, "conditions": null}}),
                ),
            ),
            (
                "paused, none wanted",
                Current,
                deployment(json!({"spec": {"paused": true, "replicas": 0}, "status": {"readyReplicas": 0}})),
            ),
            (
                "none wanted",
                Current,
                deployment(
                    json!({"spec": {"replicas": 0}, "status": {"replicas": 0, "updatedReplicas": 0, "availableReplicas": 0, "readyReplicas": 0}}),
                ),
            ),
            (
                "default is one",
                InProgress,
                deployment(json!({"spec": {"replicas": null}, "status": {"replicas": 0}})),
            ),
        ],
    );
}

#[test]
fn stateful_sets() {
    let of = |change: Value| {
        let mut object = json!({"metadata": {"generation": 1}, "spec": {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
            "status": {"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "currentReplicas": 3, "updatedReplicas": 3, "currentRevision": "a", "updateRevision": "a"}});
        json_patch::merge(&mut object, &change);
        object
    };
    check(
        "apps/v1",
        "StatefulSet",
        &[
            ("all there", Current, of(json!({}))),
            ("new", InProgress, json!({"metadata": {"generation": 1}, "spec": {"replicas": 0}})),
            ("created", InProgress, of(json!({"status": {"replicas": 2}}))),
            ("ready", InProgress, of(json!({"status": {"readyReplicas": 2}}))),
            ("surplus", InProgress, of(json!({"status": {"replicas": 4}}))),
            ("of the old revision", InProgress, of(json!({"status": {"currentReplicas": 2}}))),
            (
                "none wanted",
                Current,
                of(
                    json!({"spec": {"replicas": 0}, "status": {"replicas": 0, "readyReplicas": 0, "currentReplicas": 0, "updatedReplicas": 0}}),
                ),
            ),
            ("not seen by its controller", InProgress, of(json!({"status": {"observedGeneration": null}}))),
            ("updating", InProgress, of(json!({"status": {"updateRevision": "b"}}))),
            (
                "partition met",
                Current,
                of(
                    json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}, "status": {"updateRevision": "b", "updatedReplicas": 1}}),
                ),
            ),
            (
                "partition not met",
                InProgress,
                of(
                    json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}, "status": {"updatedReplicas": 1}}),
                ),
            ),
            (
                "on delete, never started",
                InProgress,
                of(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"readyReplicas": 0}})),
            ),
            (
                "on delete, not observed",
                InProgress,
                of(
                    json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"observedGeneration": null}}),
                ),
            ),
            (
                "on delete, of the earlier revision",
                Current,
                of(
                    json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"updateRevision": "b", "updatedReplicas": 0}}),
                ),
            ),
        ],
    );
}

#[test]
fn daemon_sets() {
    let of = |change: Value| {
        let mut object = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 2,
            "currentNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2}});
        json_patch::merge(&mut object, &change);
        object
    };
    check(
        "apps/v1",
        "DaemonSet",
        &[
            ("all there", Current, of(json!({}))),
            ("new", InProgress, json!({"metadata": {"generation": 1}})),
            ("not observed", InProgress, of(json!({"status": {"observedGeneration": null}}))),
            ("no generation", InProgress, of(json!({"metadata": {"generation": null}}))),
            (
                "on delete, and not ready",
                InProgress,
                of(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"numberReady": 1}})),
            ),
            ("scheduled", InProgress, of(json!({"status": {"currentNumberScheduled": 1}}))),
            ("updated", InProgress, of(json!({"status": {"updatedNumberScheduled": 1}}))),
            (
                "updated on delete",
                Current,
                of(
                    json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"updatedNumberScheduled": 1}}),
                ),
            ),
            ("available", InProgress, of(json!({"status": {"numberAvailable": 1}}))),
            ("ready", InProgress, of(json!({"status": {"numberReady": 1}}))),
            ("no nodes", Current, of(json!({"status": {"desiredNumberScheduled": 0}}))),
        ],
    );
}

#[test]
fn the_worst_decides() {
    let of = |status| Health::new(status, "");
    assert_eq!(aggregate(&[]), Current);
    assert_eq!(aggregate(&[of(Current), of(Terminating)]), InProgress);
    assert_eq!(aggregate(&[of(Failed), of(Terminating), of(HealthStatus::Unknown)]), Failed);
    assert_eq!(aggregate(&[of(InProgress), of(HealthStatus::Unknown)]), HealthStatus::Unknown);
}

#[test]
fn messages_hold_no_prose_of_the_target() {
    let object = json!({"apiVersion": "x.io/v1", "kind": "Thing", "status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "<b>no word</b>", "message": "password hunter2"}]}});
    assert_eq!(assess(&object, now()).message, "Ready is False");
}

#[test]
fn counts_beyond_all_measure_are_counts() {
    let (most, least) = (i64::MAX, i64::MIN);
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": most}});
    check(
        "apps/v1",
        "Deployment",
        &[(
            "old",
            InProgress,
            json!({"status": {"replicas": most, "updatedReplicas": least}, "spec": {"replicas": 1}}),
        )],
    );
    check(
        "apps/v1",
        "StatefulSet",
        &[
            ("surplus", InProgress, json!({"spec": {"replicas": least}, "status": {"replicas": most}})),
            (
                "partition",
                Current,
                json!({"spec": {"replicas": least, "updateStrategy": rolling}, "status": {"replicas": least}}),
            ),
        ],
    );
}

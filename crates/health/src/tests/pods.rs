use super::*;

fn replica_set(change: Value) -> Value {
    let mut object = json!({"spec": {"replicas": 1}, "status": {"replicas": 1, "fullyLabeledReplicas": 1, "availableReplicas": 1, "readyReplicas": 1}});
    json_patch::merge(&mut object, &change);
    object
}

#[test]
fn replica_sets_and_budgets() {
    check(
        "apps/v1",
        "ReplicaSet",
        &[
            ("all there", Current, replica_set(json!({}))),
            ("none", InProgress, json!({"spec": {"replicas": 1}})),
            ("labelled", InProgress, replica_set(json!({"status": {"fullyLabeledReplicas": 0}}))),
            ("available", InProgress, replica_set(json!({"status": {"availableReplicas": 0}}))),
            ("ready", InProgress, replica_set(json!({"status": {"readyReplicas": 0}}))),
            ("surplus", InProgress, replica_set(json!({"status": {"replicas": 2}}))),
            (
                "failure",
                InProgress,
                json!({"spec": {"replicas": 0}, "status": {"conditions": conditions(&[("ReplicaFailure", "True", "Quota")])}}),
            ),
        ],
    );
    check(
        "v1",
        "ReplicationController",
        &[
            ("all there", Current, replica_set(json!({}))),
            ("never started", InProgress, json!({"spec": {"replicas": 1}, "status": {"replicas": 0}})),
            ("ready", InProgress, replica_set(json!({"status": {"readyReplicas": 0}}))),
        ],
    );
    check(
        "policy/v1",
        "PodDisruptionBudget",
        &[
            ("new", InProgress, json!({"metadata": {"generation": 1}})),
            (
                "stale",
                InProgress,
                json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}),
            ),
            (
                "seen",
                Current,
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions": conditions(&[("DisruptionAllowed", "False", "x")])}}),
            ),
        ],
    );
}

#[test]
fn pods() {
    let pending = |created: &str| json!({"metadata": {"creationTimestamp": created}, "status": {"phase": "Pending", "conditions": conditions(&[("PodScheduled", "False", "Unschedulable")])}});
    check(
        "v1",
        "Pod",
        &[
            ("new", InProgress, json!({})),
            ("pending", InProgress, json!({"status": {"phase": "Pending"}})),
            ("unschedulable for long", Failed, pending("2025-12-31T23:59:00Z")),
            ("unschedulable for a moment", InProgress, pending("2025-12-31T23:59:55Z")),
            (
                "running",
                InProgress,
                json!({"status": {"phase": "Running", "conditions": conditions(&[("Ready", "False", "")])}}),
            ),
            (
                "ready",
                Current,
                json!({"status": {"phase": "Running", "conditions": conditions(&[("Ready", "True", "")])}}),
            ),
            ("running, and nothing said", InProgress, json!({"status": {"phase": "Running"}})),
            (
                "a first container crashes",
                Failed,
                json!({"status": {"phase": "Pending", "initContainerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
            ),
            (
                "an image to come",
                InProgress,
                json!({"status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}}),
            ),
            ("done", Current, json!({"status": {"phase": "Succeeded"}})),
            ("failed", Failed, json!({"status": {"phase": "Failed"}})),
            (
                "crashing",
                Failed,
                json!({"status": {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
            ),
        ],
    );
}

#[test]
fn a_pod_without_a_phase_has_an_unknown_phase() {
    let health = assess(&json!({"apiVersion": "v1", "kind": "Pod"}), now());
    assert_eq!((health.status, health.message.as_str()), (InProgress, "the phase of the Pod is unknown"));
}

#[test]
fn jobs() {
    check(
        "batch/v1",
        "Job",
        &[
            ("new", InProgress, json!({})),
            ("running", InProgress, json!({"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}})),
            (
                "about to fail",
                InProgress,
                json!({"status": {"startTime": "2026-01-01T00:00:00Z", "conditions": conditions(&[("FailureTarget", "True", "")])}}),
            ),
            (
                "resumed",
                InProgress,
                json!({"status": {"startTime": "2026-01-01T00:00:00Z", "conditions": conditions(&[("Suspended", "False", "JobResumed")])}}),
            ),
            ("complete", Current, json!({"status": {"conditions": conditions(&[("Complete", "True", "")])}})),
            (
                "failed",
                Failed,
                json!({"status": {"conditions": conditions(&[("Failed", "True", "BackoffLimitExceeded")])}}),
            ),
            (
                "suspended",
                Current,
                json!({"spec": {"suspend": true}, "status": {"conditions": conditions(&[("Suspended", "True", "")])}}),
            ),
        ],
    );
    check("batch/v1", "CronJob", &[("any", Current, json!({"status": {}}))]);
}

#[test]
fn a_pod_that_no_node_takes_becomes_a_failure_without_any_event() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "2025-12-31T23:59:50Z"},
        "status": {"phase": "Pending", "conditions": conditions(&[("PodScheduled", "False", "Unschedulable")])}});
    let health = assess(&pod, now());
    assert_eq!(health.status, InProgress);
    let from = health.failed_from.unwrap();
    assert_eq!(from.to_string(), "2026-01-01T00:00:05Z");
    let later = assess(&pod, from);
    assert_eq!((later.status, later.failed_from), (Failed, Some(from)));
}

#[test]
fn only_a_job_that_succeeded_and_goes_by_itself_is_finished() {
    let job = |ttl: Value, condition: &str| {
        is_finished(
            &json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"ttlSecondsAfterFinished": ttl},
            "status": {"conditions": conditions(&[(condition, "True", "")])}}),
        )
    };
    assert!(job(json!(0), "Complete"));
    assert!(!job(json!(null), "Complete") && !job(json!(10), "Failed"));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"ttlSecondsAfterFinished": 1},
        "status": {"conditions": conditions(&[("Complete", "True", "")])}});
    assert!(!is_finished(&pod));
}

#![allow(clippy::needless_pass_by_value)]

use serde_json::json;

use super::HealthStatus::{Current, Failed, InProgress, Terminating};
use super::*;

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
            (
                "paused",
                Current,
                deployment(json!({"spec": {"paused": true}, "status": {"updatedReplicas": 0}})),
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
                "on delete",
                Current,
                of(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}, "status": {"readyReplicas": 0}})),
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
fn replica_sets_and_budgets() {
    let full = json!({"spec": {"replicas": 1}, "status": {"replicas": 1, "fullyLabeledReplicas": 1, "availableReplicas": 1, "readyReplicas": 1}});
    check(
        "apps/v1",
        "ReplicaSet",
        &[
            ("all there", Current, full.clone()),
            ("none", InProgress, json!({"spec": {"replicas": 1}})),
            (
                "failure",
                InProgress,
                json!({"spec": {"replicas": 0}, "status": {"conditions": conditions(&[("ReplicaFailure", "True", "Quota")])}}),
            ),
        ],
    );
    check(
        "policy/v1",
        "PodDisruptionBudget",
        &[
            ("new", InProgress, json!({"metadata": {"generation": 1}})),
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
fn jobs() {
    check(
        "batch/v1",
        "Job",
        &[
            ("new", InProgress, json!({})),
            ("running", InProgress, json!({"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}})),
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
fn storage_and_services() {
    let claim = |phase: &str| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": phase}});
    check(
        "v1",
        "PersistentVolumeClaim",
        &[
            ("bound", Current, claim("Bound")),
            ("pending", InProgress, claim("Pending")),
            ("lost", Failed, claim("Lost")),
        ],
    );
    let balancer = |more: Value| {
        let mut object = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}});
        json_patch::merge(&mut object, &more);
        object
    };
    check(
        "v1",
        "Service",
        &[
            ("cluster IP", Current, json!({"spec": {"type": "ClusterIP"}})),
            ("external name", Current, json!({"spec": {"type": "ExternalName"}})),
            ("no cluster IP", InProgress, balancer(json!({"spec": {"clusterIP": ""}}))),
            ("no address", InProgress, balancer(json!({}))),
            ("external IP", Current, balancer(json!({"spec": {"externalIPs": ["1.2.3.4"]}}))),
            (
                "address",
                Current,
                balancer(json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})),
            ),
        ],
    );
}

#[test]
fn what_the_api_itself_is_made_of() {
    let of = |all: &[(&str, &str, &str)]| json!({"status": {"conditions": conditions(all)}});
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[
            ("new", InProgress, json!({})),
            ("established", Current, of(&[("NamesAccepted", "True", ""), ("Established", "True", "")])),
            ("installing", InProgress, of(&[("Established", "False", "Installing")])),
            ("names", Failed, of(&[("NamesAccepted", "False", "Conflict"), ("Established", "True", "")])),
            ("other", Failed, of(&[("Established", "False", "NotAccepted")])),
        ],
    );
    check(
        "apiregistration.k8s.io/v1",
        "APIService",
        &[
            ("new", InProgress, json!({})),
            ("down", InProgress, of(&[("Available", "False", "MissingEndpoints")])),
            ("up", Current, of(&[("Available", "True", "")])),
        ],
    );
    check(
        "v1",
        "Namespace",
        &[
            ("active", Current, json!({"status": {"phase": "Active"}})),
            ("terminating", InProgress, json!({"status": {"phase": "Terminating"}})),
        ],
    );
    check(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        &[
            ("new", InProgress, json!({})),
            ("accepted", InProgress, of(&[("Accepted", "True", ""), ("Programmed", "False", "Pending")])),
            ("programmed", Current, of(&[("Accepted", "True", ""), ("Programmed", "True", "")])),
        ],
    );
    let hook = |bundle: &str, annotated: bool| {
        let annotations =
            if annotated { json!({"cert-manager.io/inject-ca-from": "n/c"}) } else { json!({}) };
        json!({"metadata": {"annotations": annotations}, "webhooks": [{"name": "a.x.io", "clientConfig": {"caBundle": bundle}}]})
    };
    check(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        &[
            ("no CA is meant", Current, hook("", false)),
            ("CA to come", InProgress, hook("", true)),
            ("CA there", Current, hook("Q0E=", true)),
        ],
    );
    check("v1", "ConfigMap", &[("any", Current, json!({}))]);
    check("rbac.authorization.k8s.io/v1", "Role", &[("any", Current, json!({}))]);
}

#[test]
fn the_worst_decides() {
    let of = |status| Health { status, message: String::new() };
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

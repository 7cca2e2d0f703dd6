//! Kinds that keep a number of Pods running.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kyma_health::HealthStatus::{Current, Failed, InProgress};
use serde_json::{Value, json};

use super::{Bare, Row, conditions, row};

pub(super) fn workload(kind: &str, spec: &Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "x"}]}});
    let mut whole = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    json_patch::merge(&mut whole, spec);
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"generateName": "row-"}, "spec": whole})
}

/// Returns the status with this change.
fn but(status: &Value, change: &Value) -> Value {
    let mut status = status.clone();
    json_patch::merge(&mut status, change);
    status
}

/// Returns the status of a Deployment whose replicas are all available.
fn deployed(replicas: i64) -> Value {
    json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": conditions(&[("Available", "True", "MinimumReplicasAvailable"), ("Progressing", "True", "NewReplicaSetAvailable")])})
}

fn deployments() -> Vec<Row> {
    let of = |spec: Value| workload("Deployment", &spec);
    let all = |replicas: i64, more: Value| but(&deployed(replicas), &more);
    vec![
        row("a new Deployment", &of(json!({})), json!(null), InProgress),
        row("replicas are defaulted to 1", &of(json!({})), all(1, json!({})), Current),
        row("of an older generation", &of(json!({})), all(1, json!({"observedGeneration": 7})), InProgress),
        row("0 are wished", &of(json!({"replicas": 0})), json!({"observedGeneration": 1}), Current),
        row("too few", &of(json!({"replicas": 2})), all(1, json!({})), InProgress)
            .saying("1 of 2 replicas created"),
        row("not updated", &of(json!({"replicas": 2})), all(2, json!({"updatedReplicas": 1})), InProgress)
            .saying("1 of 2 replicas updated"),
        row(
            "old ones remain",
            &of(json!({"replicas": 1})),
            all(2, json!({"updatedReplicas": 1})),
            InProgress,
        )
        .saying("1 old replicas remain"),
        row(
            "not available",
            &of(json!({"replicas": 2})),
            all(2, json!({"availableReplicas": 1})),
            InProgress,
        )
        .saying("1 of 2 replicas available"),
        row(
            "neither ready nor available",
            &of(json!({"replicas": 2})),
            all(2, json!({"readyReplicas": 1, "availableReplicas": 1})),
            InProgress,
        )
        .saying("1 of 2 replicas available"),
        row("paused", &of(json!({"paused": true})), all(1, json!({"updatedReplicas": 0})), Current),
        row(
            "paused from the start",
            &of(json!({"paused": true})),
            json!({"observedGeneration": 1}),
            InProgress,
        )
        .saying("0 of 1 replicas ready while it is paused"),
    ]
}

/// Returns rows about a Deployment's condition Progressing.
fn progress() -> Vec<Row> {
    let of = |spec: Value| workload("Deployment", &spec);
    let with = |all: &[(&str, &str, &str)]| but(&deployed(1), &json!({"conditions": conditions(all)}));
    let stands = |reason: &str| with(&[("Available", "True", ""), ("Progressing", "False", reason)]);
    vec![
        row("the deadline is defaulted", &of(json!({})), stands("ReplicaSetUpdated"), InProgress)
            .saying("Progressing is False: ReplicaSetUpdated"),
        row("past the deadline", &of(json!({})), stands("ProgressDeadlineExceeded"), Failed),
        row(
            "no deadline",
            &of(json!({"progressDeadlineSeconds": i32::MAX})),
            stands("ReplicaSetUpdated"),
            Current,
        ),
        row(
            "unavailable",
            &of(json!({})),
            with(&[("Available", "False", "MinimumReplicasUnavailable")]),
            InProgress,
        )
        .saying("Available is False: MinimumReplicasUnavailable"),
        row("nothing said", &of(json!({})), with(&[]), InProgress),
    ]
}

fn replica_sets() -> Vec<Row> {
    let set = workload("ReplicaSet", &json!({"replicas": 2}));
    let up = json!({"observedGeneration": 1, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2});
    let cannot = json!({"replicas": 0, "observedGeneration": 1, "conditions": conditions(&[("ReplicaFailure", "True", "FailedCreate")])});
    vec![
        row("a new ReplicaSet", &set, json!(null), InProgress),
        row("up", &set, up.clone(), Current),
        row("not labelled", &set, but(&up, &json!({"fullyLabeledReplicas": 1})), InProgress)
            .saying("1 of 2 replicas labelled"),
        row("not available", &set, but(&up, &json!({"availableReplicas": 1})), InProgress)
            .saying("1 of 2 replicas available"),
        row(
            "neither ready nor available",
            &set,
            but(&up, &json!({"readyReplicas": 1, "availableReplicas": 1})),
            InProgress,
        )
        .saying("1 of 2 replicas available"),
        row("surplus", &set, but(&up, &json!({"replicas": 3})), InProgress).saying("surplus replicas remain"),
        row("cannot make Pods", &set, cannot, InProgress).saying("ReplicaFailure is True: FailedCreate"),
    ]
}

fn stateful_sets() -> Vec<Row> {
    let of = |spec: Value| workload("StatefulSet", &spec);
    let two = of(json!({"replicas": 2}));
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let partition = of(json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}}));
    let settled = json!({"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
        "currentRevision": "a", "updateRevision": "a"});
    let updating = |updated: i64| {
        let change =
            json!({"currentReplicas": 2 - updated, "updatedReplicas": updated, "updateRevision": "b"});
        but(&settled, &change)
    };
    let on_delete_settled = json!({"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "currentReplicas": 1,
        "currentRevision": "a", "updateRevision": "b"});
    vec![
        row("a new StatefulSet", &two, json!(null), InProgress),
        row("settled, partition defaulted", &two, settled.clone(), Current),
        row("too few", &of(json!({"replicas": 3})), settled.clone(), InProgress)
            .saying("2 of 3 replicas created"),
        row("not ready", &two, but(&settled, &json!({"readyReplicas": 1})), InProgress)
            .saying("1 of 2 replicas ready"),
        row("surplus", &of(json!({"replicas": 1})), settled.clone(), InProgress)
            .saying("1 surplus replicas remain"),
        row("of the old revision", &two, but(&settled, &json!({"currentReplicas": 1})), InProgress)
            .saying("1 of 2 replicas of the current revision"),
        row("in an update, partition defaulted", &two, updating(1), InProgress)
            .saying("the rolling update is not finished"),
        row("as far as its partition", &partition, updating(1), Current),
        row("not as far as its partition", &partition, updating(0), InProgress)
            .saying("0 of 1 replicas updated"),
        row("OnDelete, never started", &of(on_delete.clone()), json!({"replicas": 1}), InProgress),
        row("OnDelete, of the earlier revision", &of(on_delete), on_delete_settled, Current),
    ]
}

fn daemon_sets() -> Vec<Row> {
    let daemon = workload("DaemonSet", &json!({}));
    let on_delete = workload("DaemonSet", &json!({"updateStrategy": {"type": "OnDelete"}}));
    let nodes = |change: Value| {
        let all = json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0,
            "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2});
        but(&all, &change)
    };
    vec![
        row("a new DaemonSet", &daemon, json!(null), InProgress),
        row("on all nodes", &daemon, nodes(json!({})), Current),
        row("not scheduled", &daemon, nodes(json!({"currentNumberScheduled": 1})), InProgress)
            .saying("1 of 2 replicas scheduled"),
        row("in an update", &daemon, nodes(json!({"updatedNumberScheduled": 1})), InProgress)
            .saying("1 of 2 replicas updated"),
        row("not available", &daemon, nodes(json!({"numberAvailable": 1})), InProgress)
            .saying("1 of 2 replicas available"),
        row("not ready", &daemon, nodes(json!({"numberReady": 1})), InProgress)
            .saying("1 of 2 replicas ready"),
        row("OnDelete, not updated", &on_delete, nodes(json!({"updatedNumberScheduled": 1})), Current),
        row("OnDelete, not available", &on_delete, nodes(json!({"numberAvailable": 1})), InProgress),
    ]
}

#[tokio::test]
async fn workloads_are_as_their_status_says() -> Result<()> {
    let bare = Bare::start().await?;
    for rows in [deployments(), progress(), replica_sets(), stateful_sets(), daemon_sets()] {
        bare.check_all(rows).await?;
    }
    Ok(())
}

/// So the rule for replicas that are available and not ready cannot be tested on a server.
#[tokio::test]
async fn no_server_accepts_more_available_than_ready_replicas() -> Result<()> {
    let bare = Bare::start().await?;
    for kind in ["Deployment", "ReplicaSet"] {
        let object = workload(kind, &json!({"replicas": 2}));
        let name = bare.create(&object).await?.name_any();
        let status =
            json!({"observedGeneration": 1, "replicas": 2, "readyReplicas": 1, "availableReplicas": 2});
        let patch = Patch::Merge(json!({"status": status}));
        let written = bare.api(&object).await?.patch_status(&name, &PatchParams::default(), &patch).await;
        let refused = written.err().with_context(|| format!("{kind}: it was taken"))?;
        let is_that = |message: &str| message.contains("cannot be greater than readyReplicas");
        let told =
            matches!(&refused, kube::Error::Api(status) if status.code == 422 && is_that(&status.message));
        ensure!(told, "{kind}: {refused}");
    }
    Ok(())
}

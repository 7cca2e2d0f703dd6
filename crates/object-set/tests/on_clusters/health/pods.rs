//! Pods, and kinds that run Pods to completion.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kyma_health::HealthStatus::{Current, Failed, InProgress};
use serde_json::{Value, json};

use super::{Bare, Row, START_TIME, conditions, row};

fn pods_and_jobs() -> Vec<Row> {
    let containers = json!([{"name": "main", "image": "x"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "row-"}, "spec": {"containers": containers}});
    let job = |more: Value| {
        let mut spec = json!({"template": {"spec": {"restartPolicy": "Never", "containers": containers}}});
        json_patch::merge(&mut spec, &more);
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "row-"}, "spec": spec})
    };
    let running =
        |ready: &str| json!({"phase": "Running", "conditions": conditions(&[("Ready", ready, "")])});
    let crashing = json!({"phase": "Running", "containerStatuses": [{"name": "main", "image": "x", "imageID": "x", "ready": false,
        "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    let ended = |kinds: [&str; 2], done: Value| {
        let mut status = json!({"startTime": START_TIME, "conditions": conditions(&[(kinds[0], "True", "x"), (kinds[1], "True", "x")])});
        json_patch::merge(&mut status, &done);
        status
    };
    let done = json!({"completionTime": START_TIME, "succeeded": 1});
    let work = job(json!({}))["spec"].clone();
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"generateName": "row-"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": work}}});
    vec![
        row("phase is defaulted to Pending", &pod, json!(null), InProgress),
        row("not ready", &pod, running("False"), InProgress),
        row("ready", &pod, running("True"), Current),
        row("crashing", &pod, crashing, Failed),
        row("succeeded", &pod, json!({"phase": "Succeeded"}), Current),
        row("failed", &pod, json!({"phase": "Failed"}), Failed),
        row("a new Job", &job(json!({})), json!(null), InProgress),
        row("at work", &job(json!({})), json!({"startTime": START_TIME, "active": 1}), InProgress),
        row("complete", &job(json!({})), ended(["SuccessCriteriaMet", "Complete"], done), Current),
        row("gone wrong", &job(json!({})), ended(["FailureTarget", "Failed"], json!({"failed": 1})), Failed),
        row("suspended", &job(json!({"suspend": true})), json!(null), Current),
        row("a new CronJob", &cron, json!(null), Current),
        row(
            "a CronJob whose Job runs",
            &cron,
            json!({"lastScheduleTime": START_TIME, "active": [{"name": "a"}]}),
            Current,
        ),
    ]
}

#[tokio::test]
async fn pods_and_jobs_are_as_their_status_says() -> Result<()> {
    Bare::start().await?.check_all(pods_and_jobs()).await
}

#[tokio::test]
async fn a_pod_that_no_node_takes_fails_after_a_while() -> Result<()> {
    let bare = Bare::start().await?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "row-"}, "spec": {"containers": [{"name": "main", "image": "x"}]}});
    let status = json!({"conditions": conditions(&[("PodScheduled", "False", "Unschedulable")])});
    let pod = bare.with_status(&pod, &status).await?;
    let created: Timestamp = pod["metadata"]["creationTimestamp"].as_str().context("created")?.parse()?;
    let early = kyma_health::assess(&pod, created);
    assert_eq!(early.status, InProgress);
    let from = early.failed_from.context("a moment")?;
    assert_eq!(Duration::try_from(from.duration_since(created))?, Duration::from_secs(15));
    assert_eq!(kyma_health::assess(&pod, from).status, Failed);
    Ok(())
}

#[tokio::test]
async fn only_a_job_with_a_ttl_counts_as_finished() -> Result<()> {
    let bare = Bare::start().await?;
    for (ttl, finished) in [(json!(5), true), (json!(null), false)] {
        let spec = json!({"ttlSecondsAfterFinished": ttl,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "row-"}, "spec": spec});
        assert!(!kyma_health::is_finished(&bare.with_status(&job, &json!(null)).await?));
        let status = json!({"startTime": START_TIME, "completionTime": START_TIME, "succeeded": 1,
            "conditions": conditions(&[("SuccessCriteriaMet", "True", "x"), ("Complete", "True", "x")])});
        assert_eq!(kyma_health::is_finished(&bare.with_status(&job, &status).await?), finished);
    }
    Ok(())
}

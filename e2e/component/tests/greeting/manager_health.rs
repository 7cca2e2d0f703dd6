//! The driver judges the workload that `spec.manager` names, and the state of the component follows.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use kyma_sdk::api::State;
use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher, ScriptedServer, until};

use crate::stage::{DEADLINE, Stage};

/// Spec of a greeting whose manager is a workload of this kind and name, in the target namespace.
fn managed_by(kind: &str, name: &str) -> Value {
    let manager =
        json!({"group": "apps", "version": "v1", "kind": kind, "name": name, "namespace": "kyma-system"});
    json!({"text": "Hello", "manager": manager})
}

/// State that the Pods of a Deployment reach.
#[derive(Clone, Copy)]
enum Pods {
    Running,
    /// No node takes them.
    Pending,
    /// No node takes them, and the Deployment gives up after a second.
    GivenUp,
}

async fn apply_manager(stage: &Stage, name: &str, pods: Pods) -> Result<()> {
    let labels = json!({"app.kubernetes.io/name": name});
    let nodes = match pods {
        Pods::Running => json!({}),
        Pods::Pending => json!({"example.org/node": "none"}),
        Pods::GivenUp => json!({"example.org/node": "absent"}),
    };
    let deadline = if matches!(pods, Pods::GivenUp) { 1 } else { 600 };
    let containers = json!([{"name": "manager", "image": "registry.example.com/manager:1.0.0"}]);
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "progressDeadlineSeconds": deadline,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": nodes, "containers": containers},
            },
        },
    });
    let deployments = stage.on_target::<Deployment>()?;
    deployments.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&deployment)).await?;
    Ok(())
}

async fn delete_manager(stage: &Stage, name: &str) -> Result<()> {
    stage.on_target::<Deployment>()?.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until Ready says these words, and returns the state.
async fn state_that_says(stage: &Stage, name: &str, words: &str) -> Result<Option<State>> {
    Ok(stage.until_ready_says(name, words).await?.status.and_then(|status| status.state))
}

#[tokio::test]
async fn the_state_follows_the_health_of_the_manager() -> Result<()> {
    let stage = Stage::new("manager-health").await?;
    stage.create("led", managed_by("Deployment", "led-manager")).await?;
    let absent = "waiting for Deployment.apps kyma-system/led-manager (it does not exist)";
    assert_eq!(state_that_says(&stage, "led", absent).await?, Some(State::Processing));
    stage.ensure_target_namespace().await?;
    apply_manager(&stage, "led-manager", Pods::Pending).await?;
    let pending = "Deployment.apps kyma-system/led-manager (0 of 1 replicas available)";
    assert_eq!(state_that_says(&stage, "led", pending).await?, Some(State::Processing));
    apply_manager(&stage, "led-manager", Pods::Running).await?;
    stage.until_state("led", State::Ready).await?;
    stage.until_settled("led").await?;

    let (hub, target) = (stage.hub.audit()?.mark()?, stage.target.audit()?.mark()?);
    stage.annotate("led", "example.org/look", "again").await?;
    until("the manager is read again", DEADLINE, || async {
        let reads = stage.reads_on_target(target)?;
        Ok(reads.iter().any(|read| read.verb == "list" && read.resource == "deployments").then_some(()))
    })
    .await?;
    stage.until_settled("led").await?;
    assert_eq!((stage.writes_on_hub(hub)?, stage.writes_on_target(target)?), (vec![], vec![]));

    // A new Deployment: with Recreate, the rollout of an existing one has no progress deadline if the deployment
    // controller's status update after the creation of the ReplicaSet meets a conflict.
    delete_manager(&stage, "led-manager").await?;
    apply_manager(&stage, "led-manager", Pods::GivenUp).await?;
    let failed = "Deployment.apps kyma-system/led-manager (the progress deadline is exceeded)";
    let waiting = format!("waiting for {failed}");
    assert_eq!(state_that_says(&stage, "led", &waiting).await?, Some(State::Processing));
    // A failure counts once it has lasted for half a minute.
    let unhealthy = stage.until_state("led", State::Error).await?;
    let conditions = unhealthy.status.unwrap_or_default().conditions;
    let ready = conditions.iter().find(|one| one.type_ == "Ready");
    let said = ready.map(|ready| (ready.reason.as_str(), ready.message.as_str()));
    assert_eq!(said, Some(("Unhealthy", failed)));
    apply_manager(&stage, "led-manager", Pods::Running).await?;
    stage.until_state("led", State::Ready).await?;
    delete_manager(&stage, "led-manager").await?;
    assert_eq!(state_that_says(&stage, "led", absent).await?, Some(State::Processing));
    stage.stop().await
}

#[tokio::test]
async fn a_missing_right_and_a_missing_kind_of_the_manager_are_named() -> Result<()> {
    let stage = Stage::new("manager-denied").await?;
    stage.create("denied", managed_by("StatefulSet", "denied-manager")).await?;
    let right = "needs list and watch on StatefulSet.apps";
    assert_eq!(state_that_says(&stage, "denied", right).await?, Some(State::Warning));
    stage.until_ready_says("denied", "TargetForbidden").await?;
    let chime = json!({"manager": {"group": "chimes.example.org", "kind": "Chime"}});
    stage.change("denied", chime).await?;
    let kind = "waiting for the kind Chime.chimes.example.org of spec.manager";
    assert_eq!(state_that_says(&stage, "denied", kind).await?, Some(State::Processing));
    stage.change("denied", json!({"manager": null})).await?;
    stage.until_state("denied", State::Ready).await?;
    stage.stop().await
}

#[tokio::test]
async fn a_manager_that_cannot_be_read_leaves_its_component_ready() -> Result<()> {
    let stage = Stage::without_access("manager-unread").await?;
    let server = ScriptedServer::in_front_of(&stage.target).await?;
    stage.put_access(&server.access_of(&stage.user().await?).kubeconfig()).await?;
    stage.ensure_target_namespace().await?;
    apply_manager(&stage, "unread-manager", Pods::Running).await?;
    stage.create("unread", managed_by("Deployment", "unread-manager")).await?;
    stage.until_state("unread", State::Ready).await?;
    stage.until_settled("unread").await?;

    let reads =
        RequestMatcher::path("/apis/apps/v1/namespaces/kyma-system/deployments").query("unread-manager");
    server.always(reads.clone(), Answer::failure(503, "ServiceUnavailable", "away"));
    let (before, hub) = (server.count(&reads), stage.hub.audit()?.mark()?);
    stage.annotate("unread", "example.org/look", "again").await?;
    server.wait_for(before + 1, &reads, DEADLINE).await?;
    let settled = stage.until_settled("unread").await?;
    assert_eq!(settled.status.and_then(|status| status.state), Some(State::Ready));
    assert_eq!(stage.writes_on_hub(hub)?, []);

    server.clear();
    delete_manager(&stage, "unread-manager").await?;
    let absent = "Deployment.apps kyma-system/unread-manager (it does not exist)";
    assert_eq!(state_that_says(&stage, "unread", absent).await?, Some(State::Processing));
    stage.stop().await
}

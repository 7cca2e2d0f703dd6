//! The driver derives the state of the component from the workload that `spec.manager` names.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use kyma_sdk::api::State;
use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher, ScriptedServer, until};

use crate::fixture::{DEADLINE, Fixture};

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

async fn apply_manager(fixture: &Fixture, name: &str, pods: Pods) -> Result<()> {
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
    let deployments = fixture.on_target::<Deployment>()?;
    deployments.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&deployment)).await?;
    Ok(())
}

async fn delete_manager(fixture: &Fixture, name: &str) -> Result<()> {
    fixture.on_target::<Deployment>()?.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until the message of Ready contains these words, and returns the state.
async fn state_that_says(fixture: &Fixture, name: &str, words: &str) -> Result<Option<State>> {
    Ok(fixture.until_ready_says(name, words).await?.status.and_then(|status| status.state))
}

#[tokio::test]
async fn the_state_follows_the_health_of_the_manager() -> Result<()> {
    let fixture = Fixture::new("manager-health").await?;
    fixture.create("led", managed_by("Deployment", "led-manager")).await?;
    let absent = "waiting for Deployment.apps kyma-system/led-manager (it does not exist)";
    assert_eq!(state_that_says(&fixture, "led", absent).await?, Some(State::Processing));
    fixture.ensure_target_namespace().await?;
    apply_manager(&fixture, "led-manager", Pods::Pending).await?;
    let pending = "Deployment.apps kyma-system/led-manager (0 of 1 replicas available)";
    assert_eq!(state_that_says(&fixture, "led", pending).await?, Some(State::Processing));
    apply_manager(&fixture, "led-manager", Pods::Running).await?;
    fixture.until_state("led", State::Ready).await?;
    fixture.until_settled("led").await?;

    let (hub, target) = (fixture.hub.audit()?.mark()?, fixture.target.audit()?.mark()?);
    fixture.annotate("led", "example.org/look", "again").await?;
    until("the manager is read again", DEADLINE, || async {
        let reads = fixture.reads_on_target(target)?;
        Ok(reads.iter().any(|read| read.verb == "list" && read.resource == "deployments").then_some(()))
    })
    .await?;
    fixture.until_settled("led").await?;
    assert_eq!((fixture.writes_on_hub(hub)?, fixture.writes_on_target(target)?), (vec![], vec![]));

    // A new Deployment: with Recreate, the rollout of an existing one has no progress deadline if the deployment
    // controller's status update after the creation of the ReplicaSet meets a conflict.
    delete_manager(&fixture, "led-manager").await?;
    apply_manager(&fixture, "led-manager", Pods::GivenUp).await?;
    let failed = "Deployment.apps kyma-system/led-manager (the progress deadline is exceeded)";
    let waiting = format!("waiting for {failed}");
    assert_eq!(state_that_says(&fixture, "led", &waiting).await?, Some(State::Processing));
    // A failure counts once it has lasted for half a minute.
    let unhealthy = fixture.until_state("led", State::Error).await?;
    let conditions = unhealthy.status.unwrap_or_default().conditions;
    let ready = conditions.iter().find(|one| one.type_ == "Ready");
    let reported = ready.map(|ready| (ready.reason.as_str(), ready.message.as_str()));
    assert_eq!(reported, Some(("Unhealthy", failed)));
    apply_manager(&fixture, "led-manager", Pods::Running).await?;
    fixture.until_state("led", State::Ready).await?;
    delete_manager(&fixture, "led-manager").await?;
    assert_eq!(state_that_says(&fixture, "led", absent).await?, Some(State::Processing));
    fixture.stop().await
}

#[tokio::test]
async fn a_missing_right_and_a_missing_kind_of_the_manager_are_named() -> Result<()> {
    let fixture = Fixture::new("manager-denied").await?;
    fixture.create("denied", managed_by("StatefulSet", "denied-manager")).await?;
    let right = "needs list and watch on StatefulSet.apps";
    assert_eq!(state_that_says(&fixture, "denied", right).await?, Some(State::Warning));
    fixture.until_ready_says("denied", "TargetForbidden").await?;
    let chime = json!({"manager": {"group": "chimes.example.org", "kind": "Chime"}});
    fixture.change("denied", chime).await?;
    let kind = "waiting for the kind Chime.chimes.example.org of spec.manager";
    assert_eq!(state_that_says(&fixture, "denied", kind).await?, Some(State::Processing));
    fixture.change("denied", json!({"manager": null})).await?;
    fixture.until_state("denied", State::Ready).await?;
    fixture.stop().await
}

#[tokio::test]
async fn a_manager_that_cannot_be_read_leaves_its_component_ready() -> Result<()> {
    let fixture = Fixture::without_access("manager-unread").await?;
    let server = ScriptedServer::in_front_of(&fixture.target).await?;
    fixture.put_access(&server.access_of(&fixture.user().await?).kubeconfig()).await?;
    fixture.ensure_target_namespace().await?;
    apply_manager(&fixture, "unread-manager", Pods::Running).await?;
    fixture.create("unread", managed_by("Deployment", "unread-manager")).await?;
    fixture.until_state("unread", State::Ready).await?;
    fixture.until_settled("unread").await?;

    let reads =
        RequestMatcher::path("/apis/apps/v1/namespaces/kyma-system/deployments").query("unread-manager");
    server.always(reads.clone(), Answer::failure(503, "ServiceUnavailable", "away"));
    let (before, hub) = (server.count(&reads), fixture.hub.audit()?.mark()?);
    fixture.annotate("unread", "example.org/look", "again").await?;
    server.wait_for(before + 1, &reads, DEADLINE).await?;
    let settled = fixture.until_settled("unread").await?;
    assert_eq!(settled.status.and_then(|status| status.state), Some(State::Ready));
    assert_eq!(fixture.writes_on_hub(hub)?, []);

    server.clear();
    delete_manager(&fixture, "unread-manager").await?;
    let absent = "Deployment.apps kyma-system/unread-manager (it does not exist)";
    assert_eq!(state_that_says(&fixture, "unread", absent).await?, Some(State::Processing));
    fixture.stop().await
}

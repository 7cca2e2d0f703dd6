//! Passes that are interrupted while they send requests: by a Pause, or by the end of the process.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kyma_api::Pause;
use serde_json::{Value, json};
use testbed::{AuditMark, until};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::chart::push;
use crate::hooks::{USER, borrowed, config, level, wished};
use crate::world::{DEADLINE, HUB_NAMESPACE, World, apply_yaml};

const NAME: &str = "cut";
/// Maximum response time of a working webhook on a busy machine.
const ANSWER: Duration = Duration::from_secs(2);

/// Returns a ConfigMap, which is sent first, a workload that changes with it, and a hook that ends at once.
fn files() -> Vec<(String, String)> {
    let hook = "helm.sh/hook: pre-upgrade, helm.sh/hook-delete-policy: before-hook-creation";
    let workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {level: \"{{ .Values.level \
                    }}\"}}\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: \
                    web}}\n    spec: {containers: [{name: main, image: example.org/main:1}]}\n";
    vec![
        config("main", ""),
        config("hook", hook),
        ("templates/workload.yaml".to_owned(), workload.to_owned()),
    ]
}

/// Registers a webhook that makes the target wait for every change of Deployments, until the listener is dropped.
async fn hold_up_deployments(world: &World) -> Result<TcpListener> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "silent.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": 30, "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://{}/", silent.local_addr()?)},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAME}},
            "rules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"],
                "resources": ["deployments"], "scope": "Namespaced",
            }],
        }],
    });
    apply_yaml(&world.target.client()?, &webhook.to_string()).await?;
    until("Deployments are held up", DEADLINE, || async { Ok(is_held_up(world).await?.then_some(())) })
        .await?;
    Ok(silent)
}

async fn is_held_up(world: &World) -> Result<bool> {
    let deployments: Api<Deployment> = Api::namespaced(world.target.client()?, NAME);
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "x"}}}));
    Ok(timeout(ANSWER, deployments.patch("web", &params, &touch)).await.is_err())
}

async fn let_go(world: &World) -> Result<()> {
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(world.target.client()?);
    webhooks.delete(NAME, &DeleteParams::default()).await?;
    until("Deployments are held up no more", DEADLINE, || async {
        Ok((!is_held_up(world).await?).then_some(()))
    })
    .await
}

async fn until_level(world: &World, wanted: &str) -> Result<()> {
    until(&format!("the setting is {wanted}"), DEADLINE, || async {
        Ok((level(world, NAME).await? == Some(json!(wanted))).then_some(()))
    })
    .await
}

/// Creates a Pause, and waits until the current pass has ended.
async fn pause(world: &World) -> Result<()> {
    let pauses: Api<Pause> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let pause = serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": {}}))?;
    pauses.create(&PostParams::default(), &pause).await?;
    world.ready(NAME, "Unknown", "Paused").await?;
    Ok(())
}

/// Applies this level and interrupts the pass once the ConfigMap is sent and the workload is not.
async fn send_in_part(world: &World, source: &Value, level: &str) -> Result<()> {
    let silent = hold_up_deployments(world).await?;
    world.apply(NAME, wished(source, NAME, level)).await?;
    until_level(world, level).await?;
    pause(world).await?;
    drop(silent);
    let_go(world).await
}

async fn go_on(world: &World) -> Result<()> {
    let pauses: Api<Pause> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    pauses.delete(NAME, &DeleteParams::default()).await?;
    world.ready(NAME, "True", "Ready").await?;
    Ok(())
}

fn hooks_created(world: &World, mark: AuditMark) -> Result<usize> {
    let events = world.target.audit()?.since(mark)?;
    let is_hook = |event: &&testbed::AuditEvent| {
        event.namespace == NAME && event.name == "hook" && event.user == USER && event.code == 201
    };
    Ok(events.iter().filter(is_hook).count())
}

#[tokio::test]
async fn what_a_pass_sent_that_was_cut_off_is_known_to_the_next() -> Result<()> {
    let mut world = World::start().await?;
    let source = push(&world, NAME, "1.0.0", &borrowed(&files())).await?;
    world.apply(NAME, wished(&source, NAME, "low")).await?;
    world.ready(NAME, "True", "Ready").await?;
    goes_on_with_the_hooks_that_ran(&world, &source).await?;
    takes_back_what_was_sent(&world, &source).await?;
    takes_back_what_another_process_sent(&mut world, &source).await
}

async fn goes_on_with_the_hooks_that_ran(world: &World, source: &Value) -> Result<()> {
    let mark = world.target.audit()?.mark()?;
    send_in_part(world, source, "high").await?;
    go_on(world).await?;
    assert_eq!(hooks_created(world, mark)?, 1, "it ran before the pass was cut off");
    Ok(())
}

async fn takes_back_what_was_sent(world: &World, source: &Value) -> Result<()> {
    send_in_part(world, source, "higher").await?;
    world.apply(NAME, wished(source, NAME, "high")).await?;
    go_on(world).await?;
    assert_eq!(level(world, NAME).await?, Some(json!("high")), "and not what is nobody's wish any more");
    Ok(())
}

async fn takes_back_what_another_process_sent(world: &mut World, source: &Value) -> Result<()> {
    let silent = hold_up_deployments(world).await?;
    world.apply(NAME, wished(source, NAME, "highest")).await?;
    until_level(world, "highest").await?;
    // Otherwise the process would receive the change before it ends.
    world.operator.freeze()?;
    world.apply(NAME, wished(source, NAME, "high")).await?;
    world.restart_operator().await?;
    drop(silent);
    let_go(world).await?;
    world.ready(NAME, "True", "Ready").await?;
    assert_eq!(level(world, NAME).await?, Some(json!("high")), "and not what is nobody's wish any more");
    Ok(())
}

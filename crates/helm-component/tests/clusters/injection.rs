//! Content of the hub's Secrets that is injected into a module's own, and the image-pull Secret of its workloads.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kyma_api::labels;
use serde_json::{Value, json};
use testbed::until;

use crate::world::{DEADLINE, HUB_NAMESPACE, PULL_SECRET, World, ready_of, world};

/// Key in the Secrets.
pub(crate) const KEY: &str = ".dockerconfigjson";

/// Returns two Secrets, one of which requests content of the hub's, and a workload.
pub(crate) fn manifest(secret: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Secret
type: kubernetes.io/dockerconfigjson
metadata: {{name: {secret}, annotations: {{operator.kyma-project.io/inject-data-from-kcp: "true"}}}}
stringData: {{{KEY}: '{{"auths": {{}}}}'}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/dockerconfigjson
metadata: {{name: own}}
stringData: {{{KEY}: '{{"auths": {{}}}}'}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: operator}}
spec:
  selector: {{matchLabels: {{app: operator}}}}
  template:
    metadata: {{labels: {{app: operator}}}}
    spec: {{containers: [{{name: main, image: 'example.org/main:1'}}]}}
"#
    )
}

pub(crate) fn docker_config(password: &str) -> String {
    json!({"auths": {"registry.example": {"username": "u", "password": password}}}).to_string()
}

fn on_hub(world: &World) -> Result<Api<Secret>> {
    Ok(Api::namespaced(world.hub.client()?, HUB_NAMESPACE))
}

pub(crate) async fn create(world: &World, name: &str, module: &str, content: &str) -> Result<()> {
    let mut secret = Secret { type_: Some("kubernetes.io/dockerconfigjson".to_owned()), ..Secret::default() };
    let labels = [(labels::MODULE_NAME, module), (labels::COPY_TO_TARGETS, "true")];
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.labels =
        Some(labels.into_iter().map(|(label, value)| (label.to_owned(), value.to_owned())).collect());
    secret.data = Some(BTreeMap::from([(KEY.to_owned(), ByteString(content.as_bytes().to_vec()))]));
    on_hub(world)?.create(&PostParams::default(), &secret).await?;
    Ok(())
}

pub(crate) async fn change(world: &World, name: &str, change: &Value) -> Result<()> {
    on_hub(world)?.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

async fn content(world: &World, namespace: &str, name: &str) -> Result<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(world.target.client()?, namespace);
    let data = secrets.get_opt(name).await?.and_then(|found| found.data);
    let content = data.and_then(|data| data.get(KEY).map(|content| content.0.clone()));
    Ok(content.map(|content| String::from_utf8_lossy(&content).into_owned()))
}

pub(crate) async fn until_content(world: &World, what: &str, namespace: &str, expected: &str) -> Result<()> {
    until(what, DEADLINE, || async {
        Ok((content(world, namespace, "registry").await?.as_deref() == Some(expected)).then_some(()))
    })
    .await
}

fn module(source: &Value, name: &str) -> Value {
    json!({
        "source": source, "module": {"name": name, "version": "1.0.0"}, "release": {"namespace": name},
    })
}

/// Returns the component, all events of its namespace, and the end of the operator's log.
async fn all_that_is_told(world: &World, name: &str) -> Result<String> {
    let component = serde_json::to_string(&world.components()?.get(name).await?)?;
    let events: Api<Event> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let events = serde_json::to_string(&events.list(&ListParams::default()).await?.items)?;
    Ok(format!("{component}{events}{}", world.operator.log_end(100_000)))
}

#[tokio::test]
async fn e46_deployer_secret_gets_hub_data_and_faults_have_reasons() -> Result<()> {
    let world = world().await?;
    let source = world.push("deployer", "1.0.0", &manifest("registry")).await?;
    world.apply("deployer", module(&source, "deployer")).await?;
    let missing = world.ready("deployer", "False", "CopiedSecretMissing").await?;
    let (_, _, message) = ready_of(&missing).context("Ready")?;
    assert!(message.contains("Secret registry"), "{message}");

    let (first, second) = (docker_config("hush-first"), docker_config("hush-second"));
    create(world, "registry", "deployer", &first).await?;
    until_content(world, "it gets the hub's data", "deployer", &first).await?;
    world.ready("deployer", "True", "Ready").await?;
    assert_eq!(content(world, "deployer", "own").await?.as_deref(), Some(r#"{"auths": {}}"#));
    change(world, "registry", &json!({"stringData": {KEY: second}})).await?;
    until_content(world, "a change on the hub arrives", "deployer", &second).await?;

    let label = |value: Value| json!({"metadata": {"labels": {labels::MODULE_NAME: value}}});
    change(world, "registry", &label(json!("not-deployer"))).await?;
    world.ready("deployer", "False", "InjectionOfOtherModule").await?;
    change(world, "registry", &label(Value::Null)).await?;
    world.ready("deployer", "False", "InjectionWithoutModule").await?;
    let unlabelled =
        json!({"metadata": {"labels": {labels::MODULE_NAME: "deployer", labels::COPY_TO_TARGETS: null}}});
    change(world, "registry", &unlabelled).await?;
    world.ready("deployer", "False", "CopyNotAllowed").await?;
    on_hub(world)?.delete("registry", &DeleteParams::default()).await?;
    world.ready("deployer", "False", "CopiedSecretMissing").await?;
    until_content(world, "what is installed stays", "deployer", &second).await?;
    create(world, "registry", "deployer", &first).await?;
    world.ready("deployer", "True", "Ready").await?;
    until_content(world, "it is noticed when it is back", "deployer", &first).await?;

    let told = all_that_is_told(world, "deployer").await?;
    // Also searches for the base64 forms of the text, at each offset.
    for secret in ["hush", "aHVzaC", "h1c2gt", "odXNoL"] {
        assert!(!told.contains(secret), "{secret} is told");
    }
    Ok(())
}

#[tokio::test]
async fn e47_other_module_keeps_its_data_and_kyma_gets_pull_secret() -> Result<()> {
    let world = world().await?;
    create(world, "guarded", "guarded", &docker_config("hush")).await?;
    let source = world.push("guarded", "1.0.0", &manifest("guarded")).await?;
    world.apply("guarded", module(&source, "guarded")).await?;
    world.ready("guarded", "True", "Ready").await?;
    assert_eq!(content(world, "guarded", "guarded").await?.as_deref(), Some(r#"{"auths": {}}"#));

    let deployments: Api<Deployment> = Api::namespaced(world.target.client()?, "guarded");
    let names = async || -> Result<Vec<String>> {
        let deployment = deployments.get("operator").await?;
        let pod = deployment.spec.and_then(|spec| spec.template.spec).context("a pod")?;
        let told = pod.containers[0].env.iter().flatten().filter_map(|variable| variable.value.clone());
        Ok(pod.image_pull_secrets.iter().flatten().map(|secret| secret.name.clone()).chain(told).collect())
    };
    assert!(names().await?.is_empty(), "no Kyma brings a pull Secret there");
    let owned = json!({"metadata": {"labels": {labels::KYMA_NAME: "test"}}});
    world.components()?.patch("guarded", &PatchParams::default(), &Patch::Merge(&owned)).await?;
    until("the workload has the pull Secret", DEADLINE, || async {
        Ok((names().await? == [PULL_SECRET, PULL_SECRET]).then_some(()))
    })
    .await
}

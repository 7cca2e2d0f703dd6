//! Discovery of an apiserver that shows a new kind later than the kind is served.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use http::Response;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kyma_api::CreatedResource;
use serde_json::{Value, json};
use testbed::{Answer, Body, Cluster, InterceptedRequest, ScriptedServer, until};

use crate::world::{DEADLINE, HUB_NAMESPACE, World, api, world};

const GROUP: &str = "late.example.org";
const NAME: &str = "late-discovery";

const MANIFEST: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: combs.late.example.org}
spec:
  group: late.example.org
  names: {kind: Comb, plural: combs}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Starts a proxy of the cluster whose discovery lacks [`GROUP`] while `lags` is true.
async fn late_discovery(target: &Cluster, lags: &Arc<AtomicBool>) -> Result<ScriptedServer> {
    let lags = Arc::clone(lags);
    let between = move |passing: InterceptedRequest| {
        let is_old = passing.received().path == "/apis" && lags.load(Ordering::Relaxed);
        let answer = async move {
            let answer = passing.onward().await?;
            if is_old { without_group(answer).await } else { Ok(answer) }
        };
        Box::pin(answer) as BoxFuture<'static, io::Result<Response<Body>>>
    };
    ScriptedServer::with(Arc::new(between), target).await
}

async fn without_group(answer: Response<Body>) -> io::Result<Response<Body>> {
    let body = answer.into_body().collect().await?.to_bytes();
    let mut groups: Value = serde_json::from_slice(&body)?;
    let items = groups["items"].as_array_mut().ok_or(io::ErrorKind::InvalidData)?;
    items.retain(|group| group["metadata"]["name"] != GROUP);
    Answer::json(&groups).into_response().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

async fn resource_of(world: &World) -> Result<CreatedResource> {
    let component = world.components()?.get(NAME).await?;
    component.status.and_then(|status| status.resource).context("the default resource is recorded")
}

#[tokio::test]
async fn a_default_resource_is_seen_before_discovery_shows_its_kind() -> Result<()> {
    let world = world().await?;
    let lags = Arc::new(AtomicBool::new(true));
    let proxy = late_discovery(&world.target, &lags).await?;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": NAME, "labels": {"operator.kyma-project.io/kyma-name": "test"}},
        "stringData": {"config": proxy.access().kubeconfig()},
    }))?;
    Api::namespaced(world.hub.client()?, HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {"name": NAME, "namespace": HUB_NAMESPACE},
        "spec": {
            "source": world.push(NAME, "1.0.0", MANIFEST).await?, "release": {"namespace": NAME},
            "resource": {"apiVersion": "late.example.org/v1", "kind": "Comb", "metadata": {"name": "default"}},
            "target": {"kubeconfigSecretRef": {"name": NAME, "key": "config"}},
        },
    });
    world.components()?.patch(NAME, &PatchParams::apply("test"), &Patch::Apply(component)).await?;
    world.ready(NAME, "True", "Ready").await?;
    let made = resource_of(world).await?;
    assert_eq!((made.absent, made.uid.is_some()), (None, true), "it exists");

    lags.store(false, Ordering::Relaxed);
    let (combs, _) = api(&world.target.client()?, "late.example.org/v1", "Comb", Some(NAME)).await?;
    combs.delete("default", &DeleteParams::default()).await?;
    until("the deletion of the default resource is reported", DEADLINE, || async {
        Ok((resource_of(world).await?.absent == Some(true)).then_some(()))
    })
    .await?;
    world.delete(NAME, "Delete").await?;
    world.gone(NAME).await
}

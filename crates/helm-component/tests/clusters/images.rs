//! Images of modules, which are rewritten to the registry to which a component was transferred.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use kube::Api;
use serde_json::json;
use testbed::until;

use crate::world::{DEADLINE, MODULES, World, world};

/// Returns an operator's manifest whose environment names the images to run.
fn manifest(name: &str) -> String {
    format!(
        r"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      initContainers:
      - {{name: init, image: 'origin.example/prod/init:1.0.0'}}
      containers:
      - name: main
        image: origin.example/prod/operator:1.0.0
        env:
        - {{name: WORKER, value: 'origin.example/prod/worker:2.0.0'}}
        - {{name: FLAG, value: '--image=origin.example/prod/worker:2.0.0'}}
"
    )
}

/// Returns the images of init container and container, and the values of the container's environment.
async fn images(world: &World, name: &str) -> Result<Vec<String>> {
    let deployments: Api<Deployment> = Api::namespaced(world.target.client()?, name);
    let deployment = deployments.get(name).await?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("a pod")?;
    let of = |container: &Container| {
        let values = container.env.iter().flatten().filter_map(|variable| variable.value.clone());
        container.image.clone().into_iter().chain(values).collect::<Vec<_>>()
    };
    Ok(pod.init_containers.iter().flatten().chain(&pod.containers).flat_map(of).collect())
}

#[tokio::test]
async fn e40_transferred_component_runs_the_transferred_images() -> Result<()> {
    let world = world().await?;
    let origin = ["origin.example/prod/init:1.0.0", "origin.example/prod/operator:1.0.0"];
    let source = world.push_with_images(MODULES, "ferry", "1.0.0", &manifest("ferry"), &origin).await?;
    let spec = |source: &serde_json::Value| json!({"source": source, "release": {"namespace": "ferry"}});
    world.apply("ferry", spec(&source)).await?;
    let told = "--image=origin.example/prod/worker:2.0.0";
    let at_origin = [origin[0], origin[1], "origin.example/prod/worker:2.0.0", told];
    until("the images of its author", DEADLINE, || async {
        Ok(images(world, "ferry").await.is_ok_and(|images| images == at_origin).then_some(()))
    })
    .await?;

    // A transfer keeps the manifest and rewrites the references of the images.
    let mirror = format!("{}/mirror", world.registry.address());
    let moved: Vec<String> =
        ["init:1.0.0", "operator:1.0.0", "worker:2.0.0"].map(|image| format!("{mirror}/prod/{image}")).into();
    let references: Vec<&str> = moved.iter().map(String::as_str).collect();
    let mut source =
        world.push_with_images("mirror", "ferry", "1.0.0", &manifest("ferry"), &references).await?;
    source["ocm"]["repository"] = json!(mirror);
    world.apply("ferry", spec(&source)).await?;
    let at_mirror = [references.as_slice(), &[told]].concat();
    until("the images that were transferred", DEADLINE, || async {
        Ok((images(world, "ferry").await? == at_mirror).then_some(()))
    })
    .await
}

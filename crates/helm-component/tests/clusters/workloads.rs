//! The state of a module follows its workloads, whatever its custom resource reports.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use kyma_api::{HelmComponent, State};
use serde_json::{Value, json};
use testbed::until;

use crate::world::{DEADLINE, World, api, ready_of, world};

/// Returns a workload, and a CRD whose objects have a status. Pods of outcome `unready` never become ready.
fn manifest(name: &str, workload: &str, version: &str, outcome: &str) -> String {
    let more = if workload == "Deployment" { "progressDeadlineSeconds: 1" } else { "serviceName: none" };
    format!(
        r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: samples.{name}.example.org}}
spec:
  group: {name}.example.org
  names: {{kind: Sample, plural: samples}}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: apps/v1
kind: {workload}
metadata: {{name: {name}, annotations: {{version: {version}}}}}
spec:
  {more}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}, testbed/outcome: {outcome}}}}}
    spec: {{containers: [{{name: main, image: example.org/main:1}}]}}
"
    )
}

async fn wish(world: &World, name: &str, workload: &str, version: &str, outcome: &str) -> Result<()> {
    let source = world.push(name, version, &manifest(name, workload, version, outcome)).await?;
    let mut spec = json!({
        "source": source, "release": {"namespace": name},
        "manager": {"group": "apps", "version": "v1", "kind": workload, "name": name},
        "resource": {
            "apiVersion": format!("{name}.example.org/v1"), "kind": "Sample",
            "metadata": {"name": "default", "finalizers": ["test.example.org/held"]},
        },
    });
    // A StatefulSet never reports a failure itself.
    if workload == "StatefulSet" {
        spec["timeouts"] = json!({"healthSeconds": 2});
    }
    world.apply(name, spec).await
}

/// Waits until the component is in this state in its current generation.
async fn until_in(world: &World, name: &str, state: State) -> Result<HelmComponent> {
    let components = world.components()?;
    until(&format!("{name} is {state}"), DEADLINE, || async {
        let component = components.get(name).await?;
        let held = component.status.as_ref().and_then(|status| status.state);
        Ok((ready_of(&component).is_some() && held == Some(state)).then_some(component))
    })
    .await
}

/// Takes the workload from Ready to its removal, beside a custom resource that always reports Warning. Returns the
/// component's reason while the workload is not ready.
async fn story(name: &str, workload: &str) -> Result<Option<String>> {
    let world = world().await?;
    wish(world, name, workload, "1.0.0", "ready").await?;
    until_in(world, name, State::Ready).await?;
    let (samples, _) =
        api(&world.target.client()?, &format!("{name}.example.org/v1"), "Sample", Some(name)).await?;
    let warning = json!({"status": {"state": "Warning"}});
    samples.patch("default", &PatchParams::default(), &Patch::Merge(warning)).await?;

    wish(world, name, workload, "1.0.1", "ready").await?;
    until_in(world, name, State::Ready).await?;
    wish(world, name, workload, "1.1.0", "unready").await?;
    let broken = until_in(world, name, State::Error).await?;

    world.delete(name, "Delete").await?;
    until_in(world, name, State::Deleting).await?;
    let held = samples.get("default").await?;
    assert_eq!(held.data.pointer("/status/state"), Some(&Value::from("Warning")));
    let free = json!({"metadata": {"finalizers": null}});
    samples.patch("default", &PatchParams::default(), &Patch::Merge(free)).await?;
    world.gone(name).await?;
    assert!(world.on_target("apps/v1", workload, name, name).await?.is_none(), "a broken one goes too");
    Ok(ready_of(&broken).map(|(_, reason, _)| reason))
}

#[tokio::test]
async fn e05_i125_i126_module_has_state_of_deployment_not_of_its_cr() -> Result<()> {
    assert_eq!(story("plum", "Deployment").await?.as_deref(), Some("Unhealthy"));
    Ok(())
}

#[tokio::test]
async fn e04_module_has_state_of_stateful_set_not_of_its_cr() -> Result<()> {
    assert_eq!(story("pear", "StatefulSet").await?.as_deref(), Some("HealthTimeout"));
    Ok(())
}

#[tokio::test]
async fn a_workload_that_is_ignored_holds_nothing_up() -> Result<()> {
    let world = world().await?;
    let source = world.push("quince", "1.0.0", &manifest("quince", "Deployment", "1.0.0", "unready")).await?;
    let mut spec = json!({"source": source, "release": {"namespace": "quince"}});
    world.apply("quince", spec.clone()).await?;
    until_in(world, "quince", State::Error).await?;
    spec["health"] = json!({"ignore": [{"group": "apps", "kind": "Deployment", "name": "quince"}]});
    world.apply("quince", spec).await?;
    until_in(world, "quince", State::Ready).await?;
    Ok(())
}

//! Kinds and API versions that the target no longer serves.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::{crd_is_served, until};

use crate::chart::push;
use crate::depends::says;
use crate::world::{PATIENCE, World, apply_yaml, ready_of, world};

const CONFIG: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {level: \"{{ .Values.level }}\"}\n";

fn crd(plural: &str, kind: &str) -> String {
    let schema = "schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: \
         {plural}.kinds.example.org}}\nspec:\n  group: kinds.example.org\n  names: {{kind: {kind}, plural: {plural}}}\n  \
         scope: Namespaced\n  versions:\n  - {{name: v1, served: true, storage: true, {schema}}}\n  - {{name: v1beta1, \
         served: true, storage: false, {schema}}}\n"
    )
}

fn object(kind: &str, version: &str) -> String {
    format!(
        "apiVersion: kinds.example.org/{version}\nkind: {kind}\nmetadata: {{name: one}}\nspec: {{level: \"{{{{ \
         .Values.level }}}}\"}}\n"
    )
}

fn spec(name: &str, source: &Value, level: &str) -> Value {
    json!({"source": source, "release": {"namespace": name}, "values": {"level": level}})
}

async fn is_there(world: &World, kind: &str, namespace: &str) -> Result<bool> {
    Ok(world.on_target("kinds.example.org/v1", kind, namespace, "one").await?.is_some())
}

#[tokio::test]
async fn an_object_whose_api_version_went_is_remembered_and_goes_with_the_content() -> Result<()> {
    let world = world().await?;
    let target = world.target.client()?;
    let lanterns = "lanterns.kinds.example.org";
    apply_yaml(&target, &crd("lanterns", "Lantern")).await?;
    crd_is_served(&target, lanterns).await?;
    let lantern = object("Lantern", "v1beta1");
    let files = [("templates/config.yaml", CONFIG), ("templates/lantern.yaml", &*lantern)];
    let old = push(world, "dated", "1.0.0", &files).await?;
    world.apply("dated", spec("dated", &old, "low")).await?;
    world.ready("dated", "True", "Ready").await?;

    let crds: Api<CustomResourceDefinition> = Api::all(target.clone());
    let gone = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    let gone: Patch<()> = Patch::Json(serde_json::from_value(gone)?);
    crds.patch(lanterns, &PatchParams::default(), &gone).await?;
    until("the version is no longer served", PATIENCE, || async {
        let served = world.on_target("kinds.example.org/v1beta1", "Lantern", "dated", "one").await;
        Ok(served.is_err().then_some(()))
    })
    .await?;
    world.apply("dated", spec("dated", &old, "high")).await?;
    let message = says(world, "dated", "DependenciesReady", "DependencyMissing").await?;
    assert_eq!(message, "the target does not serve Lantern.kinds.example.org in version v1beta1");
    world.ready("dated", "False", "DependencyMissing").await?;
    assert!(is_there(world, "Lantern", "dated").await?);
    let component = world.components()?.get("dated").await?;
    let record = component.status.context("a status")?.entries()?;
    assert!(record.iter().any(|entry| entry.kind == "Lantern"), "it is still there");

    let without = push(world, "dated", "2.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    world.apply("dated", spec("dated", &without, "high")).await?;
    world.ready("dated", "True", "Ready").await?;
    until("the object is gone", PATIENCE, || async {
        Ok((!is_there(world, "Lantern", "dated").await?).then_some(()))
    })
    .await
}

/// Nobody saw the kind go: what is told, and that its return is noticed, comes from the record alone.
#[tokio::test]
async fn a_kind_that_went_while_nobody_looked_is_missed_and_noticed_when_it_comes_again() -> Result<()> {
    let mut world = World::start().await?;
    let target = world.target.client()?;
    let beacons = "beacons.kinds.example.org";
    apply_yaml(&target, &crd("beacons", "Beacon")).await?;
    crd_is_served(&target, beacons).await?;
    let beacon = object("Beacon", "v1");
    let files = [("templates/config.yaml", CONFIG), ("templates/beacon.yaml", &*beacon)];
    let source = push(&world, "unseen", "1.0.0", &files).await?;
    world.apply("unseen", spec("unseen", &source, "low")).await?;
    world.ready("unseen", "True", "Ready").await?;

    world.operator.kill();
    let crds: Api<CustomResourceDefinition> = Api::all(target.clone());
    crds.delete(beacons, &DeleteParams::default()).await?;
    until("the kind is gone", PATIENCE, || async {
        let served = world.on_target("kinds.example.org/v1", "Beacon", "unseen", "one").await;
        Ok((crds.get_opt(beacons).await?.is_none() && served.is_err()).then_some(()))
    })
    .await?;
    world.restart_operator().await?;
    let missing = says(&world, "unseen", "DependenciesReady", "DependencyMissing").await?;
    assert_eq!(missing, "the target does not serve Beacon.kinds.example.org");
    let component = world.ready("unseen", "False", "DependencyMissing").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert_eq!(message, missing);

    apply_yaml(&target, &crd("beacons", "Beacon")).await?;
    crd_is_served(&target, beacons).await?;
    until("the object is there again", PATIENCE, || async {
        Ok(is_there(&world, "Beacon", "unseen").await?.then_some(()))
    })
    .await?;
    world.ready("unseen", "True", "Ready").await?;
    says(&world, "unseen", "DependenciesReady", "Succeeded").await?;
    Ok(())
}

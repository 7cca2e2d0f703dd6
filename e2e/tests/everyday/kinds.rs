//! Modules whose component is of a kind of its own.

use anyhow::{Context, Result, ensure};
use e2e::landscape::HUB_NAMESPACE;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use kyma_api::{HelmComponent, ModuleTemplate, Reason, names};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::catalogue::{chosen, is_refused, runs};
use crate::row::until;
use crate::world::{World, config_map, row};

#[test]
fn a_component_kind_without_crd_is_waited_for() -> Result<()> {
    row("kind-missing", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        publish(row.world, "greeting", "1.0.0", "demo.kyma-project.io/v1alpha1", "Greeting").await?;
        row.world
            .offer("greeting", json!({"channels": [{"channel": "regular", "version": "1.0.0"}]}))
            .await?;
        chosen(row.world, &json!([{"name": "greeting"}])).await?;
        is_refused(row.world, "greeting", Reason::ComponentCrdMissing, "Greeting").await?;
        let printed = tokio::process::Command::new(row.world.landscape.bin("greeting-component"));
        let output = { printed }.arg("crd").output().await?;
        let crd: CustomResourceDefinition = serde_saphyr::from_str(std::str::from_utf8(&output.stdout)?)?;
        let crds: Api<CustomResourceDefinition> = Api::all(row.world.hub.clone());
        crds.create(&PostParams::default(), &crd).await?;
        // The greeting does not become Ready: its server is a Pod, and no node of this target runs Pods.
        crate::catalogue::is_in(row.world, "greeting", "Processing").await?;
        push_dependent(row.world, "postcard", "greeting").await?;
        chosen(row.world, &json!([{"name": "greeting"}, {"name": "postcard"}])).await?;
        waits_for(row.world, "postcard", "Greeting lake-greeting").await?;
        chosen(row.world, &json!([])).await
    })
}

#[test]
fn a_component_kind_of_a_foreign_group_is_refused() -> Result<()> {
    row("kind-foreign", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        publish(row.world, "pirate", "1.0.0", "pirates.example.com/v1", "Pirate").await?;
        row.world.offer("pirate", json!({"channels": [{"channel": "regular", "version": "1.0.0"}]})).await?;
        chosen(row.world, &json!([{"name": "pirate"}])).await?;
        is_refused(row.world, "pirate", Reason::ComponentGroupNotAllowed, "pirates.example.com").await?;
        row.world.push("pirate", "1.1.0").await?;
        row.world.offer("pirate", json!({"channels": [{"channel": "regular", "version": "1.1.0"}]})).await?;
        runs(row.world, "pirate", "1.1.0").await?;
        chosen(row.world, &json!([])).await
    })
}

#[test]
fn a_module_waits_for_another_module_of_its_kyma() -> Result<()> {
    row("module-depends", async |row| {
        let _in_use = row.world.lake.in_use.lock().await;
        row.world.push("pontoon", "1.0.0").await?;
        row.world.offer("pontoon", json!({"channels": [{"channel": "regular", "version": "1.0.0"}]})).await?;
        push_dependent(row.world, "tug", "pontoon").await?;
        chosen(row.world, &json!([{"name": "tug"}])).await?;
        waits_for(row.world, "tug", "module pontoon is not enabled in this Kyma").await?;
        chosen(row.world, &json!([{"name": "tug"}, {"name": "pontoon"}])).await?;
        runs(row.world, "pontoon", "1.0.0").await?;
        runs(row.world, "tug", "1.0.0").await?;
        chosen(row.world, &json!([])).await
    })
}

/// Publishes a module of one ConfigMap whose ModuleTemplate depends on another module.
async fn push_dependent(world: &World, module: &str, needed: &str) -> Result<()> {
    let manifest = config_map(&format!("{module}-content"), "kyma-system", "1.0.0").to_string();
    let config = json!({
        "version": "1.0.0",
        "manifest": "manifest.yaml",
        "dependsOn": [{"module": needed}],
    });
    let files = [("manifest.yaml", manifest)];
    e2e::catalogue::push_files(&world.landscape, module, &config, &files).await?;
    world.offer(module, json!({"channels": [{"channel": "regular", "version": "1.0.0"}]})).await
}

/// Waits until the component of a module on `lake` waits for a dependency that the message names.
async fn waits_for(world: &World, module: &str, words: &str) -> Result<()> {
    let components: Api<HelmComponent> = Api::namespaced(world.hub.clone(), HUB_NAMESPACE);
    let name = names::component_name(world.lake.kyma, module);
    until(&format!("{module} waits for {words}"), components, &name, |component| {
        let mut conditions = component["status"]["conditions"].as_array().into_iter().flatten();
        let held = conditions.find(|one| one["type"] == "DependenciesReady");
        held.is_some_and(|held| {
            held["reason"] == Reason::DependencyNotReady.as_str()
                && held["message"].as_str().is_some_and(|message| message.contains(words))
        })
    })
    .await?;
    Ok(())
}

async fn publish(world: &World, module: &str, version: &str, api_version: &str, kind: &str) -> Result<()> {
    let template: ModuleTemplate = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "ModuleTemplate",
        "metadata": {"name": format!("{module}-{version}")},
        "spec": {
            "moduleName": module,
            "version": version,
            "descriptor": {},
            "component": {"apiVersion": api_version, "kind": kind, "spec": {}},
        },
    }))?;
    e2e::catalogue::publish(world.hub.clone(), template).await
}

/// Creates the CRD of cranes, which objects of a module need.
pub(crate) async fn crane(target: &Cluster) -> Result<()> {
    let crd: Value = json!({
        "metadata": {"name": "cranes.cranes.example.com"},
        "spec": {
            "group": "cranes.example.com",
            "names": {"kind": "Crane", "plural": "cranes"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            }],
        },
    });
    let crds: Api<CustomResourceDefinition> = Api::all(target.client()?);
    let created = crds.create(&PostParams::default(), &serde_json::from_value(crd)?).await;
    let created = created.context("the CRD of cranes")?;
    ensure!(created.spec.names.kind == "Crane", "it is the CRD of cranes");
    Ok(())
}

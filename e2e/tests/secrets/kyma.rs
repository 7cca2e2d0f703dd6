//! A Kyma whose modules fail because of secrets, and then its access.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::catalogue;
use e2e::landscape::HUB_NAMESPACE;
use e2e::wait::has_condition;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kyma_api::{Kyma, ModuleTemplate, Reason, labels, names};
use serde_json::{Value, json};
use testbed::{until, until_or_why};

use crate::planted::{HARMLESS_WORD, secret};
use crate::world::World;

const DEADLINE: Duration = Duration::from_mins(2);

/// Creates the Kyma, named by the harmless word, with modules that fail in different ways, and waits until they do.
pub(crate) async fn modules_fail(world: &World) -> Result<()> {
    publish(world).await?;
    grant(world, &world.landscape.access(&world.lake).await?.kubeconfig()).await?;
    let values = json!({"replicas": secret("kyma-values"), "greeting": secret("kyma-values")});
    let modules = json!([
        {"name": "harbour", "values": values},
        {"name": "greeting"},
        {"name": "lamp"},
        {"name": "content", "values": {"password": secret("kyma-content")}},
        {"name": "own-spec"},
        {"name": "base-spec"},
    ]);
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": HARMLESS_WORD},
        "spec": {"channel": "regular", "modules": modules},
    });
    kymas(world).create(&PostParams::default(), &serde_json::from_value(kyma)?).await?;
    component_says(world, "harbour", Reason::ValuesInvalid).await?;
    component_says(world, "lamp", Reason::DefaultResourceFailed).await?;
    for module in ["own-spec", "base-spec"] {
        module_is(world, module, "Error").await?;
    }
    module_is(world, "content", "Ready").await?;
    module_is(world, "greeting", "Processing").await?;
    kyma_says(world, "ModuleCatalog", "True", Reason::CatalogSynced).await
}

/// Replaces the Kyma's kubeconfig by one that is refused, and waits until the Kyma and a component report it and
/// their operators count it.
pub(crate) async fn access_fails(world: &World) -> Result<()> {
    let mut broken: Value = serde_saphyr::from_str(&world.landscape.access(&world.lake).await?.kubeconfig())?;
    broken["users"][0]["user"] = json!({"exec": {"command": "cat", "args": [secret("kyma-access")]}});
    grant(world, &broken.to_string()).await?;
    for type_ in ["Ready", "ModuleCatalog"] {
        kyma_says(world, type_, "False", Reason::AccessInvalid).await?;
    }
    component_says(world, "greeting", Reason::AccessInvalid).await?;
    // Operators count a failure after they have written the status.
    for operator in ["release-meta-syncer", "greeting-component"] {
        until(&format!("{operator} counts the failure"), DEADLINE, || async {
            let metrics = world.landscape.metrics(operator).await?;
            Ok(metrics.contains(Reason::AccessInvalid.as_str()).then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn publish(world: &World) -> Result<()> {
    catalogue::push(&world.landscape, &catalogue::module_directory("harbour")).await?;
    catalogue::publish_greeting(&world.landscape).await?;
    let lamp = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.demo.example.com"},
        "spec": {
            "group": "demo.example.com", "names": {"kind": "Lamp", "plural": "lamps"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "colour": {"type": "string", "enum": ["red", "green"]},
                }}},
            }}}],
        },
    });
    let default = json!({
        "apiVersion": "demo.example.com/v1", "kind": "Lamp",
        "metadata": {"name": "default", "namespace": "kyma-system"}, "spec": {"colour": secret("lamp")},
    });
    let config = json!({"manifest": "manifest.yaml", "defaultCR": "default-cr.yaml"});
    let files = [("manifest.yaml", lamp.to_string()), ("default-cr.yaml", default.to_string())];
    world.push("lamp", config, &files).await?;
    let content = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "content", "namespace": "kyma-system"},
        "stringData": {"password": secret("content")},
    });
    world
        .push("content", json!({"manifest": "manifest.yaml"}), &[("manifest.yaml", content.to_string())])
        .await?;
    let own = json!({
        "apiVersion": "demo.kyma-project.io/v1alpha1", "kind": "Greeting",
        "spec": {"text": [secret("own-spec")]},
    });
    let base = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "spec": {"values": secret("base-spec")},
    });
    for (module, component) in [("own-spec", own), ("base-spec", base)] {
        catalogue::publish(world.hub.clone(), template(module, &component)?).await?;
    }
    for (module, version) in [
        ("harbour", "2.0.0"),
        ("greeting", "1.0.0"),
        ("lamp", "1.0.0"),
        ("content", "1.0.0"),
        ("own-spec", "1.0.0"),
        ("base-spec", "1.0.0"),
    ] {
        catalogue::assign(world.hub.clone(), module, version).await?;
    }
    Ok(())
}

fn template(module: &str, component: &Value) -> Result<ModuleTemplate> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": format!("{module}-1.0.0")},
        "spec": {"moduleName": module, "version": "1.0.0", "descriptor": {}, "component": component},
    }))?)
}

async fn grant(world: &World, kubeconfig: &str) -> Result<()> {
    let name = format!("kubeconfig-{HARMLESS_WORD}");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "labels": {labels::KYMA_NAME: HARMLESS_WORD}},
        "stringData": {"config": kubeconfig},
    });
    world.apply_secret(&name, &secret).await
}

fn kymas(world: &World) -> Api<Kyma> {
    Api::namespaced(world.hub.clone(), HUB_NAMESPACE)
}

async fn kyma_says(world: &World, type_: &str, status: &str, reason: Reason) -> Result<()> {
    until_or_why(&format!("the Kyma has {type_}={status} for {reason}"), DEADLINE, || async {
        let kyma = serde_json::to_value(kymas(world).get(HARMLESS_WORD).await?)?;
        Ok(if has_condition(&kyma, type_, status, reason) { Ok(()) } else { Err(kyma["status"].to_string()) })
    })
    .await
}

async fn module_is(world: &World, module: &str, state: &str) -> Result<()> {
    until_or_why(&format!("module {module} is {state}"), DEADLINE, || async {
        let kyma = serde_json::to_value(kymas(world).get(HARMLESS_WORD).await?)?;
        let modules = kyma["status"]["modules"].as_array();
        let found = modules.into_iter().flatten().find(|held| held["name"] == module);
        let is_there = found.is_some_and(|held| held["state"] == state);
        Ok(if is_there { Ok(()) } else { Err(kyma["status"]["modules"].to_string()) })
    })
    .await
}

async fn component_says(world: &World, module: &str, reason: Reason) -> Result<()> {
    let kinds = [("component.kyma-project.io", "HelmComponent"), ("demo.kyma-project.io", "Greeting")];
    let (group, kind) = kinds[usize::from(module == "greeting")];
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(world.hub.clone(), HUB_NAMESPACE, &resource);
    let name = names::component_name(HARMLESS_WORD, module);
    until_or_why(&format!("{module} is not Ready for {reason}"), DEADLINE, || async {
        let Some(found) = api.get_opt(&name).await? else { return Ok(Err("not there".to_owned())) };
        let found = serde_json::to_value(found)?;
        let conditions = &found["status"]["conditions"];
        Ok(if has_condition(&found, "Ready", "False", reason) { Ok(()) } else { Err(conditions.to_string()) })
    })
    .await
    .context("a component of the Kyma")
}

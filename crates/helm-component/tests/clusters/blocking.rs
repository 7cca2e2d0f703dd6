//! Objects that block a removal: users' objects, of every scope and in every namespace, and finalizers.

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::{rounds, until};

use crate::world::{DEADLINE, World, api, apply_yaml, ready_of, world};

/// Returns the manifest of a module with a namespaced kind, a cluster-scoped kind, and a workload that serves both.
fn manifest(name: &str) -> String {
    manifest_of(name, &["v1"])
}

/// Returns the manifest with these versions of its kinds, of which the last one is stored.
fn manifest_of(name: &str, versions: &[&str]) -> String {
    let stored = versions.last().unwrap_or(&"v1");
    let versions: Vec<String> = versions
        .iter()
        .map(|version| {
            let schema = "schema: {openAPIV3Schema: {type: object}}";
            format!("{{name: {version}, served: true, storage: {}, {schema}}}", version == stored)
        })
        .collect();
    let versions = versions.join(", ");
    let crd = |kind: &str, scope: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
             metadata: {{name: {plural}.{name}.example.org}}\n\
             spec:\n  group: {name}.example.org\n  names: {{kind: {kind}, plural: {plural}}}\n  scope: {scope}\n  \
             versions: [{versions}]\n"
        )
    };
    let (inner, outer) = (crd("Room", "Namespaced"), crd("House", "Cluster"));
    format!("{inner}---\n{outer}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
}

/// Returns an object of one of the kinds, cluster-scoped without a namespace.
fn object(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> serde_json::Value {
    let mut object = json!({
        "apiVersion": format!("{group}.example.org/v1"), "kind": kind, "metadata": {"name": name},
    });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

async fn delete(world: &World, group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Result<()> {
    let (objects, _) =
        api(&world.target.client()?, &format!("{group}.example.org/v1"), kind, namespace).await?;
    objects.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until exactly these objects block the removal.
async fn until_blocked_by(world: &World, name: &str, blockers: &[&str]) -> Result<()> {
    let components = world.components()?;
    let expected = format!("delete these first: {}", blockers.join(", "));
    testbed::until_or_why(&format!("{name} waits for {blockers:?}"), DEADLINE, || async {
        let ready = ready_of(&components.get(name).await?);
        let (_, reason, message) = ready.unwrap_or_default();
        Ok(if reason == "DeletionBlocked" && message == expected { Ok(()) } else { Err(message) })
    })
    .await
}

#[tokio::test]
async fn e32_e35_e37_policy_ignore_lets_any_user_object_block_removal() -> Result<()> {
    let world = world().await?;
    let source = world.push("villa", "1.0.0", &manifest("villa")).await?;
    let spec = json!({
        "source": source, "release": {"namespace": "villa-system"}, "resourcePolicy": "Ignore",
        "resource": object("villa", "Room", None, "default"),
    });
    world.apply("villa", spec).await?;
    world.ready("villa", "True", "Ready").await?;
    assert!(
        world.on_target("villa.example.org/v1", "Room", "villa-system", "default").await?.is_none(),
        "Ignore makes no default object"
    );
    let users = [
        object("villa", "House", None, "outer"),
        object("villa", "Room", Some("default"), "away"),
        object("villa", "Room", Some("villa-system"), "near"),
    ];
    for user in &users {
        apply_yaml(&world.target.client()?, &user.to_string()).await?;
    }
    world.delete("villa", "Delete").await?;
    until_blocked_by(world, "villa", &["House outer", "Room default/away", "Room villa-system/near"]).await?;
    delete(world, "villa", "Room", Some("villa-system"), "near").await?;
    until_blocked_by(world, "villa", &["House outer", "Room default/away"]).await?;
    delete(world, "villa", "House", None, "outer").await?;
    until_blocked_by(world, "villa", &["Room default/away"]).await?;
    assert!(
        world.on_target("v1", "ConfigMap", "villa-system", "villa").await?.is_some(),
        "one is enough to keep what serves it"
    );
    delete(world, "villa", "Room", Some("default"), "away").await?;
    world.gone("villa").await?;
    assert!(world.on_target("v1", "ConfigMap", "villa-system", "villa").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn with_policy_ignore_a_default_resource_created_before_is_kept() -> Result<()> {
    let world = world().await?;
    let source = world.push("chalet", "1.0.0", &manifest("chalet")).await?;
    let spec = json!({
        "source": source, "release": {"namespace": "chalet-system"},
        "resource": object("chalet", "House", None, "default"),
    });
    world.apply("chalet", spec.clone()).await?;
    world.ready("chalet", "True", "Ready").await?;
    let (houses, _) = api(&world.target.client()?, "chalet.example.org/v1", "House", None).await?;
    assert!(houses.get_opt("default").await?.is_some(), "CreateAndDelete creates it");
    let mut ignoring = spec;
    ignoring["resourcePolicy"] = "Ignore".into();
    world.apply("chalet", ignoring).await?;
    world.delete("chalet", "Delete").await?;
    until_blocked_by(world, "chalet", &["House default"]).await?;
    assert!(houses.get("default").await?.metadata.deletion_timestamp.is_none());
    delete(world, "chalet", "House", None, "default").await?;
    world.gone("chalet").await?;
    assert!(world.on_target("v1", "ConfigMap", "chalet-system", "chalet").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn e34_e38_removal_waits_for_user_object_then_default_finalizer() -> Result<()> {
    let world = world().await?;
    let source = world.push("manor", "1.0.0", &manifest("manor")).await?;
    let spec = json!({
        "source": source, "release": {"namespace": "manor-system"},
        "resource": object("manor", "House", None, "default"),
    });
    world.apply("manor", spec).await?;
    world.ready("manor", "True", "Ready").await?;
    let (houses, _) = api(&world.target.client()?, "manor.example.org/v1", "House", None).await?;
    let held = json!({"metadata": {"finalizers": ["test.example.org/held"]}});
    houses.patch("default", &PatchParams::default(), &Patch::Merge(held)).await?;
    apply_yaml(&world.target.client()?, &object("manor", "House", None, "mine").to_string()).await?;

    world.delete("manor", "Delete").await?;
    until_blocked_by(world, "manor", &["House mine"]).await?;
    assert!(
        houses.get("default").await?.metadata.deletion_timestamp.is_none(),
        "the default one serves as long as a user's does"
    );
    delete(world, "manor", "House", None, "mine").await?;
    let components = world.components()?;
    until("the default one is waited for", DEADLINE, || async {
        let ready = ready_of(&components.get("manor").await?);
        Ok(ready.filter(|(_, _, message)| message == "waiting until these are deleted: House default"))
    })
    .await?;
    assert!(world.on_target("v1", "ConfigMap", "manor-system", "manor").await?.is_some());
    let free = json!({"metadata": {"finalizers": null}});
    houses.patch("default", &PatchParams::default(), &Patch::Merge(free)).await?;
    world.gone("manor").await
}

#[tokio::test]
async fn e13_component_is_upgraded_while_its_removal_is_blocked() -> Result<()> {
    rounds(upgraded_while_blocked).await
}

async fn upgraded_while_blocked() -> Result<()> {
    let world = world().await?;
    let wish = async |version: &str, manifest: String| {
        let source = world.push("lodge", version, &manifest).await?;
        let module = json!({"name": "lodge", "version": version});
        world
            .apply("lodge", json!({"source": source, "module": module, "release": {"namespace": "lodge"}}))
            .await
    };
    wish("1.0.0", manifest("lodge")).await?;
    world.ready("lodge", "True", "Ready").await?;
    let users = object("lodge", "Room", Some("default"), "mine");
    apply_yaml(&world.target.client()?, &users.to_string()).await?;
    world.delete("lodge", "Delete").await?;
    until_blocked_by(world, "lodge", &["Room default/mine"]).await?;

    let more = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n";
    wish("1.1.0", format!("{}{more}", manifest_of("lodge", &["v1", "v2"]))).await?;
    let components = world.components()?;
    until("the next version is there", DEADLINE, || async {
        let status = components.get("lodge").await?.status.unwrap_or_default();
        Ok((status.version.as_deref() == Some("1.1.0")).then_some(()))
    })
    .await?;
    assert!(world.on_target("v1", "ConfigMap", "lodge", "more").await?.is_some());
    // The target serves a new version of a kind some time after its CRD has it.
    until("users reach their objects in the new version of the kind", DEADLINE, || {
        world.on_target("lodge.example.org/v2", "Room", "default", "mine")
    })
    .await?;
    until_blocked_by(world, "lodge", &["Room default/mine"]).await?;
    delete(world, "lodge", "Room", Some("default"), "mine").await?;
    world.gone("lodge").await?;
    for name in ["lodge", "more"] {
        assert!(world.on_target("v1", "ConfigMap", "lodge", name).await?.is_none(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn removal_of_never_installed_component_ignores_user_objects() -> Result<()> {
    let world = world().await?;
    let target = world.target.client()?;
    apply_yaml(
        &target,
        &manifest("cabin").replace("metadata: {name: cabin}", "metadata: {name: cabin, namespace: default}"),
    )
    .await?;
    testbed::crd_is_served(&target, "houses.cabin.example.org").await?;
    apply_yaml(&target, &object("cabin", "House", None, "mine").to_string()).await?;
    let missing = json!({"ocm": {"component": "example.org/module/cabin", "version": "1.0.0"}});
    let kinds = json!([{"group": "cabin.example.org", "kind": "House"}]);
    world.apply("cabin", json!({"source": missing, "managedResources": kinds})).await?;
    world.ready("cabin", "False", "SourceNotFound").await?;
    world.delete("cabin", "Delete").await?;
    world.gone("cabin").await?;
    assert!(world.on_target("cabin.example.org/v1", "House", "", "mine").await?.is_some());
    assert!(world.on_target("v1", "ConfigMap", "default", "cabin").await?.is_some());
    Ok(())
}

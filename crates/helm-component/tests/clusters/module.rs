//! A module of raw manifests from an OCM component version.

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use kyma_api::State;
use serde_json::json;
use testbed::until;

use crate::world::{DEADLINE, HUB_NAMESPACE, World, apply_yaml, condition_of, world};

/// Returns the manifest of a module: a workload, its configuration, a CRD and an object of that kind.
pub(crate) fn manifest(name: &str, level: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {name}s.test.example.org}}
spec:
  group: test.example.org
  names: {{kind: {kind}, plural: {name}s}}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {{spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}}}
data: {{level: "{level}"}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules: [{{apiGroups: [""], resources: [configmaps], verbs: [get]}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: main, image: example.org/main:1}}]}}
---
apiVersion: test.example.org/v1
kind: {kind}
metadata: {{name: shipped}}
spec: {{level: "{level}"}}
"#,
        kind = kind(name),
    )
}

/// Returns the kind that the manifest's CRD defines.
pub(crate) fn kind(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

#[tokio::test]
async fn e11_i119_i121_i123_i124_module_lifecycle_with_default_cr() -> Result<()> {
    let world = world().await?;
    comes_and_is_upgraded(world).await?;
    world.delete("lamp", "Delete").await?;
    world.gone("lamp").await?;
    assert!(world.on_target("apps/v1", "Deployment", "lamp-system", "lamp").await?.is_none());
    let crds: Api<CustomResourceDefinition> = Api::all(world.target.client()?);
    until("the CRD is gone, and with it the default resource", DEADLINE, || async {
        Ok(crds.get_opt("lamps.test.example.org").await?.is_none().then_some(()))
    })
    .await
}

async fn comes_and_is_upgraded(world: &World) -> Result<()> {
    let source = world.push("lamp", "1.0.0", &manifest("lamp", "low")).await?;
    let resource = json!({
        "apiVersion": "test.example.org/v1", "kind": "Lamp",
        "metadata": {"name": "default"}, "spec": {"level": "mine"},
    });
    let spec = |source, version| {
        json!({
            "source": source, "module": {"name": "lamp", "version": version},
            "release": {"namespace": "lamp-system"}, "resource": resource,
        })
    };
    world.apply("lamp", spec(source, "1.0.0")).await?;
    let ready = world.ready("lamp", "True", "Ready").await?;
    let status = ready.status.clone().unwrap_or_default();
    assert_eq!((status.state, status.version.as_deref()), (Some(State::Ready), Some("1.0.0")));
    assert!(
        status.digests.as_ref().is_some_and(|digests| digests.source.is_some()),
        "what was installed is on record"
    );
    let inventory = status.entries()?;
    assert_eq!(inventory.len(), 5);
    for kind in ["Deployment", "CustomResourceDefinition"] {
        assert!(inventory.iter().any(|entry| entry.kind == kind), "{kind}");
    }
    for type_ in ["Rendered", "Applied", "Healthy", "DependenciesReady", "TargetReachable"] {
        let (status, _, message) = condition_of(&ready, type_).context(type_)?;
        assert_eq!(status, "True", "{type_}: {message}");
    }
    let made = world.on_target("test.example.org/v1", "Lamp", "lamp-system", "default").await?;
    assert_eq!(made.map(|made| made.data["spec"]["level"].clone()), Some(json!("mine")));

    let without_role = manifest("lamp", "high").replace(
        "kind: ClusterRole\nmetadata: {name: lamp}",
        "kind: ClusterRole\nmetadata: {name: lamp-two}",
    );
    let source = world.push("lamp", "1.1.0", &without_role).await?;
    world.apply("lamp", spec(source, "1.1.0")).await?;
    let ready = world.ready("lamp", "True", "Ready").await?;
    assert_eq!(ready.status.unwrap_or_default().version.as_deref(), Some("1.1.0"));
    let config = world.on_target("v1", "ConfigMap", "lamp-system", "lamp").await?.context("the ConfigMap")?;
    assert_eq!(config.data["data"]["level"], "high");
    let pruned = world.on_target("rbac.authorization.k8s.io/v1", "ClusterRole", "", "lamp").await?;
    assert!(pruned.is_none(), "what the new version no longer has is gone");
    let made = world.on_target("test.example.org/v1", "Lamp", "lamp-system", "default").await?;
    assert_eq!(made.map(|made| made.data["spec"]["level"].clone()), Some(json!("mine")));
    Ok(())
}

#[tokio::test]
async fn what_an_upgrade_gives_up_is_told_with_its_reason() -> Result<()> {
    let world = world().await?;
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: store}\n";
    let role = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}\n";
    let spec = |source| json!({"source": source, "release": {"namespace": "store"}});
    let source = world.push("store", "1.0.0", &format!("{config}{role}")).await?;
    world.apply("store", spec(source)).await?;
    world.ready("store", "True", "Ready").await?;
    let source = world.push("store", "1.1.0", config).await?;
    world.apply("store", spec(source)).await?;
    let component = world.ready("store", "True", "Ready").await?;
    let left = "left on the target: Role.rbac.authorization.k8s.io store/kept (it is annotated to be kept)";
    let (_, _, message) = condition_of(&component, "Applied").expect("Applied");
    assert_eq!(message, left);
    let events: Api<Event> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    until("the event that tells what stays", DEADLINE, || async {
        let all = events.list(&ListParams::default()).await?;
        Ok(all.items.iter().any(|event| event.note.as_deref() == Some(left)).then_some(()))
    })
    .await?;
    let role = world.on_target("rbac.authorization.k8s.io/v1", "Role", "store", "kept").await?;
    assert!(role.is_some());
    Ok(())
}

#[tokio::test]
async fn upgrade_keeps_replaced_object_until_successor_kind_is_served() -> Result<()> {
    let world = world().await?;
    let named = |kind: &str, version: &str, name: &str| {
        format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\n")
    };
    let (base, old) = (named("ConfigMap", "v1", "base"), named("ConfigMap", "v1", "old"));
    let spec = |source| json!({"source": source, "release": {"namespace": "relay"}});
    let source = world.push("relay", "1.0.0", &format!("{base}{old}")).await?;
    world.apply("relay", spec(source)).await?;
    world.ready("relay", "True", "Ready").await?;
    let successor = named("Baton", "relay.example.org/v1", "new");
    let source = world.push("relay", "1.1.0", &format!("{base}{successor}")).await?;
    world.apply("relay", spec(source)).await?;
    world.ready("relay", "False", "DependencyMissing").await?;
    assert!(world.on_target("v1", "ConfigMap", "relay", "old").await?.is_some());

    let crd = manifest("baton", "low").replace("test.example.org", "relay.example.org");
    let crd = crd.split("---").next().unwrap_or_default();
    apply_yaml(&world.target.client()?, crd).await?;
    world.ready("relay", "True", "Ready").await?;
    assert!(world.on_target("v1", "ConfigMap", "relay", "old").await?.is_none());
    Ok(())
}

//! A module of raw manifests from an OCM component version.

use anyhow::Result;
use kyma_api::State;
use serde_json::json;

use crate::world::{condition_of, world};

/// A module: a workload, its configuration, a CRD and an object of it.
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

/// The kind that the manifest's CRD defines.
pub(crate) fn kind(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_module_is_installed_with_its_default_resource_and_upgraded() -> Result<()> {
    let world = world().await?;
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
    assert_eq!(status.inventory.map(|all| all.len()), Some(5));
    for type_ in ["Rendered", "Applied", "Healthy", "DependenciesReady", "TargetReachable"] {
        let (status, _, message) = condition_of(&ready, type_).unwrap_or_else(|| panic!("{type_}"));
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
    let config = world.on_target("v1", "ConfigMap", "lamp-system", "lamp").await?.expect("the ConfigMap");
    assert_eq!(config.data["data"]["level"], "high");
    let pruned = world.on_target("rbac.authorization.k8s.io/v1", "ClusterRole", "", "lamp").await?;
    assert!(pruned.is_none(), "what the new version no longer has is gone");
    let made = world.on_target("test.example.org/v1", "Lamp", "lamp-system", "default").await?;
    assert_eq!(made.map(|made| made.data["spec"]["level"].clone()), Some(json!("mine")));
    Ok(())
}

//! Patches, labels and annotations of a component's objects.

use anyhow::Result;
use serde_json::{Value, json};
use testbed::until;

use crate::chart::push;
use crate::world::{DEADLINE, World, apply_yaml, condition_of, world};

const NAME: &str = "patched";
const OBJECTS: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: patched, labels: {from: chart}}
spec:
  replicas: 0
  selector: {matchLabels: {app: patched}}
  template:
    metadata: {labels: {app: patched}}
    spec:
      containers:
      - {name: main, image: "example.org/main:1", env: [{name: LEVEL, value: low}]}
      - {name: side, image: "example.org/side:1"}
---
apiVersion: patches.example.org/v1
kind: Lamp
metadata: {name: patched}
spec: {colors: [red], size: {height: 1, width: 1}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: patched}
data: {kept: chart, gone: chart}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: left-out}
"#;
const CRD: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.patches.example.org}
spec:
  group: patches.example.org
  names: {kind: Lamp, plural: lamps}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";
/// Patch that finds its object by name, and the containers by theirs.
const STRATEGIC: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: patched, labels: {component.kyma-project.io/owner: nobody}}
spec:
  template:
    spec:
      containers:
      - {name: side, $patch: delete}
      - {name: main, env: [{name: LEVEL, value: high}, {name: MORE, value: 'yes'}]}
";
const JSON_PATCH: &str = r"
- {op: remove, path: /data/gone}
- {op: add, path: /data/added, value: patch}
";
const LAMP: &str = "spec: {colors: [blue], size: {height: null}}";
const LEAVE_OUT: &str = "{$patch: delete, apiVersion: v1, kind: ConfigMap, metadata: {name: left-out}}";

async fn found(world: &World, api_version: &str, kind: &str) -> Result<Option<Value>> {
    let found = world.on_target(api_version, kind, NAME, NAME).await?;
    Ok(found.map(serde_json::to_value).transpose()?)
}

async fn until_found(
    world: &World,
    api_version: &str,
    kind: &str,
    field: &str,
    expected: Value,
) -> Result<Value> {
    until(&format!("{kind} with {field} {expected}"), DEADLINE, || async {
        Ok(found(world, api_version, kind).await?.filter(|found| found.pointer(field) == Some(&expected)))
    })
    .await
}

fn patches() -> Value {
    json!([
        {"patch": STRATEGIC},
        {"target": {"kind": "ConfigMap", "name": NAME}, "patch": JSON_PATCH},
        {"target": {"group": "patches.example.org"}, "patch": LAMP},
        {"patch": LEAVE_OUT},
        {"target": {"kind": "Nothing"}, "patch": "{}"},
    ])
}

#[tokio::test]
async fn patches_and_common_metadata_are_rolled_out_and_taken_back() -> Result<()> {
    let world = world().await?;
    apply_yaml(&world.target.client()?, CRD).await?;
    let source = push(world, NAME, "1.0.0", &[("templates/all.yaml", OBJECTS)]).await?;
    let plain = json!({"source": source, "release": {"namespace": NAME}});
    let mut spec = plain.clone();
    spec["patches"] = patches();
    spec["commonMetadata"] = json!({"labels": {"from": "all"}, "annotations": {"example.org/note": "all"}});
    world.apply(NAME, spec.clone()).await?;
    let ready = world.ready(NAME, "True", "Ready").await?;
    let (_, _, message) = condition_of(&ready, "Rendered").expect("Rendered");
    assert_eq!(message, "patches[4] matches no object");

    let deployment = found(world, "apps/v1", "Deployment").await?.expect("the Deployment");
    let pod = &deployment["spec"]["template"];
    let containers = pod["spec"]["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 1, "{containers:?}");
    assert_eq!(
        containers[0]["env"],
        json!([{"name": "LEVEL", "value": "high"}, {"name": "MORE", "value": "yes"}])
    );
    assert_eq!(pod["metadata"]["labels"], json!({"app": NAME}), "Pods are left alone");
    let lamp = found(world, "patches.example.org/v1", "Lamp").await?.expect("the Lamp");
    assert_eq!(lamp["spec"], json!({"colors": ["blue"], "size": {"width": 1}}));
    let config = found(world, "v1", "ConfigMap").await?.expect("the ConfigMap");
    assert_eq!(config["data"], json!({"kept": "chart", "added": "patch"}));
    assert!(world.on_target("v1", "ConfigMap", NAME, "left-out").await?.is_none());
    let owner = |object: &Value| object["metadata"]["labels"]["component.kyma-project.io/owner"].clone();
    for object in [&deployment, &lamp, &config] {
        assert_eq!(object["metadata"]["labels"]["from"], "all");
        assert_eq!(object["metadata"]["annotations"]["example.org/note"], "all");
        assert_eq!(owner(object), owner(&config), "marks win");
    }

    // A changed patch is rolled out, an invalid one changes nothing.
    let other = JSON_PATCH.replace("value: patch", "value: other");
    spec["patches"][1]["patch"] = other.into();
    world.apply(NAME, spec.clone()).await?;
    until_found(world, "v1", "ConfigMap", "/data/added", json!("other")).await?;
    for invalid in ["- {op: remove, path: /data/absent}", "data: [absent"] {
        world.ready(NAME, "True", "Ready").await?;
        let mut wrong = spec.clone();
        wrong["patches"][1]["patch"] = invalid.into();
        world.apply(NAME, wrong).await?;
        let told = world.ready(NAME, "False", "PatchInvalid").await?;
        let (_, _, message) = condition_of(&told, "Ready").expect("Ready");
        assert!(message.contains("patches[1]"), "{message}");
        let config = found(world, "v1", "ConfigMap").await?.expect("what runs stays");
        assert_eq!(config["data"], json!({"kept": "chart", "added": "other"}));
        world.apply(NAME, spec.clone()).await?;
    }

    world.apply(NAME, plain).await?;
    until_found(world, "v1", "ConfigMap", "/data", json!({"kept": "chart", "gone": "chart"})).await?;
    world.ready(NAME, "True", "Ready").await?;
    let deployment = found(world, "apps/v1", "Deployment").await?.expect("the Deployment");
    assert_eq!(deployment["metadata"]["labels"]["from"], "chart");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(2));
    let lamp = found(world, "patches.example.org/v1", "Lamp").await?.expect("the Lamp");
    assert_eq!(lamp["spec"], json!({"colors": ["red"], "size": {"height": 1, "width": 1}}));
    assert!(lamp["metadata"]["annotations"].get("example.org/note").is_none());
    assert!(world.on_target("v1", "ConfigMap", NAME, "left-out").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn plain_manifests_are_patched_and_our_keys_are_not_taken() -> Result<()> {
    let world = world().await?;
    let manifest =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: patched-ocm, namespace: default}\ndata: {a: x}\n";
    let source = world.push("patched-ocm", "1.0.0", manifest).await?;
    let patch = json!({"target": {"namespace": "default"}, "patch": "data: {a: patch}"});
    world.apply("patched-ocm", json!({"source": source, "patches": [patch]})).await?;
    world.ready("patched-ocm", "True", "Ready").await?;
    let config = world.on_target("v1", "ConfigMap", "default", "patched-ocm").await?.expect("the ConfigMap");
    assert_eq!(config.data["data"], json!({"a": "patch"}));

    let refused = [
        json!({"labels": {"component.kyma-project.io/owner": "me"}}),
        json!({"annotations": {"kyma-project.io/a": "me"}}),
        json!({"annotations": {"helm.sh/hook": "pre-install"}}),
        json!({"labels": {"no key": "a"}}),
        json!({"labels": {"a": "no value"}}),
    ];
    for metadata in refused {
        let spec = json!({"source": source, "commonMetadata": metadata});
        assert!(world.apply("patched-ocm", spec).await.is_err(), "{metadata}");
    }
    Ok(())
}

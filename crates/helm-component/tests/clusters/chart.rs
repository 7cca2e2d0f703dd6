//! Charts from a registry.

use anyhow::Result;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::until;

use crate::world::{DEADLINE, HUB_NAMESPACE, World, condition_of, world};

/// Packs and pushes a chart, and returns its source.
pub(crate) async fn push(world: &World, name: &str, version: &str, files: &[(&str, &str)]) -> Result<Value> {
    let (url, _) = publish(world, name, version, files).await?;
    Ok(json!({"chart": {"url": url, "version": version}}))
}

/// Packs a chart, pushes it with helm, and returns its address and the digest that helm prints.
async fn publish(
    world: &World,
    name: &str,
    version: &str,
    files: &[(&str, &str)],
) -> Result<(String, String)> {
    push_archive(world, name, &packed(name, version, files)?).await
}

/// Pushes a chart of exactly these files, and returns its source.
pub(crate) async fn publish_files(
    world: &World,
    name: &str,
    version: &str,
    files: &[(&str, &str)],
) -> Result<Value> {
    let (url, _) = push_archive(world, name, &packed_files(name, files)?).await?;
    Ok(json!({"chart": {"url": url, "version": version}}))
}

async fn push_archive(world: &World, name: &str, content: &[u8]) -> Result<(String, String)> {
    let archive = tempfile::Builder::new().suffix(".tgz").tempfile()?;
    std::fs::write(archive.path(), content)?;
    let helm = testbed::Program::Helm.path()?;
    let pushed = tokio::process::Command::new(helm)
        .args(["push", "--plain-http"])
        .arg(archive.path())
        .arg(format!("oci://{}/charts", world.registry.address()))
        .output()
        .await?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&pushed.stdout), String::from_utf8_lossy(&pushed.stderr));
    anyhow::ensure!(pushed.status.success(), "{said}");
    let digest = said.lines().find_map(|line| line.strip_prefix("Digest: ")).unwrap_or_default();
    Ok((format!("oci://{}/charts/{name}", world.registry.address()), digest.trim().to_owned()))
}

/// Returns a chart as `helm package` packs it.
pub(crate) fn packed(name: &str, version: &str, files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let all: Vec<_> = [("Chart.yaml", metadata.as_str())].iter().chain(files).copied().collect();
    packed_files(name, &all)
}

fn packed_files(name: &str, files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("{name}/{path}"), text.as_bytes())?;
    }
    Ok(tar.into_inner()?.finish()?)
}

const CONFIG: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data:
  level: "{{ .Values.level }}"
  namespace: "{{ .Release.Namespace }}"
  own: "{{ .Values.own }}"
"#;
const HOOK: &str = r#"apiVersion: batch/v1
kind: Job
metadata:
  name: hooked
  annotations: {helm.sh/hook: "test,post-rollback"}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: example.org/a:1}]}}}
"#;

#[tokio::test]
async fn chart_gets_merged_values_and_unrequested_hooks_do_not_run() -> Result<()> {
    let world = world().await?;
    let files = [
        ("templates/config.yaml", CONFIG),
        ("templates/hook.yaml", HOOK),
        ("values.yaml", "level: default\nown: chart\n"),
    ];
    let source = push(world, "values", "1.0.0", &files).await?;
    let spec = json!({
        "source": source, "release": {"name": "rel", "namespace": "values"},
        "values": {"level": "module"}, "userValues": {"level": "user"}, "overrides": {"level": "central"},
    });
    world.apply("values", spec).await?;
    let ready = world.ready("values", "True", "Ready").await?;
    let config = world.on_target("v1", "ConfigMap", "values", "rel").await?.expect("the ConfigMap");
    assert_eq!(config.data["data"], json!({"level": "central", "namespace": "values", "own": "chart"}));
    assert!(world.on_target("batch/v1", "Job", "values", "hooked").await?.is_none());
    let (_, reason, message) = condition_of(&ready, "Rendered").expect("Rendered");
    assert_eq!((&*reason, &*message), ("Succeeded", ""));
    assert_eq!(ready.status.and_then(|status| status.overridden), Some(vec!["level".to_owned()]));
    Ok(())
}

const DOUBLED: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: doubled}
spec:
  selector: {matchLabels: {app: doubled}}
  template:
    metadata: {labels: {app: doubled}}
    spec:
      containers:
      - name: main
        image: example.org/main:1
        env: [{name: A, value: first}, {name: B, value: other}, {name: A, value: "{{ .Values.last }}"}]
"#;

/// Returns the notes of ContentWarning events of a component, each as often as it was reported.
async fn warnings(world: &World, name: &str) -> Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let mut notes = vec![];
    for event in events.list(&ListParams::default()).await?.items {
        let is_of_it = event.regarding.is_some_and(|object| object.name.as_deref() == Some(name));
        let is_warning = event.type_.as_deref() == Some("Warning");
        if is_of_it && is_warning && event.reason.as_deref() == Some("ContentWarning") {
            let times = event.series.map_or(1, |series| series.count);
            notes.extend((0..times).map(|_| event.note.clone().unwrap_or_default()));
        }
    }
    Ok(notes)
}

#[tokio::test]
async fn last_duplicate_of_a_variable_is_applied_and_reported_once() -> Result<()> {
    let world = world().await?;
    let source = push(world, "doubled", "1.0.0", &[("templates/a.yaml", DOUBLED)]).await?;
    for (told, last) in [(1, "second"), (2, "third")] {
        let values = json!({"last": last});
        let spec = json!({"source": source, "release": {"namespace": "doubled"}, "values": values});
        world.apply("doubled", spec).await?;
        world.ready("doubled", "True", "Ready").await?;
        let found = world.on_target("apps/v1", "Deployment", "doubled", "doubled").await?;
        let env = found.map(|found| found.data["spec"]["template"]["spec"]["containers"][0]["env"].clone());
        assert_eq!(env, Some(json!([{"name": "B", "value": "other"}, {"name": "A", "value": last}])));
        let notes = until("the event is there", DEADLINE, || async {
            Ok(Some(warnings(world, "doubled").await?).filter(|notes| notes.len() >= told))
        })
        .await?;
        assert_eq!(notes.len(), told, "once for each content: {notes:?}");
        let place = "spec.template.spec.containers[0].env has name=A more than once";
        assert!(notes.iter().all(|note| note.contains(place)), "{notes:?}");
    }
    Ok(())
}

#[tokio::test]
async fn missing_kind_blocks_only_its_objects_until_it_is_served() -> Result<()> {
    let world = world().await?;
    let files = [
        ("templates/config.yaml", CONFIG),
        (
            "templates/route.yaml",
            "apiVersion: routing.example.org/v1\nkind: Route\nmetadata: {name: r}\nspec: {to: x}\n",
        ),
    ];
    let source = push(world, "soft", "1.0.0", &files).await?;
    world.apply("soft", json!({"source": source, "release": {"namespace": "soft"}})).await?;
    let component = world.ready("soft", "False", "DependencyMissing").await?;
    let (_, _, message) = condition_of(&component, "DependenciesReady").expect("DependenciesReady");
    assert!(message.contains("Route.routing.example.org"), "{message}");
    assert!(world.on_target("v1", "ConfigMap", "soft", "soft").await?.is_some());
    let crd = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: routes.routing.example.org}
spec:
  group: routing.example.org
  names: {kind: Route, plural: routes}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";
    crate::world::apply_yaml(&world.target.client()?, crd).await?;
    world.ready("soft", "True", "Ready").await?;
    assert!(world.on_target("routing.example.org/v1", "Route", "soft", "r").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn the_same_chart_is_found_by_digest() -> Result<()> {
    let world = world().await?;
    let (url, digest) = publish(world, "pinned", "1.0.0", &[("templates/config.yaml", CONFIG)]).await?;
    let pinned = json!({"chart": {"url": url, "digest": digest}});
    world.apply("pinned", json!({"source": pinned, "release": {"namespace": "pinned"}})).await?;
    let ready = world.ready("pinned", "True", "Ready").await?;
    assert!(ready.status.and_then(|status| status.digests).and_then(|digests| digests.source).is_some());
    Ok(())
}

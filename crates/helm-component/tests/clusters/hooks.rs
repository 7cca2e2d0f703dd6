//! Hooks of charts, compared with Helm, and through failures.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark, until};

use crate::chart::{packed, push};
use crate::world::{DEADLINE, World, apply_yaml, ready_of, world};

/// Writes and deletions in a namespace, in order, as `+ Kind name` and `- Kind name`.
pub(crate) type Story = Vec<String>;

/// Objects of a release in its namespace, by name.
type Effect = BTreeMap<&'static str, Value>;

pub(crate) const USER: &str = "system:serviceaccount:kube-system:modules";

pub(crate) fn job(name: &str, annotations: &str, more: &str) -> (String, String) {
    let text = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations: {{{annotations}}}\nspec:\n  \
         backoffLimit: 0\n  {more}\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{{name: main, \
         image: example.org/main:1}}]\n"
    );
    (format!("templates/{name}.yaml"), text)
}

pub(crate) fn config(name: &str, annotations: &str) -> (String, String) {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  annotations: {{{annotations}}}\ndata: {{level: \
         \"{{{{ .Values.level }}}}\"}}\n"
    );
    (format!("templates/{name}.yaml"), text)
}

fn account(name: &str, annotations: &str) -> (String, String) {
    let text = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  annotations: {{{annotations}}}\n"
    );
    (format!("templates/{name}.yaml"), text)
}

/// Returns a chart with hooks of every event that Helm triggers by itself, with each delete policy.
fn every_moment() -> Vec<(String, String)> {
    let hook = |events: &str, weight: &str, policy: &str| {
        let policy = match policy {
            "" => String::new(),
            policy => format!(", helm.sh/hook-delete-policy: \"{policy}\""),
        };
        format!("helm.sh/hook: \"{events}\", helm.sh/hook-weight: \"{weight}\"{policy}")
    };
    vec![
        config("main", ""),
        config("kept", "helm.sh/resource-policy: keep"),
        account("robot", &hook("pre-install,pre-upgrade", "-20", "")),
        config("settings", &hook("pre-install,pre-upgrade", "-10", "")),
        job("migrate", &hook("pre-install,pre-upgrade", "-5", "before-hook-creation,hook-succeeded"), ""),
        job("also", &hook("pre-install", "-5", "hook-succeeded"), ""),
        job("seed", &hook("post-install", "2", "hook-succeeded,hook-failed"), ""),
        job("first", &hook("post-install", "1", ""), ""),
        job("after", &hook("post-upgrade", "0", "before-hook-creation,hook-succeeded"), ""),
        job("clean", &hook("pre-delete", "0", "hook-succeeded"), ""),
        job("bye", &hook("post-delete", "0", "hook-succeeded"), ""),
        job("probe", &hook("test", "0", ""), ""),
        ("values.yaml".to_owned(), "level: low\n".to_owned()),
    ]
}

pub(crate) fn borrowed(files: &[(String, String)]) -> Vec<(&str, &str)> {
    files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect()
}

/// Returns writes and deletions in a namespace since the mark, of requests for which `by` holds. Repeated writes of
/// one object count once.
pub(crate) fn story(
    world: &World,
    mark: AuditMark,
    namespace: &str,
    by: impl Fn(&AuditEvent) -> bool,
) -> Result<Story> {
    let kinds = BTreeMap::from([
        ("configmaps", "ConfigMap"),
        ("jobs", "Job"),
        ("pods", "Pod"),
        ("serviceaccounts", "ServiceAccount"),
    ]);
    let mut story = Story::new();
    for event in world.target.audit()?.since(mark)? {
        let Some(kind) = kinds.get(event.resource.as_str()) else { continue };
        if event.namespace != namespace || !event.is_write() || !matches!(event.code, 200..300) || !by(&event)
        {
            continue;
        }
        let deed = if event.verb == "delete" { "-" } else { "+" };
        let line = format!("{deed} {kind} {}", event.name);
        if story.last() != Some(&line) {
            story.push(line);
        }
    }
    Ok(story)
}

/// Reports whether the event belongs to a story. Objects of a release are written in parallel, and the operator's
/// labels are removed from a kept object, of which only the deletion counts.
fn is_told(event: &AuditEvent) -> bool {
    event.name != "kept" || event.verb == "delete"
}

/// Returns the objects of [`every_moment`] that may stay.
async fn effect(world: &World, namespace: &str) -> Result<Effect> {
    let objects = [
        ("v1", "ConfigMap", "main"),
        ("v1", "ConfigMap", "kept"),
        ("v1", "ServiceAccount", "robot"),
        ("v1", "ConfigMap", "settings"),
        ("batch/v1", "Job", "first"),
        ("batch/v1", "Job", "probe"),
    ];
    let mut effect = Effect::new();
    for (api_version, kind, name) in objects {
        let found = world.on_target(api_version, kind, namespace, name).await?;
        effect.extend(found.map(|found| (name, bare(found))));
    }
    Ok(effect)
}

/// Returns an object without fields that API servers and controllers write, and without labels and annotations of
/// its creator.
fn bare(found: DynamicObject) -> Value {
    let marks = ["component.kyma-project.io/", "app.kubernetes.io/managed-by", "meta.helm.sh/"];
    let unmarked = |entries: Option<BTreeMap<String, String>>| {
        let mut entries = entries.unwrap_or_default();
        entries.retain(|key, _| !marks.iter().any(|mark| key.starts_with(*mark)));
        // The API server gives a Job without labels those of its Pods.
        entries.retain(|key, _| !key.ends_with("controller-uid") && !key.ends_with("job-name"));
        entries
    };
    let mut body = found.data;
    for (place, field) in [("", "status"), ("/spec", "selector")] {
        if let Some(fields) = body.pointer_mut(place).and_then(Value::as_object_mut) {
            fields.remove(field);
        }
    }
    if let Some(labels) = body.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|label, _| !label.ends_with("controller-uid"));
    }
    let (labels, annotations) = (unmarked(found.metadata.labels), unmarked(found.metadata.annotations));
    json!({"labels": labels, "annotations": annotations, "body": body})
}

/// Runs install, upgrade and uninstall with Helm. Returns the story and the remaining objects after each.
async fn by_helm(world: &World, chart: &Path) -> Result<Vec<(Story, Effect)>> {
    let chart = chart.to_str().context("a path")?;
    let commands: [&[&str]; 3] = [
        &["install", "rel", chart, "--create-namespace"],
        &["upgrade", "rel", chart, "--set", "level=high"],
        &["uninstall", "rel"],
    ];
    let mut stories = vec![];
    for command in commands {
        let mark = world.target.audit()?.mark()?;
        world.helm("hooks-helm", command).await?;
        let is_helms = |event: &AuditEvent| event.user_agent.starts_with("Helm/") && is_told(event);
        let told = story(world, mark, "hooks-helm", is_helms)?;
        stories.push((told, effect(world, "hooks-helm").await?));
    }
    Ok(stories)
}

/// Does the same with helm-component.
async fn by_us(world: &World, source: &Value) -> Result<Vec<(Story, Effect)>> {
    let spec = |level: &str| json!({"source": source, "values": {"level": level}, "release": {"name": "rel", "namespace": "hooks-ours"}});
    let told = |mark| story(world, mark, "hooks-ours", |event| event.user == USER && is_told(event));
    let mut stories = vec![];
    for level in ["low", "high"] {
        let mark = world.target.audit()?.mark()?;
        world.apply("hooks", spec(level)).await?;
        let phase = |hooks: Value| (hooks["event"].clone(), hooks["phase"].clone());
        let event = if level == "low" { "post-install" } else { "post-upgrade" };
        let expected = (json!(event), json!("Succeeded"));
        let over = until(&format!("{event} is over"), DEADLINE, || async {
            let found = world.components()?.get("hooks").await?;
            let hooks = json!(found.status.unwrap_or_default().hooks);
            Ok((phase(hooks) == expected).then_some(()))
        })
        .await;
        if let Err(error) = over {
            let status = world.components()?.get("hooks").await?.status;
            return Err(error.context(format!("{status:#?}\n{:?}", told(mark)?)));
        }
        stories.push((told(mark)?, effect(world, "hooks-ours").await?));
    }
    let mark = world.target.audit()?.mark()?;
    world.delete("hooks", "Delete").await?;
    world.gone("hooks").await?;
    stories.push((told(mark)?, effect(world, "hooks-ours").await?));
    Ok(stories)
}

#[tokio::test]
async fn hooks_run_as_helm_runs_them() -> Result<()> {
    let world = world().await?;
    let files = every_moment();
    let chart = world.scratch("hooks.tgz");
    std::fs::write(&chart, packed("hooks", "1.0.0", &borrowed(&files))?)?;
    let source = push(world, "hooks", "1.0.0", &borrowed(&files)).await?;
    let helms = by_helm(world, &chart).await?;
    let ours = by_us(world, &source).await?;
    let installed = ["first", "kept", "main", "robot", "settings"];
    let uninstalled = ["first", "kept", "robot", "settings"];
    let events = [("install", &installed[..]), ("upgrade", &installed[..]), ("uninstall", &uninstalled[..])];
    for (number, (event, names)) in events.into_iter().enumerate() {
        let (told, effect) = &helms[number];
        assert!(told.len() > 3, "{event}: {told:?}");
        assert!(effect.keys().eq(names), "{event}: {:?}", effect.keys());
        assert_eq!(&ours[number].0, told, "{event}");
        assert_eq!(&ours[number].1, effect, "{event}");
    }
    Ok(())
}

/// Returns a Pod that runs until a test ends it.
pub(crate) fn pod(name: &str, annotations: &str) -> (String, String) {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  labels: {{testbed/outcome: unready}}\n  annotations: \
         {{{annotations}}}\nspec:\n  restartPolicy: Never\n  containers: [{{name: main, image: example.org/main:1}}]\n"
    );
    (format!("templates/{name}.yaml"), text)
}

pub(crate) fn wished(source: &Value, name: &str, level: &str) -> Value {
    json!({"source": source, "values": {"level": level}, "release": {"name": name, "namespace": name}})
}

pub(crate) async fn until_waiting(world: &World, name: &str, words: &str) -> Result<()> {
    let components = world.components()?;
    until(words, DEADLINE, || async {
        let ready = ready_of(&components.get(name).await?);
        Ok(ready.is_some_and(|(_, _, message)| message.contains(words)).then_some(()))
    })
    .await
}

pub(crate) async fn level(world: &World, name: &str) -> Result<Option<Value>> {
    let found = world.on_target("v1", "ConfigMap", name, "main").await?;
    Ok(found.map(|found| found.data["data"]["level"].clone()))
}

#[tokio::test]
async fn failed_hook_keeps_release_and_new_content_is_tried_at_once() -> Result<()> {
    let world = world().await?;
    let good = [config("main", "")];
    let source = push(world, "failing", "1.0.0", &borrowed(&good)).await?;
    world.apply("failing", wished(&source, "failing", "low")).await?;
    world.ready("failing", "True", "Ready").await?;

    let (path, text) = job("check", "helm.sh/hook: pre-upgrade", "activeDeadlineSeconds: 1");
    let text =
        text.replace("  template:\n", "  template:\n    metadata: {labels: {testbed/outcome: unready}}\n");
    let failing = [config("main", ""), (path, text)];
    let source = push(world, "failing", "1.1.0", &borrowed(&failing)).await?;
    world.apply("failing", wished(&source, "failing", "high")).await?;
    let failed = world.ready("failing", "False", "HookFailed").await?;
    let (_, _, message) = ready_of(&failed).context("Ready")?;
    assert!(
        message.contains("pre-upgrade hook Job.batch failing/check: it failed: DeadlineExceeded"),
        "{message}"
    );
    assert_eq!(level(world, "failing").await?, Some(json!("low")), "what runs stays");

    let good = [config("main", ""), job("check", "helm.sh/hook: pre-upgrade", "")];
    let source = push(world, "failing", "1.2.0", &borrowed(&good)).await?;
    world.apply("failing", wished(&source, "failing", "higher")).await?;
    world.ready("failing", "True", "Ready").await?;
    assert_eq!(level(world, "failing").await?, Some(json!("higher")));
    Ok(())
}

#[tokio::test]
async fn returning_content_reruns_hook_whose_job_still_exists() -> Result<()> {
    let world = world().await?;
    let plain = push(world, "returning", "1.0.0", &borrowed(&[config("main", "")])).await?;
    let files = [config("main", ""), job("migrate", "helm.sh/hook: pre-upgrade", "")];
    let hooked = push(world, "returning", "2.0.0", &borrowed(&files)).await?;
    let bring = async |source: &Value, wished_level: &str| -> Result<()> {
        world.apply("returning", wished(source, "returning", wished_level)).await?;
        until(&format!("{wished_level} is there"), DEADLINE, || async {
            Ok((level(world, "returning").await? == Some(json!(wished_level))).then_some(()))
        })
        .await?;
        world.ready("returning", "True", "Ready").await.map(drop)
    };
    let migrated = async || -> Result<Option<String>> {
        let job = world.on_target("batch/v1", "Job", "returning", "migrate").await?;
        Ok(job.and_then(|job| job.metadata.uid))
    };
    bring(&plain, "low").await?;
    bring(&hooked, "high").await?;
    let first = migrated().await?.context("the Job of the first run")?;
    bring(&plain, "lower").await?;
    assert_eq!(migrated().await?, Some(first.clone()), "nothing deletes it but another run");
    bring(&hooked, "high").await?;
    let second = migrated().await?.context("the Job of the second run")?;
    assert_ne!(second, first, "the hook ran again");
    Ok(())
}

#[tokio::test]
async fn hook_respects_its_deadline_and_takes_no_foreign_object() -> Result<()> {
    let world = world().await?;
    let hook = "helm.sh/hook: post-install";
    let source = push(world, "slow", "1.0.0", &borrowed(&[config("main", ""), pod("slow", hook)])).await?;
    let mut spec = wished(&source, "slow", "low");
    spec["timeouts"] = json!({"hookSeconds": 2});
    world.apply("slow", spec).await?;
    let late = world.ready("slow", "False", "HookFailed").await?;
    let (_, _, message) = ready_of(&late).context("Ready")?;
    assert!(message.contains("post-install hook Pod slow/slow: it did not end in time"), "{message}");
    assert_eq!(level(world, "slow").await?, Some(json!("low")), "it came before");
    world.delete("slow", "Delete").await?;
    world.gone("slow").await?;

    let theirs = "apiVersion: v1\nkind: Namespace\nmetadata: {name: theirs}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: \
                  {name: settings, namespace: theirs}\ndata: {mine: \"yes\"}\n";
    apply_yaml(&world.target.client()?, theirs).await?;
    let files = [config("main", ""), config("settings", "helm.sh/hook: pre-install")];
    let source = push(world, "theirs", "1.0.0", &borrowed(&files)).await?;
    world.apply("theirs", wished(&source, "theirs", "low")).await?;
    let refused = world.ready("theirs", "False", "HookFailed").await?;
    let (_, _, message) = ready_of(&refused).context("Ready")?;
    assert!(message.contains("no hook created it"), "{message}");
    let settings = world.on_target("v1", "ConfigMap", "theirs", "settings").await?.context("theirs")?;
    assert_eq!(settings.data["data"], json!({"mine": "yes"}));

    let mut skipping = wished(&source, "theirs", "low");
    skipping["hooks"] = json!("Skip");
    world.apply("theirs", skipping).await?;
    world.ready("theirs", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn a_hook_may_be_of_a_kind_that_the_chart_brings() -> Result<()> {
    let world = world().await?;
    let crd = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tickets.hooks.example.org}
spec:
  group: hooks.example.org
  names: {kind: Ticket, plural: tickets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";
    let ticket = "apiVersion: hooks.example.org/v1\nkind: Ticket\nmetadata: {name: t, annotations: {helm.sh/hook: pre-install}}\n";
    let files = [
        ("crds/tickets.yaml".to_owned(), crd.to_owned()),
        ("templates/ticket.yaml".to_owned(), ticket.to_owned()),
        config("main", ""),
    ];
    let source = push(world, "brings", "1.0.0", &borrowed(&files)).await?;
    world.apply("brings", wished(&source, "brings", "low")).await?;
    world.ready("brings", "True", "Ready").await?;
    assert!(world.on_target("hooks.example.org/v1", "Ticket", "brings", "t").await?.is_some());
    assert_eq!(level(world, "brings").await?, Some(json!("low")));
    Ok(())
}

#[tokio::test]
async fn a_removal_goes_on_where_the_namespace_of_its_hooks_is_gone() -> Result<()> {
    let world = world().await?;
    let files = [config("main", ""), job("clean", "helm.sh/hook: pre-delete", "")];
    let source = push(world, "homeless", "1.0.0", &borrowed(&files)).await?;
    let mut spec = wished(&source, "homeless", "low");
    spec["drift"] = json!({"mode": "Off"});
    world.apply("homeless", spec).await?;
    world.ready("homeless", "True", "Ready").await?;
    without_namespace(world, "homeless").await?;
    world.delete("homeless", "Delete").await?;
    world.gone("homeless").await
}

/// Deletes a namespace and finalizes it by hand: its controller waits for every kind of the cluster, and other
/// tests break some.
async fn without_namespace(world: &World, name: &str) -> Result<()> {
    let client = world.target.client()?;
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), name);
    configs.delete("main", &DeleteParams::default()).await?;
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(name, &DeleteParams::default()).await?;
    let done = json!({"metadata": {"name": name}, "spec": {"finalizers": []}});
    match namespaces.replace_subresource("finalize", name, &PostParams::default(), &done).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        answer => drop(answer?),
    }
    until("the namespace is gone", DEADLINE, || async {
        Ok(namespaces.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

//! Releases of Helm, and objects that others applied, are taken over.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kyma_api::{Adoption, HelmComponent};
use serde_json::{Value, json};
use testbed::until;

use crate::chart::{packed, push};
use crate::hooks::{borrowed, job};
use crate::world::{DEADLINE, World, apply_yaml, condition_of, notes, world};

/// Returns a chart of a workload, a ConfigMap, one object that only some values enable, and a hook for each event
/// of a release.
fn files() -> Vec<(String, String)> {
    let hook =
        |event: &str| format!("helm.sh/hook: {event}, helm.sh/hook-delete-policy: before-hook-creation");
    let config = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{level: \"{{{{ .Values.level }}}}\"}}\n"
        )
    };
    let extra = format!("{{{{- if .Values.extra }}}}\n{}{{{{- end }}}}\n", config("extra"));
    let workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: main, labels: {app.kubernetes.io/managed-by: \
                    '{{ .Release.Service }}'}, annotations: {note: x}}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: \
                    main}}\n  template:\n    metadata: {labels: {app: main}}\n    spec: {containers: [{name: main, image: \
                    'example.org/main:1', ports: [{containerPort: 80}], env: [{name: A, value: '1'}]}]}\n";
    vec![
        ("templates/config.yaml".to_owned(), config("settings")),
        ("templates/extra.yaml".to_owned(), extra),
        ("templates/workload.yaml".to_owned(), workload.to_owned()),
        ("values.yaml".to_owned(), "level: low\nextra: false\n".to_owned()),
        job("installs", &hook("\"pre-install,post-install\""), ""),
        job("upgrades", &hook("pre-upgrade"), ""),
    ]
}

/// Installs the chart with Helm and these values, and returns its source.
pub(crate) async fn installed(world: &World, name: &str, set: &str) -> Result<Value> {
    installed_from(world, name, set, &files(), &[]).await
}

async fn installed_from(
    world: &World,
    name: &str,
    set: &str,
    files: &[(String, String)],
    flags: &[&str],
) -> Result<Value> {
    let chart = world.scratch(&format!("{name}.tgz"));
    std::fs::write(&chart, packed(name, "1.0.0", &borrowed(files))?)?;
    let source = push(world, name, "1.0.0", &borrowed(files)).await?;
    let chart = chart.to_str().context("a path")?;
    let install = ["install", name, chart, "--create-namespace", "--set", set];
    world.helm(name, &[&install[..], flags].concat()).await?;
    until("the release is up", DEADLINE, || async {
        let found = deployments(world, name)?.get("main").await?;
        let status = found.status.clone().unwrap_or_default();
        Ok((status.available_replicas == Some(1)).then_some(()))
    })
    .await?;
    Ok(source)
}

fn deployments(world: &World, namespace: &str) -> Result<Api<Deployment>> {
    Ok(Api::namespaced(world.target.client()?, namespace))
}

fn config_maps(world: &World, namespace: &str) -> Result<Api<ConfigMap>> {
    Ok(Api::namespaced(world.target.client()?, namespace))
}

fn secrets(world: &World, namespace: &str) -> Result<Api<Secret>> {
    Ok(Api::namespaced(world.target.client()?, namespace))
}

pub(crate) fn spec(source: &Value, name: &str, more: &Value) -> Value {
    let mut spec = json!({"source": source, "release": {"name": name, "namespace": name}});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    spec
}

pub(crate) fn adoption(component: &HelmComponent) -> Option<Adoption> {
    component.status.as_ref()?.adopted.clone()
}

/// Returns uid, generation and content of all objects in a namespace, without the ConfigMap that Kubernetes publishes
/// in each namespace at some time; the uid of a Job tells whether it ran again.
pub(crate) async fn content(
    world: &World,
    namespace: &str,
) -> Result<BTreeMap<String, (Option<String>, Option<i64>, Value)>> {
    let mut all = BTreeMap::new();
    for one in deployments(world, namespace)?.list(&ListParams::default()).await?.items {
        all.insert(
            format!("Deployment {}", one.name_any()),
            (one.uid(), one.metadata.generation, json!(one.spec)),
        );
    }
    for one in config_maps(world, namespace)?.list(&ListParams::default()).await?.items {
        all.insert(format!("ConfigMap {}", one.name_any()), (one.uid(), None, json!(one.data)));
    }
    all.remove("ConfigMap kube-root-ca.crt");
    for one in secrets(world, namespace)?.list(&ListParams::default()).await?.items {
        all.insert(format!("Secret {}", one.name_any()), (one.uid(), None, json!(one.data)));
    }
    let jobs: Api<Job> = Api::namespaced(world.target.client()?, namespace);
    for one in jobs.list(&ListParams::default()).await?.items {
        all.insert(format!("Job {}", one.name_any()), (one.uid(), one.metadata.generation, json!(null)));
    }
    Ok(all)
}

pub(crate) async fn level(world: &World, namespace: &str, name: &str) -> Result<Option<String>> {
    let found = config_maps(world, namespace)?.get_opt(name).await?;
    Ok(found.and_then(|found| found.data?.get("level").cloned()))
}

async fn edit(world: &World, namespace: &str, level: &str) -> Result<()> {
    let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let edited = json!({"data": {"level": level}});
    config_maps(world, namespace)?.patch("settings", &params, &Patch::Merge(edited)).await?;
    Ok(())
}

#[tokio::test]
async fn equal_release_is_adopted_unchanged_until_first_upgrade() -> Result<()> {
    let world = world().await?;
    let source = installed(world, "equal", "level=high").await?;
    let before = content(world, "equal").await?;
    ensure!(
        before.contains_key("Secret sh.helm.release.v1.equal.v1") && before.contains_key("Job installs"),
        "{before:?}"
    );
    world.apply("equal", spec(&source, "equal", &json!({"values": {"level": "high"}}))).await?;
    let component = world.ready("equal", "True", "Ready").await?;
    assert_eq!(content(world, "equal").await?, before);
    let found = adoption(&component).context("adopted")?;
    assert_eq!((found.from, found.revision, found.differing_count), (vec!["Helm".to_owned()], Some(1), None));
    let (_, _, message) = condition_of(&component, "Applied").context("Applied")?;
    assert_eq!(message, "adopted from another system; nothing differs");

    edit(world, "equal", "edited").await?;
    until("the edit is reported", DEADLINE, || async {
        let component = world.components()?.get("equal").await?;
        let applied = condition_of(&component, "Applied");
        Ok(applied.filter(|(_, _, message)| message.contains("not corrected: ConfigMap equal/settings")))
    })
    .await?;
    assert_eq!(level(world, "equal", "settings").await?.as_deref(), Some("edited"));

    world.apply("equal", spec(&source, "equal", &json!({"values": {"level": "higher"}}))).await?;
    until("the upgrade is there", DEADLINE, || async {
        Ok((level(world, "equal", "settings").await?.as_deref() == Some("higher")).then_some(()))
    })
    .await?;
    let component = world.ready("equal", "True", "Ready").await?;
    assert_eq!(adoption(&component), None);
    let jobs: Api<Job> = Api::namespaced(world.target.client()?, "equal");
    assert!(jobs.get_opt("upgrades").await?.is_some(), "its hooks are those of an upgrade");
    edit(world, "equal", "edited").await?;
    until("from now on edits are put right", DEADLINE, || async {
        Ok((level(world, "equal", "settings").await?.as_deref() == Some("higher")).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn adoption_with_other_content_upgrades_and_prunes_leftovers() -> Result<()> {
    let world = world().await?;
    let source = installed(world, "other", "extra=true").await?;
    // Creates the record of an upgrade that did not finish.
    let deployed = secrets(world, "other")?.get("sh.helm.release.v1.other.v1").await?;
    let mut pending = Secret { data: deployed.data, type_: deployed.type_, ..Secret::default() };
    pending.metadata.name = Some("sh.helm.release.v1.other.v2".to_owned());
    let mut labels = deployed.metadata.labels.unwrap_or_default();
    labels.extend(
        [("status", "pending-upgrade"), ("version", "2")].map(|(key, value)| (key.into(), value.into())),
    );
    pending.metadata.labels = Some(labels);
    secrets(world, "other")?.create(&PostParams::default(), &pending).await?;
    // Creates an object in the same namespace that does not belong to the release.
    let own = serde_json::from_value(json!({"metadata": {"name": "own"}, "data": {"level": "own"}}))?;
    config_maps(world, "other")?.create(&PostParams::default(), &own).await?;
    assert_eq!(level(world, "other", "extra").await?.as_deref(), Some("low"));
    let installs = content(world, "other").await?.remove("Job installs");

    world.apply("other", spec(&source, "other", &json!({"values": {"level": "high"}}))).await?;
    let component = world.ready("other", "True", "Ready").await?;
    assert_eq!(adoption(&component), None, "it is an upgrade of its own");
    assert_eq!(level(world, "other", "settings").await?.as_deref(), Some("high"));
    assert_eq!(
        level(world, "other", "extra").await?,
        None,
        "the release made it, and the values bring it no more"
    );
    assert_eq!(level(world, "other", "own").await?.as_deref(), Some("own"));
    let after = content(world, "other").await?;
    assert_eq!(after.get("Job installs"), installs.as_ref(), "hooks of an installation do not run");
    assert!(after.contains_key("Job upgrades"), "{:?}", after.keys());
    for revision in ["v1", "v2"] {
        assert!(
            after.contains_key(&format!("Secret sh.helm.release.v1.other.{revision}")),
            "the record stays"
        );
    }
    Ok(())
}

/// Helm's `lookup` finds objects and helm-component's does not, so the chart is the same and its objects are not.
#[tokio::test]
async fn extra_object_of_equal_adopted_release_stays_until_change() -> Result<()> {
    // A target for this test only: if another test removed a kind meanwhile, the operator would keep the stopgap.
    let world = &World::start().await?;
    let mut files = files();
    let found = "{{- if lookup \"v1\" \"Namespace\" \"\" \"default\" }}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \
                 looked-up}\ndata: {level: low}\n{{- end }}\n";
    files.push(("templates/found.yaml".to_owned(), found.to_owned()));
    let stopgap = "{{- if not (.Capabilities.APIVersions.Has \"beside.example.org/v1\") }}\napiVersion: v1\nkind: \
                   ConfigMap\nmetadata: {name: stopgap}\ndata: {level: low}\n{{- end }}\n";
    files.push(("templates/stopgap.yaml".to_owned(), stopgap.to_owned()));
    let source = installed_from(world, "beside", "level=high", &files, &[]).await?;
    assert_eq!(level(world, "beside", "looked-up").await?.as_deref(), Some("low"));
    let before = content(world, "beside").await?;
    world.apply("beside", spec(&source, "beside", &json!({"values": {"level": "high"}}))).await?;
    let component = world.ready("beside", "True", "Ready").await?;
    assert_eq!(content(world, "beside").await?, before);
    let named = adoption(&component).context("adopted")?.differing_objects;
    assert_eq!(named, Some(vec!["ConfigMap beside/looked-up".to_owned()]));

    // With the new kind served, the chart no longer contains this object, without any change of the spec.
    apply_yaml(&world.target.client()?, &notes("beside.example.org")).await?;
    until("the stopgap goes", DEADLINE, || async {
        Ok(level(world, "beside", "stopgap").await?.is_none().then_some(()))
    })
    .await?;
    let component = world.ready("beside", "True", "Ready").await?;
    assert_eq!(level(world, "beside", "looked-up").await?.as_deref(), Some("low"));
    let named = adoption(&component).context("adopted")?.differing_objects;
    assert_eq!(named, Some(vec!["ConfigMap beside/looked-up".to_owned()]));

    world.apply("beside", spec(&source, "beside", &json!({"values": {"level": "higher"}}))).await?;
    until("the content is as the chart renders it", DEADLINE, || async {
        Ok(level(world, "beside", "looked-up").await?.is_none().then_some(()))
    })
    .await?;
    world.ready("beside", "True", "Ready").await?;
    Ok(())
}

/// Helm 3 only makes updates, so the release's fields belong to an Update, not to an Apply.
#[tokio::test]
async fn fields_set_by_helm_updates_are_removed_by_an_upgrade_too() -> Result<()> {
    let world = world().await?;
    let mut files = files();
    let optional = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fields}\ndata:\n  level: \"{{ .Values.level }}\"\n  \
                    {{- if .Values.optional }}\n  optional: \"yes\"\n  {{- end }}\n";
    files.push(("templates/fields.yaml".to_owned(), optional.to_owned()));
    let set = "level=high,optional=true";
    let source = installed_from(world, "elder", set, &files, &["--server-side=false"]).await?;
    let configs = config_maps(world, "elder")?;
    let fields = configs.get("fields").await?.metadata.managed_fields.unwrap_or_default();
    let is_updated = fields.iter().all(|entry| entry.operation.as_deref() == Some("Update"));
    ensure!(!fields.is_empty() && is_updated, "{fields:?}");
    let before = content(world, "elder").await?;
    let values = json!({"values": {"level": "high", "optional": true}});
    world.apply("elder", spec(&source, "elder", &values)).await?;
    let component = world.ready("elder", "True", "Ready").await?;
    assert_eq!(content(world, "elder").await?, before);
    let found = adoption(&component).context("adopted")?;
    assert_eq!((found.from, found.revision, found.differing_count), (vec!["Helm".to_owned()], Some(1), None));

    world.apply("elder", spec(&source, "elder", &json!({"values": {"level": "high"}}))).await?;
    until("the field is gone", DEADLINE, || async {
        let data = json!(configs.get("fields").await?.data);
        Ok((data == json!({"level": "high"})).then_some(()))
    })
    .await?;
    world.ready("elder", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn an_upgrade_takes_what_others_applied_as_the_chart_says() -> Result<()> {
    let world = world().await?;
    let source = push(world, "grown", "1.0.0", &borrowed(&files())).await?;
    let values = |level: &str, extra: bool| json!({"values": {"level": level, "extra": extra}});
    world.apply("grown", spec(&source, "grown", &values("low", false))).await?;
    world.ready("grown", "True", "Ready").await?;
    let own = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}, "data": {"level": "own"}});
    config_maps(world, "grown")?.patch("extra", &PatchParams::apply("kubectl"), &Patch::Apply(own)).await?;

    world.apply("grown", spec(&source, "grown", &values("high", true))).await?;
    for name in ["settings", "extra"] {
        until("it is as the chart says", DEADLINE, || async {
            Ok((level(world, "grown", name).await?.as_deref() == Some("high")).then_some(()))
        })
        .await?;
    }
    let component = world.ready("grown", "True", "Ready").await?;
    assert_eq!(adoption(&component), None, "it was installed here");
    Ok(())
}

#[tokio::test]
async fn what_differs_is_named_and_put_right_where_somebody_says_so() -> Result<()> {
    let world = world().await?;
    let source = installed(world, "drifted", "level=high").await?;
    edit(world, "drifted", "edited").await?;
    let before = content(world, "drifted").await?;
    let values = json!({"values": {"level": "high"}});
    world.apply("drifted", spec(&source, "drifted", &values)).await?;
    let component = world.ready("drifted", "True", "Ready").await?;
    assert_eq!(content(world, "drifted").await?, before);
    let found = adoption(&component).context("adopted")?;
    assert_eq!(
        (found.differing_count, found.differing_objects),
        (Some(1), Some(vec!["ConfigMap drifted/settings".to_owned()]))
    );
    let (_, _, message) = condition_of(&component, "Applied").context("Applied")?;
    assert!(message.contains("although they differ: ConfigMap drifted/settings"), "{message}");

    let corrects = json!({"values": {"level": "high"}, "drift": {"mode": "Correct"}});
    world.apply("drifted", spec(&source, "drifted", &corrects)).await?;
    until("it is put right", DEADLINE, || async {
        Ok((level(world, "drifted", "settings").await?.as_deref() == Some("high")).then_some(()))
    })
    .await?;
    until("it is as any other component", DEADLINE, || async {
        Ok(adoption(&world.components()?.get("drifted").await?).is_none().then_some(()))
    })
    .await?;
    let jobs = content(world, "drifted").await?;
    assert!(!jobs.contains_key("Job upgrades"), "{:?}", jobs.keys());
    Ok(())
}

#[tokio::test]
async fn unreadable_release_record_stops_adoption_until_deleted() -> Result<()> {
    let world = world().await?;
    let source = installed(world, "broken", "level=high").await?;
    let broken = ByteString(b"hush".to_vec());
    let patch = json!({"data": {"release": broken}});
    let name = "sh.helm.release.v1.broken.v1";
    secrets(world, "broken")?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    let before = content(world, "broken").await?;
    world
        .apply("broken", spec(&source, "broken", &json!({"values": {"level": "high"}, "hooks": "Skip"})))
        .await?;
    let component = world.ready("broken", "False", "ReleaseRecordInvalid").await?;
    let (_, _, message) = condition_of(&component, "Ready").context("Ready")?;
    assert!(
        message.contains("Secret broken/sh.helm.release.v1.broken.v1") && !message.contains("hush"),
        "{message}"
    );
    assert_eq!(content(world, "broken").await?, before);
    secrets(world, "broken")?.delete(name, &DeleteParams::default()).await?;
    let component = world.ready("broken", "True", "Ready").await?;
    assert_eq!(adoption(&component).context("adopted")?.revision, None, "its objects tell all the same");
    Ok(())
}

#[tokio::test]
async fn adoption_from_argo_cd_changes_no_content_and_prunes_nothing() -> Result<()> {
    let world = world().await?;
    let client = world.target.client()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argo"}});
    crate::world::apply_yaml(&client, &namespace.to_string()).await?;
    let files = files();
    let source = push(world, "argo", "1.0.0", &borrowed(&files)).await?;
    let tracked = |name: &str, level: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": {"argocd.argoproj.io/tracking-id": format!("argo:/ConfigMap:argo/{name}")}},
            "data": {"level": level, "dropped": "x"},
        })
    };
    for (name, level) in [("settings", "high"), ("left", "low")] {
        let params = PatchParams::apply("argocd-controller");
        config_maps(world, "argo")?.patch(name, &params, &Patch::Apply(tracked(name, level))).await?;
    }
    let by_label = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extra", "labels": {"app.kubernetes.io/instance": "argo"}},
        "data": {"level": "high"},
    });
    let params = PatchParams::apply("argocd-controller");
    config_maps(world, "argo")?.patch("extra", &params, &Patch::Apply(by_label)).await?;
    let wished = |level: &str| {
        let values = json!({"level": level, "extra": true});
        spec(&source, "argo", &json!({"values": values, "hooks": "Skip"}))
    };
    world.apply("argo", wished("high")).await?;
    let component = world.ready("argo", "True", "Ready").await?;
    let found = adoption(&component).context("adopted")?;
    assert_eq!((found.from, found.revision), (vec!["Argo CD".to_owned()], None));
    assert_eq!(
        found.differing_objects,
        Some(vec!["ConfigMap argo/settings".to_owned()]),
        "it has a field more"
    );
    let settings = config_maps(world, "argo")?.get("settings").await?;
    assert_eq!(settings.data.clone().unwrap_or_default().len(), 2, "{settings:?}");
    assert!(settings.annotations().is_empty(), "nobody finds it by Argo's mark any more");
    let extra = config_maps(world, "argo")?.get("extra").await?;
    assert!(!extra.labels().contains_key("app.kubernetes.io/instance"), "nor this one by its label");
    assert!(deployments(world, "argo")?.get_opt("main").await?.is_some(), "what is missing is made");

    world.apply("argo", wished("top")).await?;
    until("the upgrade is there, and the field is gone", DEADLINE, || async {
        let data = config_maps(world, "argo")?.get("settings").await?.data.unwrap_or_default();
        Ok((data.len() == 1 && data["level"] == "top").then_some(()))
    })
    .await?;
    let left = config_maps(world, "argo")?.get("left").await?;
    assert!(left.annotations().contains_key("argocd.argoproj.io/tracking-id"), "it is no part of the chart");
    Ok(())
}

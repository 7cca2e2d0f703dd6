//! Ownership of objects' fields, and changes of immutable ones.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::labels;
use serde_json::{Value, json};
use testbed::{AuditMark, until, until_quiet};

use crate::chart::push;
use crate::hooks::USER;
use crate::world::{DEADLINE, World, apply_yaml, condition_of, ready_of, world};

/// A workload, its autoscaler if it is enabled, and ConfigMaps.
const SCALED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}"}}
    spec: {containers: [{name: main, image: "example.org/main:{{ .Values.tag }}"}]}
{{- if .Values.autoscaling }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: "{{ .Release.Name }}"}
spec:
  minReplicas: 1
  maxReplicas: 9
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: "{{ .Release.Name }}"}
{{- end }}
"#;

const SETTINGS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {ours: "{{ .Values.tag }}", theirs: "{{ .Values.tag }}"}
"#;

/// Waits until the operator sends no more requests about this namespace of the target, and returns the mark of that
/// time.
pub(crate) async fn at_rest(world: &World, namespace: &str) -> Result<AuditMark> {
    let place = format!("/namespaces/{namespace}/");
    until_quiet(&[&world.target], std::time::Duration::from_secs(3), DEADLINE, |event| {
        event.user.ends_with(":modules") && !event.is_routine() && event.uri.contains(&place)
    })
    .await?;
    world.target.audit()?.mark()
}

/// Returns the operator's writes in this namespace of the target since the mark.
pub(crate) fn writes(world: &World, namespace: &str, mark: AuditMark) -> Result<Vec<String>> {
    let place = format!("/namespaces/{namespace}/");
    let events = world.target.audit()?.since(mark)?.into_iter();
    let ours = events.filter(|event| event.user.ends_with(":modules") && event.is_write());
    Ok(ours
        .filter(|event| event.uri.contains(&place))
        .map(|event| format!("{} {}", event.verb, event.uri))
        .collect())
}

async fn scale(deployments: &Api<Deployment>, name: &str, replicas: i32) -> Result<()> {
    let params = PatchParams { field_manager: Some("autoscaler".to_owned()), ..PatchParams::default() };
    let scale = json!({"spec": {"replicas": replicas}});
    deployments.patch_scale(name, &params, &Patch::Merge(scale)).await?;
    Ok(())
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

fn image(deployment: &Deployment) -> Option<&str> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.as_deref()
}

/// Waits until the Deployment runs this image.
async fn upgraded(deployments: &Api<Deployment>, name: &str, tag: &str) -> Result<Deployment> {
    let wished = format!("example.org/main:{tag}");
    until(&format!("{name} runs {tag}"), DEADLINE, || async {
        let found = deployments.get(name).await?;
        Ok((image(&found) == Some(&*wished)).then_some(found))
    })
    .await
}

#[tokio::test]
async fn ignored_fields_are_neither_drift_nor_reset_by_an_upgrade() -> Result<()> {
    let world = world().await?;
    let source = push(world, "lawn", "1.0.0", &[("templates/settings.yaml", SETTINGS)]).await?;
    let ignore = json!([{"target": {"kind": "ConfigMap"}, "paths": ["/data/theirs", "/data/more"]}]);
    let spec = |tag: &str, mode: &str| {
        json!({"source": source, "release": {"namespace": "lawn"}, "values": {"tag": tag},
            "drift": {"mode": mode, "ignore": ignore}})
    };
    world.apply("lawn", spec("one", "Correct")).await?;
    world.ready("lawn", "True", "Ready").await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "lawn");
    let data = async || -> Result<Value> { Ok(json!(configs.get("lawn").await?.data)) };
    assert_eq!(data().await?, json!({"ours": "one", "theirs": "one"}), "both are set when it is made");

    let mark = at_rest(world, "lawn").await?;
    let edit = async |data: Value| {
        configs.patch("lawn", &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await.map(drop)
    };
    edit(json!({"theirs": "edited", "more": "added"})).await?;
    at_rest(world, "lawn").await?;
    assert_eq!(writes(world, "lawn", mark)?, Vec::<String>::new());
    edit(json!({"ours": "edited"})).await?;
    until("what is ours is put right", DEADLINE, || async {
        Ok((data().await? == json!({"ours": "one", "theirs": "edited", "more": "added"})).then_some(()))
    })
    .await?;

    world.apply("lawn", spec("two", "Warn")).await?;
    until("the upgrade arrives", DEADLINE, || async {
        Ok((data().await? == json!({"ours": "two", "theirs": "edited", "more": "added"})).then_some(()))
    })
    .await?;
    edit(json!({"theirs": "again"})).await?;
    edit(json!({"ours": "edited"})).await?;
    let components = world.components()?;
    let message = until("what is ours is told as drift", DEADLINE, || async {
        let applied = condition_of(&components.get("lawn").await?, "Applied");
        Ok(applied.map(|(_, _, message)| message).filter(|message| message.contains("lawn/lawn")))
    })
    .await?;
    assert!(message.starts_with("changed by others"), "{message}");
    edit(json!({"ours": "two"})).await?;
    world.apply("lawn", spec("three", "Warn")).await?;
    let ready = until("nothing has drifted any more", DEADLINE, || async {
        let component = components.get("lawn").await?;
        let applied = condition_of(&component, "Applied");
        Ok((data().await?["ours"] == "three" && applied.is_some_and(|(_, _, message)| message.is_empty()))
            .then_some(component))
    })
    .await?;
    assert_eq!(ready_of(&ready).map(|(status, ..)| status).as_deref(), Some("True"));
    assert_eq!(data().await?["theirs"], "again");
    Ok(())
}

#[tokio::test]
async fn ignored_path_that_is_invalid_or_inside_atomic_list_is_named() -> Result<()> {
    let world = world().await?;
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: hedge}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n";
    let source = push(world, "hedge", "1.0.0", &[("templates/role.yaml", role)]).await?;
    let spec = |paths: Value| json!({"source": source, "release": {"namespace": "hedge"}, "drift": {"ignore": [{ "paths": paths }]}});
    world.apply("hedge", spec(json!(["/rules", "spec/replicas"]))).await?;
    let component = world.ready("hedge", "False", "SpecInvalid").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.starts_with("spec.drift.ignore[0].paths[1]: is not a JSON pointer"), "{message}");
    world.apply("hedge", spec(json!(["/rules/0/verbs"]))).await?;
    let told = until("the part is named", DEADLINE, || async {
        let ready = ready_of(&world.components()?.get("hedge").await?);
        Ok(ready.map(|(_, _, message)| message).filter(|message| message.contains("changes as a whole")))
    })
    .await?;
    assert!(
        told.contains("Role.rbac.authorization.k8s.io hedge/hedge: spec.drift.ignore[0].paths[0]"),
        "{told}"
    );
    world.apply("hedge", spec(json!(["/rules"]))).await?;
    world.ready("hedge", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn whoever_scales_a_workload_has_its_replicas_through_upgrades() -> Result<()> {
    let world = world().await?;
    let source = push(world, "swing", "1.0.0", &[("templates/all.yaml", SCALED)]).await?;
    let spec = |tag: &str| {
        json!({"source": source, "release": {"namespace": "swing"},
            "values": {"tag": tag, "replicas": 1, "autoscaling": false}})
    };
    world.apply("swing", spec("one")).await?;
    world.ready("swing", "True", "Ready").await?;
    let deployments: Api<Deployment> = Api::namespaced(world.target.client()?, "swing");
    let mark = at_rest(world, "swing").await?;
    scale(&deployments, "swing", 3).await?;
    until("all three work", DEADLINE, || async {
        let found = deployments.get("swing").await?;
        Ok((found.status.and_then(|status| status.available_replicas) == Some(3)).then_some(()))
    })
    .await?;
    world.ready("swing", "True", "Ready").await?;
    at_rest(world, "swing").await?;
    assert_eq!(writes(world, "swing", mark)?, Vec::<String>::new(), "nobody fights");

    world.apply("swing", spec("two")).await?;
    assert_eq!(replicas(&upgraded(&deployments, "swing", "two").await?), Some(3));
    world.ready("swing", "True", "Ready").await?;
    let mark = at_rest(world, "swing").await?;
    scale(&deployments, "swing", 2).await?;
    at_rest(world, "swing").await?;
    assert_eq!(writes(world, "swing", mark)?, Vec::<String>::new());
    assert_eq!(replicas(&deployments.get("swing").await?), Some(2));
    Ok(())
}

#[tokio::test]
async fn autoscaler_of_chart_sets_replicas_until_chart_drops_it() -> Result<()> {
    let world = world().await?;
    let source = push(world, "slide", "1.0.0", &[("templates/all.yaml", SCALED)]).await?;
    let spec = |tag: &str, autoscaling: bool| {
        json!({"source": source, "release": {"namespace": "slide"},
            "values": {"tag": tag, "replicas": 2, "autoscaling": autoscaling}})
    };
    world.apply("slide", spec("one", true)).await?;
    world.ready("slide", "True", "Ready").await?;
    let deployments: Api<Deployment> = Api::namespaced(world.target.client()?, "slide");
    assert_eq!(replicas(&deployments.get("slide").await?), Some(2), "as it was made");
    // An edit of the object itself is kept too: the operator does not own the replicas.
    let edit = Patch::Merge(json!({"spec": {"replicas": 4}}));
    let mark = at_rest(world, "slide").await?;
    deployments.patch("slide", &PatchParams::default(), &edit).await?;
    at_rest(world, "slide").await?;
    assert_eq!(writes(world, "slide", mark)?, Vec::<String>::new());
    scale(&deployments, "slide", 3).await?;
    world.apply("slide", spec("two", true)).await?;
    assert_eq!(replicas(&upgraded(&deployments, "slide", "two").await?), Some(3));
    world.ready("slide", "True", "Ready").await?;

    world.apply("slide", spec("three", false)).await?;
    assert_eq!(
        replicas(&upgraded(&deployments, "slide", "three").await?),
        Some(2),
        "they are the chart's again"
    );
    world.ready("slide", "True", "Ready").await?;
    let autoscaler = world.on_target("autoscaling/v2", "HorizontalPodAutoscaler", "slide", "slide").await?;
    assert!(autoscaler.is_none());
    Ok(())
}

#[tokio::test]
async fn what_an_autoscaler_scales_on_its_way_out_is_the_charts_again() -> Result<()> {
    let world = world().await?;
    let source = push(world, "seesaw", "1.0.0", &[("templates/all.yaml", SCALED)]).await?;
    let spec = |tag: &str, autoscaling: bool| {
        json!({"source": source, "release": {"namespace": "seesaw"},
            "values": {"tag": tag, "replicas": 2, "autoscaling": autoscaling}})
    };
    world.apply("seesaw", spec("one", true)).await?;
    world.ready("seesaw", "True", "Ready").await?;
    let client = world.target.client()?;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(client.clone(), "seesaw");
    let finalizers = |held: Value| Patch::Merge(json!({"metadata": {"finalizers": held}}));
    let params = PatchParams::default();
    autoscalers.patch("seesaw", &params, &finalizers(json!(["example.org/held"]))).await?;

    let deployments: Api<Deployment> = Api::namespaced(client, "seesaw");
    world.apply("seesaw", spec("two", false)).await?;
    upgraded(&deployments, "seesaw", "two").await?;
    until("the autoscaler is on its way out", DEADLINE, || async {
        let found = autoscalers.get("seesaw").await?;
        Ok(found.metadata.deletion_timestamp)
    })
    .await?;
    scale(&deployments, "seesaw", 5).await?;
    at_rest(world, "seesaw").await?;
    autoscalers.patch("seesaw", &params, &finalizers(json!(null))).await?;
    until("the replicas are the chart's", DEADLINE, || async {
        Ok((replicas(&deployments.get("seesaw").await?) == Some(2)).then_some(()))
    })
    .await?;
    world.ready("seesaw", "True", "Ready").await?;
    assert!(autoscalers.get_opt("seesaw").await?.is_none());

    // From then on another writer may scale it.
    let mark = at_rest(world, "seesaw").await?;
    scale(&deployments, "seesaw", 3).await?;
    at_rest(world, "seesaw").await?;
    assert_eq!(writes(world, "seesaw", mark)?, Vec::<String>::new());
    Ok(())
}

fn crd(plural: &str, versions: &[&str]) -> String {
    let versions: String = versions
        .iter()
        .enumerate()
        .map(|(number, version)| {
            format!("  - {{name: {version}, served: true, storage: {}, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}\n", number == 0)
        })
        .collect();
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.fields.example.org}}\nspec:\n  group: fields.example.org\n  names: {{kind: {kind}, plural: {plural}}}\n  scope: Namespaced\n  versions:\n{versions}",
        kind = plural.to_uppercase(),
    )
}

fn versions(crd: &CustomResourceDefinition) -> Vec<&str> {
    crd.spec.versions.iter().map(|version| version.name.as_str()).collect()
}

#[tokio::test]
async fn policy_create_keeps_crds_of_directory_and_updates_templates() -> Result<()> {
    let world = world().await?;
    let files = |versions: &[&str]| {
        [("crds/beds.yaml", crd("beds", versions)), ("templates/rows.yaml", crd("rows", versions))]
    };
    let pushed = async |version: &str, versions: &[&str]| {
        let files = files(versions);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        push(world, "garden", version, &files).await
    };
    let spec =
        |source: Value| json!({"source": source, "release": {"namespace": "garden"}, "crds": "Create"});
    world.apply("garden", spec(pushed("1.0.0", &["v1"]).await?)).await?;
    world.ready("garden", "True", "Ready").await?;
    let crds: Api<CustomResourceDefinition> = Api::all(world.target.client()?);
    world.apply("garden", spec(pushed("1.1.0", &["v1", "v2"]).await?)).await?;
    until("that of the template has the new version", DEADLINE, || async {
        Ok((versions(&crds.get("rows.fields.example.org").await?) == ["v1", "v2"]).then_some(()))
    })
    .await?;
    world.ready("garden", "True", "Ready").await?;
    assert_eq!(versions(&crds.get("beds.fields.example.org").await?), ["v1"], "never upgraded");

    // A deleted CRD is created again, in its present form.
    crds.delete("beds.fields.example.org", &kube::api::DeleteParams::default()).await?;
    until("it is made again", DEADLINE, || async {
        let found = crds.get_opt("beds.fields.example.org").await?;
        Ok(found.is_some_and(|found| versions(&found) == ["v1", "v2"]).then_some(()))
    })
    .await?;
    world.delete("garden", "Delete").await?;
    world.gone("garden").await?;
    Ok(())
}

#[tokio::test]
async fn left_out_crds_stay_unowned_and_template_crds_are_created() -> Result<()> {
    let world = world().await?;
    let (left_out, made) = (crd("weeds", &["v1"]), crd("herbs", &["v1"]));
    let files = [("crds/weeds.yaml", left_out.as_str()), ("templates/herbs.yaml", made.as_str())];
    let source = push(world, "meadow", "1.0.0", &files).await?;
    let spec = json!({"source": source, "release": {"namespace": "meadow"}, "crds": "Skip"});
    world.apply("meadow", spec).await?;
    world.ready("meadow", "True", "Ready").await?;
    let client = world.target.client()?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    assert!(crds.get_opt("weeds.fields.example.org").await?.is_none());
    assert!(crds.get_opt("herbs.fields.example.org").await?.is_some());
    apply_yaml(&client, &left_out).await?;
    world.delete("meadow", "Delete").await?;
    world.gone("meadow").await?;
    assert!(crds.get_opt("weeds.fields.example.org").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn crd_keeps_a_stored_version_until_objects_are_rewritten() -> Result<()> {
    let world = world().await?;
    let spec = |source: Value| json!({"source": source, "release": {"namespace": "pond"}});
    let rest = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: pond}\ndata: {level: LEVEL}\n";
    let content = |versions: &[&str], level: &str| {
        format!("{}{}", crd("ponds", versions), rest.replace("LEVEL", level))
    };
    let source = world.push("pond", "1.0.0", &content(&["v1beta1", "v1"], "low")).await?;
    world.apply("pond", spec(source)).await?;
    world.ready("pond", "True", "Ready").await?;
    let client = world.target.client()?;
    apply_yaml(
        &client,
        "apiVersion: fields.example.org/v1beta1\nkind: PONDS\nmetadata: {name: big, namespace: pond}\n",
    )
    .await?;
    let source = world.push("pond", "2.0.0", &content(&["v1"], "high")).await?;
    world.apply("pond", spec(source)).await?;
    let component = world.ready("pond", "False", "CrdVersionInUse").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.contains("ponds.fields.example.org: objects are stored in v1beta1"), "{message}");
    let level = world.on_target("v1", "ConfigMap", "pond", "pond").await?.context("the ConfigMap")?;
    assert_eq!(level.data["data"]["level"], "low", "nothing else of it is applied either");

    // Follows the message: stores another version, rewrites the objects, and updates the CRD's status.
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::default();
    let name = "ponds.fields.example.org";
    let mut stored = crds.get(name).await?;
    for version in &mut stored.spec.versions {
        version.storage = version.name == "v1";
    }
    crds.patch(name, &params, &Patch::Merge(json!({"spec": {"versions": stored.spec.versions}}))).await?;
    let pond = |level: &str| {
        format!(
            "apiVersion: fields.example.org/v1\nkind: PONDS\nmetadata: {{name: big, namespace: pond}}\nspec: {{level: {level}}}\n"
        )
    };
    apply_yaml(&client, &pond("deep")).await?;
    crds.patch_status(name, &params, &Patch::Merge(json!({"status": {"storedVersions": ["v1"]}}))).await?;
    world.ready("pond", "True", "Ready").await?;
    assert_eq!(versions(&crds.get(name).await?), ["v1"]);
    Ok(())
}

#[tokio::test]
async fn object_is_recreated_where_allowed_even_if_drift_only_warns() -> Result<()> {
    let world = world().await?;
    let deployment = |label: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: stump}}\nspec:\n  selector: {{matchLabels: {{app: {label}}}}}\n  template: {{metadata: {{labels: {{app: {label}}}}}, spec: {{containers: [{{name: c, image: example.org/c:1}}]}}}}\n"
        )
    };
    let spec = |source: Value, recreate: Value| {
        let mut spec =
            json!({"source": source, "release": {"namespace": "stump"}, "drift": {"mode": "Warn"}});
        spec["recreate"] = recreate;
        spec
    };
    let source = world.push("stump", "1.0.0", &deployment("one")).await?;
    world.apply("stump", spec(source, json!([]))).await?;
    world.ready("stump", "True", "Ready").await?;
    let deployments: Api<Deployment> = Api::namespaced(world.target.client()?, "stump");
    let before = deployments.get("stump").await?.metadata.uid;

    let source = world.push("stump", "2.0.0", &deployment("two")).await?;
    world.apply("stump", spec(source.clone(), json!([]))).await?;
    let component = world.ready("stump", "False", "ImmutableField").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.contains("stump/stump: cannot be changed: spec.selector"), "{message}");
    assert_eq!(deployments.get("stump").await?.metadata.uid, before);

    let mark = world.target.audit()?.mark()?;
    world.apply("stump", spec(source, json!([{"group": "apps", "kind": "Deployment"}]))).await?;
    world.ready("stump", "True", "Ready").await?;
    let after = deployments.get("stump").await?;
    assert_ne!(after.metadata.uid, before);
    assert!(after.metadata.labels.is_some_and(|all| all.contains_key(labels::OWNER)));
    let events = world.target.audit()?.since(mark)?.into_iter();
    // A repeated DELETE that finds another uid or nothing deletes nothing.
    let deletions = events.filter(|event| {
        event.user == USER && event.namespace == "stump" && event.verb == "delete" && event.code == 200
    });
    assert_eq!(deletions.count(), 1, "once");
    Ok(())
}

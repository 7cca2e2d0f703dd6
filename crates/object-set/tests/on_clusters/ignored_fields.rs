//! Fields that the owner sets only when it creates an object.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kyma_api::Reason;
use kyma_object_set::{Identity, IgnoredFields, Limits, NoObservations, ObjectSet, Outcome, Refusal};
use serde_json::{Value, json};

use super::crds::{crd, crd_id};
use super::drift::drift_of;
use super::story::{MANAGER, Story, outcome};

/// Field manager of ignored fields that no other manager changed.
const IGNORED_FIELDS_MANAGER: &str = "helm-component-yielded";

fn rules(paths: &[&str]) -> Result<IgnoredFields> {
    let rules = vec![serde_json::from_value(json!({ "paths": paths }))?];
    Ok(IgnoredFields::parse(&rules)?)
}

/// Returns a ConfigMap with a field of the owner, and a field and an annotation that others may change.
fn shared(value: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, annotations: {{example.org/a-b: '{value}'}}}}\ndata: {{ours: '{value}', theirs: '{value}'}}\n"
    )
}

async fn state(story: &Story) -> Result<(Value, String)> {
    let live = story.config_maps().get("a").await?;
    let annotation = live.metadata.annotations.and_then(|all| all.get("example.org/a-b").cloned());
    Ok((
        json!({"data": live.data, "annotation": annotation}),
        live.metadata.resource_version.context("version")?,
    ))
}

/// Returns the field managers of the object.
fn managers(live: &DynamicObject) -> Vec<&str> {
    live.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref()).collect()
}

async fn live(story: &Story, kind: &str) -> Result<DynamicObject> {
    let id = Identity::new("apps", kind, Some(&story.namespace), "d");
    story.live(&id).await?.context("the workload")
}

async fn workloads(story: &Story, kind: &str) -> Result<Api<DynamicObject>> {
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let id = Identity::new("apps", kind, Some(&story.namespace), "d");
    let mapping = kinds.preferred(&id.group_kind()).context("kind")?;
    Ok(mapping.api(&story.cluster.client, Some(&story.namespace)))
}

#[tokio::test]
async fn ignored_fields_are_set_only_at_creation() -> Result<()> {
    let mut story = Story::begin("ignored").await?;
    let id = story.config_map("a");
    story.ignored_fields = rules(&["/data/theirs", "/metadata/annotations/example.org~1a-b"])?;
    story.apply(&shared("1")).await?;
    assert_eq!(state(&story).await?.0, json!({"data": {"ours": "1", "theirs": "1"}, "annotation": "1"}));

    story.edit("a", json!({"data": {"theirs": "edited"}})).await?;
    assert_eq!(drift_of(&story, &id).await?, kyma_object_set::drift::Drift::Unchanged);
    let (_, version) = state(&story).await?;
    assert_eq!(story.apply(&shared("1")).await?.changed().count(), 0);
    assert_eq!(state(&story).await?.1, version, "nothing is written");

    story.edit("a", json!({"data": {"ours": "edited"}})).await?;
    assert_eq!(drift_of(&story, &id).await?, kyma_object_set::drift::Drift::Changed);
    story.apply(&shared("1")).await?;
    assert_eq!(state(&story).await?.0, json!({"data": {"ours": "1", "theirs": "edited"}, "annotation": "1"}));

    story.apply(&shared("2")).await?;
    let upgraded = json!({"data": {"ours": "2", "theirs": "edited"}, "annotation": "1"});
    let (after, version) = state(&story).await?;
    assert_eq!(after, upgraded, "nobody changed the annotation, and it is not reset either");
    assert_eq!(story.apply(&shared("2")).await?.changed().count(), 0);
    assert_eq!(state(&story).await?.1, version);

    // Without the rule the owner owns all of it again.
    story.ignored_fields = IgnoredFields::default();
    story.apply(&shared("2")).await?;
    assert_eq!(state(&story).await?.0, json!({"data": {"ours": "2", "theirs": "2"}, "annotation": "2"}));
    story.apply("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {ours: '2'}\n").await?;
    assert_eq!(
        state(&story).await?.0,
        json!({"data": {"ours": "2"}, "annotation": null}),
        "nobody keeps them"
    );
    Ok(())
}

fn deployment(replicas: &str, images: &[&str]) -> String {
    let containers: String =
        images.iter().enumerate().map(|(n, image)| format!("{{name: c{n}, image: '{image}'}}, ")).collect();
    format!(
        "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\nspec:\n  {replicas}\n  selector: {{matchLabels: {{a: b}}}}\n  template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{containers}]}}}}\n"
    )
}

#[tokio::test]
async fn newly_ignored_field_keeps_its_value_until_rule_is_removed() -> Result<()> {
    let mut story = Story::begin("letgo").await?;
    story.apply(&deployment("replicas: 3", &["x:1"])).await?;
    story.ignored_fields = rules(&["/spec/replicas"])?;
    story.apply(&deployment("replicas: 4", &["x:1"])).await?;
    let found = live(&story, "Deployment").await?;
    assert_eq!(found.data["spec"]["replicas"], 3, "neither the default nor the new value");
    assert!(managers(&found).contains(&IGNORED_FIELDS_MANAGER), "{:?}", managers(&found));

    // The rule is removed, and with it the field.
    story.ignored_fields = IgnoredFields::default();
    story.apply(&deployment("", &["x:1"])).await?;
    let found = live(&story, "Deployment").await?;
    assert_eq!(found.data["spec"]["replicas"], 1, "the default");
    assert!(!managers(&found).contains(&IGNORED_FIELDS_MANAGER), "{:?}", managers(&found));
    Ok(())
}

#[tokio::test]
async fn an_item_of_a_list_is_the_one_that_the_set_has_there() -> Result<()> {
    let mut story = Story::begin("items").await?;
    story.ignored_fields = rules(&["/spec/template/spec/containers/1/image"])?;
    story.apply(&deployment("", &["x:1", "y:1"])).await?;
    story.apply(&deployment("", &["x:2", "y:2"])).await?;
    let images = |found: &DynamicObject| {
        let containers = found.data["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
        containers.iter().map(|one| one["image"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(images(&live(&story, "Deployment").await?), ["x:2", "y:1"]);
    let edit = json!({"spec": {"template": {"spec": {"containers": [{"name": "c1", "image": "y:edited"}]}}}});
    workloads(&story, "Deployment")
        .await?
        .patch("d", &PatchParams::default(), &Patch::Strategic(edit))
        .await?;
    story.apply(&deployment("", &["x:3", "y:3"])).await?;
    assert_eq!(images(&live(&story, "Deployment").await?), ["x:3", "y:edited"]);

    // An unchanged item is removed with the set, even if some of its fields were ignored.
    let mut other = story.neighbour("1.0.0");
    other.ignored_fields = rules(&["/spec/template/spec/containers/1/image"])?;
    let named = |images: &[&str]| deployment("", images).replace("{name: d}", "{name: e}");
    other.apply(&named(&["x:1", "y:1"])).await?;
    other.apply(&named(&["x:1"])).await?;
    let id = Identity::new("apps", "Deployment", Some(&story.namespace), "e");
    assert_eq!(images(&story.live(&id).await?.context("the other one")?), ["x:1"]);
    Ok(())
}

#[tokio::test]
async fn part_of_an_atomic_list_cannot_be_ignored_but_the_list_can() -> Result<()> {
    let mut story = Story::begin("atomic").await?;
    let name = story.namespace.clone();
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\nrules: [{{apiGroups: [''], resources: [pods], verbs: [get]}}]\n"
    );
    story.ignored_fields = rules(&["/rules/0/verbs"])?;
    let applied = story.try_apply(&role, &NoObservations).await?;
    let Outcome::Refused(refusal) = outcome(&applied, &name) else { panic!("{applied:?}") };
    assert!(
        matches!(refusal, Refusal::PartOfWhole { .. }) && refusal.reason() == Reason::SpecInvalid,
        "{refusal}"
    );
    assert!(refusal.to_string().contains("spec.drift.ignore[0].paths[0]: /rules/0/verbs"), "{refusal}");

    story.ignored_fields = rules(&["/rules"])?;
    story.apply(&role).await?;
    let id = Identity::new("rbac.authorization.k8s.io", "ClusterRole", None, &name);
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let api = kinds.preferred(&id.group_kind()).unwrap().api(&story.cluster.client, None);
    let theirs = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"]}]);
    api.patch(&name, &PatchParams::default(), &Patch::Merge(json!({ "rules": theirs }))).await?;
    story.apply(&role.replace("get", "list")).await?;
    assert_eq!(story.live(&id).await?.context("the role")?.data["rules"], theirs);
    assert!(story.uninstall_all().await?.kept.is_empty(), "it is ours all the same");
    Ok(())
}

#[tokio::test]
async fn ignored_fields_that_helm_set_are_not_reset() -> Result<()> {
    let mut story = Story::begin("helms").await?;
    let object = json!({"metadata": {"name": "a"}, "data": {"ours": "0", "theirs": "0", "left-out": "0"}});
    let helm = PostParams { field_manager: Some("helm".to_owned()), ..PostParams::default() };
    story.config_maps().create(&helm, &serde_json::from_value(object)?).await?;
    story.ignored_fields = rules(&["/data/theirs"])?;
    story.apply(&shared("1")).await?;
    assert_eq!(state(&story).await?.0, json!({"data": {"ours": "1", "theirs": "0"}, "annotation": "1"}));
    Ok(())
}

#[tokio::test]
async fn fields_of_crds_may_be_of_others_too() -> Result<()> {
    let mut story = Story::begin("ignoredcrd").await?;
    let group = format!("{}.io", story.namespace);
    let marked = |value: &str| {
        crd(&group, &["v1"])
            .replace("metadata: {", &format!("metadata: {{annotations: {{example.org/ca: '{value}'}}, "))
    };
    story.ignored_fields = rules(&["/metadata/annotations/example.org~1ca"])?;
    story.apply(&marked("born")).await?;
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let id = crd_id(&group);
    let api = kinds.preferred(&id.group_kind()).unwrap().api(&story.cluster.client, None);
    let edit = json!({"metadata": {"annotations": {"example.org/ca": "injected"}}});
    api.patch(&id.name, &PatchParams::default(), &Patch::Merge(edit)).await?;
    let value = async |story: &Story| -> Result<String> {
        let live = story.live(&id).await?.context("the CRD")?;
        Ok(live.metadata.annotations.unwrap()["example.org/ca"].clone())
    };
    story.apply(&marked("new")).await?;
    assert_eq!(value(&story).await?, "injected");
    story.ownership.version = "2.0.0".to_owned();
    story.apply(&marked("newer")).await?;
    assert_eq!(value(&story).await?, "injected");
    Ok(())
}

async fn scale(story: &Story, kind: &str, replicas: u32) -> Result<()> {
    let params = PatchParams { field_manager: Some("autoscaler".to_owned()), ..PatchParams::default() };
    let scale = json!({"spec": {"replicas": replicas}});
    workloads(story, kind).await?.patch_scale("d", &params, &Patch::Merge(scale)).await?;
    Ok(())
}

#[tokio::test]
async fn replicas_belong_to_the_manager_that_scales_the_workload() -> Result<()> {
    let mut story = Story::begin("scaled").await?;
    for kind in ["Deployment", "StatefulSet"] {
        let of_kind =
            |replicas: &str, image: &str| deployment(replicas, &[image]).replace("Deployment", kind);
        let id = Identity::new("apps", kind, Some(&story.namespace), "d");
        story.apply(&of_kind("replicas: 1", "x:1")).await?;
        scale(&story, kind, 5).await?;
        assert_eq!(drift_of(&story, &id).await?, kyma_object_set::drift::Drift::Unchanged, "{kind}");
        assert_eq!(story.apply(&of_kind("replicas: 1", "x:1")).await?.changed().count(), 0);
        story.apply(&of_kind("replicas: 2", "x:2")).await?;
        let found = live(&story, kind).await?;
        assert_eq!(found.data["spec"]["replicas"], 5, "{kind}");
        assert_eq!(found.data["spec"]["template"]["spec"]["containers"][0]["image"], "x:2");
        scale(&story, kind, 4).await?;
        assert_eq!(drift_of(&story, &id).await?, kyma_object_set::drift::Drift::Unchanged, "{kind}");
        // The next version omits the replicas, which stay with the autoscaler.
        story.apply(&of_kind("", "x:3")).await?;
        assert_eq!(live(&story, kind).await?.data["spec"]["replicas"], 4, "{kind}");
        assert_eq!(story.apply(&of_kind("", "x:3")).await?.changed().count(), 0);
    }
    Ok(())
}

#[tokio::test]
async fn autoscaler_of_the_set_owns_replicas_until_it_is_removed() -> Result<()> {
    let mut story = Story::begin("autoscaler").await?;
    let autoscaler = "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}, minReplicas: 1, maxReplicas: 9}\n";
    let with = |image: &str| format!("{}{autoscaler}", deployment("replicas: 2", &[image]));
    let mut objects = ObjectSet::parse(&with("x"), &Limits::default())?.into_objects();
    for object in &mut objects {
        object.set_namespace(Some(&story.namespace));
    }
    story.ignored_fields = IgnoredFields::default().with_autoscalers(&objects);
    story.apply(&with("x:1")).await?;
    let found = live(&story, "Deployment").await?;
    assert_eq!(found.data["spec"]["replicas"], 2, "as it was made");
    let ours = found
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .find(|entry| entry.manager.as_deref() == Some(MANAGER));
    let ours = ours.and_then(|entry| entry.fields_v1.as_ref()).context("our fields")?;
    assert!(ours.0["f:spec"].get("f:replicas").is_none(), "{ours:?}");
    scale(&story, "Deployment", 7).await?;
    story.apply(&with("x:2")).await?;
    assert_eq!(live(&story, "Deployment").await?.data["spec"]["replicas"], 7);

    story.ignored_fields = IgnoredFields::default().with_overwritten_scale([story.namespace.clone()].into());
    story.apply(&deployment("replicas: 2", &["x:2"])).await?;
    assert_eq!(live(&story, "Deployment").await?.data["spec"]["replicas"], 2);
    Ok(())
}

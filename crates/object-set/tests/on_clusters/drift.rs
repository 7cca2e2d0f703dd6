//! Drift is detected from metadata alone.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kyma_object_set::drift::{self, Drift, FlapLimit, Flaps};
use kyma_object_set::{Identity, OWNER_LABEL, ObservedObject, Outcome};
use serde_json::{Value, json};

use super::crds::{crd, thing};
use super::story::{MANAGER, Story, config_map, outcome};

pub(super) async fn drift_of(story: &Story, identity: &Identity) -> Result<Drift> {
    let live = story.live(identity).await?;
    let observed = live.map(|live| ObservedObject::from_metadata(&live.metadata, MANAGER, OWNER_LABEL));
    Ok(drift::compare(
        story.inventory.get(identity).context("entry")?,
        observed.as_ref(),
        &story.ownership.owner,
    ))
}

#[tokio::test]
async fn edits_of_our_fields_are_drift_and_others_are_not() -> Result<()> {
    let mut story = Story::begin("drift").await?;
    story.apply(&config_map("a", "1")).await?;
    let id = story.config_map("a");
    assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
    story.edit("a", json!({"data": {"other": "1"}, "metadata": {"labels": {"l": "1"}}})).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
    story.edit("a", json!({"data": {"v": "2"}})).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Changed);
    let applied = story.apply(&config_map("a", "1")).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: false, .. }));
    assert_eq!(story.config_maps().get("a").await?.data.unwrap()["v"], "1");
    assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
    for patch in [
        json!({"data": {"v": null}}),
        json!({"metadata": {"labels": {OWNER_LABEL: null}}}),
        json!({"metadata": {"managedFields": [{}]}}),
    ] {
        story.edit("a", patch.clone()).await?;
        assert_eq!(drift_of(&story, &id).await?, Drift::Changed, "{patch}");
        story.apply(&config_map("a", "1")).await?;
        assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged, "{patch}");
    }
    Ok(())
}

#[tokio::test]
async fn status_and_scale_by_others() -> Result<()> {
    let mut story = Story::begin("status").await?;
    let set = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, annotations: null}\nspec:\n  replicas: 1\n  selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}\n";
    story.apply(set).await?;
    let id = Identity::new("apps", "Deployment", Some(&story.namespace), "d");
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let api = kinds.preferred(&id.group_kind()).unwrap().api(&story.cluster.client, Some(&story.namespace));
    let params = PatchParams::default();
    let status = Patch::Merge(json!({"status": {"replicas": 1, "observedGeneration": 1}}));
    api.patch_status("d", &params, &status).await?;
    let annotation = json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}});
    api.patch("d", &params, &Patch::Merge(annotation)).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
    api.patch("d", &params, &Patch::Merge(json!({"spec": {"replicas": 5}}))).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Changed);
    Ok(())
}

#[tokio::test]
async fn equal_value_of_another_manager_is_no_drift_until_it_changes() -> Result<()> {
    let mut story = Story::begin("coowner").await?;
    story.apply(&config_map("a", "1")).await?;
    let id = story.config_map("a");
    let theirs = |value: &str| -> Patch<Value> {
        Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"v": value}}),
        )
    };
    let params = PatchParams::apply("them").force();
    story.config_maps().patch("a", &params, &theirs("1")).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
    story.config_maps().patch("a", &params, &theirs("2")).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Changed);
    Ok(())
}

#[tokio::test]
async fn deleted_and_recreated_objects_come_back() -> Result<()> {
    let mut story = Story::begin("gone").await?;
    story.apply(&config_map("a", "1")).await?;
    let id = story.config_map("a");
    story.config_maps().delete("a", &DeleteParams::default()).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Gone);
    let applied = story.apply(&config_map("a", "1")).await?;
    assert!(matches!(outcome(&applied, "a"), Outcome::Applied { created: true, .. }));
    story.config_maps().delete("a", &DeleteParams::default()).await?;
    let strangers = serde_json::from_value(json!({"metadata": {"name": "a"}}))?;
    story.config_maps().create(&PostParams::default(), &strangers).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Recreated);
    story.apply(&config_map("a", "1")).await?;
    assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
    Ok(())
}

#[tokio::test]
async fn an_observed_unchanged_set_is_not_asked_about() -> Result<()> {
    let mut story = Story::begin("observed").await?;
    let text = format!("{}{}", config_map("a", "1"), config_map("b", "1"));
    story.apply(&text).await?;
    let mut seen = std::collections::BTreeMap::new();
    for (identity, _) in &story.inventory {
        let live = story.live(identity).await?.unwrap();
        seen.insert(identity.clone(), ObservedObject::from_metadata(&live.metadata, MANAGER, OWNER_LABEL));
    }
    // The cluster does not respond any more: any request fails.
    let dead = kube::Config::new("https://127.0.0.1:1".parse()?);
    story.cluster.client = kube::Client::try_from(dead)?;
    let applied = story.try_apply(&text, &seen).await?;
    assert!(applied.is_complete(), "{:?}", applied.outcomes);
    assert_eq!(applied.changed().count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_repair_keeps_random_values() -> Result<()> {
    let mut story = Story::begin("chance").await?;
    let set = |password: &str, level: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{password: {password}, level: {level}}}\n"
        )
    };
    story.apply(&set("first", "low")).await?;
    story.repair = true;
    story.edit("a", json!({"data": {"level": "edited"}})).await?;
    story.apply(&set("second", "low")).await?;
    let data = story.config_maps().get("a").await?.data.unwrap();
    assert_eq!((data["password"].as_str(), data["level"].as_str()), ("first", "low"));
    let id = story.config_map("a");
    assert_eq!(drift_of(&story, &id).await?, Drift::Unchanged);
    let again = story.apply(&set("first", "low")).await?;
    assert!(matches!(outcome(&again, "a"), Outcome::Unchanged), "the recorded wish is still the first one");
    story.repair = false;
    story.apply(&set("third", "low")).await?;
    assert_eq!(story.config_maps().get("a").await?.data.unwrap()["password"], "third", "a new version");
    Ok(())
}

/// Returns the API for objects of a test's CRD in one version.
pub(super) fn things(story: &Story, group: &str, version: &str) -> kube::Api<kube::api::DynamicObject> {
    let gvk = kube::core::GroupVersionKind::gvk(group, version, "Thing");
    let resource = kube::api::ApiResource::from_gvk_with_plural(&gvk, "things");
    kube::Api::namespaced_with(story.cluster.client.clone(), &story.namespace, &resource)
}

#[tokio::test]
async fn another_version_of_the_kind_is_no_drift() -> Result<()> {
    let mut story = Story::begin("versions").await?;
    let group = format!("{}.io", story.namespace);
    story.apply(&format!("{}{}", crd(&group, &["v1", "v2"]), thing(&group, "v1", "t"))).await?;
    let id = Identity::new(&group, "Thing", Some(&story.namespace), "t");
    let drift = async |version: &str| -> Result<Drift> {
        let live = things(&story, &group, version).get("t").await?;
        let observed = ObservedObject::from_metadata(&live.metadata, MANAGER, OWNER_LABEL);
        let entry = story.inventory.get(&id).context("entry")?;
        Ok(drift::compare(entry, Some(&observed), &story.ownership.owner))
    };
    for version in ["v2", "v1"] {
        assert_eq!(drift(version).await?, Drift::Unchanged, "read as {version}");
        let theirs = Patch::Merge(json!({"spec": {version: "theirs"}}));
        things(&story, &group, version).patch("t", &PatchParams::default(), &theirs).await?;
        assert_eq!(drift(version).await?, Drift::Unchanged, "written as {version}");
    }
    // The API server stores and returns another version from now on.
    let kinds = story.cluster.discovery.kinds(&story.cluster.client).await?;
    let of_crds = super::crds::crd_id(&group);
    let api = kinds.preferred(&of_crds.group_kind()).context("CRDs")?.api(&story.cluster.client, None);
    let stored_in_v2 = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    let other: json_patch::Patch = serde_json::from_value(stored_in_v2)?;
    api.patch(&of_crds.name, &PatchParams::default(), &Patch::<Value>::Json(other)).await?;
    let theirs = Patch::Merge(json!({"spec": {"theirs": "again"}}));
    things(&story, &group, "v2").patch("t", &PatchParams::default(), &theirs).await?;
    assert_eq!(drift("v1").await?, Drift::Unchanged);
    assert_eq!(drift("v2").await?, Drift::Unchanged);
    things(&story, &group, "v2")
        .patch("t", &PatchParams::default(), &Patch::Merge(json!({"spec": {"a": 2}})))
        .await?;
    assert_eq!(drift("v1").await?, Drift::Changed);
    Ok(())
}

#[tokio::test]
async fn a_list_that_two_apply_as_a_whole_is_noticed_as_a_fight() -> Result<()> {
    let mut story = Story::begin("alternate").await?;
    let group = format!("{}.io", story.namespace);
    let list = thing(&group, "v1", "t").replace("a: 1", "items: [{name: ours}]");
    let set = format!("{}{list}", crd(&group, &["v1"]));
    story.apply(&set).await?;
    let id = Identity::new(&group, "Thing", Some(&story.namespace), "t");
    let theirs = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"items": [{"name": "theirs"}]},
    });
    let (mut flaps, limit) = (Flaps::default(), FlapLimit { corrections: 3, seconds: 600 });
    let mut rounds = 0;
    while !flaps.fighting(rounds, limit) {
        let params = PatchParams::apply("them").force();
        things(&story, &group, "v1").patch("t", &params, &Patch::Apply(theirs.clone())).await?;
        assert_eq!(drift_of(&story, &id).await?, Drift::Changed, "in round {rounds}");
        story.apply(&set).await?;
        let live = things(&story, &group, "v1").get("t").await?;
        assert_eq!(live.data["spec"]["items"], json!([{"name": "ours"}]), "one owner has all of it");
        flaps.corrected(rounds, limit);
        rounds += 1;
    }
    assert_eq!(rounds, 3);
    Ok(())
}

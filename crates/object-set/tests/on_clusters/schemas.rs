//! Kinds whose versions and schemas change after objects were applied.

use anyhow::{Context as _, Result};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kyma_object_set::drift::{Drift, compare};
use kyma_object_set::{Identity, OWNER_LABEL, ObservedObject};
use serde_json::{Value, json};
use testbed::until;

use super::crds::{crd, thing};
use super::drift::things;
use super::story::{EVENT_TIMEOUT, MANAGER, Story};

/// Returns a CRD of its own group whose objects have these fields in their `spec`.
fn structural(group: &str, fields: &Value) -> String {
    let spec = json!({"type": "object", "properties": fields});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    format!("---\n{crd}\n")
}

/// Returns the object `t` with this `spec`.
fn thing_of(group: &str, spec: &Value) -> String {
    let metadata = json!({"name": "t"});
    let thing =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": metadata, "spec": spec});
    format!("---\n{thing}\n")
}

/// Returns the object `t` as the API server shows it, and its drift.
async fn look(story: &Story, group: &str) -> Result<(DynamicObject, Drift)> {
    let live = things(story, group, "v1").get("t").await?;
    let observed = ObservedObject::from_metadata(&live.metadata, MANAGER, OWNER_LABEL);
    let id = Identity::new(group, "Thing", Some(&story.namespace), "t");
    let entry = story.inventory.get(&id).context("entry")?;
    Ok((live, compare(entry, Some(&observed), &story.ownership.owner)))
}

#[tokio::test]
async fn fields_of_a_removed_version_are_removed_with_the_set() -> Result<()> {
    let mut story = Story::begin("gone-version").await?;
    let group = format!("{}.io", story.namespace);
    let earlier = thing(&group, "v1beta1", "t").replace("a: 1", "a: 1, b: 1");
    story.apply(&format!("{}{earlier}", crd(&group, &["v1", "v1beta1"]))).await?;
    let theirs = Patch::Merge(json!({"spec": {"theirs": 1}}));
    things(&story, &group, "v1beta1").patch("t", &PatchParams::default(), &theirs).await?;

    story.apply(&crd(&group, &["v1"])).await?;
    let earlier = format!("{group}/v1beta1");
    let is_recorded = |live: &DynamicObject| {
        live.managed_fields().iter().any(|one| one.api_version.as_ref() == Some(&earlier))
    };
    let probe = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "t"}, "spec": {"probe": 1},
    });
    // API servers either refuse every later apply to the object (kubernetes/kubernetes#111937), or drop the
    // entries.
    until("the API server has dropped the version", EVENT_TIMEOUT, || async {
        let params = PatchParams::apply("probe").dry_run();
        match things(&story, &group, "v1").patch("t", &params, &Patch::Apply(&probe)).await {
            Ok(would_be) => Ok((!is_recorded(&would_be)).then_some(())),
            Err(kube::Error::Api(status)) if status.code == 500 => Ok(Some(())),
            Err(error) => Err(error.into()),
        }
    })
    .await?;

    let set = format!("{}{}", crd(&group, &["v1"]), thing(&group, "v1", "t"));
    story.apply(&set).await?;
    let (live, drift) = look(&story, &group).await?;
    assert_eq!(live.data["spec"], json!({"a": 1, "theirs": 1}));
    assert_eq!(drift, Drift::Unchanged);
    assert!(!is_recorded(&live), "{:?}", live.managed_fields());
    assert_eq!(story.apply(&set).await?.changed().count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_field_that_the_schema_has_no_more_hinders_nothing() -> Result<()> {
    let mut story = Story::begin("gone-field").await?;
    let group = format!("{}.io", story.namespace);
    let (a, number) = (json!({"a": 1}), json!({"type": "integer"}));
    let earlier = structural(&group, &json!({"a": number, "old": number}));
    story.apply(&format!("{earlier}{}", thing_of(&group, &json!({"a": 1, "old": 1})))).await?;

    let later = structural(&group, &json!({"a": number}));
    story.apply(&later).await?;
    until("the API server has dropped the field", EVENT_TIMEOUT, || async {
        let live = things(&story, &group, "v1").get("t").await?;
        Ok(live.data["spec"]["old"].is_null().then_some(()))
    })
    .await?;
    assert_eq!(look(&story, &group).await?.1, Drift::Unchanged, "nobody wrote to it");

    let set = format!("{later}{}", thing_of(&group, &a));
    story.apply(&set).await?;
    let (live, drift) = look(&story, &group).await?;
    assert_eq!((&live.data["spec"], drift), (&a, Drift::Unchanged));
    assert_eq!(story.apply(&set).await?.changed().count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_list_that_gets_keys_is_shared_by_items_from_then_on() -> Result<()> {
    let mut story = Story::begin("list-type").await?;
    let group = format!("{}.io", story.namespace);
    let properties = json!({"name": {"type": "string"}, "v": {"type": "integer"}});
    let mut list = json!({
        "type": "array", "items": {"type": "object", "required": ["name"], "properties": properties},
    });
    let of = |items: Value| thing_of(&group, &json!({"items": items}));
    let whole = structural(&group, &json!({"items": list}));
    story.apply(&format!("{whole}{}", of(json!([{"name": "ours", "v": 1}])))).await?;

    list["x-kubernetes-list-type"] = "map".into();
    list["x-kubernetes-list-map-keys"] = json!(["name"]);
    let keyed = structural(&group, &json!({"items": list}));
    story.apply(&keyed).await?;
    // While the list is one field, an item of another manager is a conflict.
    let theirs = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"items": [{"name": "theirs", "v": 1}]},
    });
    until("the list has keys", EVENT_TIMEOUT, || async {
        match things(&story, &group, "v1")
            .patch("t", &PatchParams::apply("them"), &Patch::Apply(&theirs))
            .await
        {
            Ok(_) => Ok(Some(())),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await?;

    for items in [json!([{"name": "ours", "v": 2}]), json!([{"name": "another", "v": 1}])] {
        let set = format!("{keyed}{}", of(items.clone()));
        story.apply(&set).await?;
        let (live, drift) = look(&story, &group).await?;
        let all = live.data["spec"]["items"].as_array().context("items")?;
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.contains(&items[0]) && all.contains(&theirs["spec"]["items"][0]), "{all:?}");
        assert_eq!(drift, Drift::Unchanged);
        assert_eq!(story.apply(&set).await?.changed().count(), 0);
    }
    Ok(())
}

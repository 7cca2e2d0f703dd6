//! Fields that other managers owned before.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::story::{Story, config_map};

async fn data(story: &Story) -> Result<Value> {
    Ok(json!(story.config_maps().get("a").await?.data))
}

fn managers(live: ConfigMap) -> Vec<String> {
    live.metadata.managed_fields.into_iter().flatten().filter_map(|entry| entry.manager).collect()
}

#[tokio::test]
async fn an_object_without_managers_is_taken_whole() -> Result<()> {
    let mut story = Story::begin("nobodys").await?;
    let object = json!({"metadata": {"name": "a"}, "data": {"v": "1", "left-out": "1"}});
    story.config_maps().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let live = story.edit("a", json!({"metadata": {"managedFields": [{}]}})).await?;
    assert_eq!(managers(live), Vec::<String>::new());

    story.apply(&config_map("a", "2")).await?;
    assert_eq!(data(&story).await?, json!({"v": "2"}), "the API server knows it as before-first-apply");
    assert_eq!(managers(story.config_maps().get("a").await?), [super::story::MANAGER]);
    assert_eq!(story.apply(&config_map("a", "2")).await?.changed().count(), 0);
    story.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {w: '1'}\n").await?;
    assert_eq!(data(&story).await?, json!({"w": "1"}), "nothing lingers");
    Ok(())
}

#[tokio::test]
async fn fields_are_taken_only_from_named_managers() -> Result<()> {
    let mut story = Story::begin("appliers").await?;
    let apply = async |manager: &str, key: &str| {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        object["data"] = json!({ "v": "1" });
        object["data"][key] = "1".into();
        let params = PatchParams::apply(manager);
        story.config_maps().patch("a", &params, &Patch::Apply(object)).await.map(drop)
    };
    apply("kustomize-controller", "kustomizes").await?;
    apply("stranger", "strangers").await?;
    story.take_over = vec!["kustomize-controller"];
    story.apply(&config_map("a", "2")).await?;
    assert_eq!(data(&story).await?, json!({"v": "2", "strangers": "1"}));
    let managers = managers(story.config_maps().get("a").await?);
    assert_eq!(managers.len(), 2, "{managers:?}");
    assert!(!managers.contains(&"kustomize-controller".to_owned()), "{managers:?}");
    Ok(())
}

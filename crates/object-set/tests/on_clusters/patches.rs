//! Strategic merge patches have the same result as on an API server.

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kyma_object_set::{Discovery, Kinds, Object, ObjectSet, Patches};
use serde_json::{Value, json};

use super::story::TEST_ENV;

#[tokio::test]
async fn an_api_server_agrees_with_every_case() -> Result<()> {
    // Controllers would change objects in between.
    let cluster = TEST_ENV.cluster("patches", |cluster| cluster).await?;
    let namespace = cluster.namespace("patches").await?;
    let client = cluster.client()?;
    let kinds = Discovery::new().kinds(&client).await?;
    let cases: Vec<Value> = serde_saphyr::from_str(include_str!("../../src/patch/cases.yaml"))?;
    for case in &cases {
        let name = case["name"].as_str().unwrap_or_default();
        let object = Object::from_value(case["object"].clone())?;
        let mapping = kinds.get(&object.gvk()).with_context(|| format!("{name}: the kind"))?;
        let api = mapping.api(&client, Some(&namespace));
        let text = case["patch"].as_str().with_context(|| format!("{name}: the patch"))?;
        agrees(&api, object, text, &kinds).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Checks that the server's patch gives the same object as a replacement by the result of this crate's patch.
async fn agrees(api: &Api<DynamicObject>, object: Object, text: &str, kinds: &Kinds) -> Result<()> {
    let name = object.name().to_owned();
    let held = api.create(&PostParams::default(), &serde_json::from_value(object.into_value())?).await?;
    let patch: Value = serde_saphyr::from_str(text)?;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let theirs = api.patch(&name, &dry, &Patch::Strategic(&patch)).await?;

    let patches = Patches::parse(&[serde_json::from_value(json!({"target": {}, "patch": text}))?])?;
    let set = ObjectSet::new(vec![Object::from_value(serde_json::to_value(&held)?)?]);
    let ours = patches.apply(set, kinds, "").context("ours")?.into_objects().remove(0).into_value();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let ours = api.replace(&name, &dry, &serde_json::from_value(ours)?).await?;
    assert_eq!(plain(ours)?, plain(theirs)?);
    Ok(())
}

/// Returns the object without managedFields, which only record how it was written.
fn plain(mut object: DynamicObject) -> Result<Value> {
    object.metadata.managed_fields = None;
    Ok(serde_json::to_value(object)?)
}

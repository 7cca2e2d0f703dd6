//! Values from ConfigMaps and Secrets of the hub.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kyma_api::labels;
use serde_json::{Value, json};
use testbed::until;

use crate::chart::push;
use crate::world::{DEADLINE, HUB_NAMESPACE, World, ready_of, world};

const SHOWN: &str = r#"apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data:
  color: "{{ .Values.color }}"
  size: "{{ .Values.size }}"
  token: "{{ .Values.auth.token }}"
"#;

fn config_maps(world: &World) -> Result<Api<ConfigMap>> {
    Ok(Api::namespaced(world.hub.client()?, HUB_NAMESPACE))
}

async fn create_config_map(world: &World, name: &str, values: &str) -> Result<()> {
    let object = json!({"metadata": {"name": name}, "data": {"values.yaml": values}});
    config_maps(world)?.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn change_config_map(world: &World, name: &str, change: Value) -> Result<()> {
    config_maps(world)?.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await?;
    Ok(())
}

/// Returns the data of the chart's ConfigMap and its resourceVersion.
async fn shown(world: &World, name: &str) -> Result<Option<(Value, String)>> {
    let found = world.on_target("v1", "ConfigMap", name, name).await?;
    let version = |found: &kube::api::DynamicObject| found.metadata.resource_version.clone();
    Ok(found.map(|found| (found.data["data"].clone(), version(&found).unwrap_or_default())))
}

async fn until_shown(world: &World, name: &str, what: &str, expected: Value) -> Result<String> {
    let (data, version) = until(what, DEADLINE, || async {
        Ok(shown(world, name).await?.filter(|(data, _)| *data == expected))
    })
    .await?;
    assert_eq!(data, expected);
    Ok(version)
}

/// Waits until the component reports ValuesMissing with these words.
async fn until_told(world: &World, name: &str, words: &str) -> Result<()> {
    let components = world.components()?;
    until(words, DEADLINE, || async {
        let ready = ready_of(&components.get(name).await?);
        let is_told = |(_, reason, message): (String, String, String)| {
            reason == "ValuesMissing" && message.contains(words)
        };
        Ok(ready.is_some_and(is_told).then_some(()))
    })
    .await
}

/// Waits until the status records these optional entries as installed.
async fn until_recorded(world: &World, name: &str, expected: Value) -> Result<()> {
    let components = world.components()?;
    until("the record of optional values", DEADLINE, || async {
        let status = components.get(name).await?.status;
        let recorded = json!(status.and_then(|status| status.values_from));
        Ok((recorded == expected).then_some(()))
    })
    .await
}

/// Creates the ConfigMap of an optional entry, deletes it, and removes the entry: only the removal takes its values.
async fn vanished_optional_values_stay(world: &World, mut spec: Value, first: Value) -> Result<()> {
    create_config_map(world, "values-from-more", "color: green").await?;
    let green = json!({"color": "green", "size": "user", "token": "0123hush"});
    until_shown(world, "values-from", "what was missing and may be", green.clone()).await?;
    let more = json!({"kind": "ConfigMap", "name": "values-from-more"});
    until_recorded(world, "values-from", json!([more])).await?;
    config_maps(world)?.delete("values-from-more", &DeleteParams::default()).await?;
    until_told(world, "values-from", "there is no ConfigMap values-from-more; create it").await?;
    let stays = shown(world, "values-from").await?.map(|(data, _)| data);
    assert_eq!(stays, Some(green), "values of a vanished object stay");
    spec["valuesFrom"].as_array_mut().context("a list")?.remove(1);
    world.apply("values-from", spec).await?;
    until_shown(world, "values-from", "the entry is removed", first).await?;
    until_recorded(world, "values-from", json!(null)).await
}

#[tokio::test]
async fn values_of_the_hubs_objects_arrive_at_once_and_in_their_order() -> Result<()> {
    let world = world().await?;
    let files =
        [("templates/shown.yaml", SHOWN), ("values.yaml", "color: c\nsize: s\nauth: {token: none}\n")];
    let source = push(world, "values-from", "1.0.0", &files).await?;
    let spec = json!({
        "source": source, "release": {"name": "values-from", "namespace": "values-from"},
        "values": {"color": "module", "size": "module"},
        "valuesFrom": [
            {"kind": "ConfigMap", "name": "values-from"},
            {"kind": "ConfigMap", "name": "values-from-more", "optional": true},
            {"kind": "Secret", "name": "values-from", "key": "token", "targetPath": "auth.token"},
        ],
        "userValues": {"size": "user"},
    });
    world.apply("values-from", spec.clone()).await?;
    until_told(world, "values-from", "there is no ConfigMap values-from;").await?;

    create_config_map(world, "values-from", "{color: blue, size: blue}").await?;
    until_told(world, "values-from", "there is no Secret values-from;").await?;
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let secret = json!({"metadata": {"name": "values-from"}, "stringData": {"token": "0123hush"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    world.ready("values-from", "False", "CopyNotAllowed").await?;
    let allowed = json!({"metadata": {"labels": {labels::COPY_TO_TARGETS: "true"}}});
    secrets.patch("values-from", &PatchParams::default(), &Patch::Merge(&allowed)).await?;
    world.ready("values-from", "True", "Ready").await?;
    let first = json!({"color": "blue", "size": "user", "token": "0123hush"});
    until_shown(world, "values-from", "all layers", first.clone()).await?;

    vanished_optional_values_stay(world, spec, first).await?;
    let rotated = json!({"stringData": {"token": "4567hush"}});
    secrets.patch("values-from", &PatchParams::default(), &Patch::Merge(&rotated)).await?;
    let second = json!({"color": "blue", "size": "user", "token": "4567hush"});
    let settled = until_shown(world, "values-from", "another token", second.clone()).await?;

    // A change outside the values changes nothing; the result of the next change shows that it was processed.
    change_config_map(world, "values-from", json!({"metadata": {"labels": {"touched": "yes"}}})).await?;
    change_config_map(world, "values-from", json!({"data": {"values.yaml": "- hush"}})).await?;
    let invalid = world.ready("values-from", "False", "ValuesInvalid").await?;
    let stays = shown(world, "values-from").await?;
    assert_eq!(stays, Some((second, settled)), "what runs stays");
    let told = format!("{}{}", serde_json::to_string(&invalid)?, world.operator.log_end(100_000));
    assert!(!told.contains("hush"), "content of a Secret, or of values that are none, was told");

    config_maps(world)?.delete("values-from", &DeleteParams::default()).await?;
    world.ready("values-from", "False", "ValuesMissing").await?;
    world.delete("values-from", "Delete").await?;
    world.gone("values-from").await?;
    assert_eq!(shown(world, "values-from").await?, None, "a removal needs no values");
    Ok(())
}

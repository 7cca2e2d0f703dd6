//! Hooks whose objects contain data, and objects that become hooks.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::until;

use crate::chart::push;
use crate::hooks::{borrowed, config};
use crate::world::{DEADLINE, World, ready_of, world};

fn spec(source: &Value, namespace: &str, values: &Value) -> Value {
    json!({
        "source": source, "values": values,
        "release": {"name": namespace, "namespace": namespace},
    })
}

fn file(name: &str, text: &str) -> (String, String) {
    (format!("templates/{name}.yaml"), text.to_owned())
}

async fn uid(world: &World, kind: &str, namespace: &str, name: &str) -> Result<Option<String>> {
    Ok(world.on_target("v1", kind, namespace, name).await?.and_then(|object| object.metadata.uid))
}

async fn level(world: &World, namespace: &str, name: &str) -> Result<Value> {
    let map = world.on_target("v1", "ConfigMap", namespace, name).await?;
    Ok(map.map(|map| map.data["data"]["level"].clone()).unwrap_or_default())
}

async fn until_level(world: &World, namespace: &str, name: &str, wished: &str) -> Result<()> {
    until(&format!("{name} at {wished}"), DEADLINE, || async {
        Ok((level(world, namespace, name).await? == json!(wished)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_namespace_that_is_a_hook_keeps_its_uid_and_content() -> Result<()> {
    let world = world().await?;
    let hook = |name: &str, policy: &str| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: {{team: one}}\n  annotations: \
             {{helm.sh/hook: \"pre-install,pre-upgrade\", helm.sh/hook-weight: \"-10\"{policy}}}\n"
        )
    };
    let brief = hook("nshook-brief", ", helm.sh/hook-delete-policy: hook-succeeded");
    let files = [
        config("main", ""),
        file("own", &hook("nshook", "")),
        file("data", &hook("nshook-data", "")),
        file("brief", &brief),
    ];
    let source = push(world, "nshook", "1.0.0", &borrowed(&files)).await?;
    world.apply("nshook", spec(&source, "nshook", &json!({"level": "one"}))).await?;
    world.ready("nshook", "True", "Ready").await?;
    let own = world.on_target("v1", "Namespace", "", "nshook").await?.context("the release's Namespace")?;
    assert_eq!(own.metadata.labels.unwrap_or_default()["team"], "one");
    let before = uid(world, "Namespace", "", "nshook-data").await?;
    assert!(before.is_some());
    assert!(uid(world, "Namespace", "", "nshook-brief").await?.is_some(), "users may have objects in it");
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "nshook-data");
    let users = serde_json::from_value(json!({"metadata": {"name": "precious"}, "data": {"a": "b"}}))?;
    maps.create(&PostParams::default(), &users).await?;

    world.apply("nshook", spec(&source, "nshook", &json!({"level": "two"}))).await?;
    until_level(world, "nshook", "main", "two").await?;
    world.ready("nshook", "True", "Ready").await?;
    assert_eq!(uid(world, "Namespace", "", "nshook-data").await?, before);
    assert!(maps.get_opt("precious").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_claim_that_is_a_hook_and_exists_blocks_the_upgrade() -> Result<()> {
    let world = world().await?;
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: backup\n  annotations: {helm.sh/hook: \
                 \"pre-install,pre-upgrade\"}\nspec:\n  accessModes: [ReadWriteOnce]\n  storageClassName: none\n  resources: \
                 {requests: {storage: 1Mi}}\n";
    let files = [config("main", ""), file("backup", claim)];
    let source = push(world, "pvchook", "1.0.0", &borrowed(&files)).await?;
    world.apply("pvchook", spec(&source, "pvchook", &json!({"level": "one"}))).await?;
    world.ready("pvchook", "True", "Ready").await?;
    let before = uid(world, "PersistentVolumeClaim", "pvchook", "backup").await?;
    assert!(before.is_some());
    world.apply("pvchook", spec(&source, "pvchook", &json!({"level": "two"}))).await?;
    let blocked = world.ready("pvchook", "False", "DeletionRefused").await?;
    let (_, _, message) = ready_of(&blocked).context("Ready")?;
    assert!(message.contains("PersistentVolumeClaim pvchook/backup"), "{message}");
    assert_eq!(uid(world, "PersistentVolumeClaim", "pvchook", "backup").await?, before);
    assert_eq!(
        level(world, "pvchook", "main").await?,
        json!("one"),
        "nothing of the new revision is applied"
    );
    Ok(())
}

#[tokio::test]
async fn hook_replaces_no_object_of_another_component_until_deleted() -> Result<()> {
    let world = world().await?;
    let hook = config("settings", "helm.sh/hook: pre-install");
    let owner = push(world, "hookowner", "1.0.0", &borrowed(&[config("main", ""), hook.clone()])).await?;
    let other = push(world, "hookother", "1.0.0", &borrowed(&[config("extra", ""), hook])).await?;
    let spec = |source: &Value, release: &str, level: &str| {
        json!({
            "source": source, "values": {"level": level},
            "release": {"name": release, "namespace": "hookowner"},
        })
    };
    world.apply("hookowner", spec(&owner, "hookowner", "one")).await?;
    world.ready("hookowner", "True", "Ready").await?;
    let before = uid(world, "ConfigMap", "hookowner", "settings").await?;
    assert!(before.is_some());
    world.apply("hookother", spec(&other, "hookother", "one")).await?;
    let failed = world.ready("hookother", "False", "HookFailed").await?;
    let (_, _, message) = ready_of(&failed).context("Ready")?;
    assert!(message.contains("it belongs to HelmComponent "), "{message}");
    assert!(message.contains("/hookowner: rename"), "{message}");
    assert_eq!(uid(world, "ConfigMap", "hookowner", "settings").await?, before);

    world.delete("hookowner", "Orphan").await?;
    world.gone("hookowner").await?;
    world.apply("hookother", spec(&other, "hookother", "two")).await?;
    world.ready("hookother", "True", "Ready").await?;
    assert_eq!(level(world, "hookowner", "settings").await?, json!("two"));
    assert_ne!(uid(world, "ConfigMap", "hookowner", "settings").await?, before);
    Ok(())
}

#[tokio::test]
async fn an_object_becomes_a_hook_and_an_ordinary_object_again() -> Result<()> {
    let world = world().await?;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  annotations:\n    note: x\n    \
                {{- if .Values.hook }}\n    helm.sh/hook: pre-install,pre-upgrade\n    {{- end }}\ndata: {level: {{ \
                .Values.level | quote }}}\n";
    let files = [config("main", ""), file("settings", text)];
    let source = push(world, "becomes", "1.0.0", &borrowed(&files)).await?;
    for (hook, wished) in [(false, "one"), (true, "two"), (true, "three"), (false, "four")] {
        world.apply("becomes", spec(&source, "becomes", &json!({"level": wished, "hook": hook}))).await?;
        until_level(world, "becomes", "main", wished).await?;
        world.ready("becomes", "True", "Ready").await?;
        assert_eq!(level(world, "becomes", "settings").await?, json!(wished), "hook: {hook}");
    }
    world.delete("becomes", "Delete").await?;
    world.gone("becomes").await?;
    assert_eq!(uid(world, "ConfigMap", "becomes", "settings").await?, None, "it goes with the release");
    Ok(())
}

#[tokio::test]
async fn a_renamed_service_keeps_its_node_port() -> Result<()> {
    let world = world().await?;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: {{ .Values.name }}}\nspec:\n  type: NodePort\n  \
                   selector: {a: b}\n  ports: [{port: 80, nodePort: 31425}]\n";
    let files = [config("main", ""), file("service", service)];
    let source = push(world, "nodeport", "1.0.0", &borrowed(&files)).await?;
    for name in ["back", "front"] {
        let values = json!({"level": name, "name": name});
        world.apply("nodeport", spec(&source, "nodeport", &values)).await?;
        until_level(world, "nodeport", "main", name).await?;
        world.ready("nodeport", "True", "Ready").await?;
        let service = world.on_target("v1", "Service", "nodeport", name).await?.context("the Service")?;
        assert_eq!(service.data["spec"]["ports"][0]["nodePort"], json!(31425));
    }
    assert_eq!(uid(world, "Service", "nodeport", "back").await?, None);
    Ok(())
}

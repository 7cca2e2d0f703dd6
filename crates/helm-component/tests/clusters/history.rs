//! Releases that Helm shows though helm-component installed them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::chart::push;
use crate::hooks::{borrowed, config};
use crate::world::{DEADLINE, HUB_NAMESPACE, World, world};

const RELEASE: &str = "known";

async fn helm_json(world: &World, arguments: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&world.helm(RELEASE, &[arguments, &["--output", "json"]].concat()).await?)?)
}

/// Returns revision and status of each release that `helm history` shows.
async fn history(world: &World) -> Result<Vec<(i64, String)>> {
    let shown = helm_json(world, &["history", RELEASE]).await?;
    let revision = |one: &Value| {
        let status = one["status"].as_str().unwrap_or_default().to_owned();
        (one["revision"].as_i64().unwrap_or_default(), status)
    };
    Ok(shown.as_array().context("a list")?.iter().map(revision).collect())
}

fn stands(revision: i64, status: &str) -> (i64, String) {
    (revision, status.to_owned())
}

async fn until_history(world: &World, expected: &[(i64, String)]) -> Result<()> {
    testbed::until_or_why("helm history shows it", DEADLINE, || async {
        let shown = history(world).await.unwrap_or_default();
        Ok(if shown == expected { Ok(()) } else { Err(format!("{shown:?}")) })
    })
    .await
}

#[tokio::test]
async fn helm_lists_and_shows_releases_recorded_by_the_component() -> Result<()> {
    let world = world().await?;
    let odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\ndata: {level: \"{{ .Values.level }}\", a: {{ .Values.odd }}}\n";
    let files = vec![
        config("main", ""),
        ("templates/odd.yaml".to_owned(), odd.to_owned()),
        ("values.yaml".to_owned(), "level: low\nodd: \"'x'\"\n".to_owned()),
    ];
    let source = push(world, RELEASE, "1.0.0", &borrowed(&files)).await?;
    let spec = |values: Value| {
        json!({
            "source": source, "values": values,
            "release": {"name": RELEASE, "namespace": RELEASE, "history": {"max": 2}},
        })
    };
    world.apply(RELEASE, spec(json!({"level": "one"}))).await?;
    let component = world.ready(RELEASE, "True", "Ready").await?;
    let recorded =
        component.status.and_then(|status| status.release_record).context("status.releaseRecord")?;
    assert_eq!((recorded.revision, recorded.status.as_deref()), (Some(1), Some("deployed")));
    let listed = helm_json(world, &["list"]).await?;
    assert_eq!(
        (&listed[0]["name"], &listed[0]["chart"], &listed[0]["status"]),
        (&json!(RELEASE), &json!("known-1.0.0"), &json!("deployed"))
    );
    assert_eq!(helm_json(world, &["get", "values", RELEASE]).await?, json!({"level": "one"}));
    let manifest = world.helm(RELEASE, &["get", "manifest", RELEASE]).await?;
    assert!(manifest.contains("level: one") && manifest.contains("name: odd"), "{manifest}");

    // A refused release is a failed revision; the one before is still deployed.
    world.apply(RELEASE, spec(json!({"level": "two", "odd": "{b: c}"}))).await?;
    until_history(world, &[stands(1, "deployed"), stands(2, "failed")]).await?;
    world.apply(RELEASE, spec(json!({"level": "three"}))).await?;
    world.ready(RELEASE, "True", "Ready").await?;
    until_history(world, &[stands(2, "failed"), stands(3, "deployed")]).await?;
    world.apply(RELEASE, spec(json!({"level": "four"}))).await?;
    until_history(world, &[stands(3, "superseded"), stands(4, "deployed")]).await?;

    world.delete(RELEASE, "Delete").await?;
    world.gone(RELEASE).await?;
    assert_eq!(records(world, RELEASE).await?, 0, "the records go with the release");
    Ok(())
}

/// Returns the number of Helm's records in a namespace.
async fn records(world: &World, namespace: &str) -> Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(world.target.client()?, namespace);
    Ok(secrets.list(&ListParams::default().labels("owner=helm")).await?.items.len())
}

#[tokio::test]
async fn release_records_are_deleted_although_values_are_gone() -> Result<()> {
    let world = world().await?;
    let name = "unvalued";
    let config_maps: Api<ConfigMap> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let values = json!({"metadata": {"name": name}, "data": {"values.yaml": "level: low"}});
    config_maps.create(&PostParams::default(), &serde_json::from_value(values)?).await?;
    let source = push(world, name, "1.0.0", &borrowed(&[config("main", "")])).await?;
    let spec = json!({
        "source": source, "valuesFrom": [{"kind": "ConfigMap", "name": name}],
        "release": {"name": name, "namespace": name, "history": {"max": 2}},
    });
    world.apply(name, spec).await?;
    world.ready(name, "True", "Ready").await?;
    assert_eq!(records(world, name).await?, 1);
    config_maps.delete(name, &DeleteParams::default()).await?;
    world.ready(name, "False", "ValuesMissing").await?;
    world.delete(name, "Delete").await?;
    world.gone(name).await?;
    assert_eq!(records(world, name).await?, 0);
    Ok(())
}

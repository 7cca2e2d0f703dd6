//! Many components that are installed into one namespace at once share the search for Helm's records, and those
//! that are removed at once share the search of the target.

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use kube::api::DeleteParams;
use kube::{CustomResourceExt as _, ResourceExt};
use kyma_api::HelmComponent;
use serde_json::json;

use crate::chart::{packed, push};
use crate::take_over::{adoption, spec};
use crate::world::{World, apply_yaml, world};

const COMPONENTS: usize = 24;
/// Name of the chart, the namespace and Helm's release.
const NAME: &str = "together";
const FILES: [(&str, &str); 1] =
    [("templates/config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\n")];

#[tokio::test]
async fn one_list_of_records_serves_all_waiting_and_adopts_a_release() -> Result<()> {
    let world = world().await?;
    let chart = world.scratch("together.tgz");
    std::fs::write(&chart, packed(NAME, "1.0.0", &FILES)?)?;
    let source = push(world, NAME, "1.0.0", &FILES).await?;
    world.helm(NAME, &["install", NAME, chart.to_str().context("a path")?, "--create-namespace"]).await?;
    let mark = world.target.audit()?.mark()?;
    let names: Vec<String> = (0..COMPONENTS).map(|number| format!("{NAME}-{number:02}")).collect();
    let all = || names.iter().map(String::as_str).chain([NAME]);
    try_join_all(all().map(|name| {
        let mut spec = spec(&source, name, &json!({}));
        spec["release"]["namespace"] = json!(NAME);
        world.apply(name, spec)
    }))
    .await?;
    let mut components = vec![];
    for name in all() {
        components.push(world.ready(name, "True", "Ready").await?);
    }
    let taken = components.iter().filter(|component| adoption(component).is_some());
    assert_eq!(taken.map(ResourceExt::name_any).collect::<Vec<_>>(), [NAME]);
    let looks = world.target.audit()?.since(mark)?.into_iter().filter(|event| {
        event.verb == "list" && event.uri.contains("/together/secrets?") && event.uri.contains("owner%3Dhelm")
    });
    let looks = looks.count();
    assert!((1..=COMPONENTS / 2).contains(&looks), "{looks} lists for {} components", components.len());
    Ok(())
}

#[tokio::test]
async fn components_removed_together_share_searches_of_the_target() -> Result<()> {
    // A component that waits for a search does not keep the only slot from those that could share it.
    let world = World::start_with(&["--concurrency=1"]).await?;
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAME}}}\n");
    apply_yaml(&world.target.client()?, &namespace).await?;
    let source = push(&world, NAME, "1.0.0", &FILES).await?;
    let names: Vec<String> = (0..COMPONENTS).map(|number| format!("{NAME}-{number:02}")).collect();
    try_join_all(names.iter().map(|name| {
        let mut spec = spec(&source, name, &json!({"deletionPolicy": "Delete"}));
        spec["release"]["namespace"] = json!(NAME);
        world.apply(name, spec)
    }))
    .await?;
    // The only slot installs them one after the other, so each wait has a deadline of its own.
    for name in &names {
        world.ready(name, "True", "Ready").await?;
    }

    let mark = world.target.audit()?.mark()?;
    let (components, parameters) = (world.components()?, DeleteParams::default());
    // The operator receives all deletions at once.
    world.operator.freeze()?;
    try_join_all(names.iter().map(|name| components.delete(name, &parameters))).await?;
    world.operator.thaw()?;
    for name in &names {
        world.gone(name).await?;
    }
    // No component has a LimitRange, so only a search lists them over all namespaces.
    let searches = world.target.audit()?.since(mark)?.into_iter().filter(|event| {
        event.verb == "list" && event.resource == "limitranges" && event.namespace.is_empty()
    });
    let searches = searches.filter(|event| event.uri.contains("owner")).count();
    assert!((1..=COMPONENTS / 2).contains(&searches), "{searches} searches for {COMPONENTS} components");
    Ok(())
}

#[tokio::test]
async fn one_read_proves_that_a_component_is_deleted_alone() -> Result<()> {
    const NAME: &str = "alone";
    // Its end is awaited, so the removal takes several reconciles.
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {"containers": [{"name": "a", "image": "example.org/none"}]},
            },
        },
    });
    let world = World::start().await?;
    let files = [("templates/deployment.yaml", &*deployment.to_string())];
    let source = push(&world, NAME, "1.0.0", &files).await?;
    world.apply(NAME, spec(&source, NAME, &json!({"deletionPolicy": "Delete"}))).await?;
    world.ready(NAME, "True", "Ready").await?;
    let mark = world.hub.audit()?.mark()?;
    world.components()?.delete(NAME, &DeleteParams::default()).await?;
    world.gone(NAME).await?;
    let reads = world.hub.audit()?.since(mark)?.into_iter().filter(|event| {
        let is_crd = event.verb == "get" && event.resource == "customresourcedefinitions";
        is_crd && event.name == HelmComponent::crd_name() && event.user.ends_with(":helm-component")
    });
    assert_eq!(reads.count(), 1, "reads of the CRD during the removal");
    Ok(())
}

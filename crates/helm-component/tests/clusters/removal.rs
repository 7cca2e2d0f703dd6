//! The end of a component.

use anyhow::Result;
use kube::api::DeleteParams;
use serde_json::json;

use crate::module::manifest;
use crate::world::{apply_yaml, ready_of, world};

#[tokio::test]
async fn orphan_leaves_everything_and_the_next_component_takes_it_over() -> Result<()> {
    let world = world().await?;
    let source = world.push("coin", "1.0.0", &manifest("coin", "low")).await?;
    let spec = json!({"source": source, "release": {"namespace": "coin-system"}});
    world.apply("coin", spec.clone()).await?;
    world.ready("coin", "True", "Ready").await?;
    let before = world.on_target("v1", "ConfigMap", "coin-system", "coin").await?.expect("the ConfigMap");
    world.delete("coin", "Orphan").await?;
    world.gone("coin").await?;
    let after = world.on_target("v1", "ConfigMap", "coin-system", "coin").await?.expect("it stays");
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    world.apply("coin-again", spec).await?;
    world.ready("coin-again", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn e10_removal_waits_for_the_users_objects_and_then_takes_everything() -> Result<()> {
    let world = world().await?;
    let source = world.push("book", "1.0.0", &manifest("book", "low")).await?;
    let resource = json!({
        "apiVersion": "test.example.org/v1", "kind": "Book", "metadata": {"name": "default"},
    });
    let spec = json!({"source": source, "release": {"namespace": "book-system"}, "resource": resource});
    world.apply("book", spec).await?;
    world.ready("book", "True", "Ready").await?;
    let target = world.target.client()?;
    let users = "apiVersion: test.example.org/v1\nkind: Book\nmetadata: {name: users, namespace: default}\n";
    apply_yaml(&target, users).await?;
    world.delete("book", "Delete").await?;
    let component = world.ready("book", "False", "DeletionBlocked").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert!(message.contains("Book default/users"), "{message}");
    assert!(world.on_target("apps/v1", "Deployment", "book-system", "book").await?.is_some());
    let (books, _) = crate::world::api(&target, "test.example.org/v1", "Book", Some("default")).await?;
    books.delete("users", &DeleteParams::default()).await?;
    world.gone("book").await?;
    assert!(world.on_target("apps/v1", "Deployment", "book-system", "book").await?.is_none());
    assert!(world.on_target("v1", "ConfigMap", "book-system", "book").await?.is_none());
    let crd =
        world.on_target("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "books.test.example.org");
    assert!(crd.await?.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some()), "the CRD goes last");
    Ok(())
}

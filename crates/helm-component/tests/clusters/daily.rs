//! What goes wrong every day: a stable reason, and recovery without a restart.

use anyhow::Result;
use serde_json::json;

use crate::chart::push;
use crate::world::{ready_of, world};

#[tokio::test]
async fn content_that_is_not_there_is_named_and_picked_up_when_the_spec_is_corrected() -> Result<()> {
    let world = world().await?;
    let missing = json!({"ocm": {"component": "example.org/module/nowhere", "version": "1.0.0"}});
    world.apply("missing", json!({"source": missing})).await?;
    world.ready("missing", "False", "SourceNotFound").await?;
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: found}\n";
    let source = world.push("found", "1.0.0", manifest).await?;
    world.apply("missing", json!({"source": source})).await?;
    world.ready("missing", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn broken_yaml_is_named_by_document_and_line() -> Result<()> {
    let world = world().await?;
    let source = world.push("broken", "1.0.0", "a: b: c\n").await?;
    world.apply("broken", json!({"source": source})).await?;
    let component = world.ready("broken", "False", "ManifestInvalid").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert!(message.contains("document 1"), "{message}");
    Ok(())
}

#[tokio::test]
async fn an_object_that_the_target_refuses_is_named_by_field() -> Result<()> {
    let world = world().await?;
    let manifest = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: before}
---
apiVersion: v1
kind: Service
metadata: {name: refused}
spec: {ports: [{port: 70000}]}
";
    let source = world.push("refused", "1.0.0", manifest).await?;
    world.apply("refused", json!({"source": source})).await?;
    let component = world.ready("refused", "False", "ApplyRefused").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert!(message.contains("spec.ports[0].port"), "{message}");
    let source = world.push("refused", "1.0.1", &manifest.replace("70000", "80")).await?;
    world.apply("refused", json!({"source": source})).await?;
    world.ready("refused", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn a_chart_that_does_not_render_and_values_against_the_schema_are_told_apart() -> Result<()> {
    let world = world().await?;
    let files = [
        (
            "templates/a.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ required \"name is needed\" .Values.name }}\"}\n",
        ),
        ("values.schema.json", r#"{"properties": {"name": {"type": "string"}}}"#),
    ];
    let source = push(world, "strict", "1.0.0", &files).await?;
    world.apply("strict", json!({"source": source})).await?;
    let component = world.ready("strict", "False", "RenderFailed").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert!(message.contains("strict/templates/a.yaml:3") && message.contains("name is needed"), "{message}");
    world.apply("strict", json!({"source": source, "userValues": {"name": 3}})).await?;
    let component = world.ready("strict", "False", "ValuesInvalid").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert!(message.contains("/name: got number, want string"), "{message}");
    world.apply("strict", json!({"source": source, "userValues": {"name": "strict"}})).await?;
    world.ready("strict", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn a_field_that_is_not_acted_on_yet_is_refused_by_name() -> Result<()> {
    let world = world().await?;
    let source =
        world.push("early", "1.0.0", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: early}\n").await?;
    let spec = json!({"source": source, "serviceAccountName": "somebody"});
    world.apply("early", spec).await?;
    let component = world.ready("early", "False", "NotYetSupported").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert!(message.contains("spec.serviceAccountName"), "{message}");
    Ok(())
}

//! Common failures: each has a stable reason, and ends without a restart of the operator.

use anyhow::Result;
use serde_json::json;
use testbed::until;

use crate::chart::push;
use crate::failures::told_once;
use crate::world::{DEADLINE, condition_of, ready_of, world};

#[tokio::test]
async fn i120_missing_content_is_named_and_used_after_spec_correction() -> Result<()> {
    let world = world().await?;
    let missing = json!({"ocm": {"component": "example.org/module/nowhere", "version": "1.0.0"}});
    world.apply("missing", json!({"source": missing})).await?;
    let refused = world.ready("missing", "False", "SourceNotFound").await?;
    let (_, _, message) = ready_of(&refused).expect("Ready");
    assert!(message.contains("example.org/module/nowhere"), "{message}");
    assert_eq!(refused.status.and_then(|status| status.digests).and_then(|digests| digests.source), None);
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: found}\n";
    let source = world.push("found", "1.0.0", manifest).await?;
    world.apply("missing", json!({"source": source})).await?;
    world.ready("missing", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn broken_yaml_is_named_by_document_and_line() -> Result<()> {
    let world = world().await?;
    let source = world.push("malformed", "1.0.0", "a: b: c\n").await?;
    world.apply("malformed", json!({"source": source})).await?;
    let component = world.ready("malformed", "False", "ManifestInvalid").await?;
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
async fn a_missing_namespace_is_named_and_its_arrival_is_noticed() -> Result<()> {
    let world = world().await?;
    let manifest = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: settler, namespace: settlement}
---
apiVersion: v1
kind: Service
metadata: {name: settler}
spec: {ports: [{port: 80}]}
";
    let source = world.push("settler", "1.0.0", manifest).await?;
    world.apply("settler", json!({"source": source, "release": {"namespace": "settler"}})).await?;
    let component = world.ready("settler", "False", "DependencyMissing").await?;
    let (status, _, message) = condition_of(&component, "Applied").expect("Applied");
    assert_eq!(status, "False");
    assert!(message.contains("settlement/settler: namespace settlement does not exist"), "{message}");
    let components = world.components()?;
    until("Healthy tells what it cannot speak of", DEADLINE, || async {
        let (status, _, message) =
            condition_of(&components.get("settler").await?, "Healthy").expect("Healthy");
        assert_eq!(status, "Unknown");
        Ok((message == "not applied yet: Service settler/settler").then_some(()))
    })
    .await?;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: settlement}\n";
    crate::world::apply_yaml(&world.target.client()?, namespace).await?;
    world.ready("settler", "True", "Ready").await?;
    told_once(world, "settler", "DependencyMissing").await
}

#[tokio::test]
async fn objects_that_are_not_ready_in_time_are_named_and_recover() -> Result<()> {
    let world = world().await?;
    let manifest = r"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: late}
spec: {accessModes: [ReadWriteOnce], storageClassName: nobody-provides, resources: {requests: {storage: 1Gi}}}
";
    let source = world.push("late", "1.0.0", manifest).await?;
    let release = json!({"namespace": "late"});
    let spec = json!({"source": source, "release": release, "timeouts": {"healthSeconds": 2}});
    world.apply("late", spec).await?;
    let component = world.ready("late", "False", "HealthTimeout").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert_eq!(message, "not ready within 2 s: PersistentVolumeClaim late/late");
    let (_, reason, _) = condition_of(&component, "Healthy").expect("Healthy");
    assert_eq!(reason, "HealthTimeout");
    let source =
        world.push("late", "1.0.1", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: early}\n").await?;
    world.apply("late", json!({"source": source, "release": release})).await?;
    world.ready("late", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn render_failure_and_schema_violation_have_own_messages() -> Result<()> {
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
async fn manager_absent_from_content_is_named_until_spec_is_corrected() -> Result<()> {
    let world = world().await?;
    let source =
        world.push("boss", "1.0.0", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: boss}\n").await?;
    let manager = json!({"group": "apps", "version": "v1", "kind": "Deployment", "name": "boss"});
    let release = json!({"namespace": "boss"});
    world.apply("boss", json!({"source": source, "release": release, "manager": manager})).await?;
    let component = world.ready("boss", "False", "SpecInvalid").await?;
    let (status, _, message) = condition_of(&component, "Healthy").expect("Healthy");
    assert_eq!(status, "Unknown");
    assert!(message.contains("spec.manager names Deployment.apps boss"), "{message}");
    world.apply("boss", json!({"source": source, "release": release})).await?;
    world.ready("boss", "True", "Ready").await?;
    Ok(())
}

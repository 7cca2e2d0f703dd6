//! `.Capabilities` and `.Release` of a chart.

use anyhow::Result;
use serde_json::{Value, json};

use crate::chart::push;
use crate::world::{World, apply_yaml, world};

fn crd(plural: &str, kind: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: \
         {plural}.told.example.org}}\nspec:\n  group: told.example.org\n  names: {{kind: {kind}, plural: {plural}}}\n  \
         scope: Namespaced\n  versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: \
         object, x-kubernetes-preserve-unknown-fields: true}}}}}}]\n"
    )
}

/// Returns a template that fails if a kind is not served.
fn strict(kind: &str) -> String {
    format!(
        "{{{{- if not (.Capabilities.APIVersions.Has \"told.example.org/v1/{kind}\") }}}}{{{{ fail \"install the CRD \
         first\" }}}}{{{{ end }}}}\napiVersion: told.example.org/v1\nkind: {kind}\nmetadata: {{name: one}}\n"
    )
}

fn spec(name: &str, source: &Value, values: &Value) -> Value {
    json!({"source": source, "release": {"namespace": name}, "values": values})
}

async fn is_there(world: &World, kind: &str, namespace: &str) -> Result<bool> {
    Ok(world.on_target("told.example.org/v1", kind, namespace, "one").await?.is_some())
}

#[tokio::test]
async fn kinds_of_the_charts_own_crds_count_as_served() -> Result<()> {
    let world = world().await?;
    let files = [("crds/a.yaml", &*crd("ponds", "Pond")), ("templates/a.yaml", &*strict("Pond"))];
    let source = push(world, "own-kinds", "1.0.0", &files).await?;
    world.apply("own-kinds", spec("own-kinds", &source, &json!({}))).await?;
    world.ready("own-kinds", "True", "Ready").await?;
    assert!(is_there(world, "Pond", "own-kinds").await?);
    Ok(())
}

#[tokio::test]
async fn a_failed_render_is_repeated_when_the_crd_arrives() -> Result<()> {
    let world = world().await?;
    let source = push(world, "late-kind", "1.0.0", &[("templates/a.yaml", &*strict("River"))]).await?;
    world.apply("late-kind", spec("late-kind", &source, &json!({}))).await?;
    world.ready("late-kind", "False", "RenderFailed").await?;
    apply_yaml(&world.target.client()?, &crd("rivers", "River")).await?;
    world.ready("late-kind", "True", "Ready").await?;
    assert!(is_there(world, "River", "late-kind").await?);
    Ok(())
}

#[tokio::test]
async fn an_object_named_after_the_revision_is_replaced_by_an_upgrade() -> Result<()> {
    let world = world().await?;
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"r{{ .Release.Revision }}\"}\ndata: {tag: \"{{ \
                    .Values.tag }}\", upgrade: \"{{ .Release.IsUpgrade }}\"}\nimmutable: true\n";
    let source = push(world, "numbered", "1.0.0", &[("templates/a.yaml", template)]).await?;
    world.apply("numbered", spec("numbered", &source, &json!({"tag": "one"}))).await?;
    world.ready("numbered", "True", "Ready").await?;
    let found = async |name: &str| world.on_target("v1", "ConfigMap", "numbered", name).await;
    assert_eq!(found("r1").await?.unwrap().data["data"], json!({"tag": "one", "upgrade": "false"}));
    world.apply("numbered", spec("numbered", &source, &json!({"tag": "two"}))).await?;
    let ready = world.ready("numbered", "True", "Ready").await?;
    assert_eq!(ready.status.unwrap().revision.unwrap().number, 2);
    assert_eq!(found("r2").await?.unwrap().data["data"], json!({"tag": "two", "upgrade": "true"}));
    assert!(found("r1").await?.is_none());
    Ok(())
}

//! Sources of content: registries that are down or require a password, artifacts that are missing or invalid.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kyma_api::Reason;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::row::Row;
use crate::world::{REGISTRY_LOGIN, config_map, row};
use e2e::net::TcpProxy;

#[test]
fn a_registry_that_is_down_is_waited_for() -> Result<()> {
    row("registry-down", async |row| {
        row.world.push("buoy", "1.0.0").await?;
        row.grant(&row.access.kubeconfig()).await?;
        row.apply_source(ocm(&row.world.proxy, "buoy", "1.0.0")).await?;
        row.is_stuck("Rendered", Reason::SourceUnreachable, &row.world.proxy.address()).await?;
        row.world.proxy.open().await?;
        row.is_ready().await
    })
}

#[test]
fn i122_i127_i128_registry_password_is_used_once_corrected() -> Result<()> {
    row("registry-locked", async |row| {
        row.world.push("barge", "1.0.0").await?;
        row.grant(&row.access.kubeconfig()).await?;
        let mut source = ocm(&row.world.locked, "barge", "1.0.0");
        row.apply_source(source.clone()).await?;
        row.is_stuck("Rendered", Reason::SourceUnauthorized, &row.world.locked.address()).await?;
        source["pullSecretRef"] = json!({"name": "puller"});
        row.apply_source(source).await?;
        row.is_stuck("Rendered", Reason::SourceUnauthorized, "puller").await?;
        pull_secret(row, "canary-wrong-password").await?;
        row.is_stuck("Rendered", Reason::SourceUnauthorized, &row.world.locked.address()).await?;
        pull_secret(row, REGISTRY_LOGIN.1).await?;
        row.is_ready().await
    })
}

#[test]
fn a_version_that_is_not_published_yet_is_waited_for() -> Result<()> {
    row("not-published", async |row| {
        row.grant(&row.access.kubeconfig()).await?;
        let source = json!({"ocm": {"component": "kyma-project.io/module/cutter", "version": "1.0.0"}});
        row.apply_source(source).await?;
        row.is_stuck("Rendered", Reason::SourceNotFound, "cutter").await?;
        row.world.push("cutter", "1.0.0").await?;
        row.is_ready().await
    })
}

#[test]
fn content_with_another_digest_is_not_used() -> Result<()> {
    row("wrong-digest", async |row| {
        row.install().await?;
        let right = config_map("content", &row.name, "2").to_string();
        let tampered = config_map("content", &row.name, "3").to_string();
        let url = row.world.file_server.put("wrong-digest.yaml", tampered);
        row.apply_source(json!({"manifests": {"url": url, "digest": sha256(&right)}})).await?;
        row.is_stuck("Rendered", Reason::DigestMismatch, "digest").await?;
        row.holds("1").await?;
        row.world.file_server.put("wrong-digest.yaml", right);
        row.is_ready().await?;
        row.holds("2").await
    })
}

#[test]
fn a_broken_manifest_leaves_what_is_installed() -> Result<()> {
    row("broken-yaml", async |row| {
        row.install().await?;
        let broken = "apiVersion: v1\nkind: ConfigMap\n  metadata: {name: [CANARY\n";
        row.apply_source(json!({"manifests": {"url": row.world.file_server.put("broken.yaml", broken)}}))
            .await?;
        row.is_stuck("Rendered", Reason::ManifestInvalid, "line").await?;
        row.holds("1").await?;
        row.apply_source(row.content("2")).await?;
        row.holds("2").await?;
        row.is_ready().await
    })
}

#[test]
fn a_chart_that_does_not_render_says_why() -> Result<()> {
    row("unrendered", async |row| {
        row.grant(&row.access.kubeconfig()).await?;
        let chart = chart(row).await?;
        row.apply_with_values(chart.clone(), json!({"token": row.canary()})).await?;
        row.is_stuck("Rendered", Reason::RenderFailed, "name the pier").await?;
        row.apply_with_values(chart, json!({"token": row.canary(), "pier": "north"})).await?;
        row.is_ready().await
    })
}

#[test]
fn values_against_the_schema_name_the_key_and_not_the_value() -> Result<()> {
    row("wrong-values", async |row| {
        row.grant(&row.access.kubeconfig()).await?;
        let chart = chart(row).await?;
        let values = |berths: Value| json!({"token": row.canary(), "pier": "north", "berths": berths});
        row.apply_with_values(chart.clone(), values(json!(row.canary()))).await?;
        row.is_stuck("Rendered", Reason::ValuesInvalid, "berths").await?;
        row.apply_with_values(chart, values(json!(2))).await?;
        row.is_ready().await
    })
}

fn ocm(proxy: &TcpProxy, module: &str, version: &str) -> Value {
    json!({"ocm": {
        "component": format!("kyma-project.io/module/{module}"),
        "version": version,
        "repository": proxy.address(),
    }})
}

async fn pull_secret(row: &Row, password: &str) -> Result<()> {
    let auth = STANDARD.encode(format!("{}:{password}", REGISTRY_LOGIN.0));
    let config = json!({"auths": {row.world.locked.address(): {"auth": auth}}});
    row.secret("puller", json!({".dockerconfigjson": config.to_string()})).await
}

/// Pushes a chart that requires a value `pier` and an integer for `berths`, and returns its source.
async fn chart(row: &Row) -> Result<Value> {
    let name = format!("pier-{}", row.name);
    let chart = json!({"apiVersion": "v2", "name": name, "version": "1.0.0"});
    let schema = json!({"type": "object", "properties": {"berths": {"type": "integer"}}});
    let content = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: content}\n\
                   data: {pier: {{ required \"name the pier in values\" .Values.pier }}}\n";
    let files = [
        ("chart/Chart.yaml", chart.to_string()),
        ("chart/values.schema.json", schema.to_string()),
        ("chart/templates/content.yaml", content.to_owned()),
    ];
    e2e::catalogue::push_files(&row.world.landscape, &name, &json!({"chart": "chart"}), &files).await?;
    let url = format!("oci://{}/charts/{name}", row.world.landscape.registry().address());
    Ok(json!({"chart": {"url": url, "version": "1.0.0"}}))
}

fn sha256(text: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}

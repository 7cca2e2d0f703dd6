//! Objects that the target refuses, or whose kind it lacks.

use anyhow::Result;
use kyma_api::Reason;
use serde_json::json;

use crate::world::{config_map, row};

#[test]
fn object_refused_by_the_target_does_not_delay_the_others() -> Result<()> {
    row("refused-object", async |row| {
        row.install().await?;
        let manifest = |port: &str| {
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "berth"},
                "spec": {"ports": [{"name": port, "port": 80}]},
            });
            format!("{service}\n---\n{}", config_map("content", &row.name, "2"))
        };
        let refused = row.world.file_server.put("refused-object-2.yaml", manifest("CANARY_PORT"));
        row.apply_source(json!({"manifests": {"url": refused}})).await?;
        row.is_stuck("Applied", Reason::ApplyRefused, "berth").await?;
        row.holds("2").await?;
        let taken = row.world.file_server.put("refused-object-3.yaml", manifest("http"));
        row.apply_source(json!({"manifests": {"url": taken}})).await?;
        row.is_ready().await
    })
}

#[test]
fn a_kind_that_the_target_lacks_holds_up_only_its_own_objects() -> Result<()> {
    row("missing-kind", async |row| {
        row.grant(&row.access.kubeconfig()).await?;
        let crane = json!({
            "apiVersion": "cranes.example.com/v1", "kind": "Crane", "metadata": {"name": "big"}, "spec": {},
        });
        let manifest = format!("{crane}\n---\n{}", config_map("content", &row.name, "1"));
        row.apply_source(
            json!({"manifests": {"url": row.world.file_server.put("missing-kind.yaml", manifest)}}),
        )
        .await?;
        row.is_stuck("DependenciesReady", Reason::DependencyMissing, "Crane").await?;
        row.holds("1").await?;
        crate::kinds::crane(&row.world.quay).await?;
        row.is_ready().await
    })
}

//! Charts whose version is a range.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use kyma_api::{HelmComponentStatus, ResolvedVersion, annotations};
use kyma_artifacts::Digest;
use serde_json::{Value, json};
use testbed::until;

use crate::chart::{packed, push};
use crate::source::{config, repaired};
use crate::world::{DEADLINE, World, ready_of, world};

/// Publishes a chart whose ConfigMap contains its version.
async fn publish(world: &World, name: &str, version: &str, level: &str) -> Result<Value> {
    push(world, name, version, &[("templates/config.yaml", &config(name, level))]).await
}

async fn apply(world: &World, name: &str, source: &Value, version: &str, every: Option<i32>) -> Result<()> {
    let mut source = source.clone();
    source["chart"]["version"] = version.into();
    if let Some(every) = every {
        source["chart"]["checkEverySeconds"] = every.into();
    }
    world.apply(name, json!({"source": source, "release": {"namespace": name}})).await
}

async fn status(world: &World, name: &str) -> Result<HelmComponentStatus> {
    Ok(world.components()?.get(name).await?.status.unwrap_or_default())
}

async fn resolved(world: &World, name: &str) -> Result<ResolvedVersion> {
    status(world, name).await?.resolved.context("a resolved version")
}

/// Waits until the component is Ready with this version of its chart installed.
async fn installed(world: &World, name: &str, version: &str, patience: Duration) -> Result<()> {
    until(&format!("{name} is at {version}"), patience, || async {
        let component = world.components()?.get(name).await?;
        let ready = ready_of(&component).is_some_and(|(is, ..)| is == "True");
        let status = component.status.unwrap_or_default();
        Ok((ready && status.version.as_deref() == Some(version)).then_some(()))
    })
    .await
    .with_context(|| world.operator.log_end(30))?;
    assert_eq!(resolved(world, name).await?.version, version);
    Ok(())
}

/// Requests a reconcile as `kymactl reconcile` does, and waits until it was handled.
async fn request(world: &World, name: &str, moment: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: moment}}});
    world.components()?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    until("the request was followed", DEADLINE, || async {
        let handled = status(world, name).await?.last_handled_reconcile_at;
        Ok((handled.as_deref() == Some(moment)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn range_is_resolved_again_only_by_change_request_or_timer() -> Result<()> {
    let mut world = World::start().await?;
    let source = publish(&world, "ranged", "1.0.0", "one").await?;
    apply(&world, "ranged", &source, "1.x", None).await?;
    installed(&world, "ranged", "1.0.0", DEADLINE).await?;
    let first = resolved(&world, "ranged").await?;
    assert!(first.digest.starts_with("sha256:") && first.message.is_none(), "{first:?}");

    publish(&world, "ranged", "1.1.0", "two").await?;
    publish(&world, "ranged", "2.0.0", "three").await?;
    assert_eq!(repaired(&world, "ranged", "ranged").await?, "one", "a repair does not move it");
    world.restart_operator().await?;
    assert_eq!(repaired(&world, "ranged", "ranged").await?, "one", "nor does a restart");
    assert_eq!(resolved(&world, "ranged").await?, first);

    request(&world, "ranged", "2026-01-01T00:00:00Z").await?;
    installed(&world, "ranged", "1.1.0", DEADLINE).await?;
    assert_eq!(repaired(&world, "ranged", "ranged").await?, "two");

    publish(&world, "ranged", "1.1.0", "altered").await?;
    request(&world, "ranged", "2026-01-02T00:00:00Z").await?;
    let altered = resolved(&world, "ranged").await?;
    assert!(altered.message.is_some_and(|why| why.starts_with("DigestMismatch")));
    assert_eq!(
        repaired(&world, "ranged", "ranged").await?,
        "two",
        "a version that was altered is not brought"
    );

    apply(&world, "ranged", &source, "~1.0", None).await?;
    installed(&world, "ranged", "1.0.0", DEADLINE).await?;
    apply(&world, "ranged", &source, "<2", Some(60)).await?;
    installed(&world, "ranged", "1.1.0", DEADLINE).await?;
    publish(&world, "ranged", "1.2.0", "four").await?;
    installed(&world, "ranged", "1.2.0", 2 * DEADLINE).await
}

#[tokio::test]
async fn repository_range_uses_the_index_and_invalid_range_is_refused() -> Result<()> {
    let world = world().await?;
    let mut entries = vec![];
    for version in ["1.4.0", "1.10.2", "1.11.0-rc.1"] {
        let archive = packed("basin", version, &[("templates/config.yaml", &config("basin", "low"))])?;
        let digest = Digest::of(&archive).to_string().replace("sha256:", "");
        world.file_server.put(&format!("basins/basin-{version}.tgz"), archive);
        let urls = [format!("basin-{version}.tgz")];
        entries.push(json!({"name": "basin", "version": version, "urls": urls, "digest": digest}));
    }
    world
        .file_server
        .put("basins/index.yaml", json!({"apiVersion": "v1", "entries": {"basin": entries}}).to_string());
    let url = format!("http://{}/basins", world.file_server.address());
    let source = json!({"chart": {"url": url, "name": "basin"}});
    apply(world, "basin", &source, ">=1.2 <2", None).await?;
    installed(world, "basin", "1.10.2", DEADLINE).await?;

    apply(world, "basin", &source, ">=2", None).await?;
    world.ready("basin", "False", "SourceNotFound").await?;
    assert_eq!(resolved(world, "basin").await?.version, "1.10.2", "what is installed stays");
    apply(world, "basin", &source, ">=a", None).await?;
    let refused = world.ready("basin", "False", "SourceInvalid").await?;
    let (_, _, message) = ready_of(&refused).context("Ready")?;
    assert!(message.contains(">=a"), "{message}");
    Ok(())
}

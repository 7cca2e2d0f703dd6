//! A component with more objects than its status holds uncompressed, and a packed record that was edited by hand.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use kyma_api::{HelmComponentStatus, InventoryEntry, InventoryGroup};
use serde_json::json;
use testbed::{AuditEvent, until};

use crate::inventory::write;
use crate::large::{Step, at_rest};
use crate::world::{World, ready_of};

const OBJECTS: usize = 3_600;
/// Number of objects that stay: more than half, so that the prune guard does not stop the prune, and few enough for
/// a plain record.
const KEPT: usize = 1_900;
const DEADLINE: Duration = Duration::from_mins(5);

#[tokio::test]
async fn large_inventory_is_packed_and_unreadable_one_is_rebuilt() -> Result<()> {
    let mut world = World::start().await?;
    let mut step = Step::begin(&world)?;
    let other = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: other}\n";
    bring(&world, "torn", &[&config_maps(3), other].concat()).await?;
    bring(&world, "crowd", &config_maps(OBJECTS)).await?;
    let status = ready(&world, "crowd").await?;
    ready(&world, "torn").await?;
    step.ends(&world, "installed")?;
    let packed = status.packed_objects.clone().context("a packed record")?;
    ensure!(status.objects.is_none() && status.inventory.is_none());
    ensure!(status.entries()?.len() == OBJECTS, "{}", status.entries()?.len());
    let (bytes, plain) = (packed.len(), serde_json::to_vec(&InventoryGroup::unpack(&packed)?)?.len());
    println!("of each object: {} bytes plain, {} packed", plain / OBJECTS, bytes / OBJECTS);
    ensure!(serde_json::to_vec(&status)?.len() <= 512 << 10);

    at_rest(&world).await?;
    let mut step = Step::begin(&world)?;
    world.restart_operator().await?;
    step.until_watched(&world).await?;
    at_rest(&world).await?;
    ensure!(step.ends(&world, "started again")? == [0, 0], "a new process wrote");

    found_again(&mut world).await?;
    let mut step = Step::begin(&world)?;
    bring(&world, "crowd", &config_maps(KEPT)).await?;
    let status = ready(&world, "crowd").await?;
    step.ends(&world, "reduced")?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "crowd");
    let listed = maps.list(&ListParams::default().labels("component.kyma-project.io/owner")).await?.items;
    ensure!(listed.len() == KEPT, "{}", listed.len());
    ensure!(status.packed_objects.is_none() && status.entries()?.len() == KEPT, "plain again");
    Ok(())
}

/// Checks that with an unreadable record nothing is deleted, and that the objects are found again.
async fn found_again(world: &mut World) -> Result<()> {
    let before = record(world).await?;
    ensure!(before.len() == 4, "{before:?}");
    let mark = world.target.audit()?.mark()?;
    edit(world).await?;
    world.restart_operator().await?;
    until("what is on the target is on record again, as it was sent", DEADLINE, || async {
        let found = record(world).await.unwrap_or_default();
        Ok((found == before).then_some(()))
    })
    .await?;
    let is_delete = |event: &AuditEvent| event.verb.starts_with("delete") && event.namespace == "torn";
    let deleted: Vec<_> = world.target.audit()?.since(mark)?.into_iter().filter(is_delete).collect();
    ensure!(deleted.is_empty(), "{deleted:?}");

    // The kind is not in the content any more, so only a search finds its objects.
    edit(world).await?;
    bring(world, "torn", &config_maps(3)).await?;
    world.restart_operator().await?;
    ready(world, "torn").await?;
    ensure!(world.on_target("v1", "Secret", "torn", "other").await?.is_none(), "it was forgotten");
    ensure!(record(world).await? == before[..3]);
    Ok(())
}

/// Replaces the record by text while no operator runs.
async fn edit(world: &mut World) -> Result<()> {
    world.operator.kill();
    let status = world.components()?.get("torn").await?.status.context("a status")?;
    let packed_objects = Some("edited by hand".to_owned());
    write(world, "torn", &json!(HelmComponentStatus { packed_objects, objects: None, ..status })).await
}

/// Returns the record of the small component, which has to be plain. `created` is set for all entries, as it is not
/// known after a search.
async fn record(world: &World) -> Result<Vec<InventoryEntry>> {
    let status = world.components()?.get("torn").await?.status.context("a status")?;
    ensure!(status.packed_objects.is_none() && status.objects.is_some());
    let entries = status.entries()?.into_iter();
    Ok(entries.map(|entry| InventoryEntry { created: true, ..entry }).collect())
}

fn config_maps(objects: usize) -> String {
    let map = |number: usize| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one-of-a-great-many-{number:04}}}\n")
    };
    (0..objects).map(map).collect()
}

async fn bring(world: &World, name: &str, manifest: &str) -> Result<()> {
    let url = world.file_server.put(&format!("{name}-{}.yaml", manifest.len()), manifest);
    world.apply(name, json!({"source": {"manifests": {"url": url}}, "release": {"namespace": name}})).await
}

async fn ready(world: &World, name: &str) -> Result<HelmComponentStatus> {
    let components = world.components()?;
    let what = format!("{name} is Ready");
    let waited = until(&what, DEADLINE, || async {
        let component = components.get(name).await?;
        let is_ready = ready_of(&component).is_some_and(|(status, ..)| status == "True");
        Ok(component.status.filter(|_| is_ready))
    });
    waited.await.with_context(|| world.operator.log_end(30))
}

//! Missing data never causes a deletion: whatever disappears from the hub or is restored from a backup, everything on
//! the targets stays, the halted state is reported, and work continues when the data is back. Requested deletions are
//! still done.

mod faults;
mod lists;
mod losses;
mod removals;
mod restores;
mod table;
mod world;

use anyhow::Result;
use e2e::remains::until_as_before;

use world::{KYMAS, World};

#[tokio::test(flavor = "multi_thread")]
async fn objects_lost_on_the_hub_remove_nothing_from_targets() {
    vanishing().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_removal_completes_whatever_vanishes_meanwhile() {
    removing().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_hub_or_target_removes_and_downgrades_nothing() {
    going_back().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_empty_or_fail_remove_nothing_from_targets() {
    let is_full = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    lists::scenario(is_full).await.unwrap();
}

async fn vanishing() -> Result<()> {
    let world = World::build(false).await?;
    world.pause().await?;
    world.loses("component objects", losses::component_objects, world::nothing).await?;
    world.loses("the catalogue", losses::catalogue, losses::publish_again).await?;
    world.loses("ModuleConfigs", losses::module_configs, losses::configure_again).await?;
    world.loses("a Kyma by garbage collection", losses::collected_kyma, losses::create_collected).await?;
    world.loses("access Secrets", losses::access_secrets, losses::grant_again).await?;
    world.loses("labels of Kymas", losses::labels, world::nothing).await?;
    world.loses("Kymas on targets", losses::remote_kymas, world::nothing).await?;
    world.loses("every status", losses::every_status, world::nothing).await?;
    world.loses("the CRD of components", losses::component_crd, losses::restore_component_crd).await?;
    world.loses("the CRD of Kymas", losses::kyma_crd, losses::restore_kymas).await?;
    world.loses("the CRD of Pauses", losses::pause_crd, losses::restore_pause_crd).await?;
    world.loses("all of it, to new uids", restores::delete_all, restores::with_new_uids).await?;
    let kyma = KYMAS[KYMAS.len() - 1];
    world.delete_kyma(kyma).await?;
    until_as_before(&world.target(kyma)?, world.before(kyma)?).await?;

    // This deletes the operators' own ServiceAccounts too, so it comes last.
    world.fleet()?.create(kyma).await?;
    world.is_ready().await?;
    let world = losses::namespace(world).await?;
    world.delete_kyma(kyma).await?;
    until_as_before(&world.target(kyma)?, world.before(kyma)?).await?;
    world.stop().await
}

async fn removing() -> Result<()> {
    let mut world = World::build(false).await?;
    removals::orphaned(&mut world, KYMAS[0]).await?;
    removals::without_components(&mut world, KYMAS[1]).await?;
    removals::disabled_and_deleted(&mut world, KYMAS[2]).await?;
    removals::disabled_without_access(&world, KYMAS[0]).await?;
    removals::deleted_without_access(&world, KYMAS[1]).await?;
    world.stop().await
}

async fn going_back() -> Result<()> {
    let world = World::build(true).await?;
    restores::hub_beside_targets_that_moved_on(&world).await?;
    restores::target(&world).await?;
    let kyma = KYMAS[0];
    world.delete_kyma(kyma).await?;
    until_as_before(&world.target(kyma)?, world.before(kyma)?).await?;
    world.stop().await
}

//! Target identity: nothing is written to a cluster before it is verified as the Kyma's target, the reason is
//! reported, and a user can resolve it.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod world;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use kyma_api::Reason;

use world::World;

const OPERATORS: [&str; 3] = ["kyma-operator", "helm-component", "release-meta-syncer"];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_to_a_cluster_not_proven_to_be_the_target() {
    // Boxed, since the compiler's proof that a deep future is `Send` has a limit.
    tokio::spawn(scenario().boxed()).await.unwrap().unwrap();
}

async fn scenario() -> Result<()> {
    let mut world = World::build().await?;
    swapped(&world).await.context("two kubeconfigs swapped")?;
    shared(&world).await.context("two Kymas on one target")?;
    looped(&world).await.context("the hub as a target")?;
    world.landscape.hub().save("copy")?;
    recreated(&world).await.context("another cluster at the same address")?;
    old_copy(&mut world).await.context("an old copy of the hub")?;
    world.end().await
}

/// The kubeconfigs of two Kymas are swapped, and a version is released meanwhile.
async fn swapped(world: &World) -> Result<()> {
    let marks = world.landscape.marks()?;
    world.grant("west", &world.proxied_kubeconfig()?).await?;
    world.grant("east", &world.straight().await?).await?;
    // Operators watch Secrets and the catalogue separately: an operator that has not received the Secrets yet may
    // upgrade each Kyma on its own target.
    for kyma in ["east", "west"] {
        world.is_refused(kyma, Reason::TargetChanged).await?;
    }
    world.assign("1.1.0").await?;
    world.landscape.until_at_rest().await?;
    for kyma in ["east", "west"] {
        world.is_refused(kyma, Reason::TargetChanged).await?;
    }
    world.nothing_was_written(&[1, 2], &marks)?;

    let test = world.kymactl(&["test", "east"]).await?;
    ensure!(test.code == Some(1) && test.text.contains("TargetChanged"), "{test:?}");
    let adopt = world.kymactl(&["adopt", "east", "--cluster-uid", &world.uid(2).await?]).await?;
    ensure!(adopt.code == Some(1) && adopt.text.contains("TargetInUse"), "a neighbour's: {adopt:?}");
    world.nothing_was_written(&[1, 2], &marks)?;

    world.grant("east", &world.proxied_kubeconfig()?).await?;
    world.grant("west", &world.straight().await?).await?;
    for kyma in ["east", "west"] {
        world.has(kyma, "1.1.0").await?;
    }
    world.landscape.until_at_rest().await
}

/// A second Kyma's kubeconfig leads to another Kyma's target.
async fn shared(world: &World) -> Result<()> {
    let marks = world.landscape.marks()?;
    world.create("squatter", &world.straight().await?).await?;
    world.is_refused("squatter", Reason::TargetInUse).await?;
    world.landscape.until_at_rest().await?;
    world.delete("squatter").await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_written(&[2], &marks)?;
    world.has("west", "1.1.0").await
}

/// A kubeconfig leads to the hub, with all rights there.
async fn looped(world: &World) -> Result<()> {
    let kubeconfig = world.way_to_the_hub().await?;
    let marks = world.landscape.marks()?;
    world.create("loop", &kubeconfig).await?;
    world.is_refused("loop", Reason::TargetIsHub).await?;
    world.landscape.until_at_rest().await?;
    let adopt = world.kymactl(&["adopt", "loop", "--cluster-uid", &world.uid(0).await?]).await?;
    ensure!(adopt.code == Some(1) && adopt.text.contains("TargetIsHub"), "{adopt:?}");
    world.delete("loop").await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_written(&[0], &marks)
}

/// The address in the unchanged Secret suddenly leads to another cluster.
async fn recreated(world: &World) -> Result<()> {
    let marks = world.landscape.marks()?;
    world.switch_to(3).await?;
    world.assign("1.2.0").await?;
    world.has("west", "1.2.0").await?;
    world.is_refused("east", Reason::TargetChanged).await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_written(&[1, 3], &marks)?;

    let uid = world.uid(3).await?;
    let asked = world.kymactl(&["adopt", "east"]).await?;
    ensure!(asked.code == Some(2) && asked.text.contains(&uid), "{asked:?}");
    world.nothing_was_written(&[1, 3], &marks)?;
    let adopted = world.kymactl(&["adopt", "east", "--cluster-uid", &uid]).await?;
    ensure!(adopted.code == Some(0), "{adopted:?}");
    world.has("east", "1.2.0").await?;
    world.nothing_was_written(&[1], &marks)?;
    world.landscape.until_at_rest().await?;

    // The old cluster is back. It is the wrong one by now, and is adopted again.
    let marks = world.landscape.marks()?;
    world.switch_to(1).await?;
    world.assign("1.3.0").await?;
    world.is_refused("east", Reason::TargetChanged).await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_written(&[1, 3], &marks)?;
    let adopted = world.kymactl(&["adopt", "east", "--cluster-uid", &world.uid(1).await?]).await?;
    ensure!(adopted.code == Some(0), "{adopted:?}");
    world.has("east", "1.3.0").await?;
    world.has("west", "1.3.0").await?;
    world.landscape.until_at_rest().await
}

/// A copy of the hub from before an adoption and two upgrades starts beside it, with its own operators.
async fn old_copy(world: &mut World) -> Result<()> {
    let live = world.landscape.hub().clone();
    let marks = world.landscape.marks()?;
    let copy = world.landscape.copy_of_hub("copy").await?;
    world.look_at(copy.hub())?;
    for kyma in ["east", "west"] {
        world.is_refused(kyma, Reason::StampMismatch).await?;
    }
    // A change that the live hub does not have.
    world.assign("1.2.0").await?;
    world.rests_with(copy.hub()).await?;
    world.nothing_was_written(&[1, 2, 3], &marks)?;

    world.look_at(&live)?;
    world.assign("1.4.0").await?;
    for kyma in ["east", "west"] {
        world.has(kyma, "1.4.0").await?;
    }
    world.rests_with(copy.hub()).await?;
    world.landscape.check()?;
    copy.check()?;

    // The live hub is gone: the copy takes over, and continues with the installed version.
    for operator in OPERATORS {
        world.landscape.kill(operator)?;
    }
    let marks = world.landscape.marks()?;
    world.look_at(copy.hub())?;
    let asked = world.kymactl(&["adopt", "--all"]).await?;
    ensure!(asked.code == Some(2) && asked.text.contains("2 clusters"), "{asked:?}");
    world.nothing_was_written(&[1, 2, 3], &marks)?;
    let adopted = world.kymactl(&["adopt", "--all", "--yes"]).await?;
    ensure!(adopted.code == Some(0) && adopted.text.contains("2 adopted, 0 not adopted"), "{adopted:?}");
    for kyma in ["east", "west"] {
        world.says(kyma, Reason::DowngradeRefused).await?;
        world.runs(kyma, "1.4.0").await?;
    }
    world.assign("1.4.0").await?;
    for kyma in ["east", "west"] {
        world.has(kyma, "1.4.0").await?;
    }
    Ok(())
}

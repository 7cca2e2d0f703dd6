//! Hostile input to real operators: a target that violates the API, kubeconfigs that request more than access to a
//! cluster, and a catalogue that refers to objects of others.
//!
//! A hostile target may break its own modules. It gets only bounded memory, affects no other target, and its texts
//! appear in no output.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::print_stdout, reason = "measurements, shown with --nocapture")]

mod calm;
mod catalogue;
mod faults;
mod kubeconfig;
mod own_kyma;
mod readers;
mod target;
mod world;

use anyhow::Result;

use world::World;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_input_harms_no_other_kyma() {
    Box::pin(scenario()).await.unwrap();
}

async fn scenario() -> Result<()> {
    let world = World::start().await?;
    // Runs alone, so that nothing else affects the reaction times.
    Box::pin(target::scenario(&world)).await?;
    let kubeconfig = Box::pin(kubeconfig::scenario(&world));
    let catalogue = Box::pin(catalogue::scenario(&world));
    tokio::try_join!(kubeconfig, catalogue)?;
    Box::pin(own_kyma::scenario(&world)).await?;
    target::check_no_output_repeats(&world).await?;
    world.landscape.check()?;
    world.landscape.stop().await
}

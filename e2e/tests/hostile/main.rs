//! Hostile input through real operators: a target that does what no apiserver does, kubeconfigs that want more than
//! a way in, a catalogue that reaches for what is not its own.
//!
//! A hostile target may break what is its own. It gets no memory beyond a bound, moves no other target, and its words
//! appear nowhere.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::print_stdout, reason = "what was measured, for whoever asks with --nocapture")]

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
async fn hostile_input_harms_nobody_else() {
    Box::pin(story()).await.unwrap();
}

async fn story() -> Result<()> {
    let world = World::start().await?;
    // By itself, so that nothing else is at work while reactions are compared.
    Box::pin(target::story(&world)).await?;
    let kubeconfig = Box::pin(kubeconfig::story(&world));
    let catalogue = Box::pin(catalogue::story(&world));
    tokio::try_join!(kubeconfig, catalogue)?;
    Box::pin(own_kyma::story(&world)).await?;
    target::nobody_repeats(&world).await?;
    world.landscape.check()?;
    world.landscape.stop().await
}

//! Checks that install, upgrade, unmanaging a module, managing it again, disabling and deletion end in the same
//! state, however operators are disturbed meanwhile.

mod clock;
mod doors;
mod picture;
mod rounds;
mod stages;
mod writes;

use std::sync::Arc;

use anyhow::{Context, Result};
use e2e::fleet::Fleet;
use e2e::landscape::{Landscape, Options, ProxiedConnection};
use testbed::Interceptor;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use clock::Clock;
use doors::{Door, Doors, Standing};
use rounds::World;

/// Number of targets, and of Kymas that are disturbed at the same time.
const TARGETS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_interrupts_an_operation_it_ends_in_the_same_state() {
    let is_full = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    story(is_full).await.unwrap();
}

async fn story(is_full: bool) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let clock = Clock::in_directory(scratch.path())?;
    let (killer, condemned) = unbounded_channel();
    let environment = clock.environment();
    let doors = Doors::new(killer, clock);
    let options = Options { targets: TARGETS, environment, ..Options::default() };
    let on_hub = |way: ProxiedConnection<'_>| -> Option<Arc<dyn Interceptor>> {
        match way {
            ProxiedConnection::ToHub(operator) => Some(Arc::new(Standing(Door::of_hub(&doors, operator)))),
            // `World` creates a door to the target for each Kyma.
            ProxiedConnection::ToTarget(_) => None,
        }
    };
    let mut landscape = Landscape::start_behind(options, &on_hub).await?;
    Fleet::new(&landscape)?.publish().await?;
    let world = World::new(&landscape, Arc::clone(&doors)).await?;
    tokio::select! {
        told = world.tell(is_full) => told?,
        ended = kill(&mut landscape, condemned, &doors) => ended?,
    }
    landscape.stop().await
}

/// Kills each condemned operator, lets its requests pass again, and restarts it.
async fn kill(
    landscape: &mut Landscape,
    mut condemned: UnboundedReceiver<String>,
    doors: &Doors,
) -> Result<()> {
    loop {
        let operator = condemned.recv().await.context("the doors are there")?;
        landscape.operator(&operator)?.kill();
        doors.acquit(&operator);
        landscape.start_again(&operator).await?;
    }
}

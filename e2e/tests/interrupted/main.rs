//! Checks that install, upgrade, unmanaging a module, managing it again, disabling and deletion end in the same
//! state, however operators are disturbed meanwhile.

mod clock;
mod comparable_state;
mod faults;
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
use faults::{FaultInjector, FaultInterceptor, FaultProxy};
use rounds::World;

/// Number of targets, and of Kymas that are disturbed at the same time.
const TARGETS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_operation_ends_in_the_same_state() {
    let is_full = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    scenario(is_full).await.unwrap();
}

async fn scenario(is_full: bool) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let clock = Clock::in_directory(scratch.path())?;
    let (sender, kill_requests) = unbounded_channel();
    let environment = clock.environment();
    let injector = FaultInjector::new(sender, clock);
    let options = Options { targets: TARGETS, environment, ..Options::default() };
    let on_hub = |connection: ProxiedConnection<'_>| -> Option<Arc<dyn Interceptor>> {
        match connection {
            ProxiedConnection::ToHub(operator) => {
                Some(Arc::new(FaultInterceptor(FaultProxy::of_hub(&injector, operator))))
            }
            // `World` creates a proxy to the target for each Kyma.
            ProxiedConnection::ToTarget(_) => None,
        }
    };
    let mut landscape = Landscape::start_behind(options, &on_hub).await?;
    Fleet::new(&landscape)?.publish().await?;
    let world = World::new(&landscape, Arc::clone(&injector)).await?;
    tokio::select! {
        ended = world.run(is_full) => ended?,
        ended = kill(&mut landscape, kill_requests, &injector) => ended?,
    }
    landscape.stop().await
}

/// Kills each operator that a fault selects, resumes its requests, and restarts it.
async fn kill(
    landscape: &mut Landscape,
    mut kill_requests: UnboundedReceiver<String>,
    injector: &FaultInjector,
) -> Result<()> {
    loop {
        let operator = kill_requests.recv().await.context("the fault injector has ended")?;
        landscape.operator(&operator)?.kill();
        injector.resume_requests(&operator);
        landscape.start_again(&operator).await?;
    }
}

//! Targets that do not answer, refuse connections, are slow, or answer endlessly or with errors: their neighbours
//! become Ready, and the operator's resources stay bounded. `cargo xtask bench neighbours` measures the times.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::neighbourhood::{Neighbourhood, OperatorResources};
use testbed::until_or_why;

/// Number of targets with each fault.
const TARGETS_PER_FAULT: usize = 5;
const HEALTHY_TARGETS: usize = 6;
/// Number of rounds with faults.
const ROUNDS: usize = 3;
/// Sockets for one target: calls in flight, a probe, and streams; multiplexed ones count once.
const SOCKETS_EACH: usize = 24;
/// Sockets for the hub, the admin server and the runtime.
const SOCKETS_ELSE: usize = 40;
/// Tasks for one target: its calls, connections and streams with their wake-ups, and its component.
const TASKS_EACH: usize = 60;
const TASKS_ELSE: usize = 150;
/// Idle connections are closed after a minute.
const RELEASE_DEADLINE: Duration = Duration::from_mins(4);

#[tokio::test(flavor = "multi_thread")]
async fn bad_targets_delay_no_others_and_use_bounded_resources() {
    Box::pin(scenario()).await.unwrap();
}

async fn scenario() -> Result<()> {
    let neighbourhood = Neighbourhood::start(HEALTHY_TARGETS, TARGETS_PER_FAULT).await?;
    let well = neighbourhood.round("well", false).await?;
    ensure!(well.installed.len() == HEALTHY_TARGETS && well.changed.len() == HEALTHY_TARGETS, "{well:?}");
    let mut most = well.peak;
    for number in 0..ROUNDS {
        let round = neighbourhood.round(&format!("bad-{number}"), true).await?;
        ensure!(
            round.installed.len() == HEALTHY_TARGETS && round.changed.len() == HEALTHY_TARGETS,
            "{round:?}"
        );
        ensure!(round.bad.values().sum::<usize>() == TARGETS_PER_FAULT, "{round:?}");
        is_bounded(round.peak)?;
        most = most.or(round.peak);
    }
    // Each round has its own targets; their connections must be closed.
    until_or_why("what the rounds took is given back", RELEASE_DEADLINE, || async {
        let now = neighbourhood.resources().await?;
        let is_back = now.sockets <= SOCKETS_ELSE && now.tasks <= most.tasks;
        Ok(if is_back { Ok(()) } else { Err(format!("{now:?} after {most:?}")) })
    })
    .await?;
    neighbourhood.stop().await
}

fn is_bounded(resources: OperatorResources) -> Result<()> {
    let targets = HEALTHY_TARGETS + TARGETS_PER_FAULT;
    ensure!(resources.sockets <= targets * SOCKETS_EACH + SOCKETS_ELSE, "too many sockets: {resources:?}");
    ensure!(resources.tasks <= targets * TASKS_EACH + TASKS_ELSE, "too many tasks: {resources:?}");
    Ok(())
}

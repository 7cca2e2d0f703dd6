//! Targets that are silent, refuse connections, are slow, answer without end or with errors: those beside them become
//! Ready, and what the operator holds stays bounded. How long it takes is measured by `cargo xtask bench neighbours`.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::neighbourhood::{Held, Neighbourhood};
use testbed::until_or_why;

/// Of each fault one.
const BAD: usize = 5;
const GOOD: usize = 6;
/// Rounds in which they are bad.
const ROUNDS: usize = 3;
/// Of one target: calls in flight, a probe, and streams; those that take turns on a connection count once.
const SOCKETS_EACH: usize = 24;
/// Of the hub, the admin server, and what a runtime needs for itself.
const SOCKETS_ELSE: usize = 40;
/// Of one target: its calls, connections and streams with their wake-ups, and its component.
const TASKS_EACH: usize = 60;
const TASKS_ELSE: usize = 150;
/// A connection without work is closed after a minute.
const GIVEN_BACK: Duration = Duration::from_mins(4);

#[tokio::test(flavor = "multi_thread")]
async fn bad_targets_keep_no_other_from_becoming_ready_and_cost_a_bounded_number_of_sockets_and_tasks() {
    Box::pin(story()).await.unwrap();
}

async fn story() -> Result<()> {
    let neighbourhood = Neighbourhood::start(GOOD, BAD).await?;
    let well = neighbourhood.round("well", false).await?;
    ensure!(well.installed.len() == GOOD && well.changed.len() == GOOD, "{well:?}");
    let mut most = well.held;
    for number in 0..ROUNDS {
        let round = neighbourhood.round(&format!("bad-{number}"), true).await?;
        ensure!(round.installed.len() == GOOD && round.changed.len() == GOOD, "{round:?}");
        ensure!(round.bad.values().sum::<usize>() == BAD, "{round:?}");
        is_bounded(round.held)?;
        most = most.or(round.held);
    }
    // Each round had targets of its own: what was opened for them is closed.
    until_or_why("what the rounds took is given back", GIVEN_BACK, || async {
        let now = neighbourhood.held().await?;
        let is_back = now.sockets <= SOCKETS_ELSE && now.tasks <= most.tasks;
        Ok(if is_back { Ok(()) } else { Err(format!("{now:?} after {most:?}")) })
    })
    .await?;
    neighbourhood.stop().await
}

fn is_bounded(held: Held) -> Result<()> {
    let targets = GOOD + BAD;
    ensure!(held.sockets <= targets * SOCKETS_EACH + SOCKETS_ELSE, "too many sockets: {held:?}");
    ensure!(held.tasks <= targets * TASKS_EACH + TASKS_ELSE, "too many tasks: {held:?}");
    Ok(())
}

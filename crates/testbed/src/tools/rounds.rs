//! Runs a test repeatedly on the same control planes, to find rare failures.

use std::env;
use std::io::{Write, stdout};
use std::thread;

use anyhow::{Context, Result};
use tokio::time::Instant;

/// Environment variable with the number of rounds.
const ROUNDS: &str = "TEST_ROUNDS";

/// Runs the scenario once or, with the environment variable `TEST_ROUNDS`, that many times in turn, with a line on
/// standard output for each round. The scenario has to leave its clusters as it found them.
///
/// # Errors
/// A round failed, which ends the test; or the variable contains no number.
pub async fn rounds(scenario: impl AsyncFn() -> Result<()>) -> Result<()> {
    let Some(times) = env::var_os(ROUNDS) else { return scenario().await };
    let times = times.to_str().and_then(|times| times.parse().ok());
    let times: u32 = times.with_context(|| format!("{ROUNDS} is no number"))?;
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    for round in 1..=times {
        let start = Instant::now();
        scenario().await.with_context(|| format!("round {round} of {times}"))?;
        let seconds = start.elapsed().as_secs_f64();
        writeln!(stdout(), "round {round} of {times} of {test}: {seconds:.1} s")?;
    }
    Ok(())
}

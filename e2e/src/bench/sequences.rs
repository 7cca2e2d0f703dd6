//! Random sequences of actions by users and operators, and of failures of hub and targets, compared with the model
//! of the rules: the tests of kyma-operator that run a few of them, with more.

use std::env;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::process::Command;

use super::{Outcome, Row};

/// Runs `count` sequences from `seed`, 50 at a time on a hub that is its own target, each batch with its own seed;
/// and `on_targets` more, on separate targets.
///
/// # Errors
/// Operator and model disagree; the shortest sequence that shows it is printed.
pub async fn sequences(count: u32, on_targets: u32, seed: u64) -> Result<Outcome> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let start = Instant::now();
    let ended = Command::new(cargo)
        .args(["test", "--quiet", "-p", "kyma-operator", "--test", "real", "sequences", "--", "--nocapture"])
        .env("SEQUENCES_COUNT", count.to_string())
        .env("SEQUENCES_ON_TARGETS", on_targets.to_string())
        .env("SEQUENCES_SEED", seed.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await?;
    ensure!(ended.success(), "operator and model disagree, see above");
    let rows = vec![
        Row::plain("sequences", f64::from(count), "sequences"),
        Row::plain("sequences on targets of their own", f64::from(on_targets), "sequences"),
        Row::plain("time", start.elapsed().as_secs_f64(), "s"),
    ];
    Ok(Outcome::new("sequences", &json!({"count": count, "on_targets": on_targets, "seed": seed}), rows))
}

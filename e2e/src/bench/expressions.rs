//! Processor time of CEL expressions at their cost limit.

use std::env;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::process::Command;

use super::{Outcome, Row};

/// Maximum processor time of one evaluation.
const MAX_MILLISECONDS: f64 = 20.0;

/// Runs the controller's measurement in a release build: the slowest of five evaluations of each expression.
///
/// # Errors
/// The measurement does not build or run.
pub async fn expressions() -> Result<Outcome> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--package", "kyma-controller", "--example", "expression_cost"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(run.status.success(), "the measurement failed, see above");
    let text = String::from_utf8(run.stdout)?;
    let rows = text.lines().map(row).collect::<Result<_>>()?;
    Ok(Outcome::new("expressions", &json!({"build": "release", "evaluations": 5}), rows))
}

fn row(line: &str) -> Result<Row> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, judgement, steps, _, milliseconds] = fields[..] else {
        anyhow::bail!("not a line of the measurement: {line}");
    };
    let value: f64 = milliseconds.parse().with_context(|| line.to_owned())?;
    let row = Row::plain(format!("{name} ({judgement}, {steps})"), value, "ms");
    Ok(Row { goal: Some(MAX_MILLISECONDS), ok: Some(value <= MAX_MILLISECONDS), ..row })
}

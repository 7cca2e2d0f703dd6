//! Replaces helm-component by another version, and back, with releases that the other version installed.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use tokio::process::Command;

use super::super::{Outcome, Row};
use super::restart::{asked, count};
use super::{Bench, OPERATOR, deadline};

/// Installs `releases` releases with the program `from`, replaces it by the one of this build, and then by `from`
/// again.
///
/// # Errors
/// `from` is no helm-component that runs here, the landscape does not start, or a release does not become Ready.
pub async fn upgrade(from: &Path, releases: usize) -> Result<Outcome> {
    let from = from.canonicalize().with_context(|| format!("cannot find {}", from.display()))?;
    let before = version(&from).await?;
    let mut bench = Bench::start().await?;
    let current = bench.landscape.bin(OPERATOR);
    let now = version(&current).await?;
    bench.landscape.kill(OPERATOR)?;
    bench.landscape.start_other(OPERATOR, &from).await?;
    bench.create_all("ours", releases).await?;
    bench.until_ready("ours", releases, deadline(releases)?).await?;
    let mut rows = Vec::new();
    for (step, program) in [("upgrade", current.as_path()), ("downgrade", &from)] {
        rows.extend(replaced(&mut bench, step, program).await?);
    }
    bench.landscape.stop().await?;
    let setup = json!({
        "releases": releases, "from": before, "to": now,
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    });
    Ok(Outcome::new("upgrade", &setup, rows))
}

/// Returns the rows of one step.
async fn replaced(bench: &mut Bench, step: &str, program: &Path) -> Result<Vec<Row>> {
    bench.landscape.until_at_rest().await?;
    bench.landscape.kill(OPERATOR)?;
    let (marks, start) = (bench.landscape.marks()?, Timestamp::now());
    bench.landscape.start_other(OPERATOR, program).await?;
    bench.landscape.until_at_rest().await?;
    // The other operators were killed at the start.
    bench.landscape.operator(OPERATOR)?.check()?;
    let mut rows = Vec::new();
    let mut last = start;
    let names: Vec<String> =
        bench.landscape.clusters().iter().map(|cluster| cluster.name().to_owned()).collect();
    for (name, events) in names.iter().zip(asked(bench, &marks)?) {
        ensure!(!events.is_empty(), "{step}: nothing was asked of {name}");
        last = events.iter().map(|event| event.recorded).max().unwrap_or(start).max(last);
        let writes = count(events.iter().filter(|event| event.is_write()));
        let row = format!("{step}: writes on {name}");
        // Only status may change with the version.
        rows.push(match name.as_str() {
            "hub" => Row::plain(row, writes, "requests"),
            _ => Row::at_most(row, writes, "requests", 0.0),
        });
    }
    rows.push(Row::plain(format!("{step}: at rest after"), last.duration_since(start).as_secs_f64(), "s"));
    Ok(rows)
}

async fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("version").output().await;
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8(output.stdout)?.trim().to_owned();
    ensure!(output.status.success() && text.contains(OPERATOR), "{} is no {OPERATOR}", program.display());
    Ok(text)
}

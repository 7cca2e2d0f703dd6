//! The demo as a user starts it: its output and its remains.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

#[test]
fn the_demo_prints_each_step_and_leaves_nothing_running() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let state = scratch.path().join("state");
    let (output, report) = demo(&state, &scratch.path().join("report.json"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ends with: {}\nReport: {report}", last_lines(&stderr, 15));
    let steps = report["steps"].as_array().context("the report has steps")?;
    ensure!(steps.len() == 8, "{report}");
    ensure!(steps.iter().all(|step| step["ok"] == true && step["seconds"].is_f64()), "{report}");
    for step in steps {
        let name = step["name"].as_str().context("a step has a name")?;
        ensure!(stderr.contains(name), "{name} is not in the output: {stderr}");
    }
    ensure!(stderr.contains("What to type next"), "{stderr}");
    let left = processes_with(&state.display().to_string())?;
    ensure!(left.is_empty(), "these still run: {left:?}");
    Ok(())
}

#[test]
fn a_step_that_fails_fails_the_demo() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let state = scratch.path().join("a-file");
    std::fs::write(&state, "no directory")?;
    let (output, report) = demo(&state, &scratch.path().join("report.json"))?;
    ensure!(!output.status.success(), "it claims success");
    ensure!(report["steps"].as_array().is_some_and(|steps| steps.len() == 1), "{report}");
    ensure!(report["steps"][0]["ok"] == false, "{report}");
    Ok(())
}

fn demo(state: &Path, report: &Path) -> Result<(Output, Value)> {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    let output = demo.arg("--state-dir").arg(state).arg("--report").arg(report).output()?;
    let report = std::fs::read(report).with_context(|| format!("no report: {output:?}"))?;
    Ok((output, serde_json::from_slice(&report)?))
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns the command lines of all processes that contain this path.
fn processes_with(path: &str) -> Result<Vec<String>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    // A process that ends during the search has no command line.
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    Ok(lines.filter(|line| line.contains(path)).collect())
}

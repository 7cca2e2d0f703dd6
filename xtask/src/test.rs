//! `cargo xtask test`: runs all checks and tests, the fastest first.

mod concurrency;
mod repeat;
mod room;
mod side_by_side;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgGroup, Args};

use crate::advisories::{self, Outcome};
use crate::setup::progress::say;
use crate::{codegen, docs, fuzz, setup, tidy, workspace};

/// Arguments of the test command.
#[derive(Args)]
#[command(group(ArgGroup::new("what").args(["filters", "concurrency"])))]
pub(crate) struct Request {
    /// Run slow checks too: long tests, dependencies, fuzzing, idle operators
    // Dependencies need cargo-deny and an advisory database, fuzzing needs cargo-fuzz and a nightly toolchain.
    #[arg(long)]
    full: bool,
    /// Leave out the tests that read third-party modules and charts
    #[arg(long)]
    no_inputs: bool,
    /// Run only tests whose names contain a FILTER, N times, and count failures
    #[arg(long, value_name = "N", requires = "what", conflicts_with = "full")]
    repeat: Option<NonZeroU32>,
    /// Run only tests of concurrent writers, 300 rounds each or --repeat rounds
    #[arg(long, conflicts_with_all = ["full", "package"])]
    concurrency: bool,
    /// Run only tests of this package; repeatable
    #[arg(long, short, value_name = "NAME", requires = "repeat")]
    package: Vec<String>,
    /// Parts of the names of tests
    #[arg(value_name = "FILTER", requires = "repeat")]
    filters: Vec<String>,
}

/// Counts of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// A completed step.
struct CompletedStep {
    name: &'static str,
    time: Duration,
    ok: bool,
    /// Reason why the step was skipped.
    note: Option<String>,
}

struct Run {
    request: Request,
    done: Vec<CompletedStep>,
    count: Count,
    panics: Panics,
    /// Note of the running step.
    note: Option<String>,
}

/// Messages of failed tests (panics and returned errors), which are repeated at the end since the log may be long.
#[derive(Debug, Default)]
struct Panics {
    lines: Vec<String>,
    /// Remaining number of lines of the current message to keep.
    wanted: usize,
    /// Remaining number of lines of the current backtrace to keep.
    frames: usize,
}

/// Runs all steps, stops at the first failure, and prints a table and the number of tests.
pub(crate) fn run(request: Request) -> Result<()> {
    let mut run =
        Run { request, done: Vec::new(), count: Count::default(), panics: Panics::default(), note: None };
    let outcome = match run.request.repeat {
        _ if run.request.concurrency => run.steps_repeated(Run::concurrency),
        Some(times) => run.steps_repeated(|run| run.repeat(times.get())),
        None => run.steps(),
    };
    run.print_table();
    let Count { passed, failed, ignored } = run.count;
    say(&format!("{passed} passed, {failed} failed, {ignored} ignored"));
    for line in &run.panics.lines {
        say(line);
    }
    outcome
}

impl Run {
    fn steps(&mut self) -> Result<()> {
        self.step("room on the disk", |_| room::check())?;
        self.step("inputs", |run| inputs(run.request.no_inputs))?;
        self.step("setup", |run| {
            docs::ensure_kubectl()?;
            if run.request.full {
                fuzz::ensure_tools()?;
            }
            setup::run(false)
        })?;
        self.step("format", |run| {
            run.cargo(&["fmt", "--all", "--check"])?;
            run.cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])
        })?;
        self.step("lint", |run| {
            run.cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
        })?;
        self.step("build", |run| run.cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
        self.step("generated files", |_| codegen::run(true))?;
        self.step("house rules", |_| tidy::run())?;
        let mut advisories = Outcome::Clean;
        self.step("advisories", |run| {
            advisories = advisories::check()?;
            if let Outcome::NotChecked(reason) = &advisories {
                run.note = Some(reason.clone());
            }
            Ok(())
        })?;
        self.step("unit tests", |run| run.tests(&["--lib", "--bins"]))?;
        self.step("examples in the code's docs", |run| run.tests(&["--doc"]))?;
        self.step("tests on control planes", Run::on_control_planes)?;
        self.step("commands in the docs", |_| docs::run())?;
        if self.request.full {
            self.step("dependency policy", |run| {
                run.cargo(&["deny", "check", "bans", "licenses", "sources"])
            })?;
            self.step("fuzzing", |_| fuzz::run(&fuzz::Request { seconds: 60, targets: Vec::new() }))?;
            self.step("20 minutes of rest", Self::rest)?;
            // Last, so that a machine without a database still runs all other steps.
            self.step("advisories checked", |_| advisories::demand(&advisories))?;
        }
        Ok(())
    }

    fn steps_repeated(&mut self, tests: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.step("inputs", |run| inputs(run.request.no_inputs))?;
        self.step("setup", |_| setup::run(false))?;
        self.step("build", |run| run.cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
        self.step("repeated tests", tests)
    }

    fn step(&mut self, name: &'static str, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        say(&format!("=== {name}"));
        let start = Instant::now();
        let outcome = work(self);
        let note = self.note.take();
        self.done.push(CompletedStep { name, time: start.elapsed(), ok: outcome.is_ok(), note });
        outcome.with_context(|| format!("step failed: {name}"))
    }

    fn cargo(&self, arguments: &[&str]) -> Result<()> {
        let status = self.command(arguments).status().context("cannot start cargo")?;
        ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
        Ok(())
    }

    fn tests(&mut self, which: &[&str]) -> Result<()> {
        let mut arguments = vec!["test", "--workspace", "--no-fail-fast"];
        arguments.extend(which);
        if self.request.full && !which.contains(&"--doc") {
            arguments.extend(["--", "--include-ignored"]);
        }
        let mut child =
            self.command(&arguments).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
        for line in child.stdout.take().into_iter().flat_map(|lines| BufReader::new(lines).lines()) {
            let line = line?;
            writeln!(std::io::stdout(), "{line}")?;
            self.take(&line);
        }
        let status = child.wait()?;
        ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
        Ok(())
    }

    /// Parses a line of a test binary's output.
    fn take(&mut self, line: &str) {
        self.count.add(line);
        self.panics.read(line);
    }

    /// Fails if idle operators send requests; the bench itself only reports them.
    fn rest(&mut self) -> Result<()> {
        let report = workspace::bin("bench").with_extension("idle.json");
        let path = report.display().to_string();
        self.cargo(&["run", "--bin", "bench", "--", "idle", "--seconds", "1200", "--report", &path])?;
        let outcome: serde_json::Value = serde_json::from_slice(&std::fs::read(&report)?)?;
        let rows = outcome["rows"].as_array().context("the report has rows")?;
        ensure!(rows.iter().all(|row| row["ok"] != false), "operators at rest ask for something: {path}");
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut cargo = workspace::cargo();
        cargo.args(arguments).env("TESTBED_EXEC", workspace::bin("testbed-exec"));
        if self.request.full {
            cargo.env("TEST_FULL", "1");
        }
        if self.request.no_inputs {
            cargo.env("NO_INPUTS", "1");
        }
        cargo
    }

    fn print_table(&self) {
        say("\n  seconds  step");
        for CompletedStep { name, time, ok, note } in &self.done {
            let mark = match (ok, note) {
                (false, _) => "  FAILED".to_owned(),
                (true, Some(reason)) => format!("  NOT CHECKED: {reason}"),
                (true, None) => String::new(),
            };
            say(&format!("{:>9.1}  {name}{mark}", time.as_secs_f64()));
        }
        let total: Duration = self.done.iter().map(|step| step.time).sum();
        say(&format!("{:>9.1}  in all\n", total.as_secs_f64()));
    }
}

impl Count {
    /// Parses a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`.
    fn add(&mut self, line: &str) {
        let Some((_, numbers)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in numbers.split("; ") {
            let Some((number, what)) = part.split_once(' ') else {
                continue;
            };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl Panics {
    /// Maximum number of lines kept of one panic or error.
    const DEPTH: usize = 24;
    /// Maximum number of lines kept of one backtrace: those in files of tests.
    const FRAMES: usize = 3;

    fn read(&mut self, line: &str) {
        if line.starts_with("---- ") {
            self.lines.push(line.to_owned());
        } else if line.starts_with("thread '") && line.contains("panicked at") || line.starts_with("Error: ")
        {
            (self.wanted, self.frames) = (Self::DEPTH, 0);
        } else if line.eq_ignore_ascii_case("stack backtrace:") {
            (self.wanted, self.frames) = (0, Self::FRAMES);
        } else if self.frames > 0 && line.trim_start().starts_with("at ./tests/") {
            self.frames -= 1;
            self.lines.push(line.to_owned());
        }
        if self.wanted > 0 {
            self.wanted -= 1;
            self.lines.push(line.to_owned());
        }
    }
}

/// Fails if the third-party modules and charts that tests read are missing and not excluded.
fn inputs(left_out: bool) -> Result<()> {
    let beside = workspace::root().join("../shared/inputs");
    let inputs = env::var_os("TEST_INPUTS").map_or(beside, PathBuf::from);
    if left_out || inputs.is_dir() {
        return Ok(());
    }
    bail!("{} is missing: set TEST_INPUTS, or give --no-inputs to leave those tests out", inputs.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_test_failed_is_told_again_without_the_log_around_it() {
        for start in ["thread 'charts' (7) panicked at main.rs:1:1:", "Error: step failed"] {
            let mut panics = Panics::default();
            let log = (0..40).map(|number| format!("log {number}"));
            let message = (0..40).map(|number| format!("message {number}"));
            let failed = ["---- charts stdout ----".to_owned()].into_iter().chain(log);
            failed.chain([start.to_owned()]).chain(message).for_each(|line| panics.read(&line));
            assert_eq!(panics.lines.len(), 1 + Panics::DEPTH);
            assert_eq!(panics.lines[2], "message 0");
        }
    }

    #[test]
    fn backtrace_keeps_only_lines_of_tests() {
        let mut panics = Panics::default();
        let test = "             at ./tests/real/faults.rs:281:44";
        let head = [
            "---- charts stdout ----",
            "Error: not within 120s",
            "",
            "Stack backtrace:",
            "   0: anyhow::error",
        ];
        let frames = ["             at /rustc/library/core/src/future.rs:1:1", test].repeat(5);
        head.into_iter().chain(frames).for_each(|line| panics.read(line));
        assert_eq!(panics.lines, [&head[..3], &[test; Panics::FRAMES]].concat());
    }

    #[test]
    fn a_number_of_rounds_needs_something_to_repeat() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            request: Request,
        }
        let takes = |line: &str| <Line as clap::Parser>::try_parse_from(line.split(' ')).is_ok();
        assert!(takes("test --concurrency") && takes("test --concurrency --repeat 3"));
        assert!(takes("test --repeat 3 --package e2e e10"));
        for line in ["test --repeat 3", "test --concurrency e10", "test --concurrency --full", "test e10"] {
            assert!(!takes(line), "{line}");
        }
    }

    #[test]
    fn results_of_test_binaries_are_added_up() {
        let mut count = Count::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 14 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 35.29s",
        ] {
            count.add(line);
        }
        assert_eq!(count, Count { passed: 17, failed: 2, ignored: 1 });
    }
}

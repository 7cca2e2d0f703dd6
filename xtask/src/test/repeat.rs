//! `cargo xtask test --repeat N FILTER…`: the same tests again and again, to find those that fail only now and then.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::{Count, Run};
use crate::setup::progress::say;
use crate::workspace;

impl Run {
    /// Runs the tests that the request names as often as it says. All that they print is in one file.
    pub(super) fn repeat(&mut self, times: u32) -> Result<()> {
        let path = workspace::target().join("repeat.log");
        let mut log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        say(&format!("log: {}", path.display()));
        let mut failures = BTreeMap::<String, u32>::new();
        for round in 1..=times {
            writeln!(log, "=== round {round}")?;
            let started = Instant::now();
            let count = self.round(&mut log, &mut failures)?;
            let Count { passed, failed, .. } = count;
            let seconds = started.elapsed().as_secs_f64();
            say(&format!("round {round} of {times}: {passed} passed, {failed} failed, {seconds:.1} s"));
            ensure!(passed + failed > 0, "no test has a name with {}", self.request.filters.join(" or "));
        }
        for (test, often) in &failures {
            say(&format!("failed in {often} of {times} rounds: {test}"));
        }
        if failures.is_empty() {
            Ok(())
        } else {
            bail!("{} tests failed; see {}", failures.len(), path.display())
        }
    }

    /// Runs them once and notes which failed.
    fn round(&mut self, log: &mut File, failures: &mut BTreeMap<String, u32>) -> Result<Count> {
        let mut command = self.command(&self.arguments());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(log.try_clone().context("cannot write the log")?)
            .spawn()
            .context("cannot start cargo")?;
        let mut count = Count::default();
        let mut failed = 0;
        for line in child.stdout.take().into_iter().flat_map(|lines| BufReader::new(lines).lines()) {
            let line = line?;
            writeln!(log, "{line}")?;
            count.add(&line);
            if let Some(test) = failed_test(&line) {
                *failures.entry(test.to_owned()).or_default() += 1;
                failed += 1;
            }
        }
        let status = child.wait()?;
        // What does not build, or dies without a result, is no test that failed.
        ensure!(status.success() || failed > 0, "`cargo {}` failed", self.arguments().join(" "));
        self.count.passed += count.passed;
        self.count.failed += count.failed;
        Ok(count)
    }

    fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["test", "--no-fail-fast", "--tests"];
        match self.request.package.as_slice() {
            [] => arguments.push("--workspace"),
            packages => arguments.extend(packages.iter().flat_map(|package| ["--package", package.as_str()])),
        }
        arguments.push("--");
        arguments.extend(self.request.filters.iter().map(String::as_str));
        arguments
    }
}

/// The test that a line such as `test e10_removal_waits ... FAILED` is about.
pub(super) fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_found_by_their_lines() {
        assert_eq!(failed_test("test blocking::e10_waits ... FAILED"), Some("blocking::e10_waits"));
        assert_eq!(failed_test("test blocking::e10_waits ... ok"), None);
        assert_eq!(failed_test("test result: FAILED. 1 passed; 1 failed"), None);
    }
}

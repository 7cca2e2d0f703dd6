//! `cargo xtask test --repeat N FILTER…`: repeats tests to find rare failures.

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
    /// Runs the requested tests the requested number of times. All output goes to one file.
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

    /// Runs the tests once and records the failures.
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
        // A failed build, or a crash without a result, is not a failed test.
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

/// Returns the test in a line such as `test e10_removal_waits ... FAILED`.
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

//! `cargo xtask test --concurrency`: repeats KLM's acceptance tests with concurrent writers.
//!
//! Clusters are started once for all rounds; in each round every test has its own Kyma or component. All tests run
//! concurrently.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::Mutex;
use regex::Regex;

use super::repeat::failed_test;
use super::{Count, Run};
use crate::setup::progress::say;
use crate::workspace;

/// Default number of rounds.
const ROUNDS: u32 = 300;

/// File and name of each test: KLM's acceptance tests in which one writer interferes with another.
const TESTS: &[(&str, &str)] = &[
    // The user changes the selection during a removal, and a release follows.
    (
        "crates/kyma-operator/tests/real/choices.rs",
        "e10_e13_module_in_removal_is_upgraded_and_selected_again",
    ),
    // A module is orphaned and adopted again before its removal has ended.
    (
        "crates/kyma-operator/tests/real/choices.rs",
        "e16_module_is_orphaned_adopted_and_disabled_while_unmanaged",
    ),
    // The user deletes what the operator writes.
    (
        "crates/kyma-operator/tests/real/choices.rs",
        "i29_i34_deleted_target_kyma_is_recreated_with_last_selection",
    ),
    // The garbage collector also deletes components, finalizers of others remain, and the target stops meanwhile.
    (
        "crates/kyma-operator/tests/real/faults.rs",
        "e02_e08_deleted_kyma_waits_for_module_until_access_is_lost",
    ),
    // Credentials change during a session.
    ("crates/kyma-operator/tests/real/access.rs", "e41_credentials_and_ca_rotated_in_place_are_used_at_once"),
    // One Kyma changes and is deleted during the reconcile of another.
    (
        "crates/kyma-operator/tests/real/itself.rs",
        "i02_i03_kyma_in_single_cluster_does_not_affect_other_kymas",
    ),
    // Users edit hub, target and component while the operator writes.
    (
        "crates/kyma-operator/tests/real/lifecycle.rs",
        "e14_i22_i23_i27_i30_i33_i41_to_i46_i86_i87_kyma_lifecycle",
    ),
    // Users delete objects by hand during their removal.
    (
        "crates/helm-component/tests/clusters/removal.rs",
        "e10_removal_waits_for_user_objects_and_then_deletes_all",
    ),
    // A version is released during the removal.
    (
        "crates/helm-component/tests/clusters/blocking.rs",
        "e13_component_is_upgraded_while_its_removal_is_blocked",
    ),
    // A user deletes objects of two components, one of which must stay unchanged.
    (
        "crates/helm-component/tests/clusters/drift.rs",
        "e17_skipped_component_is_unchanged_until_label_is_removed",
    ),
    // All operators and the garbage collector act on the same deletion.
    ("e2e/tests/one_kyma/main.rs", "e02_foreground_deletion_of_kyma_waits_for_user_objects"),
];

/// Results of each test.
#[derive(Debug, Default)]
struct Outcome {
    /// Durations of successful rounds, in seconds.
    rounds: BTreeMap<String, Vec<f64>>,
    failed: BTreeSet<String>,
    count: Count,
}

/// Log file and parsed results of all test binaries.
struct SharedOutput {
    log: File,
    outcome: Outcome,
}

impl Run {
    /// Runs each test for the requested number of rounds, by default [`ROUNDS`]. All output goes to one file.
    pub(super) fn concurrency(&mut self) -> Result<()> {
        let times = self.request.repeat.map_or(ROUNDS, std::num::NonZeroU32::get);
        let path = workspace::target().join("concurrency.log");
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        say(&format!("log: {}", path.display()));
        let binaries = by_binary(TESTS)?;
        let mut build = vec!["test", "--workspace", "--no-run", "--quiet"];
        build.extend(binaries.keys().flat_map(|binary| ["--test", binary.as_str()]));
        self.cargo(&build)?;

        let output = Mutex::new(SharedOutput { log, outcome: Outcome::default() });
        let (this, shared) = (&*self, &output);
        let results: Vec<Result<()>> = thread::scope(|scope| {
            let running: Vec<_> = binaries
                .iter()
                .map(|(binary, names)| scope.spawn(move || this.binary(binary, names, times, shared)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
            };
            running.into_iter().map(join).collect()
        });
        let SharedOutput { mut log, outcome } = output.into_inner();
        self.count = outcome.count;
        for line in outcome.summary(times) {
            writeln!(log, "{line}")?;
            say(&line);
        }
        results.into_iter().collect::<Result<()>>()?;
        ensure!(outcome.is_complete(times), "not all rounds succeeded; see {}", path.display());
        Ok(())
    }

    /// Runs the tests of one binary concurrently. Returns no error if a test fails.
    fn binary(&self, binary: &str, names: &[String], times: u32, output: &Mutex<SharedOutput>) -> Result<()> {
        let arguments = arguments(binary, names);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let lock = || output.lock();
        let errors = lock().log.try_clone().context("cannot write the log")?;
        let mut child = self
            .command(&arguments)
            .env("TEST_ROUNDS", times.to_string())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot start cargo")?;
        for line in child.stdout.take().into_iter().flat_map(|lines| BufReader::new(lines).split(b'\n')) {
            let line = String::from_utf8_lossy(&line?).into_owned();
            let mut output = lock();
            writeln!(output.log, "{line}")?;
            output.outcome.read(&line)?;
        }
        child.wait()?;
        Ok(())
    }
}

impl Outcome {
    /// Parses a line such as `round 3 of 300 of drift::e17_skipped: 2.5 s`, which may follow other text.
    fn read(&mut self, line: &str) -> Result<()> {
        self.count.add(line);
        let round = Regex::new(r"round \d+ of \d+ of (\S+): ([\d.]+) s$")?;
        if let Some(round) = round.captures(line) {
            self.rounds.entry(round[1].to_owned()).or_default().push(round[2].parse()?);
        } else if let Some(test) = failed_test(line) {
            self.failed.insert(test.to_owned());
        }
        Ok(())
    }

    fn is_complete(&self, times: u32) -> bool {
        self.failed.is_empty()
            && self.rounds.len() == TESTS.len()
            && self.rounds.values().all(|rounds| rounds.len() == times as usize)
    }

    /// Returns a line for each test: number of successful rounds, whether one failed, and the median and maximum
    /// duration.
    fn summary(&self, times: u32) -> Vec<String> {
        let tests: BTreeSet<&String> = self.rounds.keys().chain(&self.failed).collect();
        let line = |test: &String| {
            let mut rounds = self.rounds.get(test).cloned().unwrap_or_default();
            rounds.sort_by(f64::total_cmp);
            let middle = rounds.get(rounds.len() / 2).copied().unwrap_or_default();
            let slowest = rounds.last().copied().unwrap_or_default();
            let succeeded = rounds.len();
            let failed = if self.failed.contains(test) { "yes" } else { "no" };
            format!(
                "{succeeded} of {times} rounds succeeded, test failed: {failed}, median {middle:.1} s, slowest {slowest:.1} s: {test}"
            )
        };
        tests.into_iter().map(line).collect()
    }
}

/// Returns the names of the tests by test binary.
fn by_binary(tests: &[(&str, &str)]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut binaries = BTreeMap::<_, Vec<_>>::new();
    for (file, test) in tests {
        let (binary, name) = binary_and_test_name(Path::new(file), test)?;
        binaries.entry(binary).or_default().push(name);
    }
    Ok(binaries)
}

fn arguments(binary: &str, names: &[String]) -> Vec<String> {
    let start = ["test", "--workspace", "--test", binary, "--", "--exact", "--nocapture"];
    let threads = format!("--test-threads={}", names.len());
    start.into_iter().map(str::to_owned).chain([threads]).chain(names.iter().cloned()).collect()
}

/// Returns the test binary of the file `<package>/tests/<binary>/<module>.rs`, and the test's name in it.
fn binary_and_test_name(file: &Path, test: &str) -> Result<(String, String)> {
    let mut parts = file.iter().rev().filter_map(|part| part.to_str());
    let (module, binary) = parts.next().zip(parts.next()).context("the path names no test binary")?;
    let module = module.strip_suffix(".rs").context("the file is not a Rust file")?;
    let name = if module == "main" { test.to_owned() } else { format!("{module}::{test}") };
    Ok((binary.to_owned(), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_test_exists_and_runs_in_rounds() {
        for (file, test) in TESTS {
            let text = std::fs::read_to_string(workspace::root().join(file)).unwrap();
            let body = text.split_once(&format!("fn {test}()")).map(|(_, rest)| rest);
            let body = body.unwrap_or_else(|| panic!("{file} has no {test}"));
            let body = body.split("\n}\n").next().unwrap_or(body);
            assert!(body.contains("rounds("), "{test} does not run in rounds");
        }
    }

    #[test]
    fn a_test_is_run_by_its_full_name() {
        let tests = [("a/tests/real/faults.rs", "e02_x"), ("b/tests/one/main.rs", "i03_y")];
        let binaries = by_binary(&tests).unwrap();
        assert_eq!(binaries["one"], ["i03_y"]);
        let line = arguments("real", &binaries["real"]).join(" ");
        let expected = "test --workspace --test real -- --exact --nocapture --test-threads=1 faults::e02_x";
        assert_eq!(line, expected);
    }

    #[test]
    fn rounds_and_failures_are_counted_per_test() {
        let mut outcome = Outcome::default();
        for (test, seconds) in [("a::b", "1.5"), ("a::b", "0.5"), ("a::b", "9.0"), ("c", "2.0")] {
            outcome.read(&format!("test c ... round 1 of 3 of {test}: {seconds} s")).unwrap();
        }
        outcome.read("test c ... FAILED").unwrap();
        assert_eq!(
            outcome.summary(3),
            [
                "3 of 3 rounds succeeded, test failed: no, median 1.5 s, slowest 9.0 s: a::b",
                "1 of 3 rounds succeeded, test failed: yes, median 2.0 s, slowest 2.0 s: c",
            ]
        );
    }

    #[test]
    fn outcome_is_complete_only_after_all_rounds_of_all_tests() {
        let rounds = |(_, test): &(&str, &str)| ((*test).to_owned(), vec![1.0, 1.0]);
        let mut outcome = Outcome { rounds: TESTS.iter().map(rounds).collect(), ..Outcome::default() };
        assert!(outcome.is_complete(2));
        assert!(!outcome.is_complete(3), "a round is missing");
        outcome.failed.insert("a".to_owned());
        assert!(!outcome.is_complete(2), "a test failed");
        outcome.failed.clear();
        outcome.rounds.pop_first();
        assert!(!outcome.is_complete(2), "a test is missing");
    }
}

//! `cargo xtask fuzz`: runs libFuzzer on every parser of foreign bytes.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use parking_lot::Mutex;

use crate::setup::progress::{Progress, say};
use crate::workspace;

/// Directory of the fuzz targets' workspace.
pub(crate) const DIRECTORY: &str = "fuzz";
/// Interval of the progress reports of a running target.
const EVERY: Duration = Duration::from_secs(15);
/// Maximum number of output lines repeated for a failed target: the panic, and how to reproduce it.
const DEPTH: usize = 40;
/// Limits for one input: time in seconds, memory in MiB.
const INPUT: &str = "-timeout=20";
const MEMORY: &str = "-rss_limit_mb=1024";

/// Arguments of the fuzz command.
#[derive(Args)]
pub(crate) struct Request {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Targets: names of files in fuzz/fuzz_targets. Default: all
    pub(crate) targets: Vec<String>,
}

/// Builds the targets, runs as many in parallel as there are cores, and fails if one of them found a failure.
pub(crate) fn run(request: &Request) -> Result<()> {
    let targets = chosen(targets(workspace::root())?, &request.targets)?;
    ensure_tools()?;
    let progress = Progress::begin("build the fuzz targets");
    let built = cargo_fuzz("build").args(targets.iter().filter(|_| targets.len() == 1)).status();
    let built = built.is_ok_and(|status| status.success());
    progress.end(if built { "done" } else { "failed" });
    ensure!(built, "the fuzz targets do not build");

    let cores = thread::available_parallelism().map_or(1, NonZero::get).min(targets.len());
    let waiting = Mutex::new(VecDeque::from(targets));
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(target) = next(&waiting) {
                    if let Err(error) = fuzz(&target, request.seconds) {
                        say(&format!("{target}: {error:#}"));
                        failed.lock().push(target);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    ensure!(failed.is_empty(), "fuzzing found something: {}", failed.join(", "));
    Ok(())
}

/// Returns the targets of a checkout: the files in `fuzz/fuzz_targets`.
pub(crate) fn targets(root: &Path) -> Result<Vec<String>> {
    let place = root.join(DIRECTORY).join("fuzz_targets");
    let files = fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))?;
    let paths = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let sources = paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut names: Vec<_> =
        sources.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    ensure!(!names.is_empty(), "{} holds no targets", place.display());
    Ok(names)
}

fn chosen(all: Vec<String>, wanted: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        bail!("there is no fuzz target {unknown}, only {}", all.join(", "));
    }
    Ok(if wanted.is_empty() { all } else { wanted.to_vec() })
}

/// Fails with the name of a missing tool to install.
pub(crate) fn ensure_tools() -> Result<()> {
    let answers = |arguments: &[&str]| {
        let asked =
            Command::new("rustup").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    if !answers(&["run", "nightly", "rustc", "--version"]) {
        bail!("a nightly toolchain is missing: rustup toolchain install nightly --profile minimal");
    }
    if !answers(&["run", "nightly", "cargo", "fuzz", "--version"]) {
        bail!("cargo-fuzz is missing: cargo install cargo-fuzz --locked");
    }
    Ok(())
}

/// Both of its commands need the same options, or the second builds everything again.
fn cargo_fuzz(command: &str) -> Command {
    let mut cargo = Command::new("rustup");
    cargo.current_dir(workspace::root()).args(["run", "nightly", "cargo", "fuzz", command]);
    cargo.args(["--codegen-units=16", "--target-dir"]).arg(place());
    workspace::remove_package_variables(&mut cargo);
    cargo
}

/// In the main workspace's target directory, so that cleaning it also cleans these builds.
fn place() -> PathBuf {
    workspace::target().join(DIRECTORY)
}

fn next(waiting: &Mutex<VecDeque<String>>) -> Option<String> {
    waiting.lock().pop_front()
}

/// Runs one target. New inputs go to a separate corpus, from which the next run starts.
fn fuzz(target: &str, seconds: u64) -> Result<()> {
    let found = place().join("corpus").join(target);
    fs::create_dir_all(&found)?;
    let seeds = Path::new(DIRECTORY).join("corpus").join(target);
    let dictionary = Path::new(DIRECTORY).join("dictionaries").join(format!("{target}.dict"));
    let mut cargo = cargo_fuzz("run");
    cargo.arg(target).arg(found).arg(seeds).args(["--", INPUT, MEMORY, "-print_final_stats=1"]);
    cargo.arg(format!("-max_total_time={seconds}"));
    if workspace::root().join(&dictionary).is_file() {
        cargo.arg(format!("-dict={}", dictionary.display()));
    }
    say(&format!("{target}: {seconds} s …"));
    let mut child = cargo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot start it")?;
    let mut told = FuzzerOutput::new(target);
    for line in child.stderr.take().into_iter().flat_map(|text| BufReader::new(text).split(b'\n')) {
        told.read(&String::from_utf8_lossy(&line?), Instant::now());
    }
    if child.wait()?.success() {
        say(&told.summary());
        return Ok(());
    }
    bail!("failed\n  {}", told.tail.iter().map(String::as_str).collect::<Vec<_>>().join("\n  "))
}

/// Output of libFuzzer.
struct FuzzerOutput {
    target: String,
    tail: VecDeque<String>,
    statistics: BTreeMap<String, String>,
    /// The last line of the form `#524288 pulse  cov: 1234 ft: …`.
    state: String,
    last: Instant,
}

impl FuzzerOutput {
    fn new(target: &str) -> Self {
        let (tail, statistics) = (VecDeque::new(), BTreeMap::new());
        Self { target: target.to_owned(), tail, statistics, state: String::new(), last: Instant::now() }
    }

    fn read(&mut self, line: &str, now: Instant) {
        if let Some((name, value)) = line.strip_prefix("stat::").and_then(|rest| rest.split_once(':')) {
            self.statistics.insert(name.to_owned(), value.trim().to_owned());
        } else if line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            self.state = line.split_whitespace().collect::<Vec<_>>().join(" ");
            if now.duration_since(self.last) >= EVERY {
                self.last = now;
                say(&format!("{}: {}", self.target, self.state));
            }
            return;
        }
        self.tail.push_back(line.to_owned());
        if self.tail.len() > DEPTH {
            self.tail.pop_front();
        }
    }

    fn summary(&self) -> String {
        let number = |name: &str| self.statistics.get(name).map_or("?", String::as_str);
        format!(
            "{}: nothing found in {} inputs, {} per second, {} new, {} MiB at most; {}",
            self.target,
            number("number_of_executed_units"),
            number("average_exec_per_sec"),
            number("new_units_added"),
            number("peak_rss_mb"),
            self.state,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_summed_up_by_its_last_statistics() {
        let mut told = FuzzerOutput::new("values");
        for line in [
            "INFO: Seed: 1",
            "#2\tINITED cov: 9 ft: 9 corp: 1/1b",
            "#64\tDONE   cov: 12 ft: 30 corp: 4/9b",
            "###### Recommended dictionary. ######",
            "Done 64 runs in 2 second(s)",
            "stat::number_of_executed_units: 64",
            "stat::average_exec_per_sec:     32",
            "stat::new_units_added:          3",
            "stat::peak_rss_mb:              40",
        ] {
            told.read(line, Instant::now());
        }
        assert_eq!(
            told.summary(),
            "values: nothing found in 64 inputs, 32 per second, 3 new, 40 MiB at most; #64 DONE cov: 12 ft: 30 corp: 4/9b"
        );
    }

    #[test]
    fn of_a_failure_the_end_is_kept() {
        let mut told = FuzzerOutput::new("values");
        (0..100).for_each(|number| told.read(&format!("line {number}"), Instant::now()));
        assert_eq!(told.tail.len(), DEPTH);
        assert_eq!(told.tail.back().map(String::as_str), Some("line 99"));
    }

    #[test]
    fn unknown_fuzz_target_is_refused_with_the_valid_names() {
        let all = || vec!["archive".to_owned(), "values".to_owned()];
        assert_eq!(chosen(all(), &[]).unwrap(), all());
        assert_eq!(chosen(all(), &["values".to_owned()]).unwrap(), ["values"]);
        assert!(chosen(all(), &["value".to_owned()]).unwrap_err().to_string().contains("archive, values"));
    }
}

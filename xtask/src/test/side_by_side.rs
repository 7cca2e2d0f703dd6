//! Tests on control planes. A test binary mostly waits for its control planes, so several run in parallel.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

use super::Run;
use crate::setup::progress::say;
use crate::workspace;

/// Number of parallel test binaries.
const LANES: usize = 2;

/// A finished test binary.
struct BinaryResult {
    binary: String,
    seconds: f64,
    outcome: io::Result<BinaryOutput>,
}

struct BinaryOutput {
    text: String,
    passed: bool,
}

impl Run {
    /// Builds and runs all binaries. The output of each is printed as a whole at its end; a failure does not stop
    /// the others.
    pub(super) fn on_control_planes(&mut self) -> Result<()> {
        self.cargo(&["test", "--workspace", "--test", "*", "--no-run", "--quiet"])?;
        let commands: Vec<_> = binaries()?.into_iter().map(|binary| self.of_binary(binary)).collect();
        let queue = Mutex::new(commands.into_iter());
        let next = || queue.lock().next();
        let mut failed = Vec::new();
        thread::scope(|scope| {
            let (sender, ended) = mpsc::channel();
            for _ in 0..LANES {
                let sender = sender.clone();
                scope.spawn(move || {
                    while let Some((binary, command)) = next()
                        && sender.send(run(binary, command)).is_ok()
                    {}
                });
            }
            drop(sender);
            for BinaryResult { binary, seconds, outcome } in ended {
                let BinaryOutput { text, passed } =
                    outcome.with_context(|| format!("cannot run {binary}"))?;
                write!(io::stdout(), "{text}")?;
                say(&format!("{binary}: {seconds:.0} s"));
                text.lines().for_each(|line| self.take(line));
                if !passed {
                    failed.push(binary);
                }
            }
            anyhow::Ok(())
        })?;
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }

    fn of_binary(&self, binary: String) -> (String, Command) {
        let mut command = self.command(&["test", "--workspace", "--no-fail-fast", "--test", &binary]);
        if self.request.full {
            command.args(["--", "--include-ignored"]);
        }
        (binary, command)
    }
}

fn run(binary: String, command: Command) -> BinaryResult {
    let started = Instant::now();
    let outcome = printed(command);
    BinaryResult { binary, seconds: started.elapsed().as_secs_f64(), outcome }
}

fn printed(mut command: Command) -> io::Result<BinaryOutput> {
    let (mut reader, writer) = io::pipe()?;
    let mut child = command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // It holds ends of the pipe, which would never close.
    drop(command);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let passed = child.wait()?.success();
    Ok(BinaryOutput { text: String::from_utf8_lossy(&bytes).into_owned(), passed })
}

/// Returns the names of the workspace's test binaries. Binaries of the same name in two packages run together.
fn binaries() -> Result<BTreeSet<String>> {
    let packages = workspace::packages(workspace::root())?;
    let targets = packages.into_iter().flat_map(|package| package.targets);
    Ok(targets.filter(|target| target.kind == ["test"]).map(|target| target.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_tells_of_its_test_binaries() {
        let binaries = binaries().unwrap();
        for name in ["one_kyma", "on_clusters", "real"] {
            assert!(binaries.contains(name), "{binaries:?}");
        }
        assert!(!binaries.contains("xtask"), "{binaries:?}");
    }

    #[test]
    fn output_of_both_streams_is_kept_and_a_failure_is_reported() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo told; echo logged >&2; exit 1"]);
        let BinaryOutput { text, passed } = printed(shell).unwrap();
        assert_eq!((text.as_str(), passed), ("told\nlogged\n", false));
    }
}

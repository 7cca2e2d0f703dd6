//! Test programs, several at a time: those on control planes wait for their clusters most of the time.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};

use super::{Told, tell};
use crate::setup::progress::say;

/// Programs at a time.
const LANES: usize = 2;

/// A built test program.
pub(super) struct Program {
    /// `package: test`.
    name: String,
    executable: PathBuf,
    /// The package's directory, where cargo would run it.
    directory: PathBuf,
}

impl Program {
    /// The test programs among what `cargo test --no-run --message-format=json` says; stories across operators, which
    /// take longest, first.
    pub(super) fn among(messages: &str) -> Result<Vec<Self>> {
        let mut programs = Vec::new();
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: serde_json::Value = serde_json::from_str(line)?;
            let is_test = message["target"]["kind"][0] == "test";
            let Some(executable) = message["executable"].as_str().filter(|_| is_test) else { continue };
            let manifest =
                PathBuf::from(message["manifest_path"].as_str().context("a package has a manifest")?);
            let directory = manifest.parent().context("a manifest is in a directory")?.to_owned();
            let package = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let test = message["target"]["name"].as_str().unwrap_or_default();
            programs.push(Self {
                name: format!("{package}: {test}"),
                executable: executable.into(),
                directory,
            });
        }
        programs.sort_by_key(|program| (!program.name.starts_with("e2e: "), program.name.clone()));
        Ok(programs)
    }
}

/// Runs all of them, whatever fails.
pub(super) fn run(programs: Vec<Program>, prepare: impl Fn(&mut Command) + Sync) -> Result<Told> {
    let queue: Mutex<VecDeque<Program>> = Mutex::new(programs.into());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let lane = || {
        let mut told = Told::default();
        while let Some(program) = next() {
            say(&format!("     running {}", program.name));
            let mut command = Command::new(&program.executable);
            command.current_dir(&program.directory);
            prepare(&mut command);
            told.add(tell(command, &program.name)?);
        }
        Ok(told)
    };
    let lanes: Vec<Result<Told>> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("a lane broke off"))).collect()
    });
    let mut all = Told::default();
    for told in lanes {
        all.add(told?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_with_their_place_and_long_ones_first() {
        let messages = r#"
{"reason":"compiler-artifact","manifest_path":"/w/crates/sdk/Cargo.toml","target":{"kind":["test"],"name":"parts"},"executable":"/t/parts-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/sdk/Cargo.toml","target":{"kind":["lib"],"name":"sdk"},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/w/e2e/Cargo.toml","target":{"kind":["test"],"name":"demo"},"executable":"/t/demo-1"}
{"reason":"build-finished","success":true}"#;
        let found = Program::among(messages).unwrap();
        let names: Vec<&str> = found.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["e2e: demo", "sdk: parts"]);
        assert_eq!(found[1].directory, PathBuf::from("/w/crates/sdk"));
    }
}

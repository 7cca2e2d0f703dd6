//! Runs the commands of the documentation, as readers would.
//!
//! A code block is run if the line above it is `<!-- run -->`. All blocks of a file run in order in one shell, with
//! their own landscape and the variables of `DIR/env`. Background processes end with the shell. A file with the
//! line `<!-- run on empty clusters -->` gets clusters without CRDs and operators of this project.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::Profile;
use crate::{landscape, workspace};

const MARK: &str = "<!-- run -->";

const ON_EMPTY: &str = "<!-- run on empty clusters -->";

/// Directories and files to search for commands.
const PLACES: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/helm-component.md",
    "docs/user",
    "docs/operator",
    "docs/contributor",
];

/// A file with marked code blocks.
struct Script {
    path: PathBuf,
    blocks: Vec<Block>,
    on_empty: bool,
}

/// A marked code block.
#[derive(Debug, PartialEq)]
struct Block {
    /// Line of its first command, counted from one.
    line: usize,
    text: String,
}

/// Runs every marked code block; fails with file and line of the first failing one.
pub(crate) fn run() -> Result<()> {
    let files = files_with_blocks()?;
    ensure!(!files.is_empty(), "no document has a block marked {MARK}");
    ensure_kubectl()?;
    landscape::build(Profile::Dev)?;
    for script in files {
        let state = workspace::root().join("target").join("docs-state");
        let place = state.display().to_string();
        // Ends all children with this process.
        let own = std::process::id().to_string();
        let mut wanted = vec!["--state-dir", &place, "--with-process", &own];
        wanted.extend(script.on_empty.then_some("--empty"));
        landscape::call("up", &wanted)?;
        let result = run_file(&script, &state);
        let stopped = landscape::call("down", &["--state-dir", &place]);
        result.and(stopped)?;
    }
    Ok(())
}

/// Fails with an installation hint if kubectl, which the documentation uses, is missing.
pub(crate) fn ensure_kubectl() -> Result<()> {
    let asked = Command::new("kubectl").args(["version", "--client"]).stdout(Stdio::null()).status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("kubectl is missing: install it from https://kubernetes.io/docs/tasks/tools"),
    }
}

fn files_with_blocks() -> Result<Vec<Script>> {
    let mut found = Vec::new();
    for place in PLACES {
        let place = workspace::root().join(place);
        let mut paths = vec![place.clone()];
        if place.is_dir() {
            paths = fs::read_dir(&place)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
            paths.sort();
        }
        for path in paths.into_iter().filter(|path| path.is_file()) {
            let text = fs::read_to_string(&path)?;
            let blocks = blocks(&text);
            if !blocks.is_empty() {
                let on_empty = text.lines().any(|line| line.trim() == ON_EMPTY);
                found.push(Script { path, blocks, on_empty });
            }
        }
    }
    Ok(found)
}

fn blocks(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let marks = lines.iter().enumerate().filter(|(_, line)| line.trim() == MARK);
    marks
        .filter(|(mark, _)| lines.get(mark + 1).is_some_and(|fence| fence.starts_with("```")))
        .map(|(mark, _)| {
            let body = lines.iter().skip(mark + 2).take_while(|line| !line.starts_with("```"));
            Block { line: mark + 3, text: body.map(|line| format!("{line}\n")).collect() }
        })
        .collect()
}

/// Runs the file in one shell, which prints the current block to locate failures.
fn run_file(script: &Script, state: &Path) -> Result<()> {
    let at = state.join("block");
    let mut text = format!("set -euo pipefail\nset -a; . '{}/env'; set +a\n", state.display());
    text.push_str("trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n");
    for block in &script.blocks {
        text.push_str(&format!("echo {} > {}\n{}", block.line, at.display(), block.text));
    }
    let mut bash = Command::new("bash");
    // Blocks call cargo, as readers do.
    workspace::remove_package_variables(&mut bash);
    let mut shell =
        bash.current_dir(workspace::root()).stdin(Stdio::piped()).spawn().context("cannot start bash")?;
    shell.stdin.take().context("bash has no input")?.write_all(text.as_bytes())?;
    if !shell.wait()?.success() {
        let line = fs::read_to_string(&at).unwrap_or_default();
        bail!("{}:{}: this block failed", script.path.display(), line.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_count() {
        let text = "a\n```sh\nno\n```\n<!-- run -->\n```sh\nyes\nalso\n```\n";
        assert_eq!(blocks(text), [Block { line: 7, text: "yes\nalso\n".into() }]);
    }
}

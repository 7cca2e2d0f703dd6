//! Rules of this repository that no compiler checks.

mod clients;
mod comments;
mod declared_names;
mod deletes;
mod dependencies;
mod events;
mod exports;
mod fuzz;
mod imports;
mod klm;
mod missing_data;
mod patterns;
mod proofs;
mod purity;
mod runbook;
mod test_names;
mod text;
mod use_paths;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Runs every check and reports all findings at once.
pub(crate) fn run() -> Result<()> {
    let root = crate::workspace::root();
    let files = tracked_files(root)?;
    let mut findings = Vec::new();
    findings.extend(dependencies::check(root)?);
    findings.extend(deletes::check(root, &files)?);
    findings.extend(purity::check(root, &files)?);
    findings.extend(clients::check(root, &files)?);
    findings.extend(text::check(root, &files)?);
    findings.extend(runbook::check(root, &files)?);
    findings.extend(fuzz::check(root, &files)?);
    findings.extend(klm::check(root, &files)?);
    findings.extend(missing_data::check(root, &files)?);
    findings.extend(proofs::check(root, &files)?);
    findings.extend(events::check(root)?);
    findings.extend(exports::check(root)?);
    findings.extend(patterns::check(root, &files)?);
    findings.extend(test_names::check(root, &files)?);
    findings.extend(comments::check(root, &files)?);
    findings.extend(declared_names::check(root, &files)?);
    findings.extend(imports::check(root, &files)?);
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{} finding(s):\n  {}", findings.len(), findings.join("\n  "));
}

/// Returns the files that Git tracks or would track, relative to the root.
fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot run git")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let names = String::from_utf8(output.stdout)?;
    let files: Vec<_> = names.lines().map(PathBuf::from).filter(|path| root.join(path).is_file()).collect();
    ensure!(!files.is_empty(), "git knows no files here, so there is nothing to check");
    Ok(files)
}

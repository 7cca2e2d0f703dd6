//! Builds with Go.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::progress::Progress;
use crate::tools::{Build, Tool};
use crate::workspace;

/// Builds the program at `scratch/<name>`.
pub(crate) fn build(tool: &Tool, scratch: &Path, log: &Path, progress: &Progress) -> Result<()> {
    let mut go = Command::new("go");
    // Static, reproducible, with the versions verified by go.sum or the checksum database.
    go.env("CGO_ENABLED", "0").env("GOWORK", "off").env_remove("GOFLAGS");
    match &tool.build {
        Build::Wrapper { wrapper, package, link } => {
            go.current_dir(workspace::root().join("xtask/tools").join(wrapper));
            go.args([
                "build",
                "-mod=readonly",
                "-buildvcs=false",
                "-trimpath",
                "-ldflags",
                &format!("-s -w {link}"),
                "-o",
            ]);
            go.arg(scratch.join(&tool.name)).arg(package);
        }
        Build::Install { package, link } => {
            go.env("GOBIN", scratch).current_dir(scratch);
            go.args(["install", "-trimpath", "-ldflags", &format!("-s -w {link}")]);
            go.arg(format!("{package}@v{}", tool.version));
        }
    }
    run(go, log, progress).with_context(|| format!("cannot build {} {}", tool.name, tool.version))
}

/// Fails with an installation hint if Go is missing.
pub(crate) fn ensure_go() -> Result<()> {
    match Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("go is missing: install Go 1.26 or newer from https://go.dev/dl and put it on PATH"),
    }
}

/// Shows the last line of output during the run, and the last lines after a failure.
fn run(mut command: Command, log: &Path, progress: &Progress) -> Result<()> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut file = File::create(log)?;
    for line in child.stderr.take().into_iter().flat_map(|lines| BufReader::new(lines).lines()) {
        let line = line?;
        progress.note(&line);
        writeln!(file, "{line}")?;
    }
    if child.wait()?.success() {
        return Ok(());
    }
    let text = fs::read_to_string(log)?;
    let lines: Vec<_> = text.lines().collect();
    bail!("{}", lines[lines.len().saturating_sub(10)..].join("\n"))
}

//! Tasks that build a program of the workspace and replace this process by it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::setup::progress::Progress;
use crate::workspace::Profile;
use crate::{setup, workspace};

/// Programs that start a landscape, run in it, or read it.
const PROGRAMS: [&str; 9] = [
    "bench",
    "demo",
    "greeting-component",
    "helm-component",
    "kyma-operator",
    "kymactl",
    "landscape",
    "release-meta-syncer",
    "testbed-exec",
];

/// Installs missing programs, builds the landscape's binaries, and executes `program`; returns only on failure.
pub(crate) fn run(program: &str, command: Option<&str>, arguments: &[String]) -> Result<()> {
    run_built(Profile::Dev, program, command, arguments)
}

/// Does the same as [`run`] with this profile.
pub(crate) fn run_built(
    profile: Profile,
    program: &str,
    command: Option<&str>,
    arguments: &[String],
) -> Result<()> {
    build(profile)?;
    become_program(profile, program, command, arguments)
}

/// Runs the built landscape's command `up` or `down` as a child process.
pub(crate) fn call(command: &str, arguments: &[&str]) -> Result<()> {
    let status = program(Profile::Dev, "landscape")
        .arg(command)
        .args(arguments)
        .status()
        .context("cannot start it")?;
    ensure!(status.success(), "cargo xtask {command} {} failed", arguments.join(" "));
    Ok(())
}

/// Installs missing programs and builds the landscape's binaries.
pub(crate) fn build(profile: Profile) -> Result<()> {
    setup::run(false)?;
    let progress = Progress::begin("build the operators");
    // With the features of the whole workspace, like `cargo build` and `cargo run` in its root: other features would
    // compile most dependencies once more.
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--workspace", "--quiet"]).args(profile.flags());
    cargo.args(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    let built = cargo.status().context("cannot start cargo")?;
    progress.end(if built.success() { "done" } else { "failed" });
    ensure!(built.success(), "the operators do not build");
    Ok(())
}

/// Stops a landscape with the program that started it, so that a failing build does not keep it running.
pub(crate) fn down(arguments: &[String]) -> Result<()> {
    if workspace::bin("landscape").is_file() {
        return become_program(Profile::Dev, "landscape", Some("down"), arguments);
    }
    run("landscape", Some("down"), arguments)
}

fn become_program(profile: Profile, name: &str, command: Option<&str>, arguments: &[String]) -> Result<()> {
    let error = program(profile, name).args(command).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {name}"))
}

fn program(profile: Profile, name: &str) -> Command {
    let mut program = Command::new(profile.bin(name));
    program.env("TESTBED_EXEC", profile.bin("testbed-exec"));
    program
}

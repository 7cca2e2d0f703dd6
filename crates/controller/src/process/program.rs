//! Commands of every operator's binary: `run`, `crd`, `rbac`, `reasons`, `metrics`, `version`. `main` is one call.

mod command_line;
mod definition;
mod serve;

use std::process::ExitCode;

pub use definition::{NoFlags, Program, RunError};
pub use serve::{StartError, serve};

/// Runs the whole `main`: parses the command line and executes the command. Exit code 0: done, or stopped by SIGTERM
/// or Ctrl-C; 1: could not start or broke off; 2: wrong flags.
pub fn run_program<P: Program>(program: P) -> ExitCode {
    command_line::dispatch(program)
}

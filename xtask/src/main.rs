//! `cargo xtask`: the development tasks of this workspace.

mod advisories;
mod codegen;
mod docs;
mod fuzz;
mod landscape;
#[path = "../../crates/testbed/src/tools/pins.rs"]
mod pins;
mod setup;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use setup::progress::say;
use workspace::Profile;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of this workspace", max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    chore: Chore,
}

/// Arguments for a program of the workspace.
#[derive(Args)]
struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// A benchmark and its build profile.
#[derive(Args)]
struct BenchArguments {
    /// Measure optimised builds, as they are deployed
    #[arg(long)]
    release: bool,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

#[derive(Subcommand)]
enum Chore {
    /// Show the main job on a hub and two clusters (`demo --help`)
    #[command(disable_help_flag = true)]
    Demo(Arguments),
    /// Run every test: format, lints, generated files, units, control planes, docs
    Test(test::Request),
    /// Start hub, targets, registry and operators in the background (`up --help`)
    #[command(disable_help_flag = true)]
    Up(Arguments),
    /// Stop what `up` started (`down --help`)
    #[command(disable_help_flag = true)]
    Down(Arguments),
    /// Measure (`bench --help`); --release must come first
    #[command(disable_help_flag = true)]
    Bench(BenchArguments),
    /// Feed generated input to every parser of foreign bytes
    Fuzz(fuzz::Request),
    /// Get the programs that the test bed runs
    Setup,
    /// Write the generated files (CRDs, roles) from the operators' code
    Codegen {
        /// Only compare; fail if a file differs
        #[arg(long)]
        check: bool,
    },
    /// Check rules of the repository that rustfmt and clippy do not cover
    Tidy,
    /// Run the commands that the documentation shows
    Docs,
}

fn main() -> ExitCode {
    match run(CommandLine::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<()> {
    match chore {
        Chore::Demo(line) => landscape::run("demo", None, &line.arguments),
        Chore::Test(request) => test::run(request),
        Chore::Up(line) => landscape::run("landscape", Some("up"), &line.arguments),
        Chore::Down(line) => landscape::down(&line.arguments),
        Chore::Bench(line) => {
            let profile = if line.release { Profile::Release } else { Profile::Dev };
            landscape::run_built(profile, "bench", None, &line.arguments)
        }
        Chore::Fuzz(request) => fuzz::run(&request),
        Chore::Setup => setup::run(true),
        Chore::Codegen { check } => codegen::run(check),
        Chore::Tidy => tidy::run(),
        Chore::Docs => docs::run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_handed_on_chore_is_handed_on_as_typed() {
        for typed in [vec!["--keep", "--report", "file"], vec!["--help"], vec!["install", "--help"]] {
            let line = ["xtask", "bench"].iter().chain(&typed);
            let Chore::Bench(passed) = CommandLine::try_parse_from(line).unwrap().chore else {
                panic!("not bench")
            };
            assert_eq!(passed.arguments, typed);
        }
    }
}

//! `kymactl`: for people who make modules, run a fleet, or want modules on one cluster now.

mod cli;
mod components;
mod diff;
mod duration;
mod error;
mod explain;
mod hub;
mod migrate;
mod module;
mod output;
mod reach;
mod reconcile;
mod request;
mod reset;
mod run;
mod status;
mod suspend;
mod target;
mod test;
mod tree;
mod values;
mod why;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // Before there are threads.
    helm_component::render::run_if_launcher();
    run()
}

#[tokio::main]
async fn run() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.run().await {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error.to_string());
            error.exit_code()
        }
    }
}

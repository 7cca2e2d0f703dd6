//! `kymactl`: builds modules, manages a fleet, and installs modules on a single cluster.

mod cli;
mod command;
mod components;
mod duration;
mod error;
mod file;
mod hub;
mod hub_address;
mod name;
mod output;
mod reader;
mod request;

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;

fn main() -> ExitCode {
    // Before any thread starts: the sandbox of the render program is set up in this process.
    kyma_helm::render::run_if_launcher();
    // Before the runtime starts: a completion request is answered without side effects.
    CompleteEnv::with_factory(cli::Cli::command).complete();
    let cli = cli::Cli::of_process();
    let done = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(Box::pin(cli.run())),
        Err(error) => Err(error::Error::input("the async runtime", error.to_string())),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error.to_string());
            error.exit_code()
        }
    }
}

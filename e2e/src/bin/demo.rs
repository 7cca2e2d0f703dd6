//! `cargo xtask demo`: the main job, end to end, on real Kubernetes.

use std::path::PathBuf;

use clap::Parser;
use e2e::demo::{Request, run};

/// Shows the main job on a hub and two clusters, all on this machine.
#[derive(Parser)]
#[command(name = "cargo xtask demo")]
struct Arguments {
    /// Leave everything running at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Write what happened to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Keep state and logs in this directory
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    run(Request { keep: arguments.keep, report: arguments.report, directory: arguments.state_dir }).await
}

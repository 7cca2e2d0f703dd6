//! `cargo xtask bench`: measurements on real control planes. Exits 0 whether or not a goal is met.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use e2e::bench;

/// Measures on real control planes, beside a peer where there is one.
#[derive(Parser)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
    /// Write the outcome to this file, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    report: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Bench {
    /// Many releases of one chart on one target, beside `helm install` in a loop and a bare loop of writes
    Releases {
        /// How many, on each side
        #[arg(long, default_value_t = 100)]
        count: usize,
    },
    /// helm-component is replaced by another version of itself, and back: what it writes over releases that run
    Upgrade {
        /// The program of the other version
        #[arg(long, value_name = "PROGRAM")]
        from: PathBuf,
        /// How many releases
        #[arg(long, default_value_t = 100)]
        count: usize,
    },
    /// Releases on healthy targets while no other target is bad and while three in ten are, in turn
    Neighbours {
        /// How many targets
        #[arg(long, default_value_t = 50)]
        targets: usize,
        /// How many rounds of each sort
        #[arg(long, default_value_t = 5)]
        rounds: u32,
    },
    /// Many Kymas whose targets refuse connections: time until each was tried, memory, processor time per Secret event
    Fleet {
        /// How many Kymas
        #[arg(long, default_value_t = 10_000)]
        kymas: usize,
    },
    /// Third-party charts, one at a time, beside `helm install --wait`
    Install {
        /// How often each side installs each chart
        #[arg(long, default_value_t = 1)]
        rounds: u32,
    },
    /// Time until a new Kyma is Ready, with a small catalogue and with a large one
    Catalogue {
        /// How many objects the large one has more
        #[arg(long, default_value_t = 500)]
        objects: usize,
        /// How many Kymas, with each
        #[arg(long, default_value_t = 20)]
        tries: u32,
    },
    /// Requests of the operators while nothing happens
    Idle {
        /// How long to watch
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Made-up objects of all our kinds: each ends with a condition or a refusal, and no operator fails
    Objects {
        /// How many
        #[arg(long, default_value_t = 100_000)]
        count: usize,
        /// The same seed makes the same objects
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Random sequences of what users and operators do, held against the model of the rules
    Sequences {
        /// How many on a hub that is its own target
        #[arg(long, default_value_t = 1000)]
        count: u32,
        /// How many more on targets that are cut off, edited by hand and restored; a tenth of the others if not given
        #[arg(long)]
        on_targets: Option<u32>,
        /// The same seed makes the same sequences
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Processor time of CEL expressions that use up their steps or memory, in a release build
    Expressions,
    /// From a write to the first write that it causes
    React {
        /// How many writes of each sort
        #[arg(long, default_value_t = 1000)]
        tries: u32,
    },
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let outcome = match arguments.bench {
        Bench::Install { rounds } => Box::pin(bench::install(rounds)).await?,
        Bench::Releases { count } => Box::pin(bench::releases(count)).await?,
        Bench::Upgrade { from, count } => Box::pin(bench::upgrade(&from, count)).await?,
        Bench::Neighbours { targets, rounds } => Box::pin(bench::neighbours(targets, rounds)).await?,
        Bench::Fleet { kymas } => Box::pin(bench::fleet(kymas)).await?,
        Bench::Catalogue { objects, tries } => Box::pin(bench::catalogue_size(objects, tries)).await?,
        Bench::Idle { seconds } => Box::pin(bench::idle(seconds)).await?,
        Bench::Objects { count, seed } => Box::pin(bench::objects(count, seed)).await?,
        Bench::Sequences { count, on_targets, seed } => {
            let on_targets = on_targets.unwrap_or(count.div_ceil(10));
            Box::pin(bench::sequences(count, on_targets, seed)).await?
        }
        Bench::Expressions => Box::pin(bench::expressions()).await?,
        Bench::React { tries } => Box::pin(bench::react(tries)).await?,
    };
    print(&outcome.table());
    arguments.report.map_or(Ok(()), |path| outcome.write(&path))
}

#[expect(clippy::print_stdout, reason = "the answer to the person who typed the command")]
fn print(table: &str) {
    println!("{table}");
}

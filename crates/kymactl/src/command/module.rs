//! `kymactl module`: publishes and assigns versions of modules.

mod assign;
mod config;
mod images;
mod push;
mod sources;
mod template;

use clap::Subcommand;

use crate::error::Error;

const PUSH: &str = "\
Reads module-config.yaml as modulectl does; flags win over the file. Manifest
and default CR become an OCM component version; a chart is pushed as a chart.
Apply the printed ModuleTemplate to the hub.";

const ASSIGN: &str = "\
The version needs a ModuleTemplate on the hub. Other fields stay as they are; a
concurrent change of the channels is an error, and nothing is written.
Exit codes: 0 assigned, now or before, 1 the hub refused, 2 wrong input.";

/// Commands for authors of modules.
#[derive(Subcommand)]
pub(crate) enum Module {
    /// Publish a version of a module and print its ModuleTemplate
    #[command(after_help = PUSH)]
    Push(Box<push::Push>),
    /// Assign a published version to a channel of a module
    #[command(after_help = ASSIGN)]
    Assign(assign::Assign),
}

impl Module {
    pub(crate) async fn run(self) -> Result<(), Error> {
        match self {
            Self::Push(push) => push.run().await,
            Self::Assign(assign) => assign.run().await,
        }
    }
}

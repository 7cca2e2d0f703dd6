//! `kymactl module`: from a module's files to a published version.

mod config;
mod images;
mod push;
mod sources;
mod template;

use clap::Subcommand;

use crate::error::Error;

pub(crate) use sources::read;

/// Commands for people who make modules.
#[derive(Subcommand)]
pub(crate) enum Module {
    /// Publish a version of a module and print its ModuleTemplate.
    ///
    /// Reads module-config.yaml as modulectl does; flags win over the file. The manifest and the default CR become an
    /// OCM component version in the registry; a chart is pushed as a Helm chart. Apply what is printed to the hub.
    Push(Box<push::Push>),
}

impl Module {
    pub(crate) async fn run(self) -> Result<(), Error> {
        match self {
            Self::Push(push) => push.run().await,
        }
    }
}

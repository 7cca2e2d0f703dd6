//! `kymactl migrate`: from Kyma Lifecycle Manager (KLM) to our operators, and back, in [`klm`]; from Flux, in [`flux`].

mod flux;
mod klm;

use clap::Subcommand;

use crate::error::Error;

/// Commands that move a hub over.
#[derive(Subcommand)]
pub(crate) enum Migrate {
    /// Hand Kymas over from Kyma Lifecycle Manager to our operators, or give them back with --rollback.
    ///
    /// No module is installed anew: its objects stay as they are and change their owner. Exit code 1 if a Kyma is left,
    /// with the reason; the same command again goes on where it stopped.
    Klm(klm::Klm),
    /// Make HelmComponents from Flux's HelmReleases and their sources, as YAML on standard output.
    ///
    /// Nothing is installed anew: helm-component takes over what the release installed. What cannot be carried over is
    /// told, field by field. Exit code 1 if a release is left, with the reason.
    Flux(flux::Flux),
}

impl Migrate {
    pub(crate) async fn run(self) -> Result<(), Error> {
        match self {
            Self::Klm(klm) => klm.run().await,
            Self::Flux(flux) => flux.run().await,
        }
    }
}

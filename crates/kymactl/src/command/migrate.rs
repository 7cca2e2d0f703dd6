//! `kymactl migrate`: from Kyma Lifecycle Manager (KLM) and back, in [`klm`]; from Flux, in [`flux`].

mod flux;
mod klm;

use clap::Subcommand;

use crate::error::Error;

const KLM: &str = "\
No module is installed again: its objects stay and get another owner.
Exit codes: 0 all done, 1 a Kyma was not moved; run the command again.";

const FLUX: &str = "\
Nothing is installed again: helm-component adopts what the release installed.
Prints YAML; fields that cannot be carried over are named on standard error.
Without -n and -A the HelmReleases are those of the context's namespace;
components get the namespace of --hub-namespace.
Exit codes: 0 all converted, 1 a release was not converted.";

/// Commands that move a hub over.
#[derive(Subcommand)]
pub(crate) enum Migrate {
    /// Hand Kymas over from Kyma Lifecycle Manager, or back with --rollback
    #[command(after_help = KLM)]
    Klm(Box<klm::Klm>),
    /// Convert HelmReleases of Flux and their sources to HelmComponents
    #[command(after_help = FLUX)]
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

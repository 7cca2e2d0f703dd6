//! `kymactl target`: checks or adopts the cluster of a Kyma's access Secret.

mod adopt;
pub(crate) mod connection;
mod test;

use clap::Subcommand;

use crate::error::Error;

const ADOPT: &str = "\
The stamp on the cluster, the Kyma and its components get a new epoch. An older
copy of this hub, and the hub that had the cluster, are refused afterwards.
Writes only with --cluster-uid, or with --all --yes after a restore of the hub.
Exit codes: 0 adopted or nothing to do, 1 some not adopted, 2 not confirmed.";

/// Commands about the cluster of a Kyma.
#[derive(Subcommand)]
pub(crate) enum Target {
    /// Check access Secret, connection, identity and rights of a Kyma's cluster
    #[command(after_help = "Writes nothing. Exit codes: 0 all checks passed, 1 one failed.")]
    Test(test::Test),
    /// Adopt a cluster that is refused as new or as another hub's
    #[command(after_help = ADOPT)]
    Adopt(adopt::Adopt),
}

impl Target {
    pub(crate) async fn run(self) -> Result<(), Error> {
        match self {
            Self::Test(test) => test.run().await,
            Self::Adopt(adopt) => adopt.run().await,
        }
    }
}

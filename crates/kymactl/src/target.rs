//! `kymactl target`: is the cluster behind a Kyma's access Secret the right one, and may we work there?

mod adopt;
mod test;
pub(crate) mod way;

use clap::Subcommand;

use crate::error::Error;

/// Commands about the cluster of a Kyma.
#[derive(Subcommand)]
pub(crate) enum Target {
    /// Check the way to a Kyma's cluster: access Secret, connection, identity, rights. Writes nothing.
    ///
    /// Exit code 1 if something is wrong.
    Test(test::Test),
    /// Take over a cluster that is refused as another one than before, or as another hub's.
    ///
    /// The stamp on the cluster, the Kyma and its components get a new epoch; an older copy of this hub, and the hub
    /// that had the cluster, are refused there from then on. Names what is refused; writes only with --cluster-uid, or
    /// with --all --yes for all clusters that a later state of this hub managed, as after a restore from a backup.
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

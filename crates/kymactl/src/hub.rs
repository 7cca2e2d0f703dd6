//! The way to the hub.

use std::path::PathBuf;

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use kyma_sdk::name_caller;

use crate::error::Error;

/// Field manager of what this program writes.
pub(crate) const MANAGER: &str = "kymactl";

/// Who calls, for audit logs.
pub(crate) const AGENT: &str = concat!("kymactl/", env!("CARGO_PKG_VERSION"));

/// Which hub is meant.
#[derive(Clone, Debug, Args)]
pub(crate) struct HubFlags {
    /// Kubeconfig of the hub. Default: `$KUBECONFIG`, then the user's, then the pod's ServiceAccount.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Namespace on the hub in which Kymas live.
    #[arg(long, env, default_value = "kcp-system")]
    pub(crate) hub_namespace: String,
}

impl HubFlags {
    /// Where the hub is and how to log in there.
    pub(crate) async fn config(&self) -> Result<Config, Error> {
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
            }
            None => Config::infer().await?,
        };
        name_caller(&mut config, AGENT)?;
        Ok(config)
    }

    /// A client for it.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        Ok(kyma_sdk::targets::client_from(self.config().await?)?)
    }
}

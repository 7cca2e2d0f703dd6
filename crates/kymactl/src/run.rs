//! `kymactl run`: all reconcilers in one process, for ever or until a cluster is as wished.

mod crds;
mod once;
mod operators;
mod wish;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use helm_component::{AccountArgs, ContentArgs};
use kube::Config;
use kyma_operator::KymaArgs;
use kyma_sdk::{LogFormat, Mode, Process, Settings, hub_config, init_telemetry};

use crate::duration::duration;
use crate::error::Error;

use operators::Operators;

/// The default of `--log-level`, and what it means with `--once`.
const INFO: &str = "info";
const WARN: &str = "warn";

/// Flags of `kymactl run`.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    args: kyma_sdk::Args,
    #[command(flatten)]
    flags: Flags,
    /// Install our CRDs on the hub first where they are missing or older.
    #[arg(long)]
    install_crds: bool,
    /// Install the modules of one Kyma on the cluster of the kubeconfig itself, with your own credentials, and exit
    /// once they are Ready. Brings the CRDs, leaves no operator and no ServiceAccount.
    #[arg(long, requires = "kyma")]
    once: bool,
    /// The Kyma to install.
    #[arg(long, value_name = "FILE", requires = "once")]
    kyma: Option<PathBuf>,
    /// ModuleTemplates and ModuleReleaseMetas: files, or directories of them.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "once")]
    catalogue: Vec<PathBuf>,
    /// Longest time to wait for the modules, as 30s or 10m. Exit code 3 if it passes.
    #[arg(long, default_value = "10m", value_parser = duration, requires = "once")]
    timeout: Duration,
}

/// Flags of the single operators.
#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    kymas: KymaArgs,
    #[command(flatten)]
    content: ContentArgs,
    #[command(flatten)]
    accounts: AccountArgs,
}

impl Run {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let mut settings = Settings::resolve(self.args)?;
        if self.once {
            settings.mode = Mode::SingleCluster;
            settings.local_kyma = None;
            settings.admin_address = None;
            settings.log_format = LogFormat::Text;
            // What happens is told per module; of the operators' log only what is wrong is of interest.
            if settings.log_level == INFO {
                WARN.clone_into(&mut settings.log_level);
            }
        }
        init_telemetry(&settings)?;
        let config = hub_config(&settings).await?;
        let process = Process::new()?;
        process.stop_on_signal()?;
        match self.kyma {
            None => all(self.flags, self.install_crds, settings, config, process).await,
            Some(kyma) => {
                let wish = wish::Wish::read(&kyma, &self.catalogue, &settings.hub_namespace)?;
                once::run(wish, self.flags, self.timeout, settings, config, process).await
            }
        }
    }
}

/// Every reconciler, until a signal.
async fn all(
    flags: Flags,
    install_crds: bool,
    settings: Settings,
    config: Config,
    process: Process,
) -> Result<(), Error> {
    if install_crds {
        crds::install(&kyma_sdk::targets::client_from(config.clone())?).await?;
    }
    let admin = match settings.admin_address {
        Some(address) => Some(process.serve_admin(address).await?),
        None => None,
    };
    let mut operators = Operators::start(flags, &settings, &config, &process);
    let ended = operators.ended().await;
    operators.stop().await;
    if let Some(admin) = admin {
        // It ends with the process; what it says then concerns nobody.
        let _ = admin.await;
    }
    ended
}

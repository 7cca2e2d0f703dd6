//! The operators of one process.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use helm_component::{AccountArgs, ContentArgs, HelmComponentProgram, HubArgs};
use kube::Config;
use kyma_controller::{Process, Program, Settings, serve};
use kyma_operator::{KymaArgs, KymaOperator};
use release_meta_syncer::ReleaseMetaSyncer;
use tokio::{task::JoinSet, time::timeout};

use super::component::ComponentProgram;
use crate::error::Error;

/// Grace period for operators to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Flags of the single operators.
#[derive(Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(super) kymas: KymaArgs,
    #[command(flatten)]
    pub(super) content: ContentArgs,
    #[command(flatten)]
    pub(super) accounts: AccountArgs,
}

/// Running operators.
pub(super) struct Operators {
    process: Process,
    /// Each returns an error if its operator ends before the shutdown.
    tasks: JoinSet<Result<(), Error>>,
}

impl Operators {
    /// Starts all operators.
    pub(super) fn start(flags: Flags, settings: &Settings, config: &Config, process: &Process) -> Self {
        let catalogue = release_meta_syncer::Flags {
            restricted_default_modules: flags.kymas.restricted_default_modules.clone(),
            cluster_gone_after: flags.kymas.cluster_gone_after,
        };
        let mut operators = Self::start_installers(flags, settings, config, process);
        operators.add(ReleaseMetaSyncer, catalogue, settings, config);
        operators
    }

    /// Starts the operators that install modules. If the hub is the target, the catalogue needs no copies.
    pub(super) fn start_installers(
        flags: Flags,
        settings: &Settings,
        config: &Config,
        process: &Process,
    ) -> Self {
        let mut operators = Self { process: process.clone(), tasks: JoinSet::new() };
        let hub = HubArgs {
            restricted_default_modules: flags.kymas.restricted_default_modules.clone(),
            skr_image_pull_secret: flags.kymas.skr_image_pull_secret.clone(),
        };
        let content = helm_component::Flags { content: flags.content, accounts: flags.accounts, hub };
        operators.add(KymaOperator, flags.kymas, settings, config);
        operators.add(HelmComponentProgram, content, settings, config);
        operators
    }

    fn add<P: Program>(&mut self, program: P, flags: P::Flags, settings: &Settings, config: &Config) {
        let (settings, config, process) = (settings.clone(), config.clone(), self.process.clone());
        let failed = |problem: String| Error::Operator { name: P::OPERATOR.name, problem };
        self.tasks.spawn(async move {
            let shutdown = process.shutdown.clone();
            match serve(program, flags, settings, config, process).await {
                Ok(()) if shutdown.is_cancelled() => Ok(()),
                Ok(()) => Err(failed("it ended by itself".to_owned())),
                Err(error) => Err(failed(error.to_string())),
            }
        });
    }

    /// Starts the programs of components as child processes.
    pub(super) fn start_programs(&mut self, programs: Vec<ComponentProgram>, arguments: &[OsString]) {
        for program in programs {
            self.tasks.spawn(program.run(arguments.to_vec(), self.process.clone()));
        }
    }

    /// Waits until the first operator ends, by a signal or an error.
    pub(super) async fn ended(&mut self) -> Result<(), Error> {
        match self.tasks.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => Err(Error::Operator { name: "an operator", problem: error.to_string() }),
            None => Ok(()),
        }
    }

    /// Stops all operators and waits until they have ended.
    pub(super) async fn stop(mut self) {
        self.process.shutdown.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(STOP_TIMEOUT, all).await.is_err() {
            tracing::warn!("operators did not stop in time and are aborted");
        }
    }
}

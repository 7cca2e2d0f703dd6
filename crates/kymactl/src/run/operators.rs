//! The operators of one process.

use std::time::Duration;

use helm_component::{HelmComponentProgram, HubArgs};
use kube::Config;
use kyma_operator::KymaOperator;
use kyma_sdk::{Process, Program, Settings, StartError, serve};
use release_meta_syncer::ReleaseMetaSyncer;
use tokio::{task::JoinSet, time::timeout};

use super::Flags;
use crate::error::Error;

/// Grace period for operators to stop.
const STOP: Duration = Duration::from_secs(20);

/// Running operators.
pub(super) struct Operators {
    process: Process,
    tasks: JoinSet<(&'static str, Result<(), StartError>)>,
}

impl Operators {
    /// Starts all operators.
    pub(super) fn start(flags: Flags, settings: &Settings, config: &Config, process: &Process) -> Self {
        let catalogue = release_meta_syncer::Flags {
            restricted_default_modules: flags.kymas.restricted_default_modules.clone(),
            cluster_gone_after: flags.kymas.cluster_gone_after,
        };
        let mut operators = Self::installers(flags, settings, config, process);
        operators.add(ReleaseMetaSyncer, catalogue, settings, config);
        operators
    }

    /// Starts the operators that install modules. If the hub is the target, the catalogue needs no copies.
    pub(super) fn installers(flags: Flags, settings: &Settings, config: &Config, process: &Process) -> Self {
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
        self.tasks
            .spawn(async move { (P::OPERATOR.name, serve(program, flags, settings, config, process).await) });
    }

    /// Waits until the first operator ends, by a signal or an error.
    pub(super) async fn ended(&mut self) -> Result<(), Error> {
        let stopping = self.process.shutdown.clone();
        match self.tasks.join_next().await {
            Some(Ok((_, Ok(())))) if stopping.is_cancelled() => Ok(()),
            Some(Ok((name, Err(error)))) => Err(Error::Operator { name, problem: error.to_string() }),
            Some(Ok((name, Ok(())))) => {
                Err(Error::Operator { name, problem: "it ended by itself".to_owned() })
            }
            Some(Err(error)) => Err(Error::Operator { name: "an operator", problem: error.to_string() }),
            None => Ok(()),
        }
    }

    /// Stops all operators and waits until they have ended.
    pub(super) async fn stop(mut self) {
        self.process.shutdown.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(STOP, all).await.is_err() {
            tracing::warn!("operators did not end in time and are dropped");
        }
    }
}

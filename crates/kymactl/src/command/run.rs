//! `kymactl run`: all reconcilers in one process, without end or until a cluster is as requested.

mod component;
mod crds;
mod input;
mod kyma_run;
mod mandatory;
mod mark;
mod once;
mod operators;
mod preflight;
mod progress;
mod remove;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use kube::{Config, ResourceExt as _};
use kyma_controller::{LogFormat, Mode, Process, Settings, init_telemetry, with_hub_limits};
use tokio::signal::unix::{SignalKind, signal};

use crate::duration::duration;
use crate::error::Error;
use crate::hub::GlobalFlags;

use component::{ComponentProgram, ProgramKubeconfig};
use input::RunInput;
use kyma_run::KymaRun;
use operators::{Flags, Operators};

/// Default of `--log-level`.
const DEFAULT_LOG_LEVEL: &str = "info";
/// Log level with `--once` and `--remove`, if `--log-level` is the default.
const QUIET_LOG_LEVEL: &str = "warn";

/// Flags of `kymactl run`.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    args: kyma_controller::Args,
    #[command(flatten)]
    flags: Flags,
    /// First install CRDs on the hub that are missing or older
    #[arg(long)]
    install_crds: bool,
    #[command(flatten)]
    task: Task,
}

/// Flags of a run for one Kyma, which ends by itself.
#[derive(Args)]
struct Task {
    /// Install the modules of one Kyma on the hub itself and exit once Ready
    #[arg(long, requires = "kyma")]
    once: bool,
    /// Undo --once: remove the Kyma and everything that --once created
    #[arg(long, requires = "kyma", conflicts_with = "once")]
    remove: bool,
    /// File with the Kyma to install or remove
    #[arg(long, value_name = "FILE")]
    kyma: Option<PathBuf>,
    /// ModuleTemplates, ModuleReleaseMetas and ModuleConfigs: files or directories
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "kyma")]
    catalogue: Vec<PathBuf>,
    /// Operator for a module's own component kind: a path, or a name in $PATH
    #[arg(long = "component", value_name = "PROGRAM", requires = "kyma")]
    components: Vec<PathBuf>,
    /// Maximum time to wait, such as 30s or 10m; exit code 3 after it
    #[arg(long, default_value = "10m", value_parser = duration, requires = "kyma")]
    timeout: Duration,
    /// Continue although the namespace has other Kymas, which share --catalogue
    #[arg(long, requires = "kyma")]
    allow_other_kymas: bool,
}

impl Task {
    /// Reads the files. Returns `None` without `--kyma`: all operators then run until a signal. A removal needs no
    /// catalogue.
    fn input(&self, namespace: &str) -> Result<Option<RunInput>, Error> {
        let Some(kyma) = &self.kyma else { return Ok(None) };
        if !self.once && !self.remove {
            return Err(Error::input("--kyma", "it needs --once or --remove"));
        }
        let catalogue: &[PathBuf] = if self.remove { &[] } else { &self.catalogue };
        RunInput::read(kyma, catalogue, namespace).map(Some)
    }
}

impl Run {
    pub(crate) async fn run(self, global: &GlobalFlags) -> Result<(), Error> {
        let mut settings = Settings::resolve(self.args)?;
        if let Some(namespace) = global.given_namespace() {
            namespace.clone_into(&mut settings.hub_namespace);
        }
        let input = self.task.input(&settings.hub_namespace)?;
        if let Some(input) = &input {
            settings.only_kyma = Some(input.kyma.name_any());
            settings.marks_created_crds = true;
            settings.mode = Mode::SingleCluster;
            settings.local_kyma = None;
            settings.admin_address = None;
            settings.log_format = LogFormat::Text;
            // Results are reported per module; of the operators' log only warnings are shown.
            if settings.log_level == DEFAULT_LOG_LEVEL {
                QUIET_LOG_LEVEL.clone_into(&mut settings.log_level);
            }
        }
        init_telemetry(&settings)?;
        let config = with_hub_limits(global.config().await?);
        let process = Process::new()?;
        process.stop_on_signal()?;
        let mut flags = self.flags;
        let Some(input) = input else {
            return all(flags, self.install_crds, settings, config, process).await;
        };
        let Task { timeout, allow_other_kymas, remove, components, .. } = self.task;
        let programs = ComponentProgram::read_all(&components).await?;
        if !programs.is_empty() {
            stop_on_hangup(&process)?;
        }
        // A named program implies permission for its kinds.
        let crds = programs.iter().flat_map(ComponentProgram::crds);
        flags.kymas.component_groups.extend(crds.map(|crd| crd.spec.group.clone()));
        let program_kubeconfig = ProgramKubeconfig::select(global)?;
        let run = KymaRun {
            input,
            programs,
            program_kubeconfig,
            timeout,
            allow_other_kymas,
            flags,
            settings,
            config,
            process,
        };
        if remove { Box::pin(remove::run(run)).await } else { Box::pin(once::run(run)).await }
    }
}

/// Starts the shutdown at SIGHUP too: otherwise the end of a terminal would leave component programs running.
fn stop_on_hangup(process: &Process) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let shutdown = process.shutdown.clone();
    tokio::spawn(async move {
        hangup.recv().await;
        shutdown.cancel();
    });
    Ok(())
}

/// Runs every reconciler until a signal.
async fn all(
    flags: Flags,
    install_crds: bool,
    settings: Settings,
    config: Config,
    process: Process,
) -> Result<(), Error> {
    if install_crds {
        crds::install(&kyma_targets::client_from(config.clone())?, false).await?;
    }
    let admin = match settings.admin_address {
        Some(address) => Some(process.serve_admin(address).await?),
        None => None,
    };
    let mut operators = Operators::start(flags, &settings, &config, &process);
    let ended = operators.ended().await;
    operators.stop().await;
    if let Some(admin) = admin {
        // The admin server ends with the process; its result is not needed.
        let _ = admin.await;
    }
    ended
}

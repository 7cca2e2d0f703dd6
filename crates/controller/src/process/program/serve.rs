//! Starting and stopping.

use super::definition::{Program, RunError};
use crate::hub::crd_check::{CrdError, await_crds};
use crate::hub::{HubError, hub_config};
use crate::process::admin::AdminError;
use crate::process::metrics::MetricsError;
use crate::process::runtime::{Process, Runtime};
use crate::process::settings::Settings;
use crate::process::telemetry::{TelemetryError, init_telemetry};

/// Error that prevented the start of an operator or ended it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Logging.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The admin server.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The hub's CRDs.
    #[error(transparent)]
    Crd(#[from] CrdError),
    /// The system: threads, signals.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The operator itself.
    #[error("{0}")]
    Run(RunError),
}

/// Runs an operator inside of a process that others may share: connects to the hub, waits for its CRDs, and
/// reconciles until `process.shutdown`. From this call on the process is not ready before a [`crate::Reconciler`] of the
/// operator runs.
///
/// # Errors
/// The operator could not start, or stopped with an error.
pub fn serve<P: Program>(
    program: P,
    flags: P::Flags,
    settings: Settings,
    config: kube::Config,
    process: Process,
) -> impl Future<Output = Result<(), StartError>> + Send {
    process.health.expect(P::OPERATOR.name);
    work(program, flags, settings, config, process)
}

async fn work<P: Program>(
    program: P,
    flags: P::Flags,
    settings: Settings,
    config: kube::Config,
    process: Process,
) -> Result<(), StartError> {
    let shutdown = process.shutdown.clone();
    let start = async {
        let runtime = Runtime::connect(P::OPERATOR, settings, config, process).await?;
        let needed = [P::needs(), vec![kyma_api::crds::pause()]].concat();
        await_crds(&runtime.hub, &needed).await?;
        tracing::info!(operator = P::OPERATOR.name, version = P::OPERATOR.version, "started");
        Ok::<_, StartError>(runtime)
    };
    let runtime = tokio::select! {
        runtime = start => runtime?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let events = runtime.events.clone();
    let ended = program.run(flags, runtime).await;
    events.flush().await;
    ended.map_err(StartError::Run)
}

/// Runs an operator as a process of its own.
pub(super) fn run_alone<P: Program>(
    program: P,
    flags: P::Flags,
    settings: Settings,
) -> Result<(), StartError> {
    init_telemetry(&settings)?;
    // Fails only if a provider is already set, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let process = Process::new()?;
        process.stop_on_signal()?;
        // Registered before /readyz is served.
        process.health.expect(P::OPERATOR.name);
        let admin = match settings.admin_address {
            Some(address) => Some(process.serve_admin(address).await?),
            None => None,
        };
        let config = hub_config(&settings).await?;
        let ended = serve(program, flags, settings, config, process.clone()).await;
        process.shutdown.cancel();
        if let Some(admin) = admin {
            let _ = admin.await;
        }
        ended
    })
}

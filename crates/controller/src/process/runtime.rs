//! State of a running operator: settings, clients, and the caches that its reconcilers share.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use kube::{Client, Config};
use kyma_targets::{AccessPolicy, Limits, Streams, Targets};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::deletion::brake::Brake;
use crate::expression::evaluation::panic_text;
use crate::hub::{HubError, hub_addresses, hub_uid, set_user_agent};
use crate::pauses::Pauses;
use crate::process::diagnosis::Diagnoses;
use crate::process::events::Events;
use crate::process::health::Health;
use crate::process::metrics::{Metrics, MetricsError};
use crate::process::settings::Settings;

/// Maximum number of targets with cached connections; the least recently used are dropped first.
const MAX_CACHED_TARGETS: usize = 10_000;

/// State that all operators of one process share.
#[derive(Clone, Debug)]
pub struct Process {
    /// Metrics.
    pub metrics: Metrics,
    /// Readiness, as /readyz reports it.
    pub health: Health,
    /// Diagnoses of single objects.
    pub diagnoses: Diagnoses,
    /// Cancelled when the process shuts down.
    pub shutdown: CancellationToken,
}

impl Process {
    /// Returns a process in which no operator runs yet.
    ///
    /// # Errors
    /// The metrics cannot be set up.
    pub fn new() -> Result<Self, MetricsError> {
        Ok(Self {
            metrics: Metrics::new()?,
            health: Health::default(),
            diagnoses: Diagnoses::default(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Starts the shutdown at the first SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The signal handlers cannot be installed.
    pub fn stop_on_signal(&self) -> std::io::Result<()> {
        let shutdown = self.shutdown.clone();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
            shutdown.cancel();
        });
        Ok(())
    }

    /// Runs a part that all objects depend on until the process shuts down. If the part panics, the process stops and
    /// is restarted: without it, changes would go unnoticed.
    pub fn spawn_part(
        &self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            let work = AssertUnwindSafe(work).catch_unwind();
            if let Some(Err(panic)) = shutdown.run_until_cancelled(work).await {
                tracing::error!(
                    part,
                    panic = panic_text(&*panic),
                    "a part of the operator panicked; it stops"
                );
                shutdown.cancel();
            }
        })
    }
}

/// Name and version of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Name: field manager, label of metrics, name of roles.
    pub name: &'static str,
    /// Version, semver.
    pub version: &'static str,
}

/// One operator, connected. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// Name and version of the operator.
    pub operator: Operator,
    /// Its settings.
    pub settings: Arc<Settings>,
    /// Client for the hub, without retries.
    pub hub: Client,
    /// uid of the hub's namespace `kube-system`.
    pub hub_uid: Arc<str>,
    /// Clients for targets.
    pub targets: Targets,
    /// Access to targets through access Secrets, and their changes.
    pub access: Access,
    /// Kubernetes events.
    pub events: Events,
    /// Pauses on the hub.
    pub pauses: Pauses,
    /// Limit of deletions, checked before every removal from a target.
    pub brake: Brake,
    /// State shared by the process.
    pub process: Process,
}

impl Runtime {
    /// Connects to the hub for reads only: writes are not sent, and nothing is watched. `replica` is the caller's
    /// part of the User-Agent.
    ///
    /// # Errors
    /// The hub does not answer, or the user may not read the hub's identity.
    pub async fn reading(
        operator: Operator,
        replica: &str,
        settings: Settings,
        config: Config,
        process: Process,
    ) -> Result<Self, HubError> {
        Self::connected(operator, replica, settings, config, process, |hub| {
            let local = Targets::new(AccessPolicy::default(), Limits::default(), operator.name, replica, 1);
            Streams::from(&local.local(hub)).client()
        })
        .await
    }

    /// Connects with the client for the hub that `narrowed` returns, and starts nothing.
    pub(super) async fn connected(
        operator: Operator,
        replica: &str,
        settings: Settings,
        mut config: Config,
        process: Process,
        narrowed: impl FnOnce(Client) -> Client,
    ) -> Result<Self, HubError> {
        let policy = AccessPolicy { hub_addresses: hub_addresses(&config).await, ..settings.access.clone() };
        let agent = format!("{}/{}", operator.name, operator.version);
        set_user_agent(&mut config, &format!("{agent} ({replica})"))?;
        let client = kyma_targets::client_from(config).map_err(HubError::Client)?;
        let hub = narrowed(client.clone());
        let uid = hub_uid(&hub).await?;
        let targets = Targets::new(policy, Limits::default(), &agent, replica, MAX_CACHED_TARGETS);
        // `Access` only reads Secrets; writes to the hub as a target are checked elsewhere.
        let access = Access::new(client, &settings.hub_namespace, targets.clone());
        let pauses = Pauses::new(operator.name);
        Ok(Self {
            brake: Brake::new(operator.name, &hub, &settings, pauses.clone()),
            pauses,
            operator,
            settings: Arc::new(settings),
            events: Events::new(operator.name, process.metrics.clone()),
            hub,
            hub_uid: uid.into(),
            targets,
            access,
            process,
        })
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("operator", &self.operator).finish_non_exhaustive()
    }
}

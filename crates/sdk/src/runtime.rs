//! What a running operator holds: settings, clients, and what its reconcilers share.

use std::net::SocketAddr;
use std::sync::Arc;

use kube::{Client, Config};
use kyma_targets::{AccessPolicy, Limits, Targets};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    Access, AdminError, AdminServer, Brake, Diagnoses, Events, Health, Metrics, MetricsError, Pauses,
    Settings, access,
    hub::{HubError, hub_addresses, hub_uid, name_caller},
    pauses,
};

/// Targets whose connections are kept; the least recently used go first.
const TARGETS: usize = 10_000;

/// What all operators of one process share.
#[derive(Clone, Debug)]
pub struct Process {
    /// What is counted.
    pub metrics: Metrics,
    /// What /readyz asks.
    pub health: Health,
    /// What people are told of single objects.
    pub diagnoses: Diagnoses,
    /// Ends everything.
    pub shutdown: CancellationToken,
}

impl Process {
    /// A process in which nothing runs yet.
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

    /// Ends everything at SIGTERM or SIGINT, the first of them.
    ///
    /// # Errors
    /// The system gives no signals.
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

    /// Serves /livez, /readyz, /metrics and /diagnosis at `address`, which is tried at once, until everything ends.
    ///
    /// # Errors
    /// The address cannot be taken.
    pub async fn serve_admin(
        &self,
        address: SocketAddr,
    ) -> Result<JoinHandle<Result<(), AdminError>>, AdminError> {
        let server = AdminServer::bind(address, self).await?;
        tracing::info!(address = %server.address()?, "admin server");
        Ok(tokio::spawn(server.serve(self.shutdown.clone())))
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
    /// Who this is.
    pub operator: Operator,
    /// What it runs with.
    pub settings: Arc<Settings>,
    /// Client for the hub, without retries.
    pub hub: Client,
    /// uid of the hub's namespace `kube-system`.
    pub hub_uid: Arc<str>,
    /// Clients for targets.
    pub targets: Targets,
    /// From access Secrets to targets, and wake-ups.
    pub access: Access,
    /// Kubernetes events.
    pub events: Events,
    /// What people have paused.
    pub pauses: Pauses,
    /// Asked before anything is removed from a target.
    pub brake: Brake,
    /// What the process shares.
    pub process: Process,
}

impl Runtime {
    /// Connects an operator to the hub and starts its watches of access Secrets and Pauses, which end with the
    /// process' shutdown. Must run inside of a tokio runtime.
    ///
    /// # Errors
    /// The hub does not answer or forbids to read who it is.
    pub async fn connect(
        operator: Operator,
        settings: Settings,
        config: Config,
        process: Process,
    ) -> Result<Self, HubError> {
        let replica = std::env::var("POD_NAME").unwrap_or_else(|_| "local".to_owned());
        let runtime = Self::connected(operator, &replica, settings, config, process, |hub| hub).await?;
        runtime.spawn_events();
        runtime.spawn_access();
        runtime.spawn_pauses();
        Ok(runtime)
    }

    /// Connects, with `narrowed` client for the hub, and starts nothing.
    pub(crate) async fn connected(
        operator: Operator,
        replica: &str,
        settings: Settings,
        mut config: Config,
        process: Process,
        narrowed: impl FnOnce(Client) -> Client,
    ) -> Result<Self, HubError> {
        let policy = AccessPolicy { hub_addresses: hub_addresses(&config).await, ..settings.access.clone() };
        let agent = format!("{}/{}", operator.name, operator.version);
        name_caller(&mut config, &format!("{agent} ({replica})"))?;
        let client = kyma_targets::client_from(config).map_err(HubError::Client)?;
        let hub = narrowed(client.clone());
        let uid = hub_uid(&hub).await?;
        let targets = Targets::new(policy, Limits::default(), &agent, replica, TARGETS);
        // It only reads Secrets, and what is done to the hub as a target is judged there.
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

    fn spawn_events(&self) {
        tokio::spawn(self.events.clone().publish(self.hub.clone(), self.process.shutdown.clone()));
    }

    fn spawn_access(&self) {
        let Process { health, shutdown, .. } = self.process.clone();
        health.expect(access::PART);
        let access = self.access.clone();
        tokio::spawn(async move { access.run(&health, shutdown).await });
    }

    fn spawn_pauses(&self) {
        self.process.health.expect(pauses::PART);
        let (pauses, runtime) = (self.pauses.clone(), self.clone());
        let shutdown = self.process.shutdown.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled(pauses.run(runtime)).await });
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("operator", &self.operator).finish_non_exhaustive()
    }
}

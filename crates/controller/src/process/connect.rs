//! Connects an operator to the hub, and starts the parts that its reconciles depend on.

use kube::Config;

use crate::access;
use crate::hub::HubError;
use crate::pauses::cache;
use crate::process::runtime::{Operator, Process, Runtime};
use crate::process::settings::Settings;

impl Runtime {
    /// Connects an operator to the hub and starts its watches of access Secrets and Pauses, which end with the
    /// process' shutdown. Must run inside of a tokio runtime.
    ///
    /// # Errors
    /// The hub does not answer or forbids to read its uid.
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

    fn spawn_events(&self) {
        tokio::spawn(self.events.clone().publish(self.hub.clone(), self.process.shutdown.clone()));
    }

    fn spawn_access(&self) {
        let Process { health, shutdown, .. } = self.process.clone();
        health.expect(access::READYZ_PART);
        let access = self.access.clone();
        self.process.spawn_part(access::READYZ_PART, async move { access.run(&health, shutdown).await });
    }

    fn spawn_pauses(&self) {
        self.process.health.expect(cache::READYZ_PART);
        let (pauses, runtime) = (self.pauses.clone(), self.clone());
        self.process.spawn_part(cache::READYZ_PART, pauses.run(runtime));
        let (brake, pauses, shutdown) =
            (self.brake.clone(), self.pauses.clone(), self.process.shutdown.clone());
        tokio::spawn(async move {
            let prepare = async {
                pauses.listed().await;
                brake.prepare().await
            };
            if let Some(Err(failure)) = shutdown.run_until_cancelled(prepare).await {
                tracing::warn!(reason = %failure.reason, "brake: {}", failure.message);
            }
        });
    }
}

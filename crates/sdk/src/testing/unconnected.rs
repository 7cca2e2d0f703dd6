//! A runtime without a hub, for unit tests of the state that an operator keeps in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use kube::Client;
use kyma_targets::{AccessPolicy, Limits, Targets};

use crate::{
    Access, Brake, BrakeLimit, Events, LogFormat, MetricsError, Mode, Operator, Pauses, Process, Runtime,
    Settings,
};

/// Returns a runtime whose hub answers 404 to every call, without a connection. It watches nothing. Must be called inside
/// of a tokio runtime.
///
/// # Errors
/// If the metrics cannot be set up.
pub fn unconnected_runtime(operator: Operator) -> Result<Runtime, MetricsError> {
    let process = Process::new()?;
    let without_routes: Router = Router::new();
    let hub = Client::new(without_routes, "default");
    let settings = settings();
    let targets = Targets::new(AccessPolicy::default(), Limits::default(), operator.name, "test", 10);
    let pauses = Pauses::new(operator.name);
    Ok(Runtime {
        brake: Brake::new(operator.name, &hub, &settings, pauses.clone()),
        access: Access::new(hub.clone(), &settings.hub_namespace, targets.clone()),
        events: Events::new(operator.name, process.metrics.clone()),
        hub_uid: "hub".into(),
        settings: Arc::new(settings),
        operator,
        hub,
        targets,
        pauses,
        process,
    })
}

fn settings() -> Settings {
    Settings {
        hub_namespace: "kcp-system".to_owned(),
        target_namespace: "kyma-system".to_owned(),
        selector: None,
        kubeconfig: None,
        concurrency: 1,
        resync: Duration::from_hours(24),
        reconcile_deadline: Duration::from_mins(2),
        log_format: LogFormat::Text,
        log_level: "warn".to_owned(),
        admin_address: None,
        mode: Mode::Fleet,
        local_kyma: None,
        only_kyma: None,
        brake: BrakeLimit::default(),
        access: AccessPolicy::default(),
    }
}

//! A runtime without a hub, for unit tests of the state that an operator keeps in memory.

use std::sync::Arc;

use axum::Router;
use kube::Client;
use kyma_targets::{AccessPolicy, Limits, Targets};

use crate::access::Access;
use crate::deletion::brake::Brake;
use crate::pauses::{PausedOperations, Pauses};
use crate::process::events::Events;
use crate::process::metrics::MetricsError;
use crate::process::runtime::{Operator, Process, Runtime};
use crate::process::settings::Settings;
use crate::reconciler::context::ReconcileContext;

/// Returns a runtime whose hub answers 404 to every call, without a connection. It watches nothing. Must be called inside
/// of a tokio runtime.
///
/// # Errors
/// If the metrics cannot be set up.
pub fn unconnected_runtime(operator: Operator) -> Result<Runtime, MetricsError> {
    let process = Process::new()?;
    let without_routes: Router = Router::new();
    let hub = Client::new(without_routes, "default");
    let settings = Settings::for_command("kcp-system", "kyma-system");
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

/// Returns the context of a reconcile without Pauses, for a call of an operator's reconcile without a controller.
pub fn unconnected_context(runtime: &Runtime) -> ReconcileContext {
    let metrics = runtime.process.metrics.clone();
    ReconcileContext::new(runtime.operator.name, false, PausedOperations::default(), metrics)
}

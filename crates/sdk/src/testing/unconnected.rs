//! A runtime without a hub, for unit tests of the state that an operator keeps in memory.

use std::sync::Arc;

use axum::Router;
use kube::{Client, ResourceExt};
use kyma_targets::{AccessPolicy, Limits, Targets};

use crate::{
    Access, Brake, Component, Context, Contract, Events, Failure, MetricsError, Operator, PausedOperations,
    Pauses, Process, ReconcileContext, Runtime, Settings, Trigger, driver::owner, status::StatusWriter,
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

/// Returns the context of a component's step with the hub as its target, for a call of the step without a driver.
///
/// # Errors
/// If the resource violates the component contract.
pub fn unconnected_step<C: Component>(
    runtime: &Runtime,
    resource: C::Resource,
) -> Result<Context<C::Resource>, Failure> {
    let resource = Arc::new(resource);
    let metrics = runtime.process.metrics.clone();
    Ok(Context {
        contract: Contract::of(&*resource)?,
        target: runtime.access.local().acting_for(&resource.uid().unwrap_or_default(), None),
        hub: runtime.hub.clone(),
        settings: Arc::clone(&runtime.settings),
        events: runtime.events.clone(),
        manager: C::NAME,
        owner: owner(&*resource),
        wake: Trigger::new(),
        status: StatusWriter::new(runtime.hub.clone(), C::NAME, metrics),
        reconcile: unconnected_context(runtime),
        brake: runtime.brake.clone(),
        watch_specs: parking_lot::Mutex::default(),
        is_dry_run: false,
        resource,
    })
}

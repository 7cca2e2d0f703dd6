//! The context of a step without a hub, for unit tests of a component.

use std::sync::Arc;

use kube::ResourceExt;
use kyma_controller::testing::unconnected_context;
use kyma_controller::{Failure, Runtime, Trigger};

use crate::context::Context;
use crate::contract::{ComponentResource, Contract};
use crate::driver::owner;
use crate::status::StatusWriter;

impl<R: ComponentResource> Context<R> {
    /// Returns the context of a component's step with the hub as its target, for a call of the step without a driver.
    /// `manager` is the field manager: the name of the component.
    ///
    /// # Errors
    /// If the resource violates the component contract.
    pub fn unconnected(runtime: &Runtime, manager: &'static str, resource: R) -> Result<Self, Failure> {
        let resource = Arc::new(resource);
        let metrics = runtime.process.metrics.clone();
        Ok(Self {
            contract: Contract::of(&*resource)?,
            target: runtime.access.local().acting_for(&resource.uid().unwrap_or_default(), None),
            hub: runtime.hub.clone(),
            settings: Arc::clone(&runtime.settings),
            events: runtime.events.clone(),
            manager,
            owner: owner(&*resource),
            wake: Trigger::new(),
            status: StatusWriter::new(runtime.hub.clone(), manager, metrics),
            reconcile: unconnected_context(runtime),
            brake: runtime.brake.clone(),
            watch_specs: parking_lot::Mutex::default(),
            is_dry_run: false,
            resource,
        })
    }
}

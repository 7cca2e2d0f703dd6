//! Reads a component's target with the operator's access, and builds the context of a dry run.

use std::sync::Arc;

use kube::ResourceExt;
use kyma_controller::{Failure, PausedOperations, ReconcileContext, Runtime, Trigger};
use kyma_targets::Target;

use crate::component::Component;
use crate::context::Context;
use crate::contract::{ComponentResource, Contract};
use crate::driver::{owner, target_of};
use crate::identity;
use crate::status::StatusWriter;

impl<R: ComponentResource> Context<R> {
    /// Returns the target of a component with the same access as its reconciles. Does not record a first contact, so
    /// the caller must only read.
    ///
    /// # Errors
    /// If the component has no access, its access leads to another cluster than before, or the target does not answer.
    pub async fn resolve_target(runtime: &Runtime, resource: &R) -> Result<Target, Failure> {
        let contract = Contract::of(resource)?;
        let target = target_of(runtime, resource, &contract).await?;
        identity::compared(&runtime.hub_uid, runtime.operator, resource, &target).await?;
        Ok(target)
    }

    /// Returns the context of a component's step for a dry run: reads are real, writes to the target are dry runs,
    /// and deletions are not sent.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use kyma_controller::Runtime;
    /// use kyma_sdk::{Component, Context, Failure, Progress};
    ///
    /// async fn diff<C: Component>(runtime: &Runtime, component: &C, resource: C::Resource) -> Result<Progress, Failure> {
    ///     let context = Context::dry_run(runtime, component, Arc::new(resource)).await?;
    ///     component.install(&context).await
    /// }
    /// ```
    ///
    /// # Errors
    /// Errors of [`Context::resolve_target`], and if the resource names no `ServiceAccount` although a policy requires
    /// one.
    pub async fn dry_run<C: Component<Resource = R>>(
        runtime: &Runtime,
        component: &C,
        resource: Arc<R>,
    ) -> Result<Self, Failure> {
        let account = component.account(&resource)?;
        let target = Self::resolve_target(runtime, &resource).await?;
        let metrics = runtime.process.metrics.clone();
        Ok(Self {
            contract: Contract::of(&*resource)?,
            target: target.dry_run_for(&resource.uid().unwrap_or_default(), account),
            hub: runtime.hub.clone(),
            settings: Arc::clone(&runtime.settings),
            events: runtime.events.clone(),
            manager: C::NAME,
            owner: owner(&*resource),
            wake: Trigger::new(),
            status: StatusWriter::new(runtime.hub.clone(), C::NAME, metrics.clone()),
            reconcile: ReconcileContext::new(C::NAME, false, PausedOperations::default(), metrics),
            brake: runtime.brake.clone(),
            watch_specs: parking_lot::Mutex::default(),
            is_dry_run: true,
            resource,
        })
    }
}

//! Reads targets with an operator's access, and runs a component's step as a dry run.

use std::sync::Arc;

use kube::{Config, ResourceExt};
use kyma_targets::{AccessPolicy, Limits, Streams, Target, Targets};

use crate::{
    Component, ComponentResource, Context, Contract, Failure, HubError, Operator, PausedOperations, Process,
    ReconcileContext, Runtime, Settings, Trigger,
    driver::{owner, target_of},
    identity,
    status::StatusWriter,
};

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

    /// Returns the target of a component with the same access as its reconciles. Does not record a first contact, so
    /// the caller must only read.
    ///
    /// # Errors
    /// If the component has no access, its access leads to another cluster than before, or the target does not answer.
    pub async fn resolve_target<R: ComponentResource>(&self, resource: &R) -> Result<Target, Failure> {
        let contract = Contract::of(resource)?;
        let target = target_of(self, resource, &contract).await?;
        identity::compared(&self.hub_uid, self.operator, resource, &target).await?;
        Ok(target)
    }

    /// Returns the context of a component's step for a dry run: reads are real, writes to the target are dry runs,
    /// and deletions are not sent.
    ///
    /// # Errors
    /// Errors of [`Runtime::resolve_target`], and if the resource names no `ServiceAccount` although a policy requires
    /// one.
    pub async fn dry_run_context<C: Component>(
        &self,
        component: &C,
        resource: Arc<C::Resource>,
    ) -> Result<Context<C::Resource>, Failure> {
        let account = component.account(&resource)?;
        let target = self.resolve_target(&*resource).await?;
        let metrics = self.process.metrics.clone();
        Ok(Context {
            contract: Contract::of(&*resource)?,
            target: target.dry_run_for(&resource.uid().unwrap_or_default(), account),
            hub: self.hub.clone(),
            settings: Arc::clone(&self.settings),
            events: self.events.clone(),
            manager: C::NAME,
            owner: owner(&*resource),
            wake: Trigger::new(),
            status: StatusWriter::new(self.hub.clone(), C::NAME, metrics.clone()),
            reconcile: ReconcileContext::new(C::NAME, false, PausedOperations::default(), metrics),
            brake: self.brake.clone(),
            watch_specs: parking_lot::Mutex::default(),
            is_dry_run: true,
            resource,
        })
    }
}

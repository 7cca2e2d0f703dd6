//! Looking at targets as an operator does, and finding out what a component's step would do, with nothing written.

use std::sync::Arc;

use kube::{Config, ResourceExt};
use kyma_targets::{AccessPolicy, Limits, Streams, Target, Targets};

use crate::{
    Component, ComponentResource, Context, Contract, Failure, Halt, HubError, Operator, Pass, Process,
    Runtime, Settings, Trigger,
    driver::{owner, target_of},
    identity,
    status::StatusWriter,
};

impl Runtime {
    /// Connects to the hub for reading alone: what would change something there is not sent, and nothing is watched.
    /// `replica` says in the User-Agent who it is that calls in the operator's way.
    ///
    /// # Errors
    /// The hub does not answer or forbids to read who it is.
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

    /// The target of a component, as it is reached for its reconciles. A first contact is not recorded, so this is for
    /// who only reads there.
    ///
    /// # Errors
    /// It has no access, or leads to another cluster than before; the target does not answer.
    pub async fn look_at<R: ComponentResource>(&self, resource: &R) -> Result<Target, Failure> {
        let contract = Contract::of(resource)?;
        let target = target_of(self, resource, &contract).await?;
        identity::compared(&self.hub_uid, self.operator, resource, &target).await?;
        Ok(target)
    }

    /// What a step of this component is given, for a rehearsal: everything on the target is read as it is, what would be
    /// written there is sent as a dry run, and deletions are not sent.
    ///
    /// # Errors
    /// As [`Runtime::look_at`], and where it may not act as the account that it names.
    pub async fn rehearse<C: Component>(
        &self,
        component: &C,
        resource: Arc<C::Resource>,
    ) -> Result<Context<C::Resource>, Failure> {
        let account = component.account(&resource)?;
        let target = self.look_at(&*resource).await?;
        let metrics = self.process.metrics.clone();
        Ok(Context {
            contract: Contract::of(&*resource)?,
            target: target.rehearsing_for(&resource.uid().unwrap_or_default(), account),
            hub: self.hub.clone(),
            settings: Arc::clone(&self.settings),
            events: self.events.clone(),
            manager: C::NAME,
            owner: owner(&*resource),
            wake: Trigger::new(),
            status: StatusWriter::new(self.hub.clone(), C::NAME, metrics.clone()),
            pass: Pass::new(C::NAME, false, Halt::default(), metrics),
            brake: self.brake.clone(),
            interests: std::sync::Mutex::default(),
            rehearses: true,
            resource,
        })
    }
}

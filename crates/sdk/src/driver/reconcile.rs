//! The steps of a reconcile around install and remove, in order.

use std::{sync::Arc, time::Duration};

use kube::{Resource, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use kyma_api::Reason;
use kyma_api::condition::{self, Condition, Status};
use kyma_controller::{Failure, ReconcileContext, Wait, WatchSpec, delay_after};
use kyma_targets::{ComponentTarget, ServiceAccount, Target};

use super::account;
use super::depends::Dependence;
use super::kinds;
use super::outcome::Outcome;
use super::state::Driver;
use super::target::{owner, target_of};
use crate::component::{Component, Progress};
use crate::context::Context;
use crate::contract::{ComponentResource, Contract, has_finalizer, is_suspended};
use crate::identity::{self, VerifiedTarget};
use crate::status::{Report, WriteOutcome, ready_of};

impl<C: Component> Driver<C> {
    /// Reconciles a component: removes it, does nothing while it is suspended, or installs it.
    pub(super) async fn reconcile(
        &self,
        resource: Arc<C::Resource>,
        reconcile_context: ReconcileContext,
    ) -> Result<Wait, Failure> {
        if self.ended.contains(&*resource) && !self.is_back(&resource).await? {
            return Ok(Wait::Event);
        }
        let contract = Contract::of(&*resource)?;
        if resource.meta().deletion_timestamp.is_some() {
            return self.end(resource, contract, reconcile_context).await;
        }
        if is_suspended(&*resource, &contract.spec) {
            return self.suspended(&resource, &contract).await;
        }
        if let Some(why) = reconcile_context
            .paused_operations()
            .writes()
            .or(reconcile_context.paused_operations().upgrades().filter(|_| contract.is_upgrade()))
        {
            return self.paused(&resource, why).await;
        }
        if !has_finalizer(&*resource) && !is_to_be_contacted(&*resource, &contract) {
            // Nothing is installed before the finalizer exists. The event of this write requeues the component.
            return self.add_finalizer(&resource).await.map(|()| Wait::Event);
        }
        let request = contract.request(&*resource).filter(|_| self.reports_requests).map(str::to_owned);
        let dependence = self.depends(&resource, &contract).await?;
        if dependence.is_awaited() {
            return Ok(Wait::Event);
        }
        let outcome = match dependence.blocked_outcome() {
            Some(outcome) => outcome,
            None => self.install_on_target(&resource, contract, &dependence, reconcile_context).await,
        };
        self.report(&resource, outcome.handling(request)).await
    }

    /// Opens the target, runs the step there and returns its outcome.
    async fn install_on_target(
        &self,
        resource: &Arc<C::Resource>,
        contract: Contract,
        dependence: &Dependence,
        reconcile_context: ReconcileContext,
    ) -> Outcome {
        let account = match self.component.account(resource) {
            Err(failure) => return Outcome::refused(failure),
            Ok(account) => account,
        };
        match self.open(resource, contract, account.clone(), reconcile_context).await {
            Err(failure) => Outcome::unreached(failure),
            Ok(context) => {
                let mut kinds = None;
                let progress = self.within_deadline(async {
                    kinds = self.look_up_kinds(&context).await;
                    self.run_install(&context).await
                });
                let progress = progress.await;
                self.keep_watching(&context, progress.is_ok());
                let progress = account::progress(account.as_ref(), progress);
                let progress = kinds::with_kinds(kinds, progress.unwrap_or_else(Progress::stopped));
                Outcome::of_install(dependence.add_to(progress))
            }
        }
    }

    /// Runs the component's step, then creates the default CR, whose kind the step may install, and judges the manager,
    /// which may be the default CR.
    async fn run_install(&self, context: &Context<C::Resource>) -> Result<Progress, Failure> {
        let progress = self.component.install(context).await?;
        let progress = self.with_default_resource(context, progress).await;
        Ok(Box::pin(self.with_manager(context, progress)).await)
    }

    /// Runs a step within nine tenths of the deadline, so that the rest suffices for the status.
    pub(super) async fn within_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.runtime.settings.reconcile_deadline.mul_f64(0.9);
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            let message = format!("not finished within {} s", limit.as_secs());
            Err(Failure::new(Reason::DeadlineExceeded, message))
        })
    }

    /// Resolves access, verifies the target's identity and returns the context of a step.
    pub(super) async fn open(
        &self,
        resource: &Arc<C::Resource>,
        contract: Contract,
        account: Option<ServiceAccount>,
        reconcile_context: ReconcileContext,
    ) -> Result<Context<C::Resource>, Failure> {
        let target = self.target(resource, &contract).await?;
        let VerifiedTarget { target, recorded } =
            identity::prove(&self.runtime, &**resource, &target).await?;
        if let Some(meta) = recorded {
            self.status.touched(resource, &meta);
        }
        let uid = resource.uid().unwrap_or_default();
        Ok(Context {
            resource: Arc::clone(resource),
            contract,
            target: target.acting_for(&uid, account),
            hub: self.runtime.hub.clone(),
            settings: Arc::clone(&self.runtime.settings),
            events: self.runtime.events.clone(),
            manager: C::NAME,
            owner: owner(&**resource),
            wake: self.trigger.clone(),
            status: self.status.clone(),
            reconcile: reconcile_context,
            brake: self.runtime.brake.clone(),
            watch_specs: parking_lot::Mutex::default(),
            is_dry_run: false,
        })
    }

    async fn target(&self, resource: &C::Resource, contract: &Contract) -> Result<Target, Failure> {
        target_of(&self.runtime, resource, contract).await
    }

    /// Watches the objects on the target that the step read; after an incomplete step, also those that the component
    /// watched before.
    pub(super) fn keep_watching(&self, context: &Context<C::Resource>, complete: bool) {
        let key = ObjectRef::from_obj(&*context.resource);
        let mut watch_specs = context.take_watch_specs();
        if !complete {
            watch_specs.extend(self.watches.subscriptions(&key));
        }
        self.subscribe(&context.target, &key, watch_specs);
    }

    pub(super) fn subscribe(
        &self,
        target: &ComponentTarget,
        key: &ObjectRef<C::Resource>,
        watch_specs: impl IntoIterator<Item = WatchSpec>,
    ) {
        if let Err(limit) = self.watches.subscribe(target, key, watch_specs) {
            tracing::warn!(object = %key, "{limit}; the resync finds changes");
        }
    }

    /// Reports a Pause. Watches stay open, so that no change is missed.
    pub(super) async fn paused(&self, resource: &C::Resource, why: &str) -> Result<Wait, Failure> {
        let ready =
            Condition::new(condition::types::READY, Status::Unknown, Reason::Paused).with_message(why);
        self.report(resource, Outcome::unchanged(ready)).await
    }

    async fn suspended(&self, resource: &C::Resource, contract: &Contract) -> Result<Wait, Failure> {
        let key = ObjectRef::from_obj(resource);
        self.watches.unsubscribe(&key);
        self.manager_failures.forget(&key);
        let (reason, why) = if contract.spec.suspend {
            (Reason::Suspended, "spec.suspend is true")
        } else {
            (Reason::SkipReconciliation, "the label operator.kyma-project.io/skip-reconciliation is true")
        };
        let ready = Condition::new(condition::types::READY, Status::Unknown, reason).with_message(why);
        let report = Report { conditions: vec![ready], ..Report::default() };
        self.status.write(resource, &report, true).await?;
        Ok(Wait::Event)
    }

    /// Writes the status if it differs, or requeues to do so, publishes an event if Ready changed, and returns the
    /// result.
    pub(super) async fn report(&self, resource: &C::Resource, outcome: Outcome) -> Result<Wait, Failure> {
        let before = self.status.current(resource)?;
        let is_final = outcome.result.is_err();
        match self.status.write(resource, &outcome.report, is_final).await {
            Err(unwritten) => {
                tracing::info!(object = %ObjectRef::from_obj(resource), "status not written: {unwritten}");
                return Err(sooner(outcome.result.err(), unwritten));
            }
            Ok(WriteOutcome::Later(left)) => return outcome.result.map(|wait| wait.at_most(left)),
            Ok(WriteOutcome::Now(after)) if ready_of(&after) != ready_of(&before) => {
                self.announce(resource, &outcome.report, ready_of(&after));
            }
            Ok(WriteOutcome::Now(_) | WriteOutcome::Unchanged) => {}
        }
        outcome.result
    }

    fn announce(&self, resource: &C::Resource, report: &Report, ready: Option<(String, String)>) {
        let Some(condition) = report.conditions.iter().find(|one| one.type_ == condition::types::READY)
        else {
            return;
        };
        let events = &self.runtime.events;
        match (ready, condition.reason.class()) {
            (Some((status, _)), _) if status == "True" => {
                events.normal(resource, condition.reason, "Reconcile", "the module is in its desired state");
            }
            (_, Some(_)) => {
                events.warning(resource, condition.reason, "Reconcile", &condition.message);
            }
            // Work in progress. The condition shows it, and an event for each step would hide other events.
            (_, None) => {}
        }
    }
}

/// Returns the failure that is retried first, for a reconcile whose status could not be written: only another
/// reconcile writes it.
fn sooner(stopped: Option<Failure>, unwritten: Failure) -> Failure {
    let delay = |failure: &Failure| delay_after(failure, 1, 1.0).unwrap_or(Duration::MAX);
    stopped.filter(|stopped| delay(stopped) < delay(&unwritten)).unwrap_or(unwritten)
}

/// Reports whether the first contact with a remote target is still to come. Its record includes the finalizer.
fn is_to_be_contacted<R: ComponentResource>(resource: &R, contract: &Contract) -> bool {
    contract.spec.target.kubeconfig_secret_ref.is_some() && !identity::had_contact(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_was_not_written_is_not_left_to_the_resync() {
        let of = |reason| Failure::new(reason, "");
        let slow = || of(Reason::TargetThrottled).retry_after(Duration::from_mins(5));
        let rows = [
            (Some(of(Reason::ValuesInvalid)), of(Reason::HubUnavailable), Reason::HubUnavailable),
            (Some(of(Reason::TargetForbidden)), of(Reason::HubUnavailable), Reason::HubUnavailable),
            (Some(slow()), of(Reason::ApplyConflict), Reason::ApplyConflict),
            (Some(of(Reason::TargetForbidden)), of(Reason::HubRefused), Reason::TargetForbidden),
            (Some(of(Reason::ValuesInvalid)), of(Reason::HubForbidden), Reason::HubForbidden),
            (Some(of(Reason::ValuesInvalid)), of(Reason::HubRefused), Reason::HubRefused),
            (None, of(Reason::HubRefused), Reason::HubRefused),
        ];
        for (stopped, unwritten, expected) in rows {
            let ends = sooner(stopped.clone(), unwritten.clone());
            assert_eq!(ends.reason, expected, "{stopped:?} {unwritten:?}");
        }
    }
}

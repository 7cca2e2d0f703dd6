//! Deletion of a component. A deletionTimestamp is not a deletion request: only a verified request removes objects
//! from a target.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResourceExt, Resource, ResourceExt,
    api::{ApiResource, PartialObjectMeta},
};
use kube_runtime::reflector::ObjectRef;
use kyma_api::{
    ErrorClass, Reason, State,
    condition::{self, Condition, Status},
    finalizers,
};
use kyma_controller::{
    Blocking, DeletionRequest, Failure, ReconcileContext, Wait, WatchSpec, add_finalizer, find_blockers,
    live_metadata, patch_finalizers, remove_finalizer,
};
use serde::de::DeserializeOwned;

use super::account;
use super::default_resource::LiveResource;
use super::outcome::{Outcome, failure_condition, reachable};
use super::state::Driver;
use crate::component::{Component, Progress, Removal};
use crate::context::Context;
use crate::contract::{Contract, DeletionEffect, deletion_effect, has_finalizer};
use crate::dependencies::Kind;
use crate::identity;
use crate::status::Report;

impl<C: Component> Driver<C> {
    /// Handles a component that is being deleted: releases it, or removes the module first.
    pub(super) async fn end(
        &self,
        resource: Arc<C::Resource>,
        contract: Contract,
        reconcile_context: ReconcileContext,
    ) -> Result<Wait, Failure> {
        if !has_finalizer(&*resource) {
            return Ok(Wait::Event);
        }
        if let Some(why) = reconcile_context.paused_operations().deletes() {
            return self.paused(&resource, why).await;
        }
        let policy = contract.spec.deletion_policy;
        let removes = match deletion_effect(&*resource, policy) {
            DeletionEffect::Orphan => false,
            DeletionEffect::Requested => true,
            DeletionEffect::Standalone if self.is_hub_scope_terminating(&resource).await? => false,
            DeletionEffect::Standalone => match DeletionRequest::of(resource.meta(), Timestamp::now()) {
                DeletionRequest::Confirmed => true,
                DeletionRequest::Orphan => false,
                DeletionRequest::Unconfirmed { until } => return self.unconfirmed(&resource, until).await,
            },
            DeletionEffect::Unproven => {
                let note = "deletionPolicy is Delete without a valid deletion request of its Kyma: everything on the target stays";
                self.runtime.events.warning(&*resource, Reason::Orphaned, "Delete", note);
                false
            }
        };
        if !removes {
            return self.release(&resource).await;
        }
        match self.remove(&resource, contract, reconcile_context).await {
            Ok(Removal::Done) => self.release(&resource).await,
            Ok(Removal::Waiting(progress)) => self.report(&resource, Outcome::of_removal(progress)).await,
            // The component never had a target, so there is nothing to remove.
            Err(failure)
                if matches!(failure.reason, Reason::AwaitingAccess | Reason::ServiceAccountMissing)
                    && !identity::had_contact(&*resource) =>
            {
                self.release(&resource).await
            }
            // Nothing was sent to the target, so its previous condition stays.
            Err(failure) if failure.reason == Reason::ServiceAccountMissing => {
                self.report(&resource, Outcome::refused(failure)).await
            }
            Err(failure) => self.report(&resource, Outcome::stopped_removal(failure)).await,
        }
    }

    async fn remove(
        &self,
        resource: &Arc<C::Resource>,
        contract: Contract,
        reconcile_context: ReconcileContext,
    ) -> Result<Removal, Failure> {
        if let Some(waiting) = self.wait_for_dependents(resource)? {
            return Ok(waiting);
        }
        let account = self.component.account(resource)?;
        let context = self.open(resource, contract, account.clone(), reconcile_context).await?;
        account::removal(account.as_ref(), self.remove_as(resource, &context).await)
    }

    async fn remove_as(
        &self,
        resource: &Arc<C::Resource>,
        context: &Context<C::Resource>,
    ) -> Result<Removal, Failure> {
        let mut blocking = self.blocking(resource, &context.contract);
        let default = self.created_default_resource(context).await?;
        blocking.own.extend(default.iter().filter_map(|default| default.live.uid.clone()));
        if !nothing_blocks(&blocking) {
            let blockers = find_blockers(&context.target.client(), &blocking).await?;
            if blockers.count > 0 {
                let key = ObjectRef::from_obj(&**resource);
                self.subscribe(&context.target, &key, one_version_each(&blockers.resources));
                return Err(Failure::new(Reason::DeletionBlocked, blockers.describe()));
            }
        }
        context.may_delete().await?;
        let removal = self.within_deadline(self.run_removal(context, default)).await;
        self.keep_watching(context, removal.is_ok());
        removal
    }

    /// Deletes the default CR, and runs the component's step once the default CR is gone: the step may remove its
    /// controller.
    async fn run_removal(
        &self,
        context: &Context<C::Resource>,
        default: Option<LiveResource>,
    ) -> Result<Removal, Failure> {
        if let Some(default) = default
            && !default.delete(context).await?
        {
            return Ok(Removal::waiting(format!("waiting for the deletion of {}", default.describe())));
        }
        self.component.remove(context).await
    }

    /// Returns the kinds that block the removal: the component's own, and those of the ModuleTemplate. A
    /// HelmComponent handles the latter itself and excludes its own objects.
    fn blocking(&self, resource: &C::Resource, contract: &Contract) -> Blocking {
        let mut blocking = self.component.blocking(resource);
        if Kind::of::<C::Resource>() != Kind::helm() {
            let more = contract.spec.managed_resources.iter().filter(|kind| !blocking.kinds.contains(kind));
            let more: Vec<_> = more.cloned().collect();
            blocking.kinds.extend(more);
        }
        blocking
    }

    /// Reports that the deletion waits for its confirmation. Removes nothing.
    async fn unconfirmed(&self, resource: &Arc<C::Resource>, until: Timestamp) -> Result<Wait, Failure> {
        let ready = Condition::new(condition::types::READY, Status::Unknown, Reason::DeletionUnconfirmed)
            .with_message(DeletionRequest::message(until));
        let left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
        let wait = self.report(resource, Outcome::unchanged(ready)).await?;
        Ok(wait.at_most(left + Duration::from_millis(100)))
    }

    /// Reports whether the component is deleted only because its namespace or CRD is terminating. A namespace or CRD has a
    /// deletionTimestamp before its content has one, so one read without it proves the contrary for this deletion.
    /// Components that are deleted together share the reads.
    async fn is_hub_scope_terminating(&self, resource: &C::Resource) -> Result<bool, Failure> {
        if self.deleted_alone.contains_deletion(resource) {
            return Ok(false);
        }
        let namespace = resource.namespace().unwrap_or_default();
        let (hub, name) = (self.runtime.hub.clone(), namespace.clone());
        let read = async move {
            let (namespace, crd) = tokio::join!(
                is_terminating::<Namespace>(&hub, &name),
                is_terminating::<CustomResourceDefinition>(&hub, C::Resource::crd_name())
            );
            Ok(namespace? || crd?)
        };
        let is_terminating = self.hub_scope_reads.read(&namespace, read).await?;
        if !is_terminating {
            self.deleted_alone.insert(resource);
        }
        Ok(is_terminating)
    }

    /// Removes the finalizer. Objects on the target stay.
    async fn release(&self, resource: &C::Resource) -> Result<Wait, Failure> {
        let Some(patch) = remove_finalizer(resource.meta(), finalizers::COMPONENT) else {
            return Ok(Wait::Event);
        };
        let key = ObjectRef::from_obj(resource);
        // Noted before the write, since the watch may be faster than the answer.
        self.ended.insert(resource);
        let released = patch_finalizers(&self.hub_api(resource), &resource.name_any(), patch).await;
        released.inspect_err(|_| self.ended.remove(&key))?;
        self.released(&key);
        Ok(Wait::Event)
    }

    /// Reports, by a live read, whether a released component exists again, as after a restore of the hub from a
    /// backup. The watch may show an older state.
    pub(super) async fn is_back(&self, resource: &C::Resource) -> Result<bool, Failure> {
        let name = resource.name_any();
        let live = live_metadata(&self.hub_api(resource), &name).await;
        let live = live.map_err(|error| Failure::hub(&format!("read {name}"), &error))?;
        let is_held = |live: &PartialObjectMeta<C::Resource>| {
            live.finalizers().iter().any(|name| name == finalizers::COMPONENT)
        };
        let is_back = live.is_some_and(|live| live.uid() == resource.uid() && is_held(&live));
        if is_back {
            self.ended.remove(&ObjectRef::from_obj(resource));
        }
        Ok(is_back)
    }

    /// Adds the contract's finalizer to a component that lacks it.
    pub(super) async fn add_finalizer(&self, resource: &C::Resource) -> Result<(), Failure> {
        match add_finalizer(resource.meta(), finalizers::COMPONENT) {
            Some(patch) => patch_finalizers(&self.hub_api(resource), &resource.name_any(), patch).await,
            None => Ok(()),
        }
    }

    fn hub_api(&self, resource: &C::Resource) -> Api<C::Resource> {
        Api::namespaced(self.runtime.hub.clone(), &resource.namespace().unwrap_or_default())
    }
}

async fn is_terminating<K>(hub: &Client, name: &str) -> Result<bool, Failure>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<PartialObjectMeta<K>> = Api::all_with(hub.clone(), &());
    let read = api.get(name).await;
    let read = read.map_err(|error| Failure::hub(&format!("read {} {name}", K::kind(&())), &error))?;
    Ok(read.metadata.deletion_timestamp.is_some())
}

/// Returns each kind in its first version only, since all versions show the same objects.
fn one_version_each(resources: &[ApiResource]) -> Vec<WatchSpec> {
    let mut kinds: Vec<&ApiResource> = vec![];
    for resource in resources {
        if !kinds.iter().any(|kept| kept.group == resource.group && kept.kind == resource.kind) {
            kinds.push(resource);
        }
    }
    kinds.into_iter().map(WatchSpec::in_kind).collect()
}

/// Reports whether no object can block a removal.
fn nothing_blocks(blocking: &Blocking) -> bool {
    blocking.kinds.is_empty()
}

impl Outcome {
    fn of_removal(progress: Progress) -> Self {
        Self::of(Progress { state: State::Deleting, ..progress }, Status::False)
    }

    fn stopped_removal(failure: Failure) -> Self {
        let state = match failure.class {
            ErrorClass::Transient | ErrorClass::Blocked => State::Deleting,
            ErrorClass::Invalid | ErrorClass::Unreachable => State::Error,
        };
        let conditions =
            vec![failure_condition(condition::types::READY, &failure), reachable(Some(&failure))];
        Self { report: Report { state: Some(state), conditions, ..Report::default() }, result: Err(failure) }
    }
}

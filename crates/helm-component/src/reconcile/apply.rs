//! Steps that put objects onto the target.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{Adopt, HelmComponent, Reason, klm, names};
use kyma_controller::Failure;
use kyma_object_set::apply::{self, ApplyOptions, ApplyReport, Outcome, Refusal};
use kyma_object_set::{
    GroupKind, Identity, IgnoredFields, Inventory, Object, ObjectSet, ObservedObject, is_autoscaler,
};
use kyma_targets::create_namespace;

use super::calls::failure;
use super::component_list::has_component;
use super::terminating_namespaces::fault_of;
use crate::actions::hooks;
use crate::observe::adoption;
use crate::pass::Pass;
use crate::plan;

/// Maximum number of parallel requests to one target.
pub(super) const PARALLEL: usize = 8;

impl Pass<'_> {
    /// Creates the release's namespace if it is missing. It belongs to the user from then on.
    pub(super) async fn namespace(&mut self) -> Result<(), Failure> {
        self.ensure_namespace().await?;
        self.state.namespace_ready = true;
        Ok(())
    }

    async fn ensure_namespace(&mut self) -> Result<(), Failure> {
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        if !inputs.release.create_namespace {
            // If the namespace is missing, the apply reports it.
            return Ok(());
        }
        let name = &inputs.release.namespace.clone();
        if self.is_known_terminating(name) {
            return Err(fault_of(None, name));
        }
        let (known_namespaces, target) = (&self.shared.namespaces, &self.context.target);
        if self.was_read(name) {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        match namespaces.get_metadata_opt(name).await {
            Ok(Some(found)) => {
                let terminating = found.metadata.deletion_timestamp.is_some();
                self.record_namespace(name, terminating);
                return if terminating {
                    Err(fault_of(None, name))
                } else {
                    known_namespaces.record_read(target, name);
                    Ok(())
                };
            }
            Ok(None) => self.record_namespace(name, false),
            // A role that allows create may not allow get.
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => return Err(Failure::target(&format!("read Namespace {name}"), &error)),
        }
        match create_namespace(&self.cluster.client, name, &[], &self.ownership.creator()).await {
            Ok(true) => {
                known_namespaces.record_read(target, name);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(Failure::target(&format!("create Namespace {name}"), &error)),
        }
    }

    /// Applies CRDs alone, since hooks may need their kinds. A refused CRD stops the hooks; all other results are
    /// processed by the complete apply.
    pub(super) async fn apply_crds(&mut self, seen: &plan::Observed) -> Result<(), Failure> {
        let Some(loaded) = self.state.loaded.clone() else { return Ok(()) };
        self.done.hooks.crds_applied = true;
        self.record_prune_baseline(&loaded);
        let due: BTreeSet<&Identity> = seen
            .objects
            .iter()
            .filter(|object| seen.needs_apply(object))
            .map(|object| &object.identity)
            .collect();
        let is_due = |identity: &Identity| identity.is_crd() && due.contains(identity);
        let crds = loaded.prepared.objects.iter().filter(|object| is_due(&object.identity()));
        let set = ObjectSet::new(crds.cloned().collect());
        let held = self.proven(seen.set_back);
        self.mark_recorded_incomplete(&loaded, false).await?;
        let applied = self.send(&set, &held, &self.observed(seen), &|_| true).await?;
        self.take_refused_crds(&applied);
        self.state.recorded.inventory = applied.inventory;
        self.state.is_cut_off = false;
        if let Ok(kinds) = self.cluster.discovery.kinds(&self.cluster.client).await {
            self.kinds = kinds;
            self.rescope();
        }
        Ok(())
    }

    /// Stores the failures of refused CRDs. Failing webhooks do not count: their backend may be part of the remaining
    /// content.
    fn take_refused_crds(&mut self, applied: &ApplyReport) {
        let mut foreign = BTreeMap::<GroupKind, Vec<Identity>>::new();
        let refused = applied.errors().filter(|(_, refusal)| refusal.reason() != Reason::WebhookFailed);
        for (identity, refusal) in refused {
            if matches!(refusal, Refusal::OwnedByOther { .. } | Refusal::VersionInUse { .. }) {
                foreign.entry(identity.group_kind()).or_default().push(identity.clone());
            }
            let fault = self.refused(identity, refusal, None);
            self.done.faults.insert(identity.clone(), fault);
        }
        self.await_owners(&foreign);
    }

    /// Applies pending objects, stage by stage.
    pub(super) async fn apply(&mut self, seen: &plan::Observed) -> Result<(), Failure> {
        let Some(loaded) = self.state.loaded.clone() else { return Ok(()) };
        self.done.applied = true;
        hooks::checkpoint_release(self).await?;
        self.record_prune_baseline(&loaded);
        let due = seen
            .objects
            .iter()
            .filter(|object| seen.needs_apply(object))
            .map(|object| object.identity.clone());
        let due = self.exclude_terminating_namespaces(seen, due.collect()).await?;
        let objects = &loaded.prepared.objects;
        let set =
            ObjectSet::new(objects.iter().filter(|one| due.contains(&one.identity())).cloned().collect());
        let repaired: BTreeSet<Identity> = seen
            .objects
            .iter()
            .filter(|object| !object.changed && object.has_drifted() && due.contains(&object.identity))
            .map(|object| object.identity.clone())
            .collect();
        let observed = self.observed(seen);
        let held = self.proven(seen.set_back);
        self.mark_recorded_incomplete(&loaded, true).await?;
        let applied = self.send(&set, &held, &observed, &|_| true).await;
        // A failed apply may have sent objects, too.
        self.state.has_sent = true;
        let applied = self.send_over_the_foreign(&set, &observed, applied?).await?;
        let applied = self.send_over_the_dead(&set, &observed, applied).await?;
        let applied = self.send_over_the_dropped(&set, seen, applied).await?;
        self.count_repairs(&repaired, &applied);
        self.record_apply_report(&loaded, applied).await;
        Ok(())
    }

    pub(super) async fn send(
        &self,
        set: &ObjectSet,
        inventory: &Inventory,
        observed: &BTreeMap<Identity, ObservedObject>,
        owner_is_live: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<ApplyReport, Failure> {
        let namespace =
            self.inputs.as_ref().map(|inputs| inputs.release.namespace.clone()).unwrap_or_default();
        let ignored_fields = self.ignored_fields();
        let made_once = self.state.loaded.as_ref().map(|loaded| loaded.made_once.clone());
        let options = ApplyOptions {
            ownership: &self.ownership,
            adopt: adopt(self.context.resource.spec.adopt),
            owner_is_live,
            strict: false,
            repair: self.state.loaded.as_ref().is_some_and(|loaded| self.state.recorded.is(loaded)),
            namespace: &namespace,
            parallel: PARALLEL,
            protection: &self.shared.protection,
            take_over: &[klm::APPLIER],
            foreign: adoption::foreign(self),
            ignored_fields: &ignored_fields,
            made_once: &made_once.unwrap_or_default(),
            recreate: self.context.resource.spec.recreate.as_deref().unwrap_or_default(),
            are_new: self.is_first(),
            until: self.time_to_send(),
        };
        // Boxed, as otherwise the compiler cannot prove that the future of the whole pass is `Send`.
        let applied = apply::apply(&self.cluster, set, inventory, observed, &options).boxed().await;
        applied.map_err(|error| failure(&error))
    }

    /// Reports whether no object of the component was ever applied, as far as is known. Objects of a process that
    /// ended in its first apply are not recorded; they are found all the same.
    fn is_first(&self) -> bool {
        let conditions =
            self.context.resource.status.as_ref().and_then(|status| status.conditions.as_deref());
        let was_told = condition::get(conditions.unwrap_or_default(), types::APPLIED).is_some();
        !was_told && !self.state.has_sent && self.state.recorded.inventory.is_empty()
    }

    /// Takes over objects that another system applied, once the record names them.
    async fn send_over_the_foreign(
        &mut self,
        set: &ObjectSet,
        observed: &BTreeMap<Identity, ObservedObject>,
        applied: ApplyReport,
    ) -> Result<ApplyReport, Failure> {
        // The record includes the sent objects.
        self.state.recorded.inventory = applied.inventory.clone();
        if !self.note_foreign(&applied).await? {
            return Ok(applied);
        }
        self.send(set, &applied.inventory, observed, &|_| true).await
    }

    /// Returns the fields that other managers may change: those in the spec, and replicas that the content's
    /// autoscalers scale. An autoscaler that leaves the content returns them.
    fn ignored_fields(&self) -> IgnoredFields {
        let rules = self.inputs.as_ref().map(|inputs| inputs.ignored_fields.clone()).unwrap_or_default();
        let Some(loaded) = &self.state.loaded else { return rules };
        let objects = &loaded.prepared.objects;
        let wanted: BTreeSet<Identity> = objects.iter().map(Object::identity).collect();
        let recorded = self.state.recorded.inventory.iter().map(|(identity, _)| identity);
        let leaving = recorded.filter(|identity| is_autoscaler(identity) && !wanted.contains(identity));
        let namespaces = leaving.filter_map(|identity| identity.namespace.clone()).collect();
        rules.with_autoscalers(objects).with_overwritten_scale(namespaces)
    }

    /// Returns the time until which this pass applies objects. An interrupted pass forgets what it applied, so a pass
    /// with many objects ends early and continues in the next one.
    fn time_to_send(&self) -> Option<Instant> {
        let deadline = self.context.settings.reconcile_deadline;
        let least = Instant::now().checked_add(deadline / 8);
        self.half_time().max(least).filter(|_| !self.context.is_dry_run())
    }

    /// Returns the time after which the pass begins no more large steps.
    pub(super) fn half_time(&self) -> Option<Instant> {
        self.begun.checked_add(self.context.settings.reconcile_deadline / 2)
    }

    /// Applies objects again whose owner was deleted from the hub. Objects that another operator's field manager
    /// labelled stay with their owner.
    async fn send_over_the_dead(
        &self,
        set: &ObjectSet,
        observed: &BTreeMap<Identity, ObservedObject>,
        applied: ApplyReport,
    ) -> Result<ApplyReport, Failure> {
        let adopts = self.context.resource.spec.adopt == Adopt::Unowned;
        let foreign = applied.errors().any(|(_, refusal)| matches!(refusal, Refusal::OwnedByOther { .. }));
        if !foreign {
            return Ok(applied);
        }
        let live = self.components(|_| true).await?;
        if adopts && !self.context.is_dry_run() {
            has_component(&live, &self.key.owner)?;
        }
        let mut applied = if adopts {
            self.send(set, &applied.inventory, observed, &|owner| live.contains_key(owner)).await?
        } else {
            applied
        };
        name_owners(&mut applied, &live);
        Ok(applied)
    }

    /// Returns the names of the namespace's components that match, by owner hash. Lists in pages to bound memory.
    pub(crate) async fn components(
        &self,
        holds: impl Fn(&PartialObjectMeta<HelmComponent>) -> bool,
    ) -> Result<BTreeMap<String, String>, Failure> {
        let components: Api<PartialObjectMeta<HelmComponent>> =
            Api::namespaced(self.context.hub.clone(), &self.key.namespace);
        names_by_owner(&components, holds).await
    }

    /// Returns the state of objects in the watches, for the apply.
    pub(super) fn observed(&self, seen: &plan::Observed) -> BTreeMap<Identity, ObservedObject> {
        let snapshot = self.shared.target_cache.snapshot(
            &self.context.target,
            &self.key,
            &self.state.recorded.inventory,
        );
        if !seen.watched {
            return BTreeMap::new();
        }
        snapshot.objects.into_iter().map(|(identity, watched)| (identity, watched.observed)).collect()
    }
}

/// Replaces owner hashes with component names, for readable messages.
fn name_owners(applied: &mut ApplyReport, names: &BTreeMap<String, String>) {
    for (_, outcome) in &mut applied.outcomes {
        if let Outcome::Refused(Refusal::OwnedByOther { owner, .. }) = outcome
            && let Some(name) = names.get(owner)
        {
            name.clone_into(owner);
        }
    }
}

fn adopt(policy: Adopt) -> apply::AdoptionPolicy {
    match policy {
        Adopt::Never => apply::AdoptionPolicy::Never,
        Adopt::Unowned => apply::AdoptionPolicy::Unowned,
        Adopt::Always => apply::AdoptionPolicy::Always,
    }
}

/// Page size for lists of components.
const PAGE: u32 = 500;

async fn names_by_owner(
    components: &Api<PartialObjectMeta<HelmComponent>>,
    holds: impl Fn(&PartialObjectMeta<HelmComponent>) -> bool,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut parameters = ListParams::default().limit(PAGE);
    let mut by_owner = BTreeMap::new();
    loop {
        let page = components.list(&parameters).await;
        let page = page.map_err(|error| Failure::hub("list components", &error))?;
        let named = |one: &PartialObjectMeta<HelmComponent>| {
            let (namespace, name) = (one.namespace().unwrap_or_default(), one.name_any());
            (names::owner_hash(&namespace, &name), format!("HelmComponent {namespace}/{name}"))
        };
        by_owner.extend(page.items.iter().filter(|one| holds(one)).map(named));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(by_owner),
        }
    }
}

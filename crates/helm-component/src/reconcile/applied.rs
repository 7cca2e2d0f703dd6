//! Processes the results of an apply: inventory, failures and waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kyma_api::{Adopt, Digests, FreeForm, InventoryGroup, Reason};
use kyma_controller::{Failure, ResourceVersion, WatchSpec};
use kyma_object_set::apply::{ApplyReport, Outcome, Refusal};
use kyma_object_set::{
    CallError, Entry, ForeignObjectPolicy, GroupKind, Identity, Inventory, Kinds, ObservedObject,
};
use serde_json::json;

use super::calls::{SERVED_DELAY, failure};
use super::terminating_namespaces::fault_of;
use crate::blocking::run_blocking;
use crate::content::{Inputs, LoadedContent};
use crate::inventory_status::InventoryEncoding;
use crate::observe::adoption;
use crate::ownership_requests::TargetScope;
use crate::pass::Pass;
use crate::plan::{self, Content, Operation};
use crate::values::from::merge_installed;

impl Pass<'_> {
    /// Counts corrections of drift, so that a conflict with another writer is detected.
    pub(super) fn count_repairs(&mut self, repaired: &BTreeSet<Identity>, applied: &ApplyReport) {
        let now = jiff::Timestamp::now().as_second();
        let limit = self.shared.flap_limit;
        let flaps = &mut self.state.flaps;
        for identity in applied.changed().filter(|identity| repaired.contains(*identity)) {
            flaps.entry(identity.clone()).or_default().corrected(now, limit);
        }
        flaps.retain(|identity, _| applied.inventory.contains(identity));
    }

    pub(super) async fn record_apply_report(&mut self, loaded: &LoadedContent, applied: ApplyReport) {
        let late = applied.ran_out_of_time();
        // CRDs of the content may have added kinds.
        let kinds = self.cluster.discovery.kinds(&self.cluster.client).await.ok();
        let mut missing = vec![];
        let mut absent = BTreeSet::new();
        let versions = loaded.versions();
        let mut foreign = BTreeMap::<GroupKind, Vec<Identity>>::new();
        for (identity, outcome) in &applied.outcomes {
            match outcome {
                Outcome::Refused(refusal) => {
                    absent.extend(namespace_of(refusal).map(str::to_owned));
                    if matches!(refusal, Refusal::OwnedByOther { .. } | Refusal::VersionInUse { .. }) {
                        foreign.entry(identity.group_kind()).or_default().push(identity.clone());
                    }
                    if self.operation == Operation::Remove {
                        // Conditions show the cause that blocks the removal.
                        tracing::warn!(%identity, %refusal, "drift is not corrected");
                    }
                    let fault = self.refused(identity, refusal, kinds.as_deref());
                    self.done.faults.insert(identity.clone(), fault);
                }
                Outcome::Waiting(what) => {
                    self.done.waiting.insert(identity.clone(), (*what).to_owned());
                }
                Outcome::Applied { resource_version, .. } | Outcome::AsIs { resource_version } => {
                    let entry = applied.inventory.get(identity);
                    // Shared objects have no fingerprint; only the stream knows their owner.
                    if let Some(entry) = entry.filter(|entry| !entry.fingerprint.is_empty()) {
                        let observed = self.observed_of(entry);
                        let version = versions.get(identity).cloned();
                        let target = &self.context.target;
                        let revision = resource_version.as_deref().and_then(ResourceVersion::parse);
                        self.shared.target_cache.record_apply(target, identity, observed, version, revision);
                    }
                }
                Outcome::Missing(_) if is_unknown(kinds.as_deref(), identity) => {
                    self.done.faults.insert(identity.clone(), failure(&CallError::group_unknown(identity)));
                }
                Outcome::Missing(gvk) => {
                    missing.push(identity.clone());
                    tracing::info!(%identity, %gvk, "the target does not serve the kind; the object waits for it");
                }
                // Foreign objects were recorded and applied again before, so none is left here.
                Outcome::Unchanged | Outcome::Skipped | Outcome::Foreign(_) => {}
            }
        }
        self.await_namespaces(&absent);
        self.await_owners(&foreign);
        self.request_ownership(&applied);
        self.take_inventory(applied.inventory, &missing, kinds.as_deref());
        self.note_sent(loaded, late);
        if let Some(kinds) = kinds
            && !Arc::ptr_eq(&kinds, &self.kinds)
        {
            self.kinds = kinds;
            self.done.watching = false;
            self.rescope();
        }
        if !self.done.waiting.is_empty() || self.done.hooks.crds_applied {
            // The object may wait for a CRD, and CRDs are watched only while something waits. Kinds of CRDs that were
            // applied before hooks are not watched yet.
            self.done.watching = false;
        }
    }

    /// Replaces the inventory, which covers all applied objects from here on.
    fn take_inventory(&mut self, inventory: Inventory, missing: &[Identity], kinds: Option<&Kinds>) {
        self.state.is_cut_off = false;
        self.state.recorded.inventory = inventory;
        if let Some(kinds) = kinds {
            note_missing(&mut self.state.recorded.inventory, missing, kinds);
        }
    }

    /// Packs the record on another thread, where the next report would have to do it.
    pub(super) async fn pack_record(&mut self) {
        let recorded = &self.state.recorded;
        let status = self.context.resource.status.as_ref();
        let Some(groups) = recorded.encoding.to_pack(&recorded.inventory, status) else { return };
        let packed = run_blocking(move || InventoryGroup::pack(&groups)).await;
        // If this fails, the report uses the record as it is.
        if let Ok(Ok(text)) = packed {
            let inventory = self.state.recorded.inventory.clone();
            self.state.recorded.encoding = InventoryEncoding::packed(inventory, text);
        }
    }

    /// Notes that the content was applied, unless an object failed or is left to the next pass.
    fn note_sent(&mut self, loaded: &LoadedContent, late: bool) {
        if late {
            self.context.waker().wake();
        } else if self.done.faults.is_empty() {
            self.note_content(loaded);
        }
    }

    /// Marks the recorded content as incomplete before other content is applied. Until all objects of the other
    /// content are applied, the target matches neither, so a return to the recorded content must apply all of it
    /// again, and run its hooks if `of_release`. Written to the hub before the first apply, since an interrupted pass
    /// reports nothing.
    pub(super) async fn mark_recorded_incomplete(
        &mut self,
        loaded: &LoadedContent,
        of_release: bool,
    ) -> Result<(), Failure> {
        let recorded = &self.state.recorded;
        if recorded.digests.inputs.as_ref() == Some(&loaded.inputs) {
            return Ok(());
        }
        let mut left = Digests { inputs: None, ..recorded.digests.clone() };
        if of_release && recorded.is_other_release(loaded) {
            left.values = None;
        }
        let release_name = self.recorded_release_name();
        let is_named =
            self.context.resource.status.as_ref().is_some_and(|status| status.release_name == release_name);
        let revision = loaded.revision.clone().or_else(|| recorded.revision.clone());
        let entries = self.context.resource.spec.values_from.as_deref().unwrap_or_default();
        let values_from = merge_installed(&recorded.values_from, &loaded.values_from, entries);
        let is_recorded = left == recorded.digests
            && revision == recorded.revision
            && values_from == recorded.values_from
            && (release_name.is_none() || is_named);
        if !is_recorded {
            let mut fields = FreeForm::from_iter([("digests".to_owned(), json!(left))]);
            fields.insert("revision".to_owned(), json!(revision));
            let optional = (!values_from.is_empty()).then_some(&values_from);
            fields.insert("valuesFrom".to_owned(), json!(optional));
            fields.extend(release_name.map(|name| ("releaseName".to_owned(), json!(name))));
            self.context.checkpoint(fields).await?;
            self.state.recorded.digests = left;
            self.state.recorded.revision = revision;
        }
        self.state.recorded.values_from = values_from;
        self.state.is_cut_off = true;
        self.remember();
        Ok(())
    }

    /// Returns the inventory as far as it proves the state of the target.
    pub(super) fn proven(&self, set_back: bool) -> Inventory {
        let held = &self.state.recorded.inventory;
        // Objects that were taken over unchanged are marked by the lack of a proof.
        let is_cut_off = self.state.is_cut_off && !adoption::is_as_found(self);
        if set_back || is_cut_off { held.unproven() } else { held.clone() }
    }

    /// Records this content as the one that the inventory represents.
    fn note_content(&mut self, loaded: &LoadedContent) {
        if self.state.recorded.digests.inputs.as_ref() != Some(&loaded.inputs) {
            self.state.unready_since = Some(jiff::Timestamp::now().as_second());
        }
        if self.state.recorded.digests.source.as_ref() != Some(&loaded.source) {
            self.state.recorded.left.clear();
        }
        let as_found = |inputs: &Inputs| self.state.recorded.is_as_adopted(&inputs.requested_digest);
        let is_as_found = self.inputs.as_ref().is_ok_and(as_found);
        if !is_as_found || adoption::foreign(self) == ForeignObjectPolicy::Apply {
            self.state.recorded.adopted = None;
        }
        self.state.store_kinds(loaded.kinds.as_deref(), &self.kinds);
        self.state.recorded.values_from.clone_from(&loaded.values_from);
        self.state.recorded.digests = Digests {
            inputs: Some(loaded.inputs.clone()),
            api_versions: loaded.kinds.clone(),
            source: Some(loaded.source.clone()),
            values: Some(loaded.values.clone()),
            stored_render: loaded.render.clone(),
            objects: Some(loaded.rendered.clone()),
        };
    }

    /// Converts a refusal to a failure. If the release's own namespace is missing, the failure is retried soon, which
    /// creates it.
    pub(super) fn refused(
        &mut self,
        identity: &Identity,
        refusal: &Refusal,
        kinds: Option<&Kinds>,
    ) -> Failure {
        let Refusal::Call(error) = refusal else {
            return Failure::new(refusal.reason(), refusal.to_string());
        };
        let is_silent = kinds.is_some_and(|kinds| kinds.is_unknown(&identity.group));
        if is_silent && error.failure == kyma_object_set::Failure::Server(503) {
            // The target itself answers.
            return failure(&CallError::group_unknown(identity));
        }
        if let (Reason::NamespaceTerminating, Some(namespace)) = (error.reason(), &identity.namespace) {
            self.record_namespace(namespace, true);
            return fault_of(Some(identity), namespace);
        }
        let makes = |namespace: &str| {
            self.inputs
                .as_ref()
                .is_ok_and(|inputs| inputs.release.create_namespace && inputs.release.namespace == namespace)
        };
        match error.missing_namespace() {
            Some(namespace) if makes(namespace) => failure(error).retry_after(SERVED_DELAY),
            _ => failure(error),
        }
    }

    /// Watches missing namespaces that objects need: their creation requeues the component.
    fn await_namespaces(&mut self, absent: &BTreeSet<String>) {
        if self.inputs.as_ref().is_ok_and(|inputs| absent.contains(&inputs.release.namespace)) {
            self.state.namespace_ready = false;
        }
        for name in absent {
            self.shared.namespaces.forget_read(&self.context.target, name);
        }
        let mut names = absent.iter();
        let Some(name) = names.next() else { return };
        let Some(mapping) = self.kinds.preferred(&GroupKind::new("", "Namespace")) else { return };
        let only = names.next().is_none().then(|| format!("metadata.name={name}"));
        self.context.watch(WatchSpec { fields: only, ..WatchSpec::in_kind(&mapping.resource) });
    }

    /// Watches objects that others own or share, so that a release, deletion or change requeues the component.
    pub(super) fn await_owners(&self, foreign: &BTreeMap<GroupKind, Vec<Identity>>) {
        for (kind, objects) in foreign {
            let Some(mapping) = self.kinds.preferred(kind) else { continue };
            let watch_spec = WatchSpec::in_kind(&mapping.resource);
            self.context.watch(match objects.as_slice() {
                [one] => WatchSpec {
                    namespace: one.namespace.clone(),
                    fields: Some(format!("metadata.name={}", one.name)),
                    ..watch_spec
                },
                _ => watch_spec.owned(),
            });
        }
    }

    /// Requests objects that other components own: an owner that drops one transfers it to this component, which would
    /// adopt it once it has no owner.
    fn request_ownership(&self, applied: &ApplyReport) {
        if !self.adopts_unowned_objects() || self.context.is_dry_run() {
            return;
        }
        let owners = applied.errors().filter_map(|(_, refusal)| match refusal {
            Refusal::OwnedByOther { owner, .. } => Some(owner.clone()),
            _ => None,
        });
        self.shared.owner_waits.set(&self.key, owners.collect());
        let refused = applied.errors().filter(|(_, refusal)| matches!(refusal, Refusal::OwnedByOther { .. }));
        let objects = refused.map(|(identity, _)| identity.clone()).collect();
        self.shared.ownership_requests.add(TargetScope::of(&self.context.target), &self.key, objects);
    }

    /// Drops requests for objects that this component owns now or no longer wants. Without loaded content, the desired
    /// objects are unknown.
    pub(super) fn retain_ownership_requests(&self, seen: &plan::Observed) {
        let requests = &self.shared.ownership_requests;
        if self.operation == Operation::Remove || !self.adopts_unowned_objects() {
            requests.forget(&self.key);
        } else if seen.content != Content::Stale {
            let wanted: BTreeSet<&Identity> = seen.objects.iter().map(|object| &object.identity).collect();
            let lacks = |identity: &Identity| wanted.contains(identity) && !seen.inventory.contains(identity);
            requests.retain(&TargetScope::of(&self.context.target), &self.key, lacks);
        }
    }

    /// Settles objects that others transferred and that this component has applied since.
    pub(super) fn settle_sent(&mut self, seen: &plan::Observed) {
        if self.received.is_empty() || seen.content == Content::Stale {
            return;
        }
        let inventory = &self.state.recorded.inventory;
        let is_own = |identity: &Identity| {
            inventory.get(identity).is_some_and(|entry| self.received.get(identity) != Some(entry))
        };
        let wanted = seen.objects.iter().map(|object| &object.identity);
        let settled: Vec<Identity> = wanted.filter(|identity| is_own(identity)).cloned().collect();
        self.settle(&settled);
    }

    /// Settles transferred objects.
    pub(super) fn settle<'a>(&mut self, objects: impl IntoIterator<Item = &'a Identity>) {
        for identity in objects {
            if let Some(entry) = self.received.remove(identity) {
                self.shared.ownership_transfers.settle(&self.key, identity, &entry);
            }
        }
    }

    fn adopts_unowned_objects(&self) -> bool {
        self.context.resource.spec.adopt == Adopt::Unowned
    }

    /// Returns the state that the stream will show for an object that was just applied.
    fn observed_of(&self, entry: &Entry) -> ObservedObject {
        ObservedObject {
            uid: entry.uid.clone(),
            fingerprint: entry.fingerprint.clone(),
            unscaled: None,
            deleting: false,
            owner: Some(self.ownership.owner.clone()),
            marked: true,
        }
    }
}

/// Reports whether the kinds of an object's API group are unknown: then its absence proves nothing.
fn is_unknown(kinds: Option<&Kinds>, identity: &Identity) -> bool {
    kinds.is_none_or(|kinds| kinds.is_unknown(&identity.group))
}

/// Updates the entries of objects that were not applied since the target does not serve their version. If the kind is
/// gone, the object is gone too. If other versions of the kind are served, the object exists: its entry keeps the
/// uid, and it is applied once its version is served.
fn note_missing(inventory: &mut Inventory, missing: &[Identity], kinds: &Kinds) {
    for identity in missing {
        let Some(entry) = inventory.remove(identity) else { continue };
        if kinds.preferred(&identity.group_kind()).is_some() {
            let unsent = Entry { hash: String::new(), fingerprint: String::new(), ..entry };
            inventory.insert(identity.clone(), unsent);
        }
    }
}

fn namespace_of(refusal: &Refusal) -> Option<&str> {
    match refusal {
        Refusal::Call(error) => error.missing_namespace(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kyma_object_set::Object;
    use serde_json::json;

    use super::*;

    #[test]
    fn object_of_removed_api_version_stays_recorded_to_be_resent() {
        let version = json!({"name": "v1", "served": true, "storage": true});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "lamps.example.org"},
            "spec": {
                "group": "example.org", "names": {"kind": "Lamp", "plural": "lamps"}, "scope": "Namespaced",
                "versions": [version],
            },
        });
        let kinds = Arc::new(Kinds::default()).with_crds(&[Object::from_value(crd).unwrap()]);
        let lamp = Identity::new("example.org", "Lamp", Some("here"), "l");
        let route = Identity::new("example.org", "Route", Some("here"), "r");
        let entry = Entry {
            version: "v1beta1".to_owned(),
            uid: "u".to_owned(),
            hash: "sent".to_owned(),
            fingerprint: "seen".to_owned(),
            created: true,
            finished: false,
        };
        let all = [(lamp.clone(), entry.clone()), (route.clone(), entry.clone())];
        let mut inventory: Inventory = all.into_iter().collect();
        note_missing(&mut inventory, &[lamp.clone(), route.clone()], &kinds);
        assert!(!inventory.contains(&route), "it went with its kind");
        let held = inventory.get(&lamp).unwrap();
        assert_eq!((&held.uid, held.created), (&entry.uid, true));
        assert!(!inventory.was_sent(&lamp));
        note_missing(&mut inventory, &[route], &kinds);
        assert_eq!(inventory.len(), 1, "what is not on record does not come onto it");
    }
}

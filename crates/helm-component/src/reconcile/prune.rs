//! Prune step: deletes objects that are no longer desired.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::FutureExt;
use kyma_api::{PruneBaseline, Reason};
use kyma_controller::Failure;
use kyma_object_set::apply::ApplyReport;
use kyma_object_set::prune::{self, PruneBlocked, PrunePlan, PruneRequest};
use kyma_object_set::remove::{self, Removal};
use kyma_object_set::{Entry, Identity, Inventory, KeepReason, Object, ObjectSet, is_autoscaler};

use super::calls::failure;
use crate::actions::{hooks, rollback};
use crate::component_key::ComponentKey;
use crate::confirmed::{ALLOW_SHRINK, is_confirmed};
use crate::content::LoadedContent;
use crate::memory::LEFT_OBJECTS_PREFIX;
use crate::ownership_requests::TargetScope;
use crate::pass::Pass;
use crate::plan::{Content, Observed};

impl Pass<'_> {
    /// Deletes objects that are no longer desired.
    pub(super) async fn prune(&mut self, surplus: Vec<Identity>, seen: &Observed) {
        if let Err(paused) = self.context.may_delete().await {
            self.done.pruned = Some(Err(paused));
            return;
        }
        self.add_unrecorded_objects(&surplus);
        if let Err(failure) = self.label_surplus_release_objects(seen).await {
            self.done.pruned = Some(Err(failure));
            return;
        }
        let inventory = self.state.recorded.inventory.clone();
        let new_owners = self.new_owners();
        self.done.pruned = Some(match self.prune_plan(&inventory, &new_owners, seen) {
            Ok(plan) => {
                let pruned =
                    remove::prune(&self.cluster, &plan, &inventory, &self.ownership, &self.shared.protection)
                        .boxed()
                        .await;
                match pruned {
                    Ok(removal) => {
                        self.record_transfers(&new_owners, &inventory, &removal);
                        self.record_prune(&removal, seen).await
                    }
                    Err(error) => Err(failure(&error)),
                }
            }
            Err(blocked) => Err(unconfirmed(&blocked)),
        });
    }

    /// Returns, for each object that this component may drop, the component that requests it.
    pub(super) fn new_owners(&self) -> BTreeMap<Identity, ComponentKey> {
        self.shared.ownership_requests.by_others(&TargetScope::of(&self.context.target), &self.key)
    }

    /// Records transferred objects for their new owners, and requeues these: the content of a new owner may have
    /// changed since it requested the objects.
    fn record_transfers(
        &self,
        new_owners: &BTreeMap<Identity, ComponentKey>,
        inventory: &Inventory,
        removal: &Removal,
    ) {
        let mut transferred = HashMap::<&ComponentKey, BTreeMap<Identity, Entry>>::new();
        for identity in &removal.transferred {
            if let (Some(new_owner), Some(entry)) = (new_owners.get(identity), inventory.get(identity)) {
                transferred.entry(new_owner).or_default().insert(identity.clone(), entry.clone());
            }
        }
        for (new_owner, objects) in transferred {
            self.shared.ownership_transfers.record(
                &TargetScope::of(&self.context.target),
                new_owner,
                objects,
            );
        }
    }

    /// Records the number of objects before new content is applied. The apply may take several passes, for example
    /// while a kind is missing.
    pub(super) fn record_prune_baseline(&mut self, loaded: &LoadedContent) {
        let objects = self.own(&self.state.recorded.inventory).count();
        let api_version_gone = self.lost_api_version(loaded);
        let recorded = &mut self.state.recorded;
        let is_same_input = recorded.digests.inputs.as_ref() == Some(&loaded.inputs);
        let baseline =
            prune_baseline(recorded.prune_baseline.take(), &loaded.rendered, objects, is_same_input);
        recorded.prune_baseline = Some(PruneBaseline {
            api_version_gone: baseline.api_version_gone || api_version_gone,
            ..baseline
        });
    }

    /// Reports whether content differs from the applied content only because the target no longer serves an API
    /// version. Returns true if the process does not know the earlier API versions: an object that is retained by
    /// mistake can still be deleted later.
    fn lost_api_version(&self, loaded: &LoadedContent) -> bool {
        let digests = &self.state.recorded.digests;
        let is_same = digests.inputs.as_ref() == Some(&loaded.inputs) && digests.api_versions.is_some();
        if !is_same || digests.api_versions == loaded.kinds {
            return false;
        }
        let Some(before) = &self.state.rendered_with else { return true };
        let now: BTreeSet<String> = self.kinds.api_versions().into_iter().collect();
        before.api_versions().iter().any(|version| !now.contains(version))
    }

    /// Returns the entries of the component's own objects, without objects that other components transferred to it.
    fn own<'i>(&self, inventory: &'i Inventory) -> impl Iterator<Item = (&'i Identity, &'i Entry)> {
        inventory.iter().filter(|(identity, entry)| self.received.get(*identity) != Some(*entry))
    }

    /// Clears the prune baseline once all objects of the content exist and no object is left to prune.
    pub(super) fn clear_prune_baseline(&mut self, seen: &Observed) {
        let is_over = match seen.content {
            Content::Recorded => true,
            Content::Loaded => seen.is_complete() && seen.surplus().is_empty(),
            Content::Stale => false,
        };
        if is_over {
            self.state.recorded.prune_baseline = None;
        }
    }

    /// Removes deleted objects from the inventory as the last step. If the process ends earlier, the next process
    /// repeats the prune.
    async fn record_prune(&mut self, removal: &Removal, seen: &Observed) -> Result<(), Failure> {
        self.done.pruning = !removal.is_done();
        if removal.is_done() {
            self.state.recorded.prune_baseline = None;
        }
        self.watch_namespaces(&removal.waiting);
        let namespaces: BTreeSet<&str> = namespaces_of_autoscalers(&removal.gone);
        if !namespaces.is_empty() {
            self.reapply_replicas(&namespaces, seen).await?;
        }
        let inventory = self.state.recorded.inventory.clone();
        self.record_removal(&inventory, removal)
    }

    /// Applies workloads with `replicas` again: an autoscaler may have overwritten the applied number before it was
    /// deleted.
    async fn reapply_replicas(
        &mut self,
        namespaces: &BTreeSet<&str>,
        seen: &Observed,
    ) -> Result<(), Failure> {
        let Some(loaded) = self.state.loaded.clone() else { return Ok(()) };
        let objects = loaded.prepared.objects.iter().filter(|object| is_scalable_in(object, namespaces));
        let set = ObjectSet::new(objects.cloned().collect());
        let inventory_before = self.state.recorded.inventory.clone();
        // The watch may not have reported the scaling yet, so the objects are applied even if it reports no difference.
        let applied = self.send(&set, &inventory_before.unproven(), &self.observed(seen), &|_| true).await?;
        let mut inventory = inventory_before;
        for object in set.objects() {
            let identity = object.identity();
            if let Some(entry) = applied.inventory.get(&identity) {
                inventory.insert(identity, entry.clone());
            }
        }
        self.record_apply_report(&loaded, ApplyReport { inventory, ..applied }).await;
        self.done.faults.values().next().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    pub(super) fn prune_plan(
        &self,
        inventory: &Inventory,
        new_owners: &BTreeMap<Identity, ComponentKey>,
        seen: &Observed,
    ) -> Result<PrunePlan, PruneBlocked> {
        let loaded = self.state.loaded.as_ref();
        let wanted = loaded.into_iter().flat_map(|loaded| &loaded.prepared.objects).map(Object::identity);
        let staying = inventory.iter().map(|(identity, _)| identity).filter(|identity| seen.stays(identity));
        let desired: BTreeSet<Identity> = wanted.chain(staying.cloned()).collect();
        let hooks = hooks::identities(loaded);
        let baseline = self.state.recorded.prune_baseline.as_ref();
        let baseline = baseline
            .filter(|recorded| loaded.is_some_and(|loaded| loaded.rendered == recorded.objects_digest));
        let own: Inventory =
            self.own(inventory).map(|(identity, entry)| (identity.clone(), entry.clone())).collect();
        let loses_nothing = own.missing_from(&desired).is_empty();
        // The rollback target was Ready before, so its size is not compared with the failed revision.
        let is_rolled_back = rollback::active_target(self).is_some();
        prune::plan(&PruneRequest {
            inventory,
            desired: &desired,
            previous: previous(baseline, &own, &desired),
            complete: seen.is_complete(),
            allow_shrink: is_rolled_back
                || loses_nothing
                || is_confirmed(&self.context.resource, ALLOW_SHRINK),
            new_owner: &|identity| new_owners.get(identity).map(|new_owner| new_owner.owner.to_string()),
            api_version_gone: baseline.is_some_and(|recorded| recorded.api_version_gone),
            is_hook: &|identity| hooks.contains(identity),
            protection: &self.shared.protection,
        })
    }

    /// Adds to the inventory, with their uid, objects that have the component's owner label but are missing from the
    /// inventory. A pass that did not end applied them, or another component transferred them.
    pub(super) fn add_unrecorded_objects(&mut self, surplus: &[Identity]) {
        let snapshot = self.shared.target_cache.snapshot(
            &self.context.target,
            &self.key,
            &self.state.recorded.inventory,
        );
        for identity in surplus {
            if self.state.recorded.inventory.contains(identity) {
                continue;
            }
            if let Some(entry) = self.received.get(identity) {
                self.state.recorded.inventory.insert(identity.clone(), entry.clone());
                continue;
            }
            let Some(watched) = snapshot.objects.get(identity) else { continue };
            let version = self.kinds.preferred(&identity.group_kind());
            let entry = Entry {
                version: version.map(|mapping| mapping.resource.version.clone()).unwrap_or_default(),
                uid: watched.observed.uid.clone(),
                fingerprint: watched.observed.fingerprint.clone(),
                ..Entry::default()
            };
            self.state.recorded.inventory.insert(identity.clone(), entry);
        }
    }

    /// Records the result of a prune or removal in the inventory, and reports the released objects, since the inventory
    /// no longer has them.
    pub(super) fn record_removal(&mut self, before: &Inventory, removal: &Removal) -> Result<(), Failure> {
        self.state.recorded.inventory = removal.remaining(before);
        self.settle(removal.gone.iter().chain(removal.kept.keys()));
        self.done.kept.extend(removal.kept.keys().cloned());
        self.report_objects("no longer served, and removed from the inventory: ", &named(&removal.unserved));
        let released = released_objects(removal, &hooks::identities(self.state.loaded.as_ref()));
        self.report_objects(LEFT_OBJECTS_PREFIX, &released);
        self.state.recorded.left.retain(|reported| !released.contains(reported));
        self.state.recorded.left.extend(released);
        removal.failed.first().map_or(Ok(()), |error| Err(failure(error)))
    }

    /// Emits one warning event about objects that the operator no longer manages.
    fn report_objects(&self, what: &str, objects: &[String]) {
        if !objects.is_empty() {
            let note = format!("{what}{}", objects.join(", "));
            self.context.events.warning(&*self.context.resource, Reason::Orphaned, "Delete", &note);
        }
    }
}

/// Returns the failure of a blocked prune, with the annotation that confirms it.
pub(super) fn unconfirmed(blocked: &PruneBlocked) -> Failure {
    let message = format!("{blocked}; confirm with the annotation {ALLOW_SHRINK}=<metadata.generation>");
    Failure::new(blocked.reason(), message)
}

/// Returns the prune baseline for the content `rendered`: the recorded baseline if it is for this content, otherwise a
/// new one with `objects`. If source and values are unchanged, `api_version_gone` is taken over from the recorded
/// baseline, because its prune has not completed.
fn prune_baseline(
    recorded: Option<PruneBaseline>,
    rendered: &str,
    objects: usize,
    is_same_input: bool,
) -> PruneBaseline {
    let api_version_gone =
        is_same_input && recorded.as_ref().is_some_and(|recorded| recorded.api_version_gone);
    let recorded = recorded.filter(|recorded| recorded.objects_digest == rendered);
    let object_count = i32::try_from(objects).unwrap_or(i32::MAX);
    recorded.unwrap_or_else(|| PruneBaseline {
        objects_digest: rendered.to_owned(),
        object_count,
        api_version_gone,
    })
}

/// Returns the number of objects before the new set. It is at least the number of objects to delete, because after a
/// restore of the hub from a backup the recorded number may be outdated. If no number is recorded, returns the number
/// of all objects in the inventory, including those of the new set.
fn previous(baseline: Option<&PruneBaseline>, inventory: &Inventory, desired: &BTreeSet<Identity>) -> usize {
    let counted = baseline.and_then(|baseline| usize::try_from(baseline.object_count).ok());
    counted.map_or(inventory.len(), |objects| objects.max(inventory.missing_from(desired).len()))
}

/// Returns the namespaces of deleted autoscalers.
fn namespaces_of_autoscalers(gone: &[Identity]) -> BTreeSet<&str> {
    let gone = gone.iter().filter(|identity| is_autoscaler(identity));
    gone.filter_map(|identity| identity.namespace.as_deref()).collect()
}

/// Reports whether the object is in one of these namespaces and its spec has `replicas`.
fn is_scalable_in(object: &Object, namespaces: &BTreeSet<&str>) -> bool {
    object.namespace().is_some_and(|namespace| namespaces.contains(namespace))
        && object.body().get("spec").and_then(|spec| spec.get("replicas")).is_some()
}

fn named(objects: &[Identity]) -> Vec<String> {
    objects.iter().map(ToString::to_string).collect()
}

/// Returns the objects that were released, each with its reason, except those with another owner and those that
/// became hooks.
fn released_objects(removal: &Removal, hooks: &BTreeSet<Identity>) -> Vec<String> {
    let is_hook = |identity: &Identity, reason: KeepReason| {
        matches!(reason, KeepReason::NotTheSame | KeepReason::Hook) && hooks.contains(identity)
    };
    let given_up = removal
        .kept
        .iter()
        .filter(|(identity, reason)| **reason != KeepReason::OtherOwner && !is_hook(identity, **reason));
    given_up.map(|(identity, reason)| format!("{identity} ({reason})")).collect()
}

#[cfg(test)]
mod tests {
    use kyma_object_set::KeepReason;
    use serde_json::{Value, json};

    use super::*;
    use crate::memory::RecordedStatus;

    #[test]
    fn deleted_autoscaler_affects_scalable_objects_of_its_namespace() {
        let of = |kind: &str, group: &str, namespace: &str| Identity::new(group, kind, Some(namespace), "a");
        let gone = [
            of("HorizontalPodAutoscaler", "autoscaling", "one"),
            of("ConfigMap", "", "two"),
            of("HorizontalPodAutoscaler", "example.org", "three"),
        ];
        let namespaces = namespaces_of_autoscalers(&gone);
        assert_eq!(namespaces, ["one"].into());
        let deployment = |namespace: &str, spec: Value| {
            let metadata = json!({"name": "d", "namespace": namespace});
            let body =
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec});
            is_scalable_in(&Object::from_value(body).unwrap(), &namespaces)
        };
        assert!(deployment("one", json!({"replicas": 2})));
        assert!(!deployment("one", json!({})) && !deployment("two", json!({"replicas": 2})));
    }

    #[test]
    fn the_prune_baseline_is_counted_once_for_each_content() {
        let first = prune_baseline(None, "one", 10, false);
        assert_eq!(first.object_count, 10);
        let counted_again = prune_baseline(Some(first), "one", 16, false);
        assert_eq!(counted_again.object_count, 10, "six objects of the new content already exist");
        let other = prune_baseline(Some(counted_again), "two", 16, false);
        assert_eq!((&*other.objects_digest, other.object_count), ("two", 16));
    }

    #[test]
    fn absent_api_version_is_kept_until_pruned_or_values_change() {
        let gone =
            PruneBaseline { objects_digest: "one".to_owned(), object_count: 3, api_version_gone: true };
        let has_api_version_gone = |rendered: &str, is_same_input: bool| {
            prune_baseline(Some(gone.clone()), rendered, 3, is_same_input).api_version_gone
        };
        assert!(has_api_version_gone("one", true) && has_api_version_gone("one", false), "the same content");
        assert!(
            has_api_version_gone("two", true),
            "rendered again, since the target serves another API version"
        );
        assert!(!has_api_version_gone("two", false), "the user changed the values");
        assert!(!prune_baseline(None, "two", 3, true).api_version_gone);
    }

    #[test]
    fn new_process_excludes_later_objects_from_prune_baseline() {
        let all = |name: &str, count: usize| -> BTreeSet<Identity> {
            (0..count).map(|n| Identity::new("", "ConfigMap", Some("n"), &format!("{name}-{n}"))).collect()
        };
        let (old, new) = (all("old", 10), all("new", 9));
        let on_record = old.iter().chain(&new).map(|identity| (identity.clone(), Entry::default()));
        let inventory: Inventory = on_record.collect();
        let status = json!({"pruneBaseline": {"objectsDigest": "new", "objectCount": 10}});
        let component = json!({"metadata": {"name": "c"}, "spec": {"source": {}}, "status": status});
        let found = RecordedStatus::of(&serde_json::from_value(component).unwrap());
        let counted = |baseline: Option<&PruneBaseline>| previous(baseline, &inventory, &new);
        assert_eq!(counted(found.prune_baseline.as_ref()), 10);
        assert_eq!(counted(None), 19, "every object may have existed before");
        let earlier = PruneBaseline { object_count: 3, ..PruneBaseline::default() };
        assert_eq!(counted(Some(&earlier)), 10, "ten objects would be deleted");
    }

    #[test]
    fn a_kept_object_is_named_with_its_reason() {
        let claim = Identity::new("", "PersistentVolumeClaim", Some("here"), "c");
        let removal = Removal { kept: [(claim, KeepReason::HoldsData)].into(), ..Removal::default() };
        assert_eq!(
            released_objects(&removal, &BTreeSet::new()),
            ["PersistentVolumeClaim here/c (it holds data)"]
        );
    }
}

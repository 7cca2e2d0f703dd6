//! Removal step.

use std::collections::BTreeSet;

use futures::FutureExt;
use kyma_api::{CreatedResource, Reason, ResourcePolicy};
use kyma_controller::{Blocking, Failure, WatchSpec, find_blockers};
use kyma_helm::hooks::Event;
use kyma_object_set::order::DeletionStage;
use kyma_object_set::sweep::UnlistablePolicy;
use kyma_object_set::{Identity, Inventory, order, remove};

use super::calls::failure;
use crate::actions::{history, hooks};
use crate::inventory_status::InventoryEncoding;
use crate::memory::RecordedStatus;
use crate::ownership_requests::TargetScope;
use crate::pass::Pass;
use crate::plan::{Observed, Operation};
use crate::target_cache::Snapshot;

impl Pass<'_> {
    /// Searches the target for the component's objects, if the inventory does not name them.
    pub(super) async fn sweep(&mut self) -> Result<(), Failure> {
        let swept = self.find_ours().await;
        let (found, resource) = swept.map_err(|failure| self.state.recorded.encoding.explain(failure))?;
        for (identity, entry) in &found {
            if !self.state.recorded.inventory.contains(identity) {
                self.state.recorded.inventory.insert(identity.clone(), entry.clone());
            }
        }
        if self.state.recorded.resource.is_none() {
            self.state.recorded.resource = resource;
        }
        let encoding = std::mem::take(&mut self.state.recorded.encoding);
        if let InventoryEncoding::Unread(error) = &encoding {
            tracing::warn!(component = %self.key.name, %error, objects = found.len(),
                "the objects of the component were found by their owner labels");
        }
        self.state.swept |= self.operation == Operation::Remove;
        if !self.has_nothing() {
            // The result of an earlier removal step in this pass does not cover the objects that were found.
            self.done.removal = None;
        }
        self.done.watching = false;
        Ok(())
    }

    async fn find_ours(&mut self) -> Result<(Inventory, Option<CreatedResource>), Failure> {
        // An unreadable record may name objects of any kind; an empty one names none.
        let unlistable = match (self.state.removed, self.state.recorded.encoding.is_unread()) {
            (true, _) => UnlistablePolicy::LeaveOut,
            (false, true) => UnlistablePolicy::Fail,
            (false, false) => UnlistablePolicy::LeaveOutBroken,
        };
        let scope = TargetScope::of(&self.context.target);
        let context = self.context.reconcile_context();
        let found = self.shared.searches.owned(context, scope, &self.cluster, &self.ownership, unlistable);
        let found = found.boxed().await.map_err(|error| failure(&error))?;
        let kinds = self.cluster.discovery.kinds(&self.cluster.client).await;
        self.kinds = kinds.map_err(|error| failure(&error))?;
        self.rescope();
        if unlistable == UnlistablePolicy::LeaveOutBroken && !found.left_out.is_empty() {
            let kinds: Vec<String> = found.left_out.iter().map(ToString::to_string).collect();
            let note = format!("cannot be searched for objects of the component: {}", kinds.join(", "));
            self.context.events.warning(&*self.context.resource, Reason::Orphaned, "Delete", &note);
        }
        Ok((found.objects, self.find_default_resource().await?))
    }

    /// Repeats discovery: its earlier result may predate a CRD of the component.
    pub(super) async fn rediscover_kinds(&mut self) -> Result<(), Failure> {
        let newer = self.cluster.discovery.newer_than(&self.kinds, &self.cluster.client).await;
        self.kinds = newer.map_err(|error| failure(&error))?;
        self.rescope();
        Ok(())
    }

    /// Reports whether a CRD of the component defines a kind that discovery lacks, so that its objects would be left
    /// out.
    fn misses_a_kind(&self) -> bool {
        let crds = self.state.recorded.inventory.iter().filter(|(identity, _)| identity.is_crd());
        let mut unknown = crds.filter(|(crd, _)| {
            !self.kinds.all().any(|mapping| {
                crd.name.split_once('.') == Some((&mapping.resource.plural, &mapping.resource.group))
            })
        });
        unknown.next().is_some()
    }

    /// Executes one step of the removal: the default custom resource first, then everything else in order.
    pub(super) async fn remove(&mut self, seen: &Observed) {
        let owned: Vec<Identity> = seen.owned.iter().cloned().collect();
        self.add_unrecorded_objects(&owned);
        let mut left = self.removal_step().await;
        if let Some(webhook) = self.done.dead_webhook.take() {
            match self.remove_dead_webhook(&webhook).await {
                Ok(true) => left = self.removal_step().await,
                Ok(false) => {}
                Err(failure) => left = Err(failure),
            }
        }
        let is_over = left.as_ref().is_ok_and(Vec::is_empty);
        let forgotten = if is_over { history::forget(self).await } else { Ok(()) };
        self.done.removal = Some(forgotten.and(left));
    }

    /// Deletes the component's own configurations of a webhook that does not answer, since hooks and the default custom
    /// resource precede their step. Returns whether any is gone.
    async fn remove_dead_webhook(&mut self, webhook: &str) -> Result<bool, Failure> {
        let inventory = self.state.recorded.inventory.clone();
        let (cluster, ownership) = (&self.cluster, &self.ownership);
        let removed =
            remove::remove_webhook(cluster, &inventory, ownership, &self.shared.protection, webhook);
        let removal = removed.boxed().await.map_err(|error| failure(&error))?;
        self.record_removal(&inventory, &removal)?;
        Ok(!removal.gone.is_empty())
    }

    async fn removal_step(&mut self) -> Result<Vec<String>, Failure> {
        if self.misses_a_kind() {
            self.rediscover_kinds().await?;
        }
        if self.has_nothing() {
            // The release may consist of hooks alone.
            for event in [Event::PreDelete, Event::PostDelete] {
                if let Some(waiting) = hooks::run_for_removal(self, event).await?.waiting() {
                    return Ok(vec![waiting]);
                }
            }
            return Ok(vec![]);
        }
        self.refuse_while_blocked().await?;
        if let Some(waiting) = hooks::run_for_removal(self, Event::PreDelete).await?.waiting() {
            return Ok(vec![waiting]);
        }
        if let Some(waiting) = self.remove_default_resource().await? {
            return Ok(vec![waiting]);
        }
        // Otherwise its kind would be watched, which disappears with its CRD. The record of one that stays shows that
        // it is no object of the content.
        if !self.leaves_existing_default().await {
            self.state.recorded.resource = None;
        }
        let inventory = self.state.recorded.inventory.clone();
        if let Some(left) = objects_left_while_workloads_terminate(&inventory, &self.snapshot()) {
            return Ok(left.iter().map(ToString::to_string).collect());
        }
        let removal = remove::uninstall(&self.cluster, &inventory, &self.ownership, &self.shared.protection)
            .boxed()
            .await
            .map_err(|error| failure(&error))?;
        self.state.removed |= !inventory.is_empty();
        self.record_removal(&inventory, &removal)?;
        self.watch_namespaces(&removal.waiting);
        let left: Vec<String> =
            removal.waiting.iter().chain(&removal.later).map(ToString::to_string).collect();
        if !left.is_empty() {
            return Ok(left);
        }
        Ok(hooks::run_for_removal(self, Event::PostDelete).await?.waiting().into_iter().collect())
    }

    /// Reports whether nothing on the target belongs to the component, for example since another system installed the
    /// module: then no objects are lost.
    fn has_nothing(&self) -> bool {
        let recorded = &self.state.recorded;
        recorded.inventory.is_empty() && recorded.resource.is_none()
    }

    /// Namespaces carry no owner label, so no other watch shows that they are gone.
    pub(super) fn watch_namespaces(&self, waiting: &[Identity]) {
        let mut kinds = waiting.iter().map(Identity::group_kind);
        let namespace = kinds.find(|kind| kind.group.is_empty() && kind.kind == "Namespace");
        if let Some(mapping) = namespace.and_then(|kind| self.kinds.preferred(&kind)) {
            self.context.watch(WatchSpec::in_kind(&mapping.resource));
        }
    }

    /// Fails while users' objects exist of kinds that the module's CRDs define or that the spec names. Kinds that
    /// cannot be listed count as used.
    async fn refuse_while_blocked(&self) -> Result<(), Failure> {
        let recorded = &self.state.recorded;
        let crds = self.crds_that_go().await?;
        let defined = self.kinds.all().filter(|mapping| {
            crds.contains(&format!("{}.{}", mapping.resource.plural, mapping.resource.group))
        });
        let kinds = defined.map(|mapping| kyma_api::GroupKind {
            group: mapping.resource.group.clone(),
            version: None,
            kind: mapping.resource.kind.clone(),
        });
        let named = self.context.resource.spec.managed_resources.iter().flatten().cloned();
        let own = own_uids(recorded, self.context.resource.spec.resource_policy);
        let blocking = Blocking { kinds: kinds.chain(named).collect(), own };
        let blockers = find_blockers(&self.cluster.client, &blocking).await?;
        // Watched even if nothing blocks yet, so that objects that are created before the deletion of the CRDs are
        // noticed.
        blockers.resources.iter().for_each(|resource| self.context.watch(WatchSpec::in_kind(resource)));
        match blockers.count {
            0 => Ok(()),
            _ => Err(Failure::new(Reason::DeletionBlocked, blockers.describe())),
        }
    }

    /// Returns the CRDs of the inventory, except those that another component still owns: their objects are not
    /// deleted.
    async fn crds_that_go(&self) -> Result<BTreeSet<String>, Failure> {
        let mut going = BTreeSet::new();
        let mut shared = Vec::new();
        for (crd, _) in self.state.recorded.inventory.iter().filter(|(identity, _)| identity.is_crd()) {
            let others = remove::other_owners(&self.cluster, crd, &self.ownership).await;
            let others = others.map_err(|error| failure(&error))?;
            if others.is_empty() {
                going.insert(crd.name.clone());
            } else {
                shared.push((crd.name.clone(), others));
            }
        }
        if shared.is_empty() {
            return Ok(going);
        }
        // Of two components that are removed at the same time, neither keeps the CRD.
        let staying = self.components(|component| component.metadata.deletion_timestamp.is_none()).await?;
        let going_too =
            shared.into_iter().filter(|(_, others)| !others.iter().any(|other| staying.contains_key(other)));
        going.extend(going_too.map(|(crd, _)| crd));
        Ok(going)
    }
}

/// Returns all objects of the inventory, in deletion order, if the next step is workloads and healthy watches show each
/// of them, with its recorded uid, being deleted. `uninstall` would request no deletion then. Other steps are left to
/// `uninstall`, since webhooks or users' objects may block them.
fn objects_left_while_workloads_terminate(
    inventory: &Inventory,
    snapshot: &Snapshot,
) -> Option<Vec<Identity>> {
    let mut left: Vec<Identity> = inventory.iter().map(|(identity, _)| identity.clone()).collect();
    order::sort_for_deletion(&mut left);
    let first = left.iter().take_while(|identity| order::deletion_stage(identity) <= DeletionStage::Workload);
    let first: Vec<&Identity> = first.collect();
    let is_awaited = |identity: &Identity| {
        let recorded = inventory.get(identity).map(|entry| &entry.uid);
        let live = snapshot.objects.get(identity).map(|live| &live.observed);
        order::deletion_stage(identity) == DeletionStage::Workload
            && live.is_some_and(|live| live.deleting && Some(&live.uid) == recorded)
    };
    let all_awaited = !first.is_empty() && first.into_iter().all(is_awaited);
    (snapshot.complete && all_awaited).then_some(left)
}

/// Returns the uids of the component's objects: the inventory and the default custom resource, unless that is left to
/// the user. Then it blocks the removal like all objects of users.
fn own_uids(recorded: &RecordedStatus, policy: ResourcePolicy) -> Vec<String> {
    let default = recorded.resource.iter().filter(|_| policy == ResourcePolicy::CreateAndDelete);
    let default = default.filter_map(|resource| resource.uid.clone());
    recorded.inventory.iter().map(|(_, entry)| entry.uid.clone()).chain(default).collect()
}

#[cfg(test)]
mod tests {
    use kyma_object_set::{Entry, ObservedObject};

    use super::*;
    use crate::target_cache::WatchedObject;

    /// Kind, and whether the watches show the object being deleted; `None` if they do not show it.
    type Row = (&'static str, &'static str, Option<bool>);

    fn watched(uid: &str, deleting: bool) -> WatchedObject {
        let observed = ObservedObject { uid: uid.to_owned(), deleting, ..ObservedObject::default() };
        WatchedObject { observed, health: None, failed_since: None, version: None }
    }

    fn waits_for(rows: &[Row], complete: bool) -> Option<usize> {
        let (mut inventory, mut snapshot) =
            (Inventory::default(), Snapshot { complete, ..Snapshot::default() });
        for (group, kind, deleting) in rows {
            let identity = Identity::new(group, kind, Some("n"), "a");
            if let Some(deleting) = *deleting {
                snapshot.objects.insert(identity.clone(), watched(kind, deleting));
            }
            inventory.insert(identity, Entry { uid: (*kind).to_owned(), ..Entry::default() });
        }
        objects_left_while_workloads_terminate(&inventory, &snapshot).map(|left| left.len())
    }

    #[test]
    fn nothing_is_requested_while_all_workloads_are_being_deleted() {
        const GOING: Row = ("apps", "Deployment", Some(true));
        const MAP: Row = ("", "ConfigMap", Some(false));
        assert_eq!(waits_for(&[GOING, MAP], true), Some(2));
        assert_eq!(waits_for(&[GOING, ("", "Service", Some(true)), MAP], true), Some(3));
        let rows: [&[Row]; 6] = [
            &[GOING, ("", "Service", Some(false))],
            &[GOING, ("", "Service", None)],
            &[GOING, ("x.io", "Lamp", Some(true))],
            &[("apps", "Deployment", None), MAP],
            &[("", "ConfigMap", Some(true))],
            &[],
        ];
        for row in rows {
            assert_eq!(waits_for(row, true), None, "{row:?}");
        }
        assert_eq!(waits_for(&[GOING, MAP], false), None, "a stream is broken");
    }

    #[test]
    fn object_with_another_uid_is_not_the_one_being_deleted() {
        let deployment = Identity::new("apps", "Deployment", Some("n"), "a");
        let inventory =
            Inventory::from_iter([(deployment.clone(), Entry { uid: "old".to_owned(), ..Entry::default() })]);
        let objects = [(deployment, watched("new", true))].into();
        let snapshot = Snapshot { objects, complete: true, ..Snapshot::default() };
        assert_eq!(objects_left_while_workloads_terminate(&inventory, &snapshot), None);
    }

    #[test]
    fn default_resource_under_ignore_policy_blocks_the_removal() {
        let resource = CreatedResource {
            api_version: "example.org/v1".to_owned(),
            kind: "Lamp".to_owned(),
            namespace: None,
            name: "default".to_owned(),
            uid: Some("default".to_owned()),
            absent: None,
        };
        let map = Identity::new("", "ConfigMap", Some("n"), "a");
        let entry = Entry { uid: "map".to_owned(), ..Entry::default() };
        let inventory = Inventory::from_iter([(map, entry)]);
        let recorded = RecordedStatus { inventory, resource: Some(resource), ..RecordedStatus::default() };
        assert_eq!(own_uids(&recorded, ResourcePolicy::CreateAndDelete), ["map", "default"]);
        assert_eq!(own_uids(&recorded, ResourcePolicy::Ignore), ["map"]);
    }
}

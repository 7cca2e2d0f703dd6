//! Objects that components transferred to others. The new owner is requeued: it may no longer need the objects, and no
//! other event reports them.

use std::collections::{BTreeMap, HashMap};

use kyma_object_set::{Entry, Identity};
use parking_lot::Mutex;

use crate::component_key::ComponentKey;
use crate::ownership_requests::TargetScope;

/// Maximum number of recorded objects of all components together.
const MAX_TRANSFERRED_OBJECTS: usize = 10_000;

/// Transferred objects, until the new owner has applied, deleted or released them. The content of the new owner may
/// have changed between the read of its [requests](crate::ownership_requests::OwnershipRequests) and the change of the
/// owner label; in that case the new owner does not watch the object's kind, and would never delete the object without
/// this record. The record is in memory only, like the requests: if the process ends before the new owner has settled
/// an object, the removal of the new owner finds it by its owner label.
pub(crate) struct OwnershipTransfers {
    received: Mutex<HashMap<ComponentKey, ReceivedObjects>>,
    requeue: Box<dyn Fn(&ComponentKey) -> bool + Send + Sync>,
}

/// Objects that one component received, all on one target.
#[derive(Debug, Default)]
struct ReceivedObjects {
    scope: TargetScope,
    objects: BTreeMap<Identity, Entry>,
}

impl OwnershipTransfers {
    /// Creates an empty record. `requeue` requeues a component and reports whether the component exists. It must not
    /// block.
    pub(crate) fn new(requeue: impl Fn(&ComponentKey) -> bool + Send + Sync + 'static) -> Self {
        Self { received: Mutex::default(), requeue: Box::new(requeue) }
    }

    /// Records objects that now have the owner label of `new_owner`, and requeues `new_owner`. `objects` has the entry
    /// of each object in the inventory of the previous owner.
    pub(crate) fn record(
        &self,
        scope: &TargetScope,
        new_owner: &ComponentKey,
        objects: BTreeMap<Identity, Entry>,
    ) {
        if objects.is_empty() {
            return;
        }
        let mut all = self.received.lock();
        // A component that moved to another target has left its objects on the former target.
        all.retain(|one, received| one != new_owner || received.scope.has_same_target(scope));
        let mut free_records =
            MAX_TRANSFERRED_OBJECTS.saturating_sub(all.values().map(|received| received.objects.len()).sum());
        let received = all.entry(new_owner.clone()).or_default();
        received.scope = scope.clone();
        let mut unrecorded = 0;
        for (identity, entry) in objects {
            if free_records == 0 && !received.objects.contains_key(&identity) {
                unrecorded += 1;
                continue;
            }
            // The new owner has neither applied nor created the object.
            let found = Entry { hash: String::new(), created: false, ..entry };
            if received.objects.insert(identity, found).is_none() {
                free_records = free_records.saturating_sub(1);
            }
        }
        all.retain(|_, received| !received.objects.is_empty());
        drop(all);
        if unrecorded > 0 {
            tracing::warn!(objects = unrecorded, component = %new_owner.name, "too many transferred objects; some are not recorded");
        }
        if !(self.requeue)(new_owner) {
            tracing::warn!(component = %new_owner.name, "the new owner of transferred objects no longer exists");
            self.forget(new_owner);
        }
    }

    /// Returns the objects that a component received on its current target and has not applied, deleted or released
    /// yet.
    pub(crate) fn received_by(
        &self,
        scope: &TargetScope,
        component_key: &ComponentKey,
    ) -> BTreeMap<Identity, Entry> {
        let all = self.received.lock();
        let received = all.get(component_key).filter(|received| received.scope.has_same_target(scope));
        received.map(|received| received.objects.clone()).unwrap_or_default()
    }

    /// Removes an object that the new owner has applied, deleted or released. Retains it if the new owner has received
    /// another object of the same name since it read `seen`.
    pub(crate) fn settle(&self, component_key: &ComponentKey, identity: &Identity, seen: &Entry) {
        let mut all = self.received.lock();
        let Some(received) = all.get_mut(component_key) else { return };
        if received.objects.get(identity) == Some(seen) {
            received.objects.remove(identity);
        }
        if received.objects.is_empty() {
            all.remove(component_key);
        }
    }

    /// Removes the objects of a component that no longer exists.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.received.lock().remove(component_key);
    }
}

#[cfg(test)]
impl OwnershipTransfers {
    /// Reports whether every received object is settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.received.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kyma_targets::SecretKey;

    use super::*;

    fn target(name: &str) -> TargetScope {
        TargetScope::at(SecretKey {
            namespace: "hub".to_owned(),
            name: name.to_owned(),
            key: "config".to_owned(),
        })
    }

    fn map(name: &str) -> Identity {
        Identity::new("", "ConfigMap", Some("here"), name)
    }

    fn objects(name: &str) -> BTreeMap<Identity, Entry> {
        let entry =
            Entry { uid: format!("uid-{name}"), hash: "sent".to_owned(), created: true, ..Entry::default() };
        [(map(name), entry)].into()
    }

    fn names(received: &BTreeMap<Identity, Entry>) -> Vec<&str> {
        received.keys().map(|identity| &*identity.name).collect()
    }

    /// Returns a record that requeues no component.
    fn without_requeue() -> OwnershipTransfers {
        OwnershipTransfers::new(|_| true)
    }

    #[test]
    fn a_new_owner_is_requeued_and_has_its_objects_until_settled() {
        let requeued = Arc::<Mutex<Vec<ComponentKey>>>::default();
        let recorded_requeues = Arc::clone(&requeued);
        let ownership_transfers = OwnershipTransfers::new(move |new_owner| {
            recorded_requeues.lock().push(new_owner.clone());
            true
        });
        let (here, new_owner) = (target("here"), ComponentKey::of("hub", "b"));
        ownership_transfers.record(&here, &new_owner, BTreeMap::new());
        assert!(requeued.lock().is_empty());
        for name in ["x", "y"] {
            ownership_transfers.record(&here, &new_owner, objects(name));
        }
        assert_eq!(*requeued.lock(), vec![new_owner.clone(); 2]);
        let seen = ownership_transfers.received_by(&here, &new_owner);
        assert_eq!(names(&seen), ["x", "y"]);
        assert!(ownership_transfers.received_by(&here, &ComponentKey::of("hub", "a")).is_empty());

        ownership_transfers.settle(&new_owner, &map("x"), &seen[&map("x")]);
        assert_eq!(names(&ownership_transfers.received_by(&here, &new_owner)), ["y"]);
        ownership_transfers.settle(&new_owner, &map("y"), &seen[&map("y")]);
        assert!(ownership_transfers.received.lock().is_empty());
    }

    #[test]
    fn received_objects_count_as_neither_applied_nor_created() {
        let (ownership_transfers, here, new_owner) =
            (without_requeue(), target("here"), ComponentKey::of("hub", "b"));
        ownership_transfers.record(&here, &new_owner, objects("x"));
        let received = ownership_transfers.received_by(&here, &new_owner).remove(&map("x")).unwrap();
        assert_eq!((&*received.uid, &*received.hash, received.created), ("uid-x", "", false));
    }

    #[test]
    fn an_object_received_after_the_read_is_not_settled() {
        let (ownership_transfers, here, new_owner) =
            (without_requeue(), target("here"), ComponentKey::of("hub", "b"));
        ownership_transfers.record(&here, &new_owner, objects("x"));
        let seen = ownership_transfers.received_by(&here, &new_owner);
        let recreated = Entry { uid: "recreated".to_owned(), ..Entry::default() };
        ownership_transfers.record(&here, &new_owner, [(map("x"), recreated)].into());
        ownership_transfers.settle(&new_owner, &map("x"), &seen[&map("x")]);
        assert_eq!(ownership_transfers.received_by(&here, &new_owner)[&map("x")].uid, "recreated");
    }

    #[test]
    fn nothing_is_recorded_for_a_missing_component() {
        let ownership_transfers = OwnershipTransfers::new(|_| false);
        ownership_transfers.record(&target("here"), &ComponentKey::of("hub", "b"), objects("x"));
        assert!(ownership_transfers.received.lock().is_empty());
    }

    #[test]
    fn objects_on_an_earlier_target_are_dropped() {
        let ownership_transfers = without_requeue();
        let (here, there, new_owner) = (target("here"), target("there"), ComponentKey::of("hub", "b"));
        ownership_transfers.record(&here, &new_owner, objects("x"));
        assert!(ownership_transfers.received_by(&there, &new_owner).is_empty());
        ownership_transfers.record(&there, &new_owner, objects("y"));
        assert!(ownership_transfers.received_by(&here, &new_owner).is_empty());
        assert_eq!(names(&ownership_transfers.received_by(&there, &new_owner)), ["y"]);
        ownership_transfers.forget(&new_owner);
        assert!(ownership_transfers.received.lock().is_empty());
    }

    #[test]
    fn records_are_bounded() {
        let ownership_transfers = without_requeue();
        let (here, new_owner) = (target("here"), ComponentKey::of("hub", "b"));
        for number in 0..MAX_TRANSFERRED_OBJECTS + 5 {
            ownership_transfers.record(&here, &new_owner, objects(&format!("x-{number:05}")));
        }
        assert_eq!(ownership_transfers.received_by(&here, &new_owner).len(), MAX_TRANSFERRED_OBJECTS);
        ownership_transfers.record(&here, &new_owner, objects("x-00000"));
        assert_eq!(
            ownership_transfers.received_by(&here, &new_owner).len(),
            MAX_TRANSFERRED_OBJECTS,
            "an object that is recorded already is replaced"
        );
    }
}

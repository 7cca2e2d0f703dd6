//! Components that wait until another component releases an object. Deleting a component that leaves its objects in
//! place changes nothing on the target, so no watch of the target shows that the objects are free.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::component_key::ComponentKey;

/// Waiting components, with the owner hashes for which they wait. Bounded by the number of components.
#[derive(Debug, Default)]
pub(crate) struct OwnerWaits {
    waiting: Mutex<HashMap<ComponentKey, BTreeSet<String>>>,
}

impl OwnerWaits {
    /// Replaces the owners for which a component waits.
    pub(crate) fn set(&self, component_key: &ComponentKey, owners: BTreeSet<String>) {
        if owners.is_empty() {
            self.waiting.lock().remove(component_key);
        } else {
            self.waiting.lock().insert(component_key.clone(), owners);
        }
    }

    /// Returns the components that wait for an owner that was deleted from the hub.
    pub(crate) fn of(&self, gone: &ComponentKey) -> Vec<ComponentKey> {
        let waiting = self.waiting.lock();
        let of_owner = waiting.iter().filter(|(_, owners)| owners.contains(&*gone.owner));
        of_owner.map(|(component_key, _)| component_key.clone()).collect()
    }

    /// Removes a deleted component.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.waiting.lock().remove(component_key);
    }
}

#[cfg(test)]
impl OwnerWaits {
    /// Reports whether no component waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_wait_for_the_owner_of_their_objects_alone() {
        let waits = OwnerWaits::default();
        let of = |name: &str| ComponentKey::of("hub", name);
        let owner = |name: &str| BTreeSet::from([of(name).owner.to_string()]);
        waits.set(&of("a"), owner("holder"));
        waits.set(&of("b"), owner("other"));
        assert_eq!(waits.of(&of("holder")), [of("a")]);
        waits.set(&of("a"), BTreeSet::new());
        assert!(waits.of(&of("holder")).is_empty());
        waits.forget(&of("b"));
        assert!(waits.of(&of("other")).is_empty());
    }
}

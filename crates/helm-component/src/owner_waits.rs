//! Components that wait until another component releases an object. Deleting a component that leaves its objects in
//! place changes nothing on the target, so no watch of the target shows that the objects are free.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::target_cache::Dependent;

/// Waiting components, with the owner hashes for which they wait. Bounded by the number of components.
#[derive(Debug, Default)]
pub(crate) struct OwnerWaits {
    waiting: Mutex<HashMap<Dependent, BTreeSet<String>>>,
}

impl OwnerWaits {
    /// Replaces the owners for which a component waits.
    pub(crate) fn set(&self, dependent: &Dependent, owners: BTreeSet<String>) {
        if owners.is_empty() {
            self.waiting().remove(dependent);
        } else {
            self.waiting().insert(dependent.clone(), owners);
        }
    }

    /// Returns the components that wait for an owner that was deleted from the hub.
    pub(crate) fn of(&self, gone: &Dependent) -> Vec<Dependent> {
        let waiting = self.waiting();
        let of_owner = waiting.iter().filter(|(_, owners)| owners.contains(&*gone.owner));
        of_owner.map(|(dependent, _)| dependent.clone()).collect()
    }

    /// Removes a deleted component.
    pub(crate) fn forget(&self, dependent: &Dependent) {
        self.waiting().remove(dependent);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Dependent, BTreeSet<String>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_wait_for_the_owner_of_their_objects_alone() {
        let waits = OwnerWaits::default();
        let of = |name: &str| Dependent::of("hub", name);
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

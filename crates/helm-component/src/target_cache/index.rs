//! Index of the objects of one kind on one target, by identity and by owner. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kyma_health::Health;
use kyma_object_set::Identity;

use super::WatchedObject;

/// Last watched state of each object. A lookup by owner visits no other objects: a target may have a thousand
/// components, and each step of a reconcile makes a lookup.
#[derive(Default)]
pub(super) struct Index {
    seen: BTreeMap<Arc<Identity>, WatchedObject>,
    /// Objects by value of the owner label; owners without objects have no entry.
    owned: HashMap<String, BTreeSet<Arc<Identity>>>,
}

impl Index {
    /// Returns the last state of an object.
    pub(super) fn get(&self, identity: &Identity) -> Option<&WatchedObject> {
        self.seen.get(identity)
    }

    /// Reports whether the index has an object.
    pub(super) fn contains(&self, identity: &Identity) -> bool {
        self.seen.contains_key(identity)
    }

    /// Returns the objects of an owner.
    pub(super) fn of(&self, owner: &str) -> impl Iterator<Item = (&Identity, &WatchedObject)> {
        let own = self.owned.get(owner).into_iter().flatten();
        own.filter_map(|identity| Some((&**identity, self.seen.get(identity)?)))
    }

    /// Stores the state of an object; returns the previous one.
    pub(super) fn insert(&mut self, identity: Identity, seen: WatchedObject) -> Option<WatchedObject> {
        let before = self.remove(&identity);
        let identity = Arc::new(identity);
        if let Some(owner) = &seen.observed.owner {
            self.owned.entry(owner.clone()).or_default().insert(Arc::clone(&identity));
        }
        self.seen.insert(identity, seen);
        before
    }

    /// Removes an object; returns its last state.
    pub(super) fn remove(&mut self, identity: &Identity) -> Option<WatchedObject> {
        let before = self.seen.remove(identity)?;
        if let Some(owner) = &before.observed.owner
            && let Some(own) = self.owned.get_mut(owner)
        {
            own.remove(identity);
            if own.is_empty() {
                self.owned.remove(owner);
            }
        }
        Some(before)
    }

    /// Sets the health of an object; `None` marks it as unknown.
    pub(super) fn judge(
        &mut self,
        identity: &Identity,
        health: Option<Health>,
        failed_since: Option<Timestamp>,
    ) {
        if let Some(seen) = self.seen.get_mut(identity) {
            (seen.health, seen.failed_since) = (health, failed_since);
        }
    }
}

impl FromIterator<(Identity, WatchedObject)> for Index {
    fn from_iter<T: IntoIterator<Item = (Identity, WatchedObject)>>(all: T) -> Self {
        let mut index = Self::default();
        for (identity, seen) in all {
            index.insert(identity, seen);
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use kyma_object_set::ObservedObject;

    use super::*;

    fn at(name: &str) -> Identity {
        Identity::new("", "ConfigMap", Some("n"), name)
    }

    fn of(owner: Option<&str>) -> WatchedObject {
        let observed = ObservedObject { owner: owner.map(str::to_owned), ..ObservedObject::default() };
        WatchedObject { observed, health: None, failed_since: None, version: None }
    }

    /// Returns the objects of an owner, which must be those that a full scan finds.
    fn owned_names(index: &Index, owner: &str) -> Vec<String> {
        let found: Vec<String> = index.of(owner).map(|(identity, _)| identity.name.clone()).collect();
        let all = index.seen.iter().filter(|(_, seen)| seen.observed.owner.as_deref() == Some(owner));
        assert_eq!(found, all.map(|(identity, _)| identity.name.clone()).collect::<Vec<_>>());
        found
    }

    #[test]
    fn an_owner_has_the_objects_with_its_label() {
        let mut index: Index = ["a", "b"].map(|name| (at(name), of(Some("one")))).into_iter().collect();
        index.insert(at("c"), of(None));
        assert_eq!(
            (owned_names(&index, "one"), owned_names(&index, "two")),
            (vec!["a".to_owned(), "b".to_owned()], vec![])
        );
        assert_eq!(index.insert(at("b"), of(Some("two"))), Some(of(Some("one"))));
        assert_eq!(
            (owned_names(&index, "one"), owned_names(&index, "two")),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        index.insert(at("b"), of(None));
        index.insert(at("c"), of(Some("one")));
        assert_eq!(owned_names(&index, "one"), ["a", "c"]);
        assert!(owned_names(&index, "two").is_empty());
        assert!(index.contains(&at("b")) && index.get(&at("d")).is_none());
    }

    #[test]
    fn owners_without_objects_have_no_entry() {
        let mut index = Index::default();
        for round in 0..100 {
            index.insert(at("a"), of(Some(&round.to_string())));
        }
        assert_eq!(index.owned.len(), 1);
        assert_eq!(index.remove(&at("a")), Some(of(Some("99"))));
        assert_eq!((index.remove(&at("a")), index.owned.len(), index.seen.len()), (None, 0, 0));
    }
}

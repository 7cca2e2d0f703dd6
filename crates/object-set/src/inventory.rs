//! Inventory of applied objects: the source of truth for pruning and drift.

use std::collections::{BTreeMap, BTreeSet};

use crate::object::{Gvk, Identity};

/// Inventory entry of one applied object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// API version (without group) in which it was applied last.
    pub version: String,
    /// `metadata.uid` that the object had after the last apply.
    pub uid: String,
    /// Hash of the sent object, 16 hex digits (see [`crate::Object::intent_hash`]).
    pub hash: String,
    /// Hash of the fields that the operator's field manager owned after the last apply, 16 hex digits (see
    /// [`crate::drift`]); empty if drift of the object is not this owner's to correct.
    pub fingerprint: String,
    /// Whether an apply created it, as opposed to adopting it: a condition for deleting Namespaces, CRDs, volumes,
    /// claims and guarded objects.
    pub created: bool,
    /// Whether it finished and is deleted by itself (`kyma_health::is_finished`), so that its absence is no
    /// drift.
    pub finished: bool,
}

impl Entry {
    /// Returns the entry without fingerprint, for an object whose drift is ignored.
    pub(crate) fn unwatched(self) -> Self {
        Self { fingerprint: String::new(), ..self }
    }

    /// Reports whether the object was sent. One that another system handed over, or that is being replaced, is
    /// recorded by its uid alone.
    pub fn was_sent(&self) -> bool {
        !(self.hash.is_empty() && self.fingerprint.is_empty())
    }
}

/// Applied objects, by identity (group and kind without version: an object stays the same if its API version
/// changes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    entries: BTreeMap<Identity, Entry>,
}

impl Inventory {
    /// Returns an empty inventory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the entry of an object.
    pub fn get(&self, identity: &Identity) -> Option<&Entry> {
        self.entries.get(identity)
    }

    /// Inserts an entry and replaces the previous one.
    pub fn insert(&mut self, identity: Identity, entry: Entry) {
        self.entries.insert(identity, entry);
    }

    /// Returns the same objects without hashes, so that the next apply sends all of them.
    pub fn unproven(&self) -> Self {
        let entries = self.entries.clone().into_iter();
        entries.map(|(identity, entry)| (identity, Entry { hash: String::new(), ..entry })).collect()
    }

    /// Removes an entry and returns it.
    pub fn remove(&mut self, identity: &Identity) -> Option<Entry> {
        self.entries.remove(identity)
    }

    /// Reports whether the object has an entry.
    pub fn contains(&self, identity: &Identity) -> bool {
        self.entries.contains_key(identity)
    }

    /// Reports whether the object has an entry and was sent.
    pub fn was_sent(&self, identity: &Identity) -> bool {
        self.get(identity).is_some_and(Entry::was_sent)
    }

    /// Returns the objects that have no hash of desired content, since they were adopted with their own; includes
    /// those that the set lacks.
    pub fn left_as_is(&self) -> impl Iterator<Item = &Identity> {
        let all = self.entries.iter();
        all.filter(|(_, entry)| entry.hash.is_empty()).map(|(identity, _)| identity)
    }

    /// Returns all entries in the order of their identities.
    pub fn iter(&self) -> impl Iterator<Item = (&Identity, &Entry)> {
        self.entries.iter()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reports whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the kinds of the objects, each in the version of its last apply.
    pub fn kinds(&self) -> BTreeSet<Gvk> {
        self.entries.iter().map(|(id, entry)| Gvk::new(&id.group, &entry.version, &id.kind)).collect()
    }

    /// Returns the identities that the other set lacks.
    pub fn missing_from(&self, other: &BTreeSet<Identity>) -> Vec<Identity> {
        self.entries.keys().filter(|identity| !other.contains(identity)).cloned().collect()
    }
}

impl FromIterator<(Identity, Entry)> for Inventory {
    fn from_iter<T: IntoIterator<Item = (Identity, Entry)>>(iter: T) -> Self {
        Self { entries: iter.into_iter().collect() }
    }
}

impl<'a> IntoIterator for &'a Inventory {
    type Item = (&'a Identity, &'a Entry);
    type IntoIter = std::collections::btree_map::Iter<'a, Identity, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_with_only_a_uid_was_not_sent() {
        let identity = Identity::new("", "ConfigMap", Some("n"), "a");
        let was_sent = |entry: Entry| {
            let all: Inventory = [(identity.clone(), entry)].into_iter().collect();
            all.was_sent(&identity)
        };
        let known = Entry { uid: "u".to_owned(), ..Entry::default() };
        let sent = Entry { hash: "h".to_owned(), fingerprint: "f".to_owned(), ..known.clone() };
        assert!(!was_sent(known.clone()));
        assert!(was_sent(Entry { hash: "h".to_owned(), ..known }), "another owner's, which we share");
        let all: Inventory = [(identity.clone(), sent)].into_iter().collect();
        assert!(all.unproven().was_sent(&identity));
        assert!(!Inventory::new().was_sent(&identity));
    }
}

//! Deletions of catalogue objects that the hub's watch reported.

use std::collections::BTreeMap;

use super::object_origin::ObjectOrigin;
use crate::copy::{Key, Kind};

/// Maximum number of deletions that are remembered: of objects, of versions and unclassified ones each.
pub(super) const MAX_REMEMBERED_DELETIONS: usize = 10_000;

/// Module and version of a template.
pub(super) type ModuleVersion = (String, String);

/// The requested deletions and the unclassified ones. The oldest are forgotten first.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletions {
    objects: BoundedMap<Key, ()>,
    /// Versions whose template was deleted on request; a template may have any name.
    versions: BoundedMap<ModuleVersion, ()>,
    unclassified: BoundedMap<Key, UnclassifiedDeletion>,
}

/// A deletion of which it is unknown whether it was requested.
#[derive(Clone, Debug)]
pub(super) struct UnclassifiedDeletion {
    origin: ObjectOrigin,
    /// The version of a deleted template.
    pub(super) version: Option<ModuleVersion>,
}

impl Deletions {
    /// Records a requested deletion.
    pub(super) fn record(&mut self, key: &Key, version: Option<ModuleVersion>) {
        if let Some(evicted) = self.objects.insert(key.clone(), ()) {
            tracing::warn!(object = %evicted, "too many deletions; the oldest is forgotten and its copies stay");
        }
        let evicted = version.and_then(|version| self.versions.insert(version, ()));
        if let Some((module, version)) = evicted {
            tracing::warn!(
                module,
                version,
                "too many deletions; the oldest is forgotten and copies of its release may stay"
            );
        }
    }

    /// Records a deletion that is to be classified later.
    pub(super) fn defer(&mut self, key: &Key, origin: ObjectOrigin, version: Option<ModuleVersion>) {
        let deletion = UnclassifiedDeletion { origin, version };
        if let Some(evicted) = self.unclassified.insert(key.clone(), deletion) {
            tracing::warn!(object = %evicted, "too many unclassified deletions; the oldest is forgotten and its copies stay");
        }
    }

    /// Forgets the deletions of an object and of a version that exist again.
    pub(super) fn forget(&mut self, key: &Key, version: Option<&ModuleVersion>) {
        self.objects.remove(key);
        self.unclassified.remove(key);
        if let Some(version) = version {
            self.versions.remove(version);
        }
    }

    /// Returns whether the deletion of the object was requested.
    pub(super) fn is_requested(&self, key: &Key) -> bool {
        self.objects.contains(key)
    }

    /// Returns whether the deletion of the last template of the version was requested.
    pub(super) fn is_version_requested(&self, module: &str, version: &str) -> bool {
        self.versions.contains(&(module.to_owned(), version.to_owned()))
    }

    /// Returns the unclassified deletions of this kind.
    pub(super) fn unclassified(&self, kind: Kind) -> Vec<(Key, ObjectOrigin)> {
        let all = self.unclassified.entries.iter().filter(|(key, _)| key.kind == kind);
        all.map(|(key, (_, deletion))| (key.clone(), deletion.origin.clone())).collect()
    }

    /// Removes and returns an unclassified deletion.
    pub(super) fn take_unclassified(&mut self, key: &Key) -> Option<UnclassifiedDeletion> {
        self.unclassified.remove(key)
    }
}

/// A map of at most `MAX_REMEMBERED_DELETIONS` entries that evicts the oldest.
#[derive(Clone, Debug)]
struct BoundedMap<K, V> {
    /// Values with their position in `order`.
    entries: BTreeMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    next: u64,
}

impl<K, V> Default for BoundedMap<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }
}

impl<K: Clone + Ord, V> BoundedMap<K, V> {
    /// Inserts an entry as the newest. Returns the key that was evicted for it.
    fn insert(&mut self, key: K, value: V) -> Option<K> {
        self.remove(&key);
        let oldest =
            if self.entries.len() < MAX_REMEMBERED_DELETIONS { None } else { self.order.pop_first() };
        let evicted = oldest.map(|(_, key)| key);
        if let Some(evicted) = &evicted {
            self.entries.remove(evicted);
        }
        self.order.insert(self.next, key.clone());
        self.entries.insert(key, (self.next, value));
        self.next += 1;
        evicted
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let (position, value) = self.entries.remove(key)?;
        self.order.remove(&position);
        Some(value)
    }

    fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }
}

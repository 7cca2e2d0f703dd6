//! Compares the copies on a target with the desired ones. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::copy::{Copy, Key, Kind};

#[cfg(test)]
mod tests;

/// An object of the catalogue's kinds on a target, reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExistingObject {
    pub(crate) uid: String,
    /// Hash of the fields that the field manager owns; empty if it owns none.
    pub(crate) fingerprint: String,
    pub(crate) ownership: Ownership,
    /// Hash of the copy that it is known to equal.
    pub(crate) content: Option<String>,
}

/// Owner of an object on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Created by this field manager for this Kyma.
    Ours,
    /// A copy with a deletionTimestamp.
    Deleting,
    /// Created by an earlier catalogue sync: by KLM, or for an earlier Kyma of this target. Adopted if it is desired,
    /// never deleted.
    Adoptable,
    /// Created by a user.
    Foreign,
}

/// Writes to a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Copies to apply, with the uid of the existing object.
    pub(crate) apply: Vec<(Key, Arc<Copy>, Option<String>)>,
    /// Copies to delete.
    pub(crate) remove: Vec<Removal>,
    /// Desired copies whose name another owner's object has. That object stays.
    pub(crate) taken: Vec<Key>,
    /// Copies that stay although the catalogue no longer has them, because too much of it is missing.
    pub(crate) frozen: usize,
}

/// A copy to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) key: Key,
    pub(crate) uid: String,
    /// Whether the index does not have it, so that a live read has to confirm that the hub has none.
    pub(crate) unconfirmed: bool,
}

impl Plan {
    /// Drops all deletions.
    pub(crate) fn freeze(&mut self) {
        self.frozen += self.remove.len();
        self.remove.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.apply.is_empty() && self.remove.is_empty()
    }
}

/// State of the hub's whole catalogue, beyond what one Kyma sees.
pub(crate) trait Source {
    /// Returns whether the catalogue is too incomplete to delete copies of this kind.
    fn is_too_incomplete_to_delete(&self, kind: Kind) -> bool;
    /// Reports whether the hub has the object.
    fn has(&self, key: &Key) -> bool;
    /// Reports whether the deletion of the object was requested.
    fn is_deleted(&self, key: &Key) -> bool;
    /// Reports whether the object is hidden only because the hub lacks others that it refers to.
    fn is_hidden_by_loss(&self, key: &Key) -> bool;
}

impl Source for crate::catalogue::Catalogue {
    fn is_too_incomplete_to_delete(&self, kind: Kind) -> bool {
        Self::is_too_incomplete_to_delete(self, kind)
    }

    fn has(&self, key: &Key) -> bool {
        Self::has(self, key)
    }

    fn is_deleted(&self, key: &Key) -> bool {
        Self::is_deleted(self, key)
    }

    fn is_hidden_by_loss(&self, key: &Key) -> bool {
        self.has_lost_templates(key)
    }
}

/// Compares desired and live objects.
pub(crate) fn plan(
    desired: &BTreeMap<Key, Arc<Copy>>,
    existing: &BTreeMap<Key, ExistingObject>,
    source: &impl Source,
) -> Plan {
    let mut plan = Plan::default();
    for (key, copy) in desired {
        match existing.get(key) {
            None => plan.apply.push((key.clone(), Arc::clone(copy), None)),
            Some(existing) => match existing.ownership {
                Ownership::Ours if existing.content.as_ref() == Some(&copy.hash) => {}
                Ownership::Ours | Ownership::Adoptable => {
                    plan.apply.push((key.clone(), Arc::clone(copy), Some(existing.uid.clone())));
                }
                // Its deletion causes an event.
                Ownership::Deleting => {}
                Ownership::Foreign => plan.taken.push(key.clone()),
            },
        }
    }
    let surplus = existing
        .iter()
        .filter(|(key, existing)| existing.ownership == Ownership::Ours && !desired.contains_key(key));
    for (key, existing) in surplus {
        let unconfirmed = !source.has(key);
        let is_lost = unconfirmed && !source.is_deleted(key);
        if is_lost || source.is_too_incomplete_to_delete(key.kind) {
            plan.frozen += 1;
            continue;
        }
        // A channel may name a version before its template is published. Copies of missing templates count as frozen.
        if source.is_hidden_by_loss(key) {
            continue;
        }
        plan.remove.push(Removal { key: key.clone(), uid: existing.uid.clone(), unconfirmed });
    }
    plan
}

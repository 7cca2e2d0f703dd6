//! From what a target holds and what it should hold to what is written. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::copy::{Copy, Key, Kind};

#[cfg(test)]
mod tests;

/// An object of the catalogue's kinds on a target, as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) uid: String,
    /// Hash of what our field manager owns of it; empty where that is nothing.
    pub(crate) fingerprint: String,
    pub(crate) whose: Whose,
    /// Hash of the copy that it is known to be in step with.
    pub(crate) content: Option<String>,
}

/// Whose an object on a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Our field manager made it for this Kyma.
    Ours,
    /// Ours, but going.
    Going,
    /// A catalogue sync before us made it, KLM's or ours for an earlier Kyma of this target: taken over where it
    /// is wanted, never deleted.
    Former,
    /// A user's.
    Foreign,
}

/// What is to be done on a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// To apply; with the uid of the object that is there.
    pub(crate) apply: Vec<(Key, Arc<Copy>, Option<String>)>,
    /// To delete.
    pub(crate) remove: Vec<Removal>,
    /// Wanted, but the name is taken by somebody else's object, which stays.
    pub(crate) taken: Vec<Key>,
    /// Copies that stay although the catalogue no longer has them, because too much of it is missing.
    pub(crate) frozen: usize,
}

/// A copy to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) key: Key,
    pub(crate) uid: String,
    /// The hub's index does not know it: a live look at the hub has to confirm that it is gone.
    pub(crate) unconfirmed: bool,
}

impl Plan {
    /// Leaves everything that is there.
    pub(crate) fn freeze(&mut self) {
        self.frozen += self.remove.len();
        self.remove.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.apply.is_empty() && self.remove.is_empty()
    }
}

/// What the hub's catalogue says beyond what one Kyma may see.
pub(crate) trait Source {
    /// Returns whether the catalogue is too incomplete to delete copies of this kind.
    fn is_too_incomplete_to_delete(&self, kind: Kind) -> bool;
    /// Whether the hub has the object.
    fn has(&self, key: &Key) -> bool;
    /// Whether the deletion of the object was requested.
    fn is_deleted(&self, key: &Key) -> bool;
    /// Whether the object is not shown only because the hub lost others that it refers to.
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

/// Compares what is wanted with what is there.
pub(crate) fn plan(
    wanted: &BTreeMap<Key, Arc<Copy>>,
    held: &BTreeMap<Key, Held>,
    source: &impl Source,
) -> Plan {
    let mut plan = Plan::default();
    for (key, copy) in wanted {
        match held.get(key) {
            None => plan.apply.push((key.clone(), Arc::clone(copy), None)),
            Some(held) => match held.whose {
                Whose::Ours if held.content.as_ref() == Some(&copy.hash) => {}
                Whose::Ours | Whose::Former => {
                    plan.apply.push((key.clone(), Arc::clone(copy), Some(held.uid.clone())));
                }
                // Its end is an event.
                Whose::Going => {}
                Whose::Foreign => plan.taken.push(key.clone()),
            },
        }
    }
    let surplus = held.iter().filter(|(key, held)| held.whose == Whose::Ours && !wanted.contains_key(key));
    for (key, held) in surplus {
        let unconfirmed = !source.has(key);
        let is_lost = unconfirmed && !source.is_deleted(key);
        if is_lost || source.is_too_incomplete_to_delete(key.kind) {
            plan.frozen += 1;
            continue;
        }
        // A channel may name a version before its template is published. Templates that the hub lost count themselves.
        if source.is_hidden_by_loss(key) {
            continue;
        }
        plan.remove.push(Removal { key: key.clone(), uid: held.uid.clone(), unconfirmed });
    }
    plan
}

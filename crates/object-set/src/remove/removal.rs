//! Result of a removal.

use std::collections::BTreeMap;

use crate::error::CallError;
use crate::inventory::Inventory;
use crate::object::Identity;
use crate::prune::KeepReason;

/// Results of a removal, by object.
#[derive(Clone, Debug, Default)]
pub struct Removal {
    /// Objects that no longer exist.
    pub gone: Vec<Identity>,
    /// Objects of `gone` whose kind the target no longer serves.
    pub unserved: Vec<Identity>,
    /// Objects that are being deleted and wait for finalizers or dependents. Their DELETE event shows the end.
    pub waiting: Vec<Identity>,
    /// Released objects that stay, with the reason.
    pub kept: BTreeMap<Identity, KeepReason>,
    /// Objects of `kept` that have the owner label of their new owner now
    /// ([`PrunePlan::new_owners`](crate::prune::PrunePlan::new_owners)).
    pub transferred: Vec<Identity>,
    /// Objects of later steps, which start when the earlier ones are gone.
    pub later: Vec<Identity>,
    /// Failed calls.
    pub failed: Vec<CallError>,
}

impl Removal {
    /// Reports whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.later.is_empty() && self.failed.is_empty()
    }

    /// Returns the inventory without deleted and released objects.
    pub fn remaining(&self, inventory: &Inventory) -> Inventory {
        let mut remaining = inventory.clone();
        for identity in self.gone.iter().chain(self.kept.keys()) {
            remaining.remove(identity);
        }
        remaining
    }

    pub(super) fn add(&mut self, identity: Identity, result: ObjectRemoval) {
        match result {
            ObjectRemoval::Gone => self.gone.push(identity),
            ObjectRemoval::Unserved => {
                self.unserved.push(identity.clone());
                self.gone.push(identity);
            }
            ObjectRemoval::Waiting => self.waiting.push(identity),
            ObjectRemoval::Kept(reason) => {
                self.kept.insert(identity, reason);
            }
            ObjectRemoval::Transferred => {
                self.transferred.push(identity.clone());
                self.kept.insert(identity, KeepReason::OtherOwner);
            }
            ObjectRemoval::Failed(error) => self.failed.push(error),
        }
    }
}

/// Result of a removal for one object.
pub(super) enum ObjectRemoval {
    Gone,
    Unserved,
    Waiting,
    Kept(KeepReason),
    Transferred,
    Failed(CallError),
}

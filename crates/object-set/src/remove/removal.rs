//! The result of a removal, as its caller sees it.

use std::collections::BTreeMap;

use crate::error::CallError;
use crate::inventory::Inventory;
use crate::object::Identity;
use crate::prune::KeepReason;

/// What became of objects that were to go.
#[derive(Clone, Debug, Default)]
pub struct Removal {
    /// No longer there.
    pub gone: Vec<Identity>,
    /// Those of them whose kind the target no longer serves: with it they went.
    pub unserved: Vec<Identity>,
    /// Deletion was ordered and something (finalizers, dependents) holds it up. An event tells its end.
    pub waiting: Vec<Identity>,
    /// They stay, and why; we gave them up.
    pub kept: BTreeMap<Identity, KeepReason>,
    /// Those of them that bear the mark of their heir ([`PrunePlan::heirs`](crate::prune::PrunePlan::heirs)) now.
    pub handed: Vec<Identity>,
    /// Their turn has not come: others that must go first are still there.
    pub later: Vec<Identity>,
    /// What the target refused.
    pub failed: Vec<CallError>,
}

impl Removal {
    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.later.is_empty() && self.failed.is_empty()
    }

    /// What is still ours: the inventory without what is gone or was given up.
    pub fn remaining(&self, inventory: &Inventory) -> Inventory {
        let mut remaining = inventory.clone();
        for identity in self.gone.iter().chain(self.kept.keys()) {
            remaining.remove(identity);
        }
        remaining
    }

    pub(super) fn take(&mut self, identity: Identity, fate: Fate) {
        match fate {
            Fate::Gone => self.gone.push(identity),
            Fate::Unserved => {
                self.unserved.push(identity.clone());
                self.gone.push(identity);
            }
            Fate::Waiting => self.waiting.push(identity),
            Fate::Kept(reason) => {
                self.kept.insert(identity, reason);
            }
            Fate::Handed => {
                self.handed.push(identity.clone());
                self.kept.insert(identity, KeepReason::OtherOwner);
            }
            Fate::Failed(error) => self.failed.push(error),
        }
    }
}

/// The result for one object.
pub(super) enum Fate {
    Gone,
    Unserved,
    Waiting,
    Kept(KeepReason),
    Handed,
    Failed(CallError),
}

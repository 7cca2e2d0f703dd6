//! The state of each Kyma between reconciles, and the indexes by which events find Kymas.

use std::collections::{HashMap, HashSet};

use kyma_sdk::{Index, KymaKey};

use crate::kinds::GroupKind;

/// State of one Kyma between reconciles. It can be rebuilt from the API.
#[derive(Debug, Default)]
pub(crate) struct KymaState {
    /// Whether an event reported that another operator handles the Kyma.
    is_klm_reported: bool,
}

impl KymaState {
    /// Records that another operator handles the Kyma. Returns true if that is new.
    pub(crate) fn record_klm(&mut self) -> bool {
        !std::mem::replace(&mut self.is_klm_reported, true)
    }
}

/// The states of all Kymas, with the indexes by which events find Kymas. Every entry belongs to one Kyma, and
/// [`Kymas::remove`] removes all entries of a Kyma.
#[derive(Debug, Default)]
pub(crate) struct Kymas {
    states: HashMap<KymaKey, KymaState>,
    /// Kymas by the access Secrets that they depend on.
    pub(super) by_secret: Index<String, KymaKey>,
    /// Kymas by the component kinds that they wait for.
    pub(super) by_kind: Index<GroupKind, KymaKey>,
    /// Kymas that wait for another one to release their target.
    pub(super) blocked: HashSet<KymaKey>,
    /// Kymas that depend on the maintenance policy.
    pub(super) awaiting_windows: HashSet<KymaKey>,
}

impl Kymas {
    /// Returns the state of a Kyma for its reconcile. Adds an empty one if there is none.
    pub(crate) fn get_or_add(&mut self, kyma: &KymaKey) -> &mut KymaState {
        self.states.entry(kyma.clone()).or_default()
    }

    /// Removes a deleted Kyma.
    pub(super) fn remove(&mut self, kyma: &KymaKey) {
        self.states.remove(kyma);
        self.by_secret.remove(kyma);
        self.by_kind.remove(kyma);
        self.blocked.remove(kyma);
        self.awaiting_windows.remove(kyma);
    }
}

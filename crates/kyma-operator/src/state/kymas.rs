//! The state of each Kyma between reconciles, and the indexes by which events find Kymas.

use std::collections::{HashMap, HashSet};

use kyma_controller::{Index, KymaKey};

use crate::hub::kinds::GroupKind;
use crate::target::admission::target_policies::TargetPolicies;
use crate::target::pull_secret::target_copy::TargetCopy;
use crate::target::target_kyma::RemoteRecord;

/// State of one Kyma between reconciles. It can be rebuilt from the API.
#[derive(Debug, Default)]
pub(crate) struct KymaState {
    /// The target, until the session ends.
    pub(crate) target: TargetState,
    /// The policies on the target. Some records outlive the session.
    pub(crate) policies: TargetPolicies,
    /// Whether an event reported that another operator handles the Kyma.
    is_klm_reported: bool,
}

/// State that the session with a target reported.
#[derive(Debug, Default)]
pub(crate) struct TargetState {
    /// The target's Kyma.
    pub(crate) kyma: RemoteRecord,
    /// The copy of the image-pull Secret.
    pub(crate) pull_secret: TargetCopy,
}

impl KymaState {
    /// Records that another operator handles the Kyma. Returns true if that is new.
    pub(crate) fn record_klm(&mut self) -> bool {
        !std::mem::replace(&mut self.is_klm_reported, true)
    }

    /// Discards the state that a session reported.
    fn end_session(&mut self) {
        self.target = TargetState::default();
        self.policies.end_session();
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
    /// Returns the state of a Kyma; `None` if no reconcile recorded any.
    pub(crate) fn get(&self, kyma: &KymaKey) -> Option<&KymaState> {
        self.states.get(kyma)
    }

    /// Returns the state of a Kyma for an event, which must not add one: the Kyma may be deleted.
    pub(crate) fn get_mut(&mut self, kyma: &KymaKey) -> Option<&mut KymaState> {
        self.states.get_mut(kyma)
    }

    /// Returns the state of a Kyma for its reconcile. Adds an empty one if there is none.
    pub(crate) fn get_or_add(&mut self, kyma: &KymaKey) -> &mut KymaState {
        self.states.entry(kyma.clone()).or_default()
    }

    /// Discards the state that the session of a Kyma reported.
    pub(super) fn end_session(&mut self, kyma: &KymaKey) {
        if let Some(state) = self.states.get_mut(kyma) {
            state.end_session();
        }
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

#[cfg(test)]
impl Kymas {
    /// Reports whether no Kyma has an entry.
    pub(super) fn is_empty(&self) -> bool {
        let indexes = self.by_secret.dependencies() + self.by_kind.dependencies();
        self.states.is_empty() && indexes == 0 && self.blocked.is_empty() && self.awaiting_windows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::target::target_kyma::TargetKyma;

    fn target_kyma(version: u64) -> TargetKyma {
        let object = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "default", "uid": "u", "resourceVersion": version.to_string() },
        });
        TargetKyma::of(&from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn a_write_after_the_end_of_a_session_waits_for_the_next_list() {
        let (kyma, mut kymas) = (KymaKey::new("kcp-system", "sample"), Kymas::default());
        assert!(kymas.get_or_add(&kyma).target.kyma.record_list(Some(target_kyma(1)), 1_u64.into()));
        kymas.end_session(&kyma);
        let record = &mut kymas.get_or_add(&kyma).target.kyma;
        record.record_write(target_kyma(2));
        assert_eq!(record.get(), None);
    }
}

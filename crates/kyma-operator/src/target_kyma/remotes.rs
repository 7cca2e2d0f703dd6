//! Tracks the targets' Kymas by watch events and results of writes.

use std::collections::HashMap;

use kyma_sdk::KymaKey;

use super::TargetKyma;

/// State of a target's Kyma.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Remote {
    /// The Kyma does not exist.
    Absent,
    /// The Kyma exists.
    Present(Box<TargetKyma>),
}

/// The targets' Kymas, by Kyma on the hub.
#[derive(Debug, Default)]
pub(crate) struct Remotes(HashMap<KymaKey, RemoteRecord>);

/// State of one target's Kyma, and how far the watch is.
#[derive(Debug)]
struct RemoteRecord {
    remote: Remote,
    /// resourceVersion up to which the watch has delivered all events.
    delivered: u64,
}

impl Remotes {
    /// Returns the state; `None` before the first list.
    pub(crate) fn get(&self, kyma: &KymaKey) -> Option<Remote> {
        self.0.get(kyma).map(|record| record.remote.clone())
    }

    /// Records the result of a list with this resourceVersion. A list is authoritative, even if a restored or
    /// malicious target has lower resourceVersions. Returns false if nothing changed.
    pub(crate) fn record_list(
        &mut self,
        kyma: &KymaKey,
        observed: Option<TargetKyma>,
        delivered: u64,
    ) -> bool {
        let remote = observed.map_or(Remote::Absent, |observed| Remote::Present(Box::new(observed)));
        let before = self.0.insert(kyma.clone(), RemoteRecord { remote: remote.clone(), delivered });
        before.is_none_or(|before| before.remote != remote)
    }

    /// Records a watch event. Returns false if nothing changed.
    pub(crate) fn record_event(&mut self, kyma: &KymaKey, observed: TargetKyma) -> bool {
        let Some(record) = self.0.get_mut(kyma) else { return false };
        record.delivered = record.delivered.max(observed.resource_version);
        record.replace_if_newer(observed)
    }

    /// Records a DELETE event with the last state. Returns false if nothing changed.
    pub(crate) fn record_deletion(&mut self, kyma: &KymaKey, last: &TargetKyma) -> bool {
        let Some(record) = self.0.get_mut(kyma) else { return false };
        record.delivered = record.delivered.max(last.resource_version);
        match &record.remote {
            Remote::Present(present) if present.uid == last.uid => {
                record.remote = Remote::Absent;
                true
            }
            _ => false,
        }
    }

    /// Records the result of a write. Later watch events take precedence: the Kyma may have been deleted before the
    /// response, without another event.
    pub(crate) fn record_write(&mut self, kyma: &KymaKey, observed: TargetKyma) {
        if let Some(record) = self.0.get_mut(kyma)
            && record.delivered < observed.resource_version
        {
            record.replace_if_newer(observed);
        }
    }

    /// Removes the state until the next list.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.0.remove(kyma);
    }
}

impl RemoteRecord {
    fn replace_if_newer(&mut self, observed: TargetKyma) -> bool {
        if let Remote::Present(present) = &self.remote
            && present.uid == observed.uid
            && present.resource_version >= observed.resource_version
        {
            return false;
        }
        self.remote = Remote::Present(Box::new(observed));
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn target_kyma(uid: &str, version: u64) -> TargetKyma {
        let object = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "default", "uid": uid, "resourceVersion": version.to_string() },
        });
        TargetKyma::of(&from_value(object).unwrap()).unwrap()
    }

    fn listed(observed: Option<TargetKyma>, delivered: u64) -> (Remotes, KymaKey) {
        let (mut remotes, kyma) = (Remotes::default(), KymaKey::new("kcp-system", "sample"));
        assert!(remotes.record_list(&kyma, observed, delivered));
        (remotes, kyma)
    }

    #[test]
    fn the_watch_event_of_an_own_write_changes_nothing() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 1)), 1);
        remotes.record_write(&kyma, target_kyma("a", 2));
        assert!(!remotes.record_event(&kyma, target_kyma("a", 2)));
        assert!(remotes.record_event(&kyma, target_kyma("a", 3)));
    }

    #[test]
    fn a_response_after_the_deletion_restores_nothing() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 1)), 1);
        assert!(remotes.record_deletion(&kyma, &target_kyma("a", 3)));
        remotes.record_write(&kyma, target_kyma("a", 2));
        assert_eq!(remotes.get(&kyma), Some(Remote::Absent), "a write to the deleted Kyma");
        remotes.record_write(&kyma, target_kyma("b", 4));
        assert!(!remotes.record_event(&kyma, target_kyma("b", 4)), "the Kyma was created again");
    }

    #[test]
    fn a_kyma_deleted_before_the_response_stays_absent() {
        let (mut remotes, kyma) = listed(None, 1);
        assert!(remotes.record_event(&kyma, target_kyma("a", 2)));
        assert!(remotes.record_deletion(&kyma, &target_kyma("a", 3)));
        remotes.record_write(&kyma, target_kyma("a", 2));
        assert_eq!(remotes.get(&kyma), Some(Remote::Absent));
        assert!(!remotes.record_list(&kyma, None, 5));
        remotes.record_write(&kyma, target_kyma("b", 4));
        assert_eq!(remotes.get(&kyma), Some(Remote::Absent), "a list is later than a response");
    }

    #[test]
    fn a_write_after_the_end_of_a_session_waits_for_the_next_list() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 1)), 1);
        remotes.forget(&kyma);
        remotes.record_write(&kyma, target_kyma("a", 2));
        assert_eq!(remotes.get(&kyma), None);
    }

    #[test]
    fn a_list_may_have_lower_versions_and_an_event_may_not() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 5)), 5);
        assert!(!remotes.record_list(&kyma, Some(target_kyma("a", 5)), 6));
        assert!(!remotes.record_event(&kyma, target_kyma("a", 4)));
        assert!(remotes.record_list(&kyma, Some(target_kyma("a", 4)), 4));
        remotes.record_write(&kyma, target_kyma("a", 5));
        assert!(!remotes.record_event(&kyma, target_kyma("a", 5)), "versions count from the list on");
        assert!(!remotes.record_deletion(&kyma, &target_kyma("b", 9)), "deletion of another Kyma");
    }
}

//! Tracks a target's Kyma by watch events and results of writes.

use kyma_sdk::ResourceVersion;

use super::TargetKyma;

/// State of a target's Kyma.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Remote {
    /// The Kyma does not exist.
    Absent,
    /// The Kyma exists.
    Present(Box<TargetKyma>),
}

/// State of a target's Kyma, and how far the watch is.
#[derive(Debug, Default)]
pub(crate) struct RemoteRecord {
    /// The state; `None` before the first list.
    remote: Option<Remote>,
    /// resourceVersion up to which the watch has delivered all events.
    delivered: ResourceVersion,
}

impl RemoteRecord {
    /// Returns the state; `None` before the first list.
    pub(crate) fn get(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Records the result of a list with this resourceVersion. A list is authoritative, even if a restored or
    /// malicious target has lower resourceVersions. Returns false if nothing changed.
    pub(crate) fn record_list(&mut self, observed: Option<TargetKyma>, delivered: ResourceVersion) -> bool {
        let remote = observed.map_or(Remote::Absent, |observed| Remote::Present(Box::new(observed)));
        let is_changed = self.remote.as_ref() != Some(&remote);
        *self = Self { remote: Some(remote), delivered };
        is_changed
    }

    /// Records a watch event. Returns false if nothing changed.
    pub(crate) fn record_event(&mut self, observed: TargetKyma) -> bool {
        if self.remote.is_none() {
            return false;
        }
        self.delivered = self.delivered.max(observed.resource_version);
        self.replace_if_newer(observed)
    }

    /// Records a DELETE event with the last state. Returns false if nothing changed.
    pub(crate) fn record_deletion(&mut self, last: &TargetKyma) -> bool {
        let Some(remote) = &mut self.remote else { return false };
        self.delivered = self.delivered.max(last.resource_version);
        match remote {
            Remote::Present(present) if present.uid == last.uid => {
                *remote = Remote::Absent;
                true
            }
            _ => false,
        }
    }

    /// Records the result of a write. Later watch events take precedence: the Kyma may have been deleted before the
    /// response, without another event.
    pub(crate) fn record_write(&mut self, observed: TargetKyma) {
        if self.remote.is_some() && self.delivered < observed.resource_version {
            self.replace_if_newer(observed);
        }
    }

    fn replace_if_newer(&mut self, observed: TargetKyma) -> bool {
        if let Some(Remote::Present(present)) = &self.remote
            && present.uid == observed.uid
            && present.resource_version >= observed.resource_version
        {
            return false;
        }
        self.remote = Some(Remote::Present(Box::new(observed)));
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

    fn listed(observed: Option<TargetKyma>, delivered: u64) -> RemoteRecord {
        let mut record = RemoteRecord::default();
        assert!(record.record_list(observed, delivered.into()));
        record
    }

    #[test]
    fn the_watch_event_of_an_own_write_changes_nothing() {
        let mut record = listed(Some(target_kyma("a", 1)), 1);
        record.record_write(target_kyma("a", 2));
        assert!(!record.record_event(target_kyma("a", 2)));
        assert!(record.record_event(target_kyma("a", 3)));
    }

    #[test]
    fn a_response_after_the_deletion_restores_nothing() {
        let mut record = listed(Some(target_kyma("a", 1)), 1);
        assert!(record.record_deletion(&target_kyma("a", 3)));
        record.record_write(target_kyma("a", 2));
        assert_eq!(record.get(), Some(&Remote::Absent), "a write to the deleted Kyma");
        record.record_write(target_kyma("b", 4));
        assert!(!record.record_event(target_kyma("b", 4)), "the Kyma was created again");
    }

    #[test]
    fn a_kyma_deleted_before_the_response_stays_absent() {
        let mut record = listed(None, 1);
        assert!(record.record_event(target_kyma("a", 2)));
        assert!(record.record_deletion(&target_kyma("a", 3)));
        record.record_write(target_kyma("a", 2));
        assert_eq!(record.get(), Some(&Remote::Absent));
        assert!(!record.record_list(None, 5_u64.into()));
        record.record_write(target_kyma("b", 4));
        assert_eq!(record.get(), Some(&Remote::Absent), "a list is later than a response");
    }

    #[test]
    fn a_list_may_have_lower_versions_and_an_event_may_not() {
        let mut record = listed(Some(target_kyma("a", 5)), 5);
        assert!(!record.record_list(Some(target_kyma("a", 5)), 6_u64.into()));
        assert!(!record.record_event(target_kyma("a", 4)));
        assert!(record.record_list(Some(target_kyma("a", 4)), 4_u64.into()));
        record.record_write(target_kyma("a", 5));
        assert!(!record.record_event(target_kyma("a", 5)), "versions count from the list on");
        assert!(!record.record_deletion(&target_kyma("b", 9)), "deletion of another Kyma");
    }
}

//! Tracks a target's Kyma by watch events and results of writes.

use kyma_controller::{ResourceVersion, WriteThrough};

use super::TargetKyma;

/// State of a target's Kyma.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Remote {
    /// The Kyma does not exist.
    Absent,
    /// The Kyma exists.
    Present(Box<TargetKyma>),
}

/// State of a target's Kyma, by its watch and the operator's writes.
#[derive(Debug, Default)]
pub(crate) struct RemoteRecord {
    /// State that the watch shows; `None` before the first list.
    shown: Option<Remote>,
    /// The last write, until the watch shows it. The watch shows one object.
    writes: WriteThrough<(), Remote>,
}

impl RemoteRecord {
    /// Returns the state; `None` before the first list.
    pub(crate) fn get(&self) -> Option<&Remote> {
        self.writes.current(&()).or(self.shown.as_ref())
    }

    /// Records the result of a list with this resourceVersion. No write from before it counts, also because the
    /// content of a malicious target need not match its resourceVersions. Returns false if nothing changed.
    pub(crate) fn record_list(&mut self, observed: Option<TargetKyma>, position: ResourceVersion) -> bool {
        let shown = observed.map_or(Remote::Absent, |observed| Remote::Present(Box::new(observed)));
        let is_changed = self.get() != Some(&shown);
        self.writes.forget(&());
        self.writes.end_list_at(position, |()| None);
        self.shown = Some(shown);
        is_changed
    }

    /// Records a watch event. Returns false if nothing changed.
    pub(crate) fn record_event(&mut self, observed: TargetKyma) -> bool {
        let Some(latest) = self.get() else { return false };
        let is_news = !latest.is_at_or_after(&observed);
        self.deliver(observed.resource_version);
        if self.shown.as_ref().is_none_or(|shown| !shown.is_at_or_after(&observed)) {
            self.shown = Some(Remote::Present(Box::new(observed)));
        }
        is_news
    }

    /// Records a DELETE event with the last state. Returns false if nothing changed.
    pub(crate) fn record_deletion(&mut self, last: &TargetKyma) -> bool {
        let Some(latest) = self.get() else { return false };
        let is_news = matches!(latest, Remote::Present(present) if present.uid == last.uid);
        self.deliver(last.resource_version);
        if is_news {
            self.shown = Some(Remote::Absent);
            self.writes.forget(&());
        }
        is_news
    }

    /// Records the result of a write. Later watch events take precedence: the Kyma may have been deleted before the
    /// response, without another event.
    pub(crate) fn record_write(&mut self, observed: TargetKyma) {
        if self.get().is_some_and(|latest| !latest.is_at_or_after(&observed)) {
            let version = observed.resource_version;
            self.writes.record_write((), version, Remote::Present(Box::new(observed)));
            self.writes.forget_delivered(&());
        }
    }

    /// Records that the watch has delivered all events up to this version.
    fn deliver(&mut self, version: ResourceVersion) {
        self.writes.record_event(&(), version);
        self.writes.forget_delivered(&());
    }
}

impl Remote {
    /// Reports whether this is a state of the same Kyma, and not an earlier one.
    fn is_at_or_after(&self, other: &TargetKyma) -> bool {
        let Self::Present(this) = self else { return false };
        this.uid == other.uid && this.resource_version >= other.resource_version
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

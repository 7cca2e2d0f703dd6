//! Results of the operator's writes of Kymas, kept until the hub's watch delivers them.

use std::collections::VecDeque;
use std::sync::Arc;

use kyma_api::Kyma;
use kyma_controller::{KymaKey, ResourceVersion, WriteThrough};

/// resourceVersions of the results of one Kyma's writes that the watch has not delivered yet.
///
/// The result of a write contains changes of other writers since the object was read. Their events have lower
/// resourceVersions, may arrive after the result, and are the only ones that report these changes.
#[derive(Debug, Default)]
struct OwnVersions(VecDeque<ResourceVersion>);

impl OwnVersions {
    /// Maximum number of versions. An event of an older one counts as that of another writer, which costs a reconcile.
    const MAX_VERSIONS: usize = 16;

    /// Adds the version that a write created.
    fn add(&mut self, version: ResourceVersion) {
        if self.0.len() >= Self::MAX_VERSIONS {
            self.0.pop_front();
        }
        self.0.push_back(version);
    }

    /// Removes the versions up to a delivered one. Returns true if the operator created that version.
    fn deliver(&mut self, version: ResourceVersion) -> bool {
        let is_own = self.0.contains(&version);
        self.0.retain(|own| *own > version);
        is_own
    }
}

/// Last written state of each Kyma that the watch has not delivered yet.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(WriteThrough<KymaKey, WrittenKyma>);

/// Result of a write.
#[derive(Debug)]
struct WrittenKyma {
    kyma: Arc<Kyma>,
    versions: OwnVersions,
}

impl OwnWrites {
    /// Records the result of a write.
    pub(crate) fn record_write(&mut self, kyma: Arc<Kyma>) {
        let version = version(&kyma);
        let before = self.written_mut(&kyma).map(|before| std::mem::take(&mut before.versions));
        let mut versions = before.unwrap_or_default();
        versions.add(version);
        self.0.record_write(KymaKey::of(&kyma), version, WrittenKyma { kyma, versions });
    }

    /// Removes states that are not newer than one that the watch's store contains.
    pub(crate) fn record_delivered(&mut self, seen: &Kyma) {
        if self.newer_than(seen).is_none() {
            self.0.forget(&KymaKey::of(seen));
        }
    }

    /// Returns the later of the given and the written state.
    pub(crate) fn latest(&self, at_hand: Arc<Kyma>) -> Arc<Kyma> {
        self.newer_than(&at_hand).map_or(at_hand, Arc::clone)
    }

    /// Records a watch event. Returns false if it delivers the result of a recorded write. An event that arrives before
    /// the response of the write counts as that of another writer.
    pub(crate) fn record_event(&mut self, kyma: &Kyma) -> bool {
        self.written_mut(kyma).is_none_or(|written| !written.versions.deliver(version(kyma)))
    }

    /// Removes a deleted Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.0.forget(kyma);
    }

    /// Records the beginning of a list. Until it completes, the watch's store is unchanged, so written states still
    /// count.
    pub(crate) fn begin_list(&mut self) {
        self.0.begin_list();
    }

    /// Records the end of a list. Only states written since it began are kept. A listed object may contain own writes
    /// and changes of others, so it always counts as news.
    pub(crate) fn end_list(&mut self) {
        self.0.end_list();
        self.0.retain(|write| {
            write.value_mut().versions = OwnVersions::default();
            !write.is_superseded()
        });
    }

    /// Returns the written state if it is later than this state of the same object, not of another object with the
    /// same name.
    fn newer_than(&self, at_hand: &Kyma) -> Option<&Arc<Kyma>> {
        let write = self.0.newer_than(&KymaKey::of(at_hand), version(at_hand))?;
        Some(&write.value().kyma).filter(|written| written.metadata.uid == at_hand.metadata.uid)
    }

    /// Returns the last write to the object.
    fn written_mut(&mut self, kyma: &Kyma) -> Option<&mut WrittenKyma> {
        let write = self.0.last_mut(&KymaKey::of(kyma))?;
        Some(write.value_mut()).filter(|written| written.kyma.metadata.uid == kyma.metadata.uid)
    }
}

fn version(kyma: &Kyma) -> ResourceVersion {
    ResourceVersion::of(&kyma.metadata).unwrap_or_default()
}

#[cfg(test)]
impl OwnWrites {
    /// Reports whether the watch has delivered all writes.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kyma(uid: &str, version: u64) -> Arc<Kyma> {
        let metadata = json!({ "namespace": "kcp-system", "name": "sample", "uid": uid,
            "resourceVersion": version.to_string() });
        let kyma = json!({ "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": metadata, "spec": { "channel": "regular" } });
        Arc::new(serde_json::from_value(kyma).unwrap())
    }

    fn own_writes_with(version: u64) -> OwnWrites {
        let mut written = OwnWrites::default();
        written.record_write(kyma("u", version));
        written
    }

    fn number(kyma: &Kyma) -> u64 {
        version(kyma).to_string().parse().unwrap()
    }

    fn latest(written: &OwnWrites, at_hand: Arc<Kyma>) -> u64 {
        number(&written.latest(at_hand))
    }

    #[test]
    fn an_own_write_counts_until_the_watch_delivers_it() {
        let mut written = own_writes_with(7);
        let stored = kyma("u", 5);
        for _ in ["a pass", "another one before the watch catches up"] {
            written.record_delivered(&stored);
            let at_hand = written.latest(Arc::clone(&stored));
            assert_eq!((number(&at_hand), latest(&written, at_hand)), (7, 7));
        }
        written.record_delivered(&kyma("u", 7));
        assert_eq!(latest(&written, stored), 5, "nothing is kept that the watch has told");
    }

    #[test]
    fn a_later_watch_event_replaces_an_own_write() {
        let mut written = own_writes_with(7);
        assert_eq!(latest(&written, kyma("u", 8)), 8);
        assert!(!written.record_event(&kyma("u", 7)) && written.record_event(&kyma("u", 8)));
        written.record_delivered(&kyma("u", 8));
        assert!(written.record_event(&kyma("u", 9)));
    }

    #[test]
    fn changes_of_others_between_own_writes_are_news() {
        let mut written = own_writes_with(7);
        written.record_write(kyma("u", 9));
        assert!(written.record_event(&kyma("u", 6)), "a change between read and write");
        assert!(!written.record_event(&kyma("u", 7)));
        assert!(written.record_event(&kyma("u", 8)), "a change between two writes");
        assert!(!written.record_event(&kyma("u", 9)));
        assert!(written.record_event(&kyma("other", 9)));
    }

    #[test]
    fn versions_of_own_writes_are_bounded() {
        let mut versions = OwnVersions::default();
        (1..=40_u64).for_each(|version| versions.add(version.into()));
        assert_eq!(versions.0.len(), OwnVersions::MAX_VERSIONS);
        let delivered = [24_u64, 25, 40].map(|version| versions.deliver(version.into()));
        assert_eq!(delivered, [false, true, true]);
        assert!(versions.0.is_empty());
    }

    #[test]
    fn an_own_write_to_another_uid_does_not_count() {
        let mut written = own_writes_with(7);
        assert_eq!(latest(&written, kyma("other", 5)), 5);
        written.record_delivered(&kyma("other", 5));
        assert_eq!(latest(&written, kyma("u", 5)), 5);
    }

    #[test]
    fn a_complete_list_replaces_own_writes_from_before_it_began() {
        let mut written = own_writes_with(7);
        written.begin_list();
        assert_eq!(latest(&written, kyma("u", 5)), 7, "the store has not the list yet");
        written.end_list();
        assert_eq!(latest(&written, kyma("u", 5)), 5, "the hub was restored");
        written.begin_list();
        written.record_write(kyma("u", 8));
        written.end_list();
        assert_eq!(latest(&written, kyma("u", 5)), 8, "the list may be from before that");
        assert!(written.record_event(&kyma("u", 8)), "it may contain a change of another writer");
    }

    #[test]
    fn a_deletion_removes_the_own_write() {
        let mut gone = own_writes_with(7);
        gone.forget(&KymaKey::of(&kyma("u", 7)));
        assert_eq!(latest(&gone, kyma("u", 5)), 5);
    }
}

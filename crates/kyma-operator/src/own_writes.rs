//! Results of the operator's writes of Kymas, kept until the hub's watch delivers them.

use std::collections::HashMap;
use std::sync::Arc;

use kyma_api::Kyma;
use kyma_sdk::KymaKey;

/// Last written state of each Kyma that the watch has not delivered yet.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    writes: HashMap<KymaKey, OwnWrite>,
    /// Number of lists begun.
    lists: u64,
}

#[derive(Debug)]
struct OwnWrite {
    kyma: Arc<Kyma>,
    /// Number of lists begun before the write.
    lists: u64,
}

impl OwnWrites {
    /// Records the result of a write.
    pub(crate) fn wrote(&mut self, kyma: Arc<Kyma>) {
        let lists = self.lists;
        self.writes.insert(KymaKey::of(&kyma), OwnWrite { kyma, lists });
    }

    /// Removes states that are not newer than one that the watch's store contains.
    pub(crate) fn delivered(&mut self, seen: &Kyma) {
        let key = KymaKey::of(seen);
        if self.get(&key).is_some_and(|ours| !is_later(ours, seen)) {
            self.writes.remove(&key);
        }
    }

    /// Returns the later of the given and the written state.
    pub(crate) fn latest(&self, at_hand: Arc<Kyma>) -> Arc<Kyma> {
        let ours = self.get(&KymaKey::of(&at_hand)).filter(|ours| is_later(ours, &at_hand));
        ours.map_or(at_hand, Arc::clone)
    }

    /// Reports whether a state is newer than the result of the last write, or the operator wrote none.
    pub(crate) fn is_news(&self, kyma: &Kyma) -> bool {
        self.get(&KymaKey::of(kyma)).is_none_or(|ours| version(ours) < version(kyma))
    }

    /// Removes a deleted Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.writes.remove(kyma);
    }

    /// Records the beginning of a list. Until it completes, the watch's store is unchanged, so written states still
    /// count.
    pub(crate) fn listing(&mut self) {
        self.lists += 1;
    }

    /// Records the end of a list, which is authoritative, even if a restored hub has lower resourceVersions. Only
    /// states written since it began are kept.
    pub(crate) fn listed(&mut self) {
        let lists = self.lists;
        self.writes.retain(|_, ours| ours.lists == lists);
    }

    fn get(&self, key: &KymaKey) -> Option<&Arc<Kyma>> {
        self.writes.get(key).map(|ours| &ours.kyma)
    }
}

/// Reports whether `ours` is a later state of the same object, not of another object with the same name.
fn is_later(ours: &Kyma, other: &Kyma) -> bool {
    ours.metadata.uid == other.metadata.uid && version(ours) > version(other)
}

fn version(kyma: &Kyma) -> u64 {
    kyma.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
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

    fn wrote(version: u64) -> OwnWrites {
        let mut written = OwnWrites::default();
        written.wrote(kyma("u", version));
        written
    }

    fn latest(written: &OwnWrites, at_hand: Arc<Kyma>) -> u64 {
        version(&written.latest(at_hand))
    }

    #[test]
    fn an_own_write_counts_until_the_watch_delivers_it() {
        let mut written = wrote(7);
        let stored = kyma("u", 5);
        for _ in ["a pass", "another one before the watch catches up"] {
            written.delivered(&stored);
            let at_hand = written.latest(Arc::clone(&stored));
            assert_eq!((version(&at_hand), latest(&written, at_hand)), (7, 7));
        }
        written.delivered(&kyma("u", 7));
        assert_eq!(latest(&written, stored), 5, "nothing is kept that the watch has told");
    }

    #[test]
    fn a_later_watch_event_replaces_an_own_write() {
        let mut written = wrote(7);
        assert_eq!(latest(&written, kyma("u", 8)), 8);
        assert!(written.is_news(&kyma("u", 8)) && !written.is_news(&kyma("u", 7)));
        written.delivered(&kyma("u", 8));
        assert!(written.is_news(&kyma("u", 6)));
    }

    #[test]
    fn an_own_write_to_another_uid_does_not_count() {
        let mut written = wrote(7);
        assert_eq!(latest(&written, kyma("other", 5)), 5);
        written.delivered(&kyma("other", 5));
        assert_eq!(latest(&written, kyma("u", 5)), 5);
    }

    #[test]
    fn a_complete_list_replaces_own_writes_from_before_it_began() {
        let mut written = wrote(7);
        written.listing();
        assert_eq!(latest(&written, kyma("u", 5)), 7, "the store has not the list yet");
        written.listed();
        assert_eq!(latest(&written, kyma("u", 5)), 5, "the hub was restored");
        written.listing();
        written.wrote(kyma("u", 8));
        written.listed();
        assert_eq!(latest(&written, kyma("u", 5)), 8, "the list may be from before that");
    }

    #[test]
    fn a_deletion_removes_the_own_write() {
        let mut gone = wrote(7);
        gone.forget(&KymaKey::of(&kyma("u", 7)));
        assert_eq!(latest(&gone, kyma("u", 5)), 5);
    }
}

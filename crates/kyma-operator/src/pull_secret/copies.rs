//! Tracks which targets have the current image-pull Secret. Pure.

use std::collections::HashMap;

use kyma_sdk::{KymaKey, Revision};

/// Copies by Kyma, with the changes that watches reported since.
#[derive(Debug, Default)]
pub(crate) struct Copies(HashMap<KymaKey, TargetCopy>);

/// The copy on one target.
#[derive(Debug, Default)]
struct TargetCopy {
    applied: Option<AppliedCopy>,
    /// The resourceVersion of the last reported change on the target.
    reported: u64,
}

/// The last apply.
#[derive(Debug)]
struct AppliedCopy {
    /// Revision of the hub's Secret.
    from: Revision,
    /// resourceVersion of the copy.
    version: u64,
}

impl Copies {
    /// Reports whether the target has this revision of the hub's Secret.
    pub(crate) fn has(&self, kyma: &KymaKey, revision: &Revision) -> bool {
        let copy = self.0.get(kyma);
        copy.is_some_and(|copy| copy.is_unchanged() && copy.is_from(revision))
    }

    /// Records that the target has this revision of the hub's Secret.
    pub(crate) fn record_copy(&mut self, kyma: &KymaKey, from: Revision, version: u64) {
        self.0.entry(kyma.clone()).or_default().applied = Some(AppliedCopy { from, version });
    }

    /// Records a complete list with the copy in this version, or without it. Returns true unless that is the version
    /// last applied.
    pub(crate) fn record_list(&mut self, kyma: &KymaKey, version: Option<u64>) -> bool {
        let copy = self.0.entry(kyma.clone()).or_default();
        // A list is authoritative, even if a restored target has lower resourceVersions.
        copy.reported = version.unwrap_or_default();
        copy.applied.take_if(|applied| Some(applied.version) != version);
        copy.applied.is_none()
    }

    /// Records a change or deletion of the copy. Returns true unless the version last applied is the latest.
    pub(crate) fn record_change(&mut self, kyma: &KymaKey, version: u64) -> bool {
        let copy = self.0.entry(kyma.clone()).or_default();
        copy.reported = copy.reported.max(version);
        !copy.is_unchanged()
    }

    /// Removes all records of a Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.0.remove(kyma);
    }
}

impl TargetCopy {
    fn is_unchanged(&self) -> bool {
        self.applied.as_ref().is_some_and(|applied| self.reported <= applied.version)
    }

    fn is_from(&self, revision: &Revision) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.from == *revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(version: &str) -> Revision {
        Revision { uid: "u".to_owned(), resource_version: version.to_owned() }
    }

    #[test]
    fn a_copy_stands_until_the_hub_or_the_target_changes_it() {
        let (kyma, mut copies) = (KymaKey::new("kcp-system", "a"), Copies::default());
        assert!(!copies.has(&kyma, &revision("1")));
        copies.record_copy(&kyma, revision("1"), 10);
        assert!(copies.has(&kyma, &revision("1")) && !copies.has(&kyma, &revision("2")));
        assert!(!copies.record_change(&kyma, 10), "the operator's write");
        assert!(copies.has(&kyma, &revision("1")));
        assert!(copies.record_change(&kyma, 11), "another writer's change");
        assert!(!copies.has(&kyma, &revision("1")));
    }

    #[test]
    fn a_change_reported_before_the_response_is_not_lost() {
        let (kyma, mut copies) = (KymaKey::new("kcp-system", "a"), Copies::default());
        copies.record_change(&kyma, 11);
        copies.record_copy(&kyma, revision("1"), 10);
        assert!(!copies.has(&kyma, &revision("1")));
        copies.record_copy(&kyma, revision("1"), 12);
        assert!(copies.has(&kyma, &revision("1")));
    }

    #[test]
    fn a_list_counts_whatever_its_version() {
        let (kyma, mut copies) = (KymaKey::new("kcp-system", "a"), Copies::default());
        for (seen, is_news) in [(Some(10), false), (Some(9), true), (None, true)] {
            copies.record_copy(&kyma, revision("1"), 10);
            assert_eq!(copies.record_list(&kyma, seen), is_news, "{seen:?}");
            assert_eq!(copies.has(&kyma, &revision("1")), !is_news);
        }
        copies.record_copy(&kyma, revision("1"), 3);
        assert!(copies.has(&kyma, &revision("1")), "written again on the restored target");
    }
}

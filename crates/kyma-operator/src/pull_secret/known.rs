//! Tracks which targets have the current image-pull Secret. Pure.

use std::collections::HashMap;

use kyma_sdk::{KymaKey, Revision};

/// Copies by Kyma, with the changes that watches reported since.
#[derive(Debug, Default)]
pub(crate) struct Copies(HashMap<KymaKey, Held>);

#[derive(Debug, Default)]
struct Held {
    copied: Option<Copied>,
    /// The resourceVersion of the last reported change on the target.
    told: u64,
}

#[derive(Debug)]
struct Copied {
    /// Revision of the hub's Secret.
    from: Revision,
    /// resourceVersion of the copy.
    version: u64,
}

impl Copies {
    /// Reports whether the target has this revision of the hub's Secret.
    pub(crate) fn has(&self, kyma: &KymaKey, revision: &Revision) -> bool {
        let held = self.0.get(kyma);
        held.is_some_and(|held| held.is_unchanged() && held.is_from(revision))
    }

    /// Records that the target has this revision of the hub's Secret.
    pub(crate) fn copied(&mut self, kyma: &KymaKey, from: Revision, version: u64) {
        self.0.entry(kyma.clone()).or_default().copied = Some(Copied { from, version });
    }

    /// Records a complete list with the copy in this version, or without it. Returns true unless that is the version
    /// last copied.
    pub(crate) fn listed(&mut self, kyma: &KymaKey, version: Option<u64>) -> bool {
        let held = self.0.entry(kyma.clone()).or_default();
        // A list is authoritative, even if a restored target has lower resourceVersions.
        held.told = version.unwrap_or_default();
        held.copied.take_if(|copied| Some(copied.version) != version);
        held.copied.is_none()
    }

    /// Records a change or deletion of the copy. Returns true unless the version last copied is the latest.
    pub(crate) fn changed(&mut self, kyma: &KymaKey, version: u64) -> bool {
        let held = self.0.entry(kyma.clone()).or_default();
        held.told = held.told.max(version);
        !held.is_unchanged()
    }

    /// Removes all records of a Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.0.remove(kyma);
    }
}

impl Held {
    fn is_unchanged(&self) -> bool {
        self.copied.as_ref().is_some_and(|copied| self.told <= copied.version)
    }

    fn is_from(&self, revision: &Revision) -> bool {
        self.copied.as_ref().is_some_and(|copied| copied.from == *revision)
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
        copies.copied(&kyma, revision("1"), 10);
        assert!(copies.has(&kyma, &revision("1")) && !copies.has(&kyma, &revision("2")));
        assert!(!copies.changed(&kyma, 10), "our own write");
        assert!(copies.has(&kyma, &revision("1")));
        assert!(copies.changed(&kyma, 11), "somebody's");
        assert!(!copies.has(&kyma, &revision("1")));
    }

    #[test]
    fn what_is_told_before_the_answer_to_a_write_is_not_lost() {
        let (kyma, mut copies) = (KymaKey::new("kcp-system", "a"), Copies::default());
        copies.changed(&kyma, 11);
        copies.copied(&kyma, revision("1"), 10);
        assert!(!copies.has(&kyma, &revision("1")));
        copies.copied(&kyma, revision("1"), 12);
        assert!(copies.has(&kyma, &revision("1")));
    }

    #[test]
    fn a_list_counts_whatever_its_version() {
        let (kyma, mut copies) = (KymaKey::new("kcp-system", "a"), Copies::default());
        for (seen, is_news) in [(Some(10), false), (Some(9), true), (None, true)] {
            copies.copied(&kyma, revision("1"), 10);
            assert_eq!(copies.listed(&kyma, seen), is_news, "{seen:?}");
            assert_eq!(copies.has(&kyma, &revision("1")), !is_news);
        }
        copies.copied(&kyma, revision("1"), 3);
        assert!(copies.has(&kyma, &revision("1")), "written again on the restored target");
    }
}

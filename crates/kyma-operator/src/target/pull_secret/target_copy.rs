//! Tracks whether a target has the current image-pull Secret. Pure.

use kyma_controller::{ResourceVersion, Revision, WriteThrough};

/// The last copy of the Secret to one target, with the revision of the hub's Secret. The watch shows one object.
#[derive(Debug)]
pub(crate) struct TargetCopy(WriteThrough<(), Revision>);

impl Default for TargetCopy {
    /// Events count from here on, also if they arrive before the response to the first copy.
    fn default() -> Self {
        let mut copies = WriteThrough::default();
        copies.track(());
        Self(copies)
    }
}

impl TargetCopy {
    /// Reports whether the target has this revision of the hub's Secret.
    pub(crate) fn has(&self, revision: &Revision) -> bool {
        self.0.current(&()).is_some_and(|from| from == revision)
    }

    /// Records that the target has this revision of the hub's Secret.
    pub(crate) fn record_copy(&mut self, from: Revision, version: ResourceVersion) {
        self.0.record_write((), version, from);
    }

    /// Records a complete list with the copy in this version, or without it. Returns true unless that is the version
    /// last applied.
    pub(crate) fn record_list(&mut self, version: Option<ResourceVersion>) -> bool {
        self.0.end_list_at(ResourceVersion::default(), |()| version);
        self.0.current(&()).is_none()
    }

    /// Records a change or deletion of the copy. Returns true unless the version last applied is the latest.
    pub(crate) fn record_change(&mut self, version: ResourceVersion) -> bool {
        self.0.record_event(&(), version);
        self.0.current(&()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(version: &str) -> Revision {
        Revision { uid: "u".to_owned(), resource_version: version.to_owned() }
    }

    fn at(version: u64) -> ResourceVersion {
        version.into()
    }

    #[test]
    fn a_copy_stands_until_the_hub_or_the_target_changes_it() {
        let mut copy = TargetCopy::default();
        assert!(!copy.has(&revision("1")));
        copy.record_copy(revision("1"), at(10));
        assert!(copy.has(&revision("1")) && !copy.has(&revision("2")));
        assert!(!copy.record_change(at(10)), "the operator's write");
        assert!(copy.has(&revision("1")));
        assert!(copy.record_change(at(11)), "another writer's change");
        assert!(!copy.has(&revision("1")));
    }

    #[test]
    fn a_change_reported_before_the_response_is_not_lost() {
        let mut copy = TargetCopy::default();
        copy.record_change(at(11));
        copy.record_copy(revision("1"), at(10));
        assert!(!copy.has(&revision("1")));
        copy.record_copy(revision("1"), at(12));
        assert!(copy.has(&revision("1")));
    }

    #[test]
    fn a_list_counts_whatever_its_version() {
        let mut copy = TargetCopy::default();
        for (seen, is_news) in [(Some(10), false), (Some(9), true), (None, true)] {
            copy.record_copy(revision("1"), at(10));
            assert_eq!(copy.record_list(seen.map(at)), is_news, "{seen:?}");
            assert_eq!(copy.has(&revision("1")), !is_news);
        }
        copy.record_copy(revision("1"), at(3));
        assert!(copy.has(&revision("1")), "written again on the restored target");
    }
}

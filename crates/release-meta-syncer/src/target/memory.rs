//! Known state of one target between reconciles, updated by its watches. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::copy::{Key, Kind};
use crate::plan::{ExistingObject, Ownership};

/// A watched object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchedObject {
    Copy(Key),
    /// A CRD of the catalogue, by name.
    Crd(String),
}

impl WatchedObject {
    /// Returns the kind of a copy; `None` for CRDs.
    fn kind(&self) -> Option<Kind> {
        match self {
            Self::Copy(key) => Some(key.kind),
            Self::Crd(_) => None,
        }
    }
}

/// Identifies a state of an object: its uid and the hash of the fields that the manager owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectVersion {
    pub(crate) uid: String,
    pub(crate) fingerprint: String,
}

/// Relevant objects on the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetState {
    pub(crate) copies: BTreeMap<Key, ExistingObject>,
    pub(crate) crds: BTreeMap<String, ObjectVersion>,
}

/// State of a target: known, or to be read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    known: Option<TargetState>,
    /// Events during a reconcile, which its own writes may have caused; evaluated at its end.
    late: Option<BTreeMap<WatchedObject, Option<ObjectVersion>>>,
    /// Whether a list arrived during the reconcile.
    listed_late: bool,
    /// Whether the kinds are not served yet; the first list shows that they are.
    awaits_kinds: bool,
    /// Since when the kinds are awaited.
    awaited_since: Option<Instant>,
}

impl Memory {
    /// Begins a reconcile and returns the known state.
    pub(crate) fn begin(&mut self) -> Option<TargetState> {
        self.late = Some(BTreeMap::new());
        self.listed_late = false;
        self.awaits_kinds = false;
        self.known.clone()
    }

    /// Ends the reconcile because the kinds are not served yet. Returns true if one is served by now.
    pub(crate) fn end_before_kinds(&mut self, now: Instant) -> bool {
        self.awaits_kinds = !self.listed_late;
        let since = self.awaited_since.unwrap_or(now);
        let news = self.end(None) || self.listed_late;
        self.awaited_since = Some(since);
        news
    }

    /// Returns since when the kinds are awaited, across reconciles.
    pub(crate) fn awaited_since(&self) -> Option<Instant> {
        self.awaited_since
    }

    /// Ends the reconcile with its resulting state, if known. Returns true if another writer changed the target
    /// meanwhile, so that it must be read again.
    pub(crate) fn end(&mut self, known: Option<TargetState>) -> bool {
        self.known = known;
        self.awaited_since = None;
        let late = self.late.take().unwrap_or_default();
        late.into_iter().fold(false, |news, (object, version)| self.record_event(object, version) || news)
    }

    /// Records a watch event; `None` means deleted. Returns true if the target must be read again.
    pub(crate) fn record_event(&mut self, object: WatchedObject, version: Option<ObjectVersion>) -> bool {
        if let Some(late) = &mut self.late {
            late.insert(object, version);
            return false;
        }
        // A failure may wait for this event: a CRD was deleted, which no write of the operator does.
        let Some(known) = &mut self.known else {
            return matches!((object, version), (WatchedObject::Crd(_), None));
        };
        if known.has_version(&object, version.as_ref()) {
            known.record_foreign_object(object, version);
            return false;
        }
        self.known = None;
        true
    }

    /// Records a complete list of a kind, or of the CRDs. Returns true if the target must be read again.
    pub(crate) fn listed(&mut self, seen: Vec<(WatchedObject, ObjectVersion)>, kind: Option<Kind>) -> bool {
        self.listed_late |= kind.is_some() && self.late.is_some();
        let mut news = kind.is_some() && std::mem::take(&mut self.awaits_kinds);
        let present: BTreeSet<WatchedObject> = seen.iter().map(|(object, _)| object.clone()).collect();
        let known = self.known.as_ref().map(TargetState::objects).unwrap_or_default();
        let missing = known.into_iter().filter(|object| object.kind() == kind && !present.contains(object));
        let missing: Vec<WatchedObject> = missing.collect();
        for object in missing {
            news |= self.record_event(object, None);
        }
        for (object, version) in seen {
            news |= self.record_event(object, Some(version));
        }
        news
    }
}

impl TargetState {
    fn objects(&self) -> Vec<WatchedObject> {
        let copies = self.copies.keys().cloned().map(WatchedObject::Copy);
        copies.chain(self.crds.keys().cloned().map(WatchedObject::Crd)).collect()
    }

    /// Records an object of another owner, whose name a copy may need later.
    fn record_foreign_object(&mut self, object: WatchedObject, version: Option<ObjectVersion>) {
        let (WatchedObject::Copy(key), Some(version)) = (object, version) else { return };
        let foreign = ExistingObject {
            uid: version.uid,
            fingerprint: version.fingerprint,
            ownership: Ownership::Foreign,
            content: None,
        };
        self.copies.entry(key).or_insert(foreign);
    }

    fn has_version(&self, object: &WatchedObject, version: Option<&ObjectVersion>) -> bool {
        let existing = match object {
            WatchedObject::Copy(key) => self.copies.get(key).map(|existing| {
                let going = existing.ownership == Ownership::Deleting;
                (
                    ObjectVersion { uid: existing.uid.clone(), fingerprint: existing.fingerprint.clone() },
                    going,
                )
            }),
            WatchedObject::Crd(name) => self.crds.get(name).map(|version| (version.clone(), false)),
        };
        match (existing, version) {
            (Some((existing, _)), Some(seen)) => existing == *seen,
            (Some(_), None) => false,
            // Neither desired nor created by this operator.
            (None, Some(seen)) => seen.fingerprint.is_empty(),
            (None, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { kind: Kind::Template, name: name.into() }
    }

    fn object(name: &str) -> WatchedObject {
        WatchedObject::Copy(key(name))
    }

    fn version(fingerprint: &str) -> ObjectVersion {
        ObjectVersion { uid: "uid".into(), fingerprint: fingerprint.into() }
    }

    fn known() -> TargetState {
        let existing = ExistingObject {
            uid: "uid".into(),
            fingerprint: "f".into(),
            ownership: Ownership::Ours,
            content: Some("c".into()),
        };
        TargetState { copies: [(key("a"), existing)].into(), crds: [("crd".to_owned(), version("f"))].into() }
    }

    fn settled() -> Memory {
        let mut memory = Memory::default();
        memory.begin();
        memory.end(Some(known()));
        memory
    }

    #[test]
    fn events_of_what_we_left_are_no_news() {
        let mut memory = settled();
        assert!(!memory.record_event(object("a"), Some(version("f"))));
        assert!(!memory.record_event(WatchedObject::Crd("crd".into()), Some(version("f"))));
        assert!(!memory.record_event(object("never-there"), None));
        assert_eq!(memory.begin(), Some(known()));
    }

    #[test]
    fn a_users_new_object_is_remembered_and_its_end_is_news() {
        let mut memory = settled();
        assert!(!memory.record_event(object("users-own"), Some(version(""))));
        let known = memory.begin().unwrap();
        assert_eq!(known.copies[&key("users-own")].ownership, Ownership::Foreign);
        memory.end(Some(known));
        assert!(memory.record_event(object("users-own"), None), "its name may be wanted");
    }

    #[test]
    fn each_change_by_others_to_owned_objects_is_reported_once() {
        let replaced = ObjectVersion { uid: "other".into(), ..version("f") };
        let rows = [
            (object("a"), Some(version("less"))),
            (object("a"), None),
            (object("a"), Some(replaced)),
            (object("unexpected"), Some(version("f"))),
            (WatchedObject::Crd("crd".into()), Some(version("less"))),
        ];
        for (object, version) in rows {
            let mut memory = settled();
            assert!(memory.record_event(object.clone(), version.clone()), "{object:?}");
            assert!(!memory.record_event(object, version));
            assert_eq!(memory.begin(), None);
        }
    }

    #[test]
    fn a_list_that_lacks_something_is_news_for_its_own_kind_only() {
        assert!(!settled().listed(vec![(object("a"), version("f"))], Some(Kind::Template)));
        assert!(settled().listed(vec![], Some(Kind::Template)));
        assert!(!settled().listed(vec![], Some(Kind::Release)));
        assert!(!settled().listed(vec![(WatchedObject::Crd("crd".into()), version("f"))], None));
    }

    #[test]
    fn own_writes_seen_during_a_reconcile_are_judged_at_its_end() {
        let mut memory = Memory::default();
        memory.begin();
        assert!(!memory.record_event(object("a"), Some(version("f"))));
        assert!(!memory.end(Some(known())));
        memory.begin();
        memory.record_event(object("a"), Some(version("somebody else's")));
        assert!(memory.end(Some(known())), "somebody wrote after us");
    }

    #[test]
    fn after_a_failure_everything_is_read_again() {
        let mut memory = settled();
        memory.begin();
        memory.record_event(object("a"), Some(version("written before it failed")));
        assert!(!memory.end(None), "own writes do not bring a failed reconcile back");
        assert_eq!(memory.begin(), None);
    }

    #[test]
    fn kinds_that_are_not_served_yet_are_told_by_the_first_list() {
        let mut memory = Memory::default();
        memory.begin();
        assert!(!memory.end_before_kinds(Instant::now()));
        assert!(
            !memory.record_event(WatchedObject::Crd("crd".into()), Some(version("f"))),
            "installed is not served"
        );
        assert!(!memory.listed(vec![], None), "so is listed among CRDs");
        assert!(memory.listed(vec![], Some(Kind::Release)));
        assert!(!memory.listed(vec![], Some(Kind::Release)), "once is enough");
        memory.begin();
        memory.listed(vec![], Some(Kind::Template));
        assert!(memory.end_before_kinds(Instant::now()), "it came while the reconcile found nothing");
        memory.begin();
        assert!(!memory.end(None), "a failure is no such waiting");
        assert!(!memory.listed(vec![], Some(Kind::Template)));
    }

    #[test]
    fn wait_for_kinds_begins_when_nothing_else_is_awaited() {
        let begun = Instant::now();
        let at = |seconds| begun + std::time::Duration::from_secs(seconds);
        let mut memory = Memory::default();
        assert_eq!(memory.awaited_since(), None);
        memory.end_before_kinds(at(60));
        memory.end_before_kinds(at(61));
        assert_eq!(memory.awaited_since(), Some(at(60)), "however old the session was then");
        memory.end(None);
        memory.end_before_kinds(at(90));
        assert_eq!(memory.awaited_since(), Some(at(90)), "what failed was no such waiting");
    }

    #[test]
    fn a_crd_that_went_is_news_whenever_it_is_seen() {
        let gone = WatchedObject::Crd("crd".into());
        let mut memory = settled();
        assert!(memory.record_event(gone.clone(), None));
        assert!(
            memory.record_event(gone.clone(), None),
            "also after a failure, which may wait for just that"
        );
        memory.begin();
        memory.record_event(gone.clone(), None);
        assert!(memory.end(None), "also while a reconcile fails over it");
        memory.begin();
        memory.record_event(gone, None);
        assert!(memory.end(Some(known())));
    }
}

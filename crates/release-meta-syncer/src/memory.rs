//! What is known of one target between reconciles, kept true by what its watches see. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::copy::Key;
use crate::plan::{Held, Whose};

/// A watched object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    Copy(Key),
    /// A CRD of the catalogue, by name.
    Crd(String),
}

/// What tells whether an object is still as we left it: its uid and the hash of what our manager owns of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) uid: String,
    pub(crate) fingerprint: String,
}

/// What is on the target as far as it concerns us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) copies: BTreeMap<Key, Held>,
    pub(crate) crds: BTreeMap<String, Mark>,
}

/// Either everything is known, or the target has to be read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    known: Option<Known>,
    /// Sightings during a reconcile, which may be of its own writes; judged at its end.
    late: Option<BTreeMap<Thing, Option<Mark>>>,
}

impl Memory {
    /// A reconcile begins; it goes on from what is known.
    pub(crate) fn begin(&mut self) -> Option<Known> {
        self.late = Some(BTreeMap::new());
        self.known.clone()
    }

    /// The reconcile ends and left this; none if it does not know. True if the target has to be read again at
    /// once, because of what somebody else did meanwhile.
    pub(crate) fn end(&mut self, known: Option<Known>) -> bool {
        self.known = known;
        let late = self.late.take().unwrap_or_default();
        late.into_iter().fold(false, |news, (thing, mark)| self.saw(thing, mark) || news)
    }

    /// A watch saw the object like this; none: it is gone. True if the target has to be read again.
    pub(crate) fn saw(&mut self, thing: Thing, mark: Option<Mark>) -> bool {
        if let Some(late) = &mut self.late {
            late.insert(thing, mark);
            return false;
        }
        // A failure may wait for an event; that a CRD went is one, and no write of ours looks like it.
        let Some(known) = &mut self.known else { return matches!((thing, mark), (Thing::Crd(_), None)) };
        if known.agrees(&thing, mark.as_ref()) {
            known.note_stranger(thing, mark);
            return false;
        }
        self.known = None;
        true
    }

    /// The complete list of the objects of one kind, of which `is_kind` tells the members. True if the target has
    /// to be read again.
    pub(crate) fn listed(&mut self, seen: Vec<(Thing, Mark)>, is_kind: impl Fn(&Thing) -> bool) -> bool {
        let present: BTreeSet<Thing> = seen.iter().map(|(thing, _)| thing.clone()).collect();
        let known = self.known.as_ref().map(Known::things).unwrap_or_default();
        let missing = known.into_iter().filter(|thing| is_kind(thing) && !present.contains(thing));
        let missing: Vec<Thing> = missing.collect();
        let mut news = false;
        for thing in missing {
            news |= self.saw(thing, None);
        }
        for (thing, mark) in seen {
            news |= self.saw(thing, Some(mark));
        }
        news
    }
}

impl Known {
    fn things(&self) -> Vec<Thing> {
        let copies = self.copies.keys().cloned().map(Thing::Copy);
        copies.chain(self.crds.keys().cloned().map(Thing::Crd)).collect()
    }

    /// Somebody else's object takes a name that may be wanted later.
    fn note_stranger(&mut self, thing: Thing, mark: Option<Mark>) {
        let (Thing::Copy(key), Some(mark)) = (thing, mark) else { return };
        let stranger =
            Held { uid: mark.uid, fingerprint: mark.fingerprint, whose: Whose::Foreign, content: None };
        self.copies.entry(key).or_insert(stranger);
    }

    fn agrees(&self, thing: &Thing, mark: Option<&Mark>) -> bool {
        let held = match thing {
            Thing::Copy(key) => self.copies.get(key).map(|held| {
                let going = held.whose == Whose::Going;
                (Mark { uid: held.uid.clone(), fingerprint: held.fingerprint.clone() }, going)
            }),
            Thing::Crd(name) => self.crds.get(name).map(|mark| (mark.clone(), false)),
        };
        match (held, mark) {
            (Some((held, _)), Some(seen)) => held == *seen,
            (Some(_), None) => false,
            // What nobody of us made and nobody wants.
            (None, Some(seen)) => seen.fingerprint.is_empty(),
            (None, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::Kind;

    fn key(name: &str) -> Key {
        Key { kind: Kind::Template, name: name.into() }
    }

    fn thing(name: &str) -> Thing {
        Thing::Copy(key(name))
    }

    fn mark(fingerprint: &str) -> Mark {
        Mark { uid: "uid".into(), fingerprint: fingerprint.into() }
    }

    fn known() -> Known {
        let held = Held {
            uid: "uid".into(),
            fingerprint: "f".into(),
            whose: Whose::Ours,
            content: Some("c".into()),
        };
        Known { copies: [(key("a"), held)].into(), crds: [("crd".to_owned(), mark("f"))].into() }
    }

    fn settled() -> Memory {
        let mut memory = Memory::default();
        memory.begin();
        memory.end(Some(known()));
        memory
    }

    #[test]
    fn sightings_of_what_we_left_are_no_news() {
        let mut memory = settled();
        assert!(!memory.saw(thing("a"), Some(mark("f"))));
        assert!(!memory.saw(Thing::Crd("crd".into()), Some(mark("f"))));
        assert!(!memory.saw(thing("never-there"), None));
        assert_eq!(memory.begin(), Some(known()));
    }

    #[test]
    fn a_users_new_object_is_remembered_and_its_end_is_news() {
        let mut memory = settled();
        assert!(!memory.saw(thing("users-own"), Some(mark(""))));
        let known = memory.begin().unwrap();
        assert_eq!(known.copies[&key("users-own")].whose, Whose::Foreign);
        memory.end(Some(known));
        assert!(memory.saw(thing("users-own"), None), "its name may be wanted");
    }

    #[test]
    fn edits_deletions_replacements_and_strangers_of_ours_are_news_once() {
        let replaced = Mark { uid: "other".into(), ..mark("f") };
        let rows = [
            (thing("a"), Some(mark("less"))),
            (thing("a"), None),
            (thing("a"), Some(replaced)),
            (thing("unexpected"), Some(mark("f"))),
            (Thing::Crd("crd".into()), Some(mark("less"))),
        ];
        for (thing, mark) in rows {
            let mut memory = settled();
            assert!(memory.saw(thing.clone(), mark.clone()), "{thing:?}");
            assert!(!memory.saw(thing, mark));
            assert_eq!(memory.begin(), None);
        }
    }

    #[test]
    fn a_list_that_lacks_something_is_news_for_its_own_kind_only() {
        let is_copy = |thing: &Thing| matches!(thing, Thing::Copy(_));
        assert!(!settled().listed(vec![(thing("a"), mark("f"))], is_copy));
        assert!(settled().listed(vec![], is_copy));
        assert!(!settled().listed(vec![(Thing::Crd("crd".into()), mark("f"))], |thing| !is_copy(thing)));
    }

    #[test]
    fn own_writes_seen_during_a_reconcile_are_judged_at_its_end() {
        let mut memory = Memory::default();
        memory.begin();
        assert!(!memory.saw(thing("a"), Some(mark("f"))));
        assert!(!memory.end(Some(known())));
        memory.begin();
        memory.saw(thing("a"), Some(mark("somebody else's")));
        assert!(memory.end(Some(known())), "somebody wrote after us");
    }

    #[test]
    fn after_a_failure_everything_is_read_again() {
        let mut memory = settled();
        memory.begin();
        memory.saw(thing("a"), Some(mark("written before it failed")));
        assert!(!memory.end(None), "own writes do not bring a failed reconcile back");
        assert_eq!(memory.begin(), None);
    }

    #[test]
    fn a_crd_that_went_is_news_whenever_it_is_seen() {
        let gone = Thing::Crd("crd".into());
        let mut memory = settled();
        assert!(memory.saw(gone.clone(), None));
        assert!(memory.saw(gone.clone(), None), "also after a failure, which may wait for just that");
        memory.begin();
        memory.saw(gone.clone(), None);
        assert!(memory.end(None), "also while a reconcile fails over it");
        memory.begin();
        memory.saw(gone, None);
        assert!(memory.end(Some(known())));
    }
}

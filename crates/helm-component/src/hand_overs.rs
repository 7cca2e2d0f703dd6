//! Objects that another component handed over. The new owner is notified, since it may no longer need them and no
//! other event reports them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kyma_object_set::{Entry, Identity};

use crate::claims::Reach;
use crate::component_key::ComponentKey;

/// Maximum number of objects that are noted for all components together.
const MOST: usize = 10_000;

/// Objects that were handed over, until the new owner has applied, deleted or released them. The content of the new
/// owner may have changed between the read of its [claims](crate::claims::Claims) and the change of the owner label;
/// then it does not watch the object's kind, and would leave the object behind. Kept in memory, as claims are: if the
/// process ends in between, the removal of the new owner finds the object by its label.
pub(crate) struct HandOvers {
    given: Mutex<HashMap<ComponentKey, ReceivedObjects>>,
    wake: Box<dyn Fn(&ComponentKey) -> bool + Send + Sync>,
}

/// Objects that one component received, all on one target.
#[derive(Debug, Default)]
struct ReceivedObjects {
    reach: Reach,
    objects: BTreeMap<Identity, Entry>,
}

impl HandOvers {
    /// Creates an empty record. `wake` requeues a component and reports whether it exists; it must return at once.
    pub(crate) fn new(wake: impl Fn(&ComponentKey) -> bool + Send + Sync + 'static) -> Self {
        Self { given: Mutex::default(), wake: Box::new(wake) }
    }

    /// Notes objects that now carry the owner label of `heir`, and requeues it. `objects` has the entries of the
    /// previous owner.
    pub(crate) fn give(&self, reach: &Reach, heir: &ComponentKey, objects: BTreeMap<Identity, Entry>) {
        if objects.is_empty() {
            return;
        }
        let mut all = self.given();
        // A component that moved to another target has left all objects on the old one.
        all.retain(|one, given| one != heir || given.reach.is_beside(reach));
        let mut room = MOST.saturating_sub(all.values().map(|given| given.objects.len()).sum());
        let given = all.entry(heir.clone()).or_default();
        given.reach = reach.clone();
        let mut unnoted = 0;
        for (identity, entry) in objects {
            if room == 0 && !given.objects.contains_key(&identity) {
                unnoted += 1;
                continue;
            }
            // The new owner has neither applied nor created it.
            let found = Entry { hash: String::new(), created: false, ..entry };
            if given.objects.insert(identity, found).is_none() {
                room = room.saturating_sub(1);
            }
        }
        all.retain(|_, given| !given.objects.is_empty());
        drop(all);
        if unnoted > 0 {
            tracing::warn!(objects = unnoted, component = %heir.name, "handed over and not noted: too many are");
        }
        if !(self.wake)(heir) {
            tracing::warn!(component = %heir.name, "gone before it got what was handed over to it");
            self.forget(heir);
        }
    }

    /// Returns the objects that `component_key` received on its current target and has not settled.
    pub(crate) fn to(&self, reach: &Reach, component_key: &ComponentKey) -> BTreeMap<Identity, Entry> {
        let all = self.given();
        let given = all.get(component_key).filter(|given| given.reach.is_beside(reach));
        given.map(|given| given.objects.clone()).unwrap_or_default()
    }

    /// Removes an object that `component_key` has settled, unless it received another one of that name since it read
    /// `seen`.
    pub(crate) fn settle(&self, component_key: &ComponentKey, identity: &Identity, seen: &Entry) {
        let mut all = self.given();
        let Some(given) = all.get_mut(component_key) else { return };
        if given.objects.get(identity) == Some(seen) {
            given.objects.remove(identity);
        }
        if given.objects.is_empty() {
            all.remove(component_key);
        }
    }

    /// Removes the objects of `component_key`, which is gone.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.given().remove(component_key);
    }

    fn given(&self) -> MutexGuard<'_, HashMap<ComponentKey, ReceivedObjects>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kyma_targets::SecretKey;

    use super::*;

    fn target(name: &str) -> Reach {
        Reach::at(SecretKey { namespace: "hub".to_owned(), name: name.to_owned(), key: "config".to_owned() })
    }

    fn map(name: &str) -> Identity {
        Identity::new("", "ConfigMap", Some("here"), name)
    }

    fn known(name: &str) -> BTreeMap<Identity, Entry> {
        let entry =
            Entry { uid: format!("uid-{name}"), hash: "sent".to_owned(), created: true, ..Entry::default() };
        [(map(name), entry)].into()
    }

    fn names(given: &BTreeMap<Identity, Entry>) -> Vec<&str> {
        given.keys().map(|identity| &*identity.name).collect()
    }

    /// Returns hand-overs that requeue no component.
    fn quiet() -> HandOvers {
        HandOvers::new(|_| true)
    }

    #[test]
    fn an_heir_is_woken_and_knows_what_it_got_until_it_has_dealt_with_it() {
        let woken = Arc::<Mutex<Vec<ComponentKey>>>::default();
        let waking = Arc::clone(&woken);
        let hand_overs = HandOvers::new(move |heir| {
            waking.lock().unwrap().push(heir.clone());
            true
        });
        let (here, heir) = (target("here"), ComponentKey::of("hub", "b"));
        hand_overs.give(&here, &heir, BTreeMap::new());
        assert!(woken.lock().unwrap().is_empty());
        for name in ["x", "y"] {
            hand_overs.give(&here, &heir, known(name));
        }
        assert_eq!(*woken.lock().unwrap(), vec![heir.clone(); 2]);
        let seen = hand_overs.to(&here, &heir);
        assert_eq!(names(&seen), ["x", "y"]);
        assert!(hand_overs.to(&here, &ComponentKey::of("hub", "a")).is_empty());

        hand_overs.settle(&heir, &map("x"), &seen[&map("x")]);
        assert_eq!(names(&hand_overs.to(&here, &heir)), ["y"]);
        hand_overs.settle(&heir, &map("y"), &seen[&map("y")]);
        assert!(hand_overs.given().is_empty());
    }

    #[test]
    fn what_an_heir_got_it_has_neither_sent_nor_made() {
        let (hand_overs, here, heir) = (quiet(), target("here"), ComponentKey::of("hub", "b"));
        hand_overs.give(&here, &heir, known("x"));
        let got = hand_overs.to(&here, &heir).remove(&map("x")).unwrap();
        assert_eq!((&*got.uid, &*got.hash, got.created), ("uid-x", "", false));
    }

    #[test]
    fn what_came_while_the_heir_looked_is_not_settled_by_that_look() {
        let (hand_overs, here, heir) = (quiet(), target("here"), ComponentKey::of("hub", "b"));
        hand_overs.give(&here, &heir, known("x"));
        let seen = hand_overs.to(&here, &heir);
        let anew = Entry { uid: "made-anew".to_owned(), ..Entry::default() };
        hand_overs.give(&here, &heir, [(map("x"), anew)].into());
        hand_overs.settle(&heir, &map("x"), &seen[&map("x")]);
        assert_eq!(hand_overs.to(&here, &heir)[&map("x")].uid, "made-anew");
    }

    #[test]
    fn for_a_component_that_is_gone_nothing_is_kept() {
        let hand_overs = HandOvers::new(|_| false);
        hand_overs.give(&target("here"), &ComponentKey::of("hub", "b"), known("x"));
        assert!(hand_overs.given().is_empty());
    }

    #[test]
    fn who_works_elsewhere_or_is_gone_has_got_nothing() {
        let hand_overs = quiet();
        let (here, there, heir) = (target("here"), target("there"), ComponentKey::of("hub", "b"));
        hand_overs.give(&here, &heir, known("x"));
        assert!(hand_overs.to(&there, &heir).is_empty());
        hand_overs.give(&there, &heir, known("y"));
        assert!(hand_overs.to(&here, &heir).is_empty());
        assert_eq!(names(&hand_overs.to(&there, &heir)), ["y"]);
        hand_overs.forget(&heir);
        assert!(hand_overs.given().is_empty());
    }

    #[test]
    fn notes_are_bounded() {
        let hand_overs = quiet();
        let (here, heir) = (target("here"), ComponentKey::of("hub", "b"));
        for number in 0..MOST + 5 {
            hand_overs.give(&here, &heir, known(&format!("x-{number:05}")));
        }
        assert_eq!(hand_overs.to(&here, &heir).len(), MOST);
        hand_overs.give(&here, &heir, known("x-00000"));
        assert_eq!(hand_overs.to(&here, &heir).len(), MOST, "what is known can be told anew");
    }
}

//! Objects that components want and that others on the same target have: whoever drops one hands it over to whom it is
//! wanted by, so that an object that moves from one component to another is not deleted and made anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kyma_object_set::Identity;
use kyma_targets::{Acting, SecretKey, ServiceAccount};

use crate::sight::Dependent;

/// Claims of all components together, at most.
const MOST: usize = 10_000;

/// Claims of components on objects that other components own. A component claims no more than its content has, and
/// all of them together [`MOST`]; what is claimed beyond that is not known here, and is deleted and made anew when
/// its owner drops it. So is what is dropped after a restart before the first pass of whoever wants it. A component
/// that stands still keeps its claims: it takes what was left to it when it goes on, or deletes it where it has got
/// content without it ([`HandOvers`]).
///
/// [`HandOvers`]: crate::hand_overs::HandOvers
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<HashMap<Dependent, Claimed>>,
}

/// As whom a component works on which target. What it would be refused is not handed to it, or an object that somebody
/// gives up could be kept by whoever may only look at it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reach {
    target: Option<SecretKey>,
    account: Option<ServiceAccount>,
}

impl Reach {
    pub(crate) fn of(target: &Acting) -> Self {
        Self { target: target.key().cloned(), account: target.account().cloned() }
    }

    /// Whether both are of one target, as whomever they act there.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.target == other.target
    }

    #[cfg(test)]
    pub(crate) fn at(target: SecretKey) -> Self {
        Self { target: Some(target), account: None }
    }
}

/// Claims of one component, all on one target with one identity.
#[derive(Debug, Default)]
struct Claimed {
    reach: Reach,
    objects: BTreeSet<Identity>,
}

impl Claims {
    /// Says that `dependent` wants these objects within its reach too.
    pub(crate) fn add(&self, reach: Reach, dependent: &Dependent, objects: BTreeSet<Identity>) {
        if objects.is_empty() {
            return;
        }
        let mut held = self.held();
        let others = held.iter().filter(|(one, _)| *one != dependent);
        let room = MOST.saturating_sub(others.map(|(_, claimed)| claimed.objects.len()).sum());
        let claimed = held.entry(dependent.clone()).or_default();
        if claimed.reach != reach {
            *claimed = Claimed { reach, objects: BTreeSet::new() };
        }
        claimed.objects.extend(objects);
        while claimed.objects.len() > room {
            claimed.objects.pop_last();
        }
        if claimed.objects.is_empty() {
            held.remove(dependent);
        }
    }

    /// Ends the claims of `dependent` on what is not wanted any more, and within another reach.
    pub(crate) fn retain(&self, reach: &Reach, dependent: &Dependent, wanted: impl Fn(&Identity) -> bool) {
        let mut held = self.held();
        let Some(claimed) = held.get_mut(dependent) else { return };
        claimed.objects.retain(|identity| claimed.reach == *reach && wanted(identity));
        if claimed.objects.is_empty() {
            held.remove(dependent);
        }
    }

    /// What others than `dependent` want within its reach, and who does; of two the first by its owner mark.
    pub(crate) fn by_others(&self, reach: &Reach, dependent: &Dependent) -> BTreeMap<Identity, Dependent> {
        let held = self.held();
        let others = held.iter().filter(|(one, claimed)| *one != dependent && claimed.reach == *reach);
        let mut wanted = BTreeMap::new();
        for (other, claimed) in others {
            for identity in &claimed.objects {
                let heir: &mut Dependent = wanted.entry(identity.clone()).or_insert_with(|| other.clone());
                if other.owner < heir.owner {
                    *heir = other.clone();
                }
            }
        }
        wanted
    }

    /// `dependent` is gone, or about to, or takes nothing from others.
    pub(crate) fn forget(&self, dependent: &Dependent) {
        self.held().remove(dependent);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Dependent, Claimed>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str) -> Dependent {
        Dependent::of("hub", name)
    }

    fn target(name: &str) -> Reach {
        Reach::at(SecretKey { namespace: "hub".to_owned(), name: name.to_owned(), key: "config".to_owned() })
    }

    fn map(name: &str) -> Identity {
        Identity::new("", "ConfigMap", Some("here"), name)
    }

    fn maps(names: &[&str]) -> BTreeSet<Identity> {
        names.iter().map(|name| map(name)).collect()
    }

    fn names(wanted: &BTreeMap<Identity, Dependent>) -> BTreeSet<Identity> {
        wanted.keys().cloned().collect()
    }

    #[test]
    fn what_others_want_on_the_same_target_is_known_until_they_have_or_drop_it_or_go() {
        let (claims, here, there) = (Claims::default(), target("here"), target("there"));
        let (a, b, c) = (component("a"), component("b"), component("c"));
        claims.add(here.clone(), &b, maps(&["x"]));
        claims.add(here.clone(), &b, maps(&["y"]));
        claims.add(here.clone(), &c, maps(&["y", "z"]));
        let by_others = |reach: &Reach, us: &Dependent| names(&claims.by_others(reach, us));
        assert_eq!(by_others(&here, &a), maps(&["x", "y", "z"]));
        assert_eq!(by_others(&here, &b), maps(&["y", "z"]), "its own are none");
        assert!(by_others(&there, &a).is_empty() && by_others(&Reach::default(), &a).is_empty());

        let first = if b.owner < c.owner { b.clone() } else { c.clone() };
        assert_eq!(claims.by_others(&here, &a).get(&map("y")), Some(&first), "of two one");

        claims.retain(&here, &b, |identity| *identity != map("x"));
        assert_eq!(by_others(&here, &c), maps(&["y"]));
        claims.forget(&c);
        assert_eq!(by_others(&here, &a), maps(&["y"]), "one of two still wants it");
        claims.retain(&here, &b, |_| false);
        claims.retain(&here, &a, |_| true);
        assert!(claims.held().is_empty());
    }

    #[test]
    fn a_component_that_goes_to_another_target_wants_nothing_of_the_old_one() {
        let (claims, here, there) = (Claims::default(), target("here"), target("there"));
        let (a, b) = (component("a"), component("b"));
        claims.add(here.clone(), &b, maps(&["x"]));
        claims.add(there.clone(), &b, maps(&["y"]));
        assert!(claims.by_others(&here, &a).is_empty());
        assert_eq!(names(&claims.by_others(&there, &a)), maps(&["y"]));
        claims.retain(&Reach::default(), &b, |_| true);
        assert!(claims.held().is_empty());
    }

    #[test]
    fn who_acts_as_another_account_is_handed_nothing() {
        let (claims, a, b) = (Claims::default(), component("a"), component("b"));
        let as_account = Reach { account: ServiceAccount::new("here", "low"), ..target("here") };
        claims.add(as_account.clone(), &b, maps(&["x"]));
        assert!(claims.by_others(&target("here"), &a).is_empty());
        assert_eq!(names(&claims.by_others(&as_account, &a)), maps(&["x"]));
    }

    #[test]
    fn claims_are_bounded_and_what_is_given_back_is_room_for_others() {
        let claims = Claims::default();
        let (a, b, c) = (component("a"), component("b"), component("c"));
        let many: BTreeSet<Identity> = (0..MOST + 5).map(|number| map(&format!("x-{number}"))).collect();
        claims.add(Reach::default(), &b, many);
        assert_eq!(claims.by_others(&Reach::default(), &a).len(), MOST);
        claims.add(Reach::default(), &c, maps(&["y"]));
        assert!(!claims.by_others(&Reach::default(), &a).contains_key(&map("y")));
        claims.forget(&b);
        claims.add(Reach::default(), &c, maps(&["y"]));
        assert_eq!(names(&claims.by_others(&Reach::default(), &a)), maps(&["y"]));
    }
}

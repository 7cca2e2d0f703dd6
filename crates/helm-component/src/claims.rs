//! Claims of components on objects that other components own. An owner that drops a claimed object hands it over to
//! the claimant, so that an object that moves between components is neither deleted nor recreated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kyma_object_set::Identity;
use kyma_targets::{ComponentTarget, SecretKey, ServiceAccount};

use crate::component_key::ComponentKey;

/// Maximum number of claims of all components together.
const MOST: usize = 10_000;

/// Claims of components on objects that other components own. A component claims at most the objects of its content,
/// and all components together at most [`MOST`]. An object without a claim, because the bound is reached or because
/// the claimant had no pass since a restart, is deleted and recreated when its owner drops it. A suspended component
/// keeps its claims: once resumed, it applies the objects that were handed over to it, or deletes those that its
/// content no longer has ([`HandOvers`]).
///
/// [`HandOvers`]: crate::hand_overs::HandOvers
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Mutex<HashMap<ComponentKey, Claimed>>,
}

/// Target of a component, and the ServiceAccount that it impersonates there. Objects are handed over only if both are
/// equal: otherwise a component could keep an object that its own ServiceAccount may not change.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reach {
    target: Option<SecretKey>,
    account: Option<ServiceAccount>,
}

impl Reach {
    pub(crate) fn of(target: &ComponentTarget) -> Self {
        Self { target: target.key().cloned(), account: target.account().cloned() }
    }

    /// Reports whether both are on the same target, whichever ServiceAccounts they impersonate.
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
    /// Adds claims of `component_key` on these objects within its reach.
    pub(crate) fn add(&self, reach: Reach, component_key: &ComponentKey, objects: BTreeSet<Identity>) {
        if objects.is_empty() {
            return;
        }
        let mut held = self.held();
        let others = held.iter().filter(|(one, _)| *one != component_key);
        let room = MOST.saturating_sub(others.map(|(_, claimed)| claimed.objects.len()).sum());
        let claimed = held.entry(component_key.clone()).or_default();
        if claimed.reach != reach {
            *claimed = Claimed { reach, objects: BTreeSet::new() };
        }
        claimed.objects.extend(objects);
        while claimed.objects.len() > room {
            claimed.objects.pop_last();
        }
        if claimed.objects.is_empty() {
            held.remove(component_key);
        }
    }

    /// Removes the claims of `component_key` on objects that it no longer wants, and all claims within another reach.
    pub(crate) fn retain(
        &self,
        reach: &Reach,
        component_key: &ComponentKey,
        wanted: impl Fn(&Identity) -> bool,
    ) {
        let mut held = self.held();
        let Some(claimed) = held.get_mut(component_key) else { return };
        claimed.objects.retain(|identity| claimed.reach == *reach && wanted(identity));
        if claimed.objects.is_empty() {
            held.remove(component_key);
        }
    }

    /// Returns the objects that other components claim within this reach, each with its claimant. Of several
    /// claimants, the one with the lowest owner label is returned.
    pub(crate) fn by_others(
        &self,
        reach: &Reach,
        component_key: &ComponentKey,
    ) -> BTreeMap<Identity, ComponentKey> {
        let held = self.held();
        let others = held.iter().filter(|(one, claimed)| *one != component_key && claimed.reach == *reach);
        let mut wanted = BTreeMap::new();
        for (other, claimed) in others {
            for identity in &claimed.objects {
                let heir: &mut ComponentKey = wanted.entry(identity.clone()).or_insert_with(|| other.clone());
                if other.owner < heir.owner {
                    *heir = other.clone();
                }
            }
        }
        wanted
    }

    /// Removes all claims of `component_key`: it is gone, is being removed, or adopts no objects.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.held().remove(component_key);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<ComponentKey, Claimed>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str) -> ComponentKey {
        ComponentKey::of("hub", name)
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

    fn names(wanted: &BTreeMap<Identity, ComponentKey>) -> BTreeSet<Identity> {
        wanted.keys().cloned().collect()
    }

    #[test]
    fn what_others_want_on_the_same_target_is_known_until_they_have_or_drop_it_or_go() {
        let (claims, here, there) = (Claims::default(), target("here"), target("there"));
        let (a, b, c) = (component("a"), component("b"), component("c"));
        claims.add(here.clone(), &b, maps(&["x"]));
        claims.add(here.clone(), &b, maps(&["y"]));
        claims.add(here.clone(), &c, maps(&["y", "z"]));
        let by_others = |reach: &Reach, us: &ComponentKey| names(&claims.by_others(reach, us));
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

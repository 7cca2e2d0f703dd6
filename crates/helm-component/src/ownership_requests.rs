//! Requests of components for objects that other components own. An owner that drops a requested object transfers it to
//! the requesting component, so that an object that moves between components is neither deleted nor recreated.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kyma_object_set::Identity;
use kyma_targets::{ComponentTarget, SecretKey, ServiceAccount};
use parking_lot::Mutex;

use crate::component_key::ComponentKey;

/// Maximum number of requests of all components together.
const MAX_OWNERSHIP_REQUESTS: usize = 10_000;

/// Requests of components for objects that other components own. A component requests at most the objects of its
/// content, and all components together at most [`MAX_OWNERSHIP_REQUESTS`]. An object without a request, because the
/// bound is reached or because the component was not reconciled since a restart, is deleted and recreated when its
/// owner drops it. A suspended component keeps its requests: once resumed, it applies the objects that were transferred
/// to it, or deletes those that its content no longer has ([`OwnershipTransfers`]).
///
/// [`OwnershipTransfers`]: crate::ownership_transfers::OwnershipTransfers
#[derive(Debug, Default)]
pub(crate) struct OwnershipRequests {
    by_component: Mutex<HashMap<ComponentKey, RequestedObjects>>,
}

/// Target of a component, and the ServiceAccount that it impersonates there. Objects are transferred only if both are
/// equal: otherwise a component could keep an object that its own ServiceAccount may not change.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TargetScope {
    target: Option<SecretKey>,
    account: Option<ServiceAccount>,
}

impl TargetScope {
    pub(crate) fn of(target: &ComponentTarget) -> Self {
        Self { target: target.key().cloned(), account: target.account().cloned() }
    }

    /// Reports whether both are on the same target, whichever ServiceAccounts they impersonate.
    pub(crate) fn has_same_target(&self, other: &Self) -> bool {
        self.target == other.target
    }

    #[cfg(test)]
    pub(crate) fn at(target: SecretKey) -> Self {
        Self { target: Some(target), account: None }
    }
}

/// Requests of one component, all on one target with one identity.
#[derive(Debug, Default)]
struct RequestedObjects {
    scope: TargetScope,
    objects: BTreeSet<Identity>,
}

impl OwnershipRequests {
    /// Adds requests of a component for these objects within its scope.
    pub(crate) fn add(&self, scope: TargetScope, component_key: &ComponentKey, objects: BTreeSet<Identity>) {
        if objects.is_empty() {
            return;
        }
        let mut by_component = self.by_component.lock();
        let others = by_component.iter().filter(|(one, _)| *one != component_key);
        let room =
            MAX_OWNERSHIP_REQUESTS.saturating_sub(others.map(|(_, requested)| requested.objects.len()).sum());
        let requested = by_component.entry(component_key.clone()).or_default();
        if requested.scope != scope {
            *requested = RequestedObjects { scope, objects: BTreeSet::new() };
        }
        requested.objects.extend(objects);
        while requested.objects.len() > room {
            requested.objects.pop_last();
        }
        if requested.objects.is_empty() {
            by_component.remove(component_key);
        }
    }

    /// Removes the requests of a component for objects that it no longer wants, and all requests in another scope.
    pub(crate) fn retain(
        &self,
        scope: &TargetScope,
        component_key: &ComponentKey,
        wanted: impl Fn(&Identity) -> bool,
    ) {
        let mut by_component = self.by_component.lock();
        let Some(requested) = by_component.get_mut(component_key) else { return };
        requested.objects.retain(|identity| requested.scope == *scope && wanted(identity));
        if requested.objects.is_empty() {
            by_component.remove(component_key);
        }
    }

    /// Returns the objects that other components request in this scope, each with its new owner. Of several
    /// requests, the one of the component with the lowest owner label counts.
    pub(crate) fn by_others(
        &self,
        scope: &TargetScope,
        component_key: &ComponentKey,
    ) -> BTreeMap<Identity, ComponentKey> {
        let by_component = self.by_component.lock();
        let others =
            by_component.iter().filter(|(one, requested)| *one != component_key && requested.scope == *scope);
        let mut wanted = BTreeMap::new();
        for (other, requested) in others {
            for identity in &requested.objects {
                let new_owner: &mut ComponentKey =
                    wanted.entry(identity.clone()).or_insert_with(|| other.clone());
                if other.owner < new_owner.owner {
                    *new_owner = other.clone();
                }
            }
        }
        wanted
    }

    /// Removes all requests of a component: it is gone, is being removed, or adopts no objects.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.by_component.lock().remove(component_key);
    }
}

#[cfg(test)]
impl OwnershipRequests {
    /// Reports whether no component requests an object.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_component.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str) -> ComponentKey {
        ComponentKey::of("hub", name)
    }

    fn target(name: &str) -> TargetScope {
        TargetScope::at(SecretKey {
            namespace: "hub".to_owned(),
            name: name.to_owned(),
            key: "config".to_owned(),
        })
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
    fn requests_of_others_last_until_they_own_or_drop_the_object() {
        let (requests, here, there) = (OwnershipRequests::default(), target("here"), target("there"));
        let (a, b, c) = (component("a"), component("b"), component("c"));
        requests.add(here.clone(), &b, maps(&["x"]));
        requests.add(here.clone(), &b, maps(&["y"]));
        requests.add(here.clone(), &c, maps(&["y", "z"]));
        let by_others = |scope: &TargetScope, us: &ComponentKey| names(&requests.by_others(scope, us));
        assert_eq!(by_others(&here, &a), maps(&["x", "y", "z"]));
        assert_eq!(by_others(&here, &b), maps(&["y", "z"]), "its own are none");
        assert!(by_others(&there, &a).is_empty() && by_others(&TargetScope::default(), &a).is_empty());

        let first = if b.owner < c.owner { b.clone() } else { c.clone() };
        assert_eq!(requests.by_others(&here, &a).get(&map("y")), Some(&first), "of two one");

        requests.retain(&here, &b, |identity| *identity != map("x"));
        assert_eq!(by_others(&here, &c), maps(&["y"]));
        requests.forget(&c);
        assert_eq!(by_others(&here, &a), maps(&["y"]), "one of two still wants it");
        requests.retain(&here, &b, |_| false);
        requests.retain(&here, &a, |_| true);
        assert!(requests.by_component.lock().is_empty());
    }

    #[test]
    fn a_component_on_a_new_target_requests_nothing_on_the_old_one() {
        let (requests, here, there) = (OwnershipRequests::default(), target("here"), target("there"));
        let (a, b) = (component("a"), component("b"));
        requests.add(here.clone(), &b, maps(&["x"]));
        requests.add(there.clone(), &b, maps(&["y"]));
        assert!(requests.by_others(&here, &a).is_empty());
        assert_eq!(names(&requests.by_others(&there, &a)), maps(&["y"]));
        requests.retain(&TargetScope::default(), &b, |_| true);
        assert!(requests.by_component.lock().is_empty());
    }

    #[test]
    fn requests_of_another_account_are_ignored() {
        let (requests, a, b) = (OwnershipRequests::default(), component("a"), component("b"));
        let as_account = TargetScope { account: ServiceAccount::new("here", "low"), ..target("here") };
        requests.add(as_account.clone(), &b, maps(&["x"]));
        assert!(requests.by_others(&target("here"), &a).is_empty());
        assert_eq!(names(&requests.by_others(&as_account, &a)), maps(&["x"]));
    }

    #[test]
    fn requests_are_bounded_and_leave_room_when_removed() {
        let requests = OwnershipRequests::default();
        let (a, b, c) = (component("a"), component("b"), component("c"));
        let many: BTreeSet<Identity> =
            (0..MAX_OWNERSHIP_REQUESTS + 5).map(|number| map(&format!("x-{number}"))).collect();
        requests.add(TargetScope::default(), &b, many);
        assert_eq!(requests.by_others(&TargetScope::default(), &a).len(), MAX_OWNERSHIP_REQUESTS);
        requests.add(TargetScope::default(), &c, maps(&["y"]));
        assert!(!requests.by_others(&TargetScope::default(), &a).contains_key(&map("y")));
        requests.forget(&b);
        requests.add(TargetScope::default(), &c, maps(&["y"]));
        assert_eq!(names(&requests.by_others(&TargetScope::default(), &a)), maps(&["y"]));
    }
}

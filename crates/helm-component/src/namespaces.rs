//! Namespaces of targets that are being deleted, from streams of their own: a component that needs such a namespace
//! waits for its end, without requests meanwhile.

mod seen;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kyma_sdk::{Interest, Process, Sighting, Watches};
use kyma_targets::{ComponentTarget, SecretKey};

use crate::sight::Dependent;
use seen::ReadTimes;

/// Maximum number of streams for one component; further namespaces are read instead.
const MOST: usize = 8;
/// Prefix of the field selector of a stream.
const NAMED: &str = "metadata.name=";

/// State of a namespace as a stream shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Unknown: there is no healthy stream.
    Nothing,
    /// The namespace is being deleted.
    Ending,
    /// The namespace exists or not; in either case, objects or the namespace itself may be created.
    Over,
}

/// Namespaces of all targets that components wait for. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Namespaces {
    watches: Watches<Dependent>,
    held: Arc<Mutex<NamespaceState>>,
    /// Held while subscriptions change: the stored state and the streams must agree on them.
    wishing: Arc<Mutex<()>>,
}

/// A namespace of a target.
type Place = (Option<SecretKey>, String);

#[derive(Default)]
struct NamespaceState {
    wishes: HashMap<Dependent, BTreeSet<Place>>,
    shown: HashMap<Place, Shown>,
    seen: ReadTimes,
}

impl Namespaces {
    /// Returns an empty registry. Streams call `wake`, which must not block.
    pub(crate) fn new(
        operator: &'static str,
        process: &Process,
        wake: impl Fn(&Dependent) + Send + Sync + 'static,
    ) -> Self {
        let held = Arc::<Mutex<NamespaceState>>::default();
        let listening = Arc::clone(&held);
        let listener = move |target: Option<&SecretKey>,
                             interest: &Interest,
                             sighting: &Sighting,
                             dependents: &[Dependent]| {
            let name = interest.fields.as_deref().and_then(|fields| fields.strip_prefix(NAMED));
            let Some(name) = name else { return };
            let shown = shown(sighting);
            let before = lock(&listening).shown.insert((target.cloned(), name.to_owned()), shown);
            if shown == Shown::Over && before != Some(shown) {
                dependents.iter().for_each(&wake);
            }
        };
        Self { watches: Watches::new(operator, process, listener), held, wishing: Arc::default() }
    }

    /// Subscribes `dependent` to exactly these namespaces.
    pub(crate) fn want(&self, target: &ComponentTarget, dependent: &Dependent, names: BTreeSet<String>) {
        let _wishing = lock(&self.wishing);
        // A withdrawn target opens no streams, so no subscription is stored: the change of its Secret requeues the
        // component.
        if target.is_withdrawn() {
            return;
        }
        let names: BTreeSet<String> = names.into_iter().take(MOST).collect();
        let places = names.iter().map(|name| place(target, name)).collect();
        if !lock(&self.held).wish(dependent, places) {
            return;
        }
        if let Err(limit) = self.watches.want(target, dependent, names.iter().map(|name| interest(name))) {
            tracing::info!(component = %dependent.name, "{limit}; it is asked for");
        }
    }

    /// Returns the state of a namespace that a component waits for.
    pub(crate) fn shown(&self, target: &ComponentTarget, name: &str) -> Shown {
        let shown = lock(&self.held).shown.get(&place(target, name)).copied();
        match shown {
            Some(shown) if self.watches.is_healthy(target, [interest(name)]) => shown,
            _ => Shown::Nothing,
        }
    }

    /// Reports whether a component read the namespace a moment ago and found it.
    pub(crate) fn is_seen(&self, target: &ComponentTarget, name: &str) -> bool {
        lock(&self.held).seen.has(&place(target, name), Instant::now())
    }

    /// Notes that a namespace exists.
    pub(crate) fn saw(&self, target: &ComponentTarget, name: &str) {
        lock(&self.held).seen.saw(place(target, name), Instant::now());
    }

    /// Notes that a namespace is gone or is being deleted.
    pub(crate) fn missed(&self, target: &ComponentTarget, name: &str) {
        lock(&self.held).seen.missed(&place(target, name));
    }

    /// Ends the streams of a target whose Secret changed, and drops the state that they reported.
    pub(crate) fn access_changed(&self, secret: &str) {
        let _wishing = lock(&self.wishing);
        self.watches.access_changed(secret);
        let through = |(target, _): &Place| target.as_ref().is_some_and(|target| target.name == secret);
        let mut held = lock(&self.held);
        held.shown.retain(|place, _| !through(place));
        held.seen.forget(through);
        held.wishes.retain(|_, places| !places.iter().any(through));
    }

    /// Removes `dependent`, which is gone.
    pub(crate) fn forget(&self, dependent: &Dependent) {
        let _wishing = lock(&self.wishing);
        self.watches.leave_all(dependent);
        lock(&self.held).wish(dependent, BTreeSet::new());
    }
}

impl NamespaceState {
    /// Replaces a subscription; reports whether it changed.
    fn wish(&mut self, dependent: &Dependent, places: BTreeSet<Place>) -> bool {
        let before = self.wishes.remove(dependent).unwrap_or_default();
        let is_other = before != places;
        if !places.is_empty() {
            self.wishes.insert(dependent.clone(), places);
        }
        if is_other {
            let wanted: BTreeSet<&Place> = self.wishes.values().flatten().collect();
            self.shown.retain(|place, _| wanted.contains(place));
        }
        is_other
    }
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespaces").finish_non_exhaustive()
    }
}

fn place(target: &ComponentTarget, name: &str) -> Place {
    (target.key().cloned(), name.to_owned())
}

fn interest(name: &str) -> Interest {
    let kind = ApiResource::erase::<Namespace>(&());
    Interest { fields: Some(format!("{NAMED}{name}")), ..Interest::in_kind(&kind) }
}

fn shown(sighting: &Sighting) -> Shown {
    let is_ending = |object: &DynamicObject| object.metadata.deletion_timestamp.is_some();
    let ending = match sighting {
        Sighting::Listed { objects, .. } => objects.iter().any(is_ending),
        Sighting::Applied(object) => is_ending(object),
        Sighting::Deleted(_) => false,
    };
    if ending { Shown::Ending } else { Shown::Over }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(ending: bool) -> DynamicObject {
        let deleted = ending.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "n", "uid": "u", "deletionTimestamp": deleted});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .unwrap()
    }

    fn listed(objects: Vec<DynamicObject>) -> Sighting {
        Sighting::Listed { objects, version: "1".to_owned() }
    }

    #[test]
    fn a_namespace_ends_until_it_is_gone_or_another_one_is_there() {
        assert_eq!(shown(&listed(vec![namespace(true)])), Shown::Ending);
        assert_eq!(shown(&Sighting::Applied(Box::new(namespace(true)))), Shown::Ending);
        assert_eq!(shown(&Sighting::Deleted(Box::new(namespace(true)))), Shown::Over);
        assert_eq!(shown(&listed(vec![])), Shown::Over);
        assert_eq!(shown(&listed(vec![namespace(false)])), Shown::Over);
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let dependent =
            |name: &str| Dependent { namespace: "hub".into(), name: name.into(), owner: name.into() };
        let place = |name: &str| (None, name.to_owned());
        let places = |names: &[&str]| names.iter().map(|name| place(name)).collect::<BTreeSet<Place>>();
        let mut held = NamespaceState::default();
        assert!(held.wish(&dependent("a"), places(&["x", "y"])));
        assert!(!held.wish(&dependent("a"), places(&["x", "y"])), "the same as before");
        assert!(held.wish(&dependent("b"), places(&["y"])));
        held.shown = [(place("x"), Shown::Ending), (place("y"), Shown::Ending)].into();
        assert!(held.wish(&dependent("a"), BTreeSet::new()));
        assert_eq!(held.shown.keys().collect::<Vec<_>>(), [&place("y")]);
        held.wish(&dependent("b"), BTreeSet::new());
        assert!(held.shown.is_empty() && held.wishes.is_empty());
    }
}

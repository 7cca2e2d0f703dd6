//! Namespaces of targets that are being deleted, from streams of their own: a component that needs such a namespace
//! waits for its end, without requests meanwhile.

mod read_times;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kyma_sdk::{ObjectEvent, Process, WatchSpec, Watches};
use kyma_targets::{ComponentTarget, SecretKey};

use crate::component_key::ComponentKey;
use read_times::ReadTimes;

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
    watches: Watches<ComponentKey>,
    state: Arc<Mutex<NamespaceState>>,
    /// Held while subscriptions change: the stored state and the streams must agree on them.
    subscribing: Arc<Mutex<()>>,
}

/// A namespace of a target.
type NamespaceKey = (Option<SecretKey>, String);

#[derive(Default)]
struct NamespaceState {
    /// Namespaces that each component waits for.
    subscriptions: HashMap<ComponentKey, BTreeSet<NamespaceKey>>,
    /// Number of subscribers of each namespace.
    subscribers: HashMap<NamespaceKey, usize>,
    /// Last state of namespaces with subscribers.
    shown: HashMap<NamespaceKey, Shown>,
    read: ReadTimes,
}

impl Namespaces {
    /// Returns an empty registry. Streams call `wake`, which must not block.
    pub(crate) fn new(
        operator: &'static str,
        process: &Process,
        wake: impl Fn(&ComponentKey) + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::<Mutex<NamespaceState>>::default();
        let listening = Arc::clone(&state);
        let listener = move |target: Option<&SecretKey>,
                             watch_spec: &WatchSpec,
                             event: &ObjectEvent,
                             subscribers: &[ComponentKey]| {
            let name = watch_spec.fields.as_deref().and_then(|fields| fields.strip_prefix(NAMED));
            let Some(name) = name else { return };
            let shown = shown(event);
            let is_news = lock(&listening).show((target.cloned(), name.to_owned()), shown);
            if shown == Shown::Over && is_news {
                subscribers.iter().for_each(&wake);
            }
        };
        Self { watches: Watches::new(operator, process, listener), state, subscribing: Arc::default() }
    }

    /// Subscribes `component_key` to exactly these namespaces.
    pub(crate) fn subscribe(
        &self,
        target: &ComponentTarget,
        component_key: &ComponentKey,
        names: BTreeSet<String>,
    ) {
        let _subscribing = lock(&self.subscribing);
        // A withdrawn target opens no streams, so no subscription is stored: the change of its Secret requeues the
        // component.
        if target.is_withdrawn() {
            return;
        }
        let names: BTreeSet<String> = names.into_iter().take(MOST).collect();
        let keys = names.iter().map(|name| key(target, name)).collect();
        if !lock(&self.state).subscribe(component_key, keys) {
            return;
        }
        if let Err(limit) =
            self.watches.subscribe(target, component_key, names.iter().map(|name| watch_spec(name)))
        {
            tracing::info!(component = %component_key.name, "{limit}; it is asked for");
        }
    }

    /// Returns the state of a namespace that a component waits for.
    pub(crate) fn shown(&self, target: &ComponentTarget, name: &str) -> Shown {
        let shown = lock(&self.state).shown.get(&key(target, name)).copied();
        match shown {
            Some(shown) if self.watches.is_healthy(target, [watch_spec(name)]) => shown,
            _ => Shown::Nothing,
        }
    }

    /// Reports whether a component read the namespace a moment ago and found it.
    pub(crate) fn is_seen(&self, target: &ComponentTarget, name: &str) -> bool {
        lock(&self.state).read.has(&key(target, name), Instant::now())
    }

    /// Notes that a namespace exists.
    pub(crate) fn saw(&self, target: &ComponentTarget, name: &str) {
        lock(&self.state).read.saw(key(target, name), Instant::now());
    }

    /// Notes that a namespace is gone or is being deleted.
    pub(crate) fn missed(&self, target: &ComponentTarget, name: &str) {
        lock(&self.state).read.missed(&key(target, name));
    }

    /// Ends the streams of a target whose Secret changed, and drops the state that they reported.
    pub(crate) fn access_changed(&self, secret: &str) {
        let _subscribing = lock(&self.subscribing);
        self.watches.access_changed(secret);
        lock(&self.state).access_changed(secret);
    }

    /// Removes `component_key`, which is gone.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        let _subscribing = lock(&self.subscribing);
        self.watches.unsubscribe(component_key);
        lock(&self.state).subscribe(component_key, BTreeSet::new());
    }
}

impl NamespaceState {
    /// Replaces a subscription; reports whether it changed. Drops the state of namespaces without subscribers.
    fn subscribe(&mut self, component_key: &ComponentKey, keys: BTreeSet<NamespaceKey>) -> bool {
        let before = self.subscriptions.remove(component_key).unwrap_or_default();
        for key in keys.difference(&before) {
            *self.subscribers.entry(key.clone()).or_default() += 1;
        }
        for key in before.difference(&keys) {
            let Some(count) = self.subscribers.get_mut(key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.subscribers.remove(key);
                self.shown.remove(key);
            }
        }
        let is_other = before != keys;
        if !keys.is_empty() {
            self.subscriptions.insert(component_key.clone(), keys);
        }
        is_other
    }

    /// Stores the state of a namespace; reports whether it changed. An event of a stream that has just ended is not
    /// kept.
    fn show(&mut self, key: NamespaceKey, shown: Shown) -> bool {
        self.subscribers.contains_key(&key) && self.shown.insert(key, shown) != Some(shown)
    }

    /// Drops everything about the targets through a Secret.
    fn access_changed(&mut self, secret: &str) {
        let is_through = |(target, _): &NamespaceKey| target.as_ref().is_some_and(|key| key.name == secret);
        self.read.forget(is_through);
        let concerned = self.subscriptions.iter().filter(|(_, keys)| keys.iter().any(is_through));
        let concerned: Vec<ComponentKey> =
            concerned.map(|(component_key, _)| component_key.clone()).collect();
        for component_key in &concerned {
            self.subscribe(component_key, BTreeSet::new());
        }
    }
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespaces").finish_non_exhaustive()
    }
}

fn key(target: &ComponentTarget, name: &str) -> NamespaceKey {
    (target.key().cloned(), name.to_owned())
}

fn watch_spec(name: &str) -> WatchSpec {
    let kind = ApiResource::erase::<Namespace>(&());
    WatchSpec { fields: Some(format!("{NAMED}{name}")), ..WatchSpec::in_kind(&kind) }
}

fn shown(event: &ObjectEvent) -> Shown {
    let is_ending = |object: &DynamicObject| object.metadata.deletion_timestamp.is_some();
    let ending = match event {
        ObjectEvent::Listed { objects, .. } => objects.iter().any(is_ending),
        ObjectEvent::Applied(object) => is_ending(object),
        ObjectEvent::Deleted(_) => false,
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

    fn listed(objects: Vec<DynamicObject>) -> ObjectEvent {
        ObjectEvent::Listed { objects, version: "1".to_owned() }
    }

    #[test]
    fn a_namespace_ends_until_it_is_gone_or_another_one_is_there() {
        assert_eq!(shown(&listed(vec![namespace(true)])), Shown::Ending);
        assert_eq!(shown(&ObjectEvent::Applied(Box::new(namespace(true)))), Shown::Ending);
        assert_eq!(shown(&ObjectEvent::Deleted(Box::new(namespace(true)))), Shown::Over);
        assert_eq!(shown(&listed(vec![])), Shown::Over);
        assert_eq!(shown(&listed(vec![namespace(false)])), Shown::Over);
    }

    fn component_key(name: &str) -> ComponentKey {
        ComponentKey { namespace: "hub".into(), name: name.into(), owner: name.into() }
    }

    fn key(target: &str, name: &str) -> NamespaceKey {
        let (namespace, secret) = ("hub".to_owned(), target.to_owned());
        (Some(SecretKey { namespace, name: secret, key: "config".to_owned() }), name.to_owned())
    }

    fn keys(names: &[&str]) -> BTreeSet<NamespaceKey> {
        names.iter().map(|name| key("t", name)).collect()
    }

    fn is_empty(state: &NamespaceState) -> bool {
        state.subscriptions.is_empty() && state.subscribers.is_empty() && state.shown.is_empty()
    }

    #[test]
    fn state_of_a_namespace_is_dropped_with_its_last_subscriber() {
        let mut state = NamespaceState::default();
        assert!(state.subscribe(&component_key("a"), keys(&["x", "y"])));
        assert!(!state.subscribe(&component_key("a"), keys(&["x", "y"])), "the same as before");
        assert!(state.subscribe(&component_key("b"), keys(&["y"])));
        for name in ["x", "y"] {
            assert!(state.show(key("t", name), Shown::Ending));
        }
        assert!(!state.show(key("t", "y"), Shown::Ending), "the same as before");
        assert!(state.subscribe(&component_key("a"), BTreeSet::new()));
        assert_eq!(state.shown.keys().collect::<Vec<_>>(), [&key("t", "y")]);
        assert!(!state.show(key("t", "x"), Shown::Over), "an event of an ended stream");
        state.subscribe(&component_key("b"), BTreeSet::new());
        assert!(is_empty(&state));
    }

    #[test]
    fn a_changed_secret_drops_the_state_of_its_targets() {
        let mut state = NamespaceState::default();
        state.subscribe(&component_key("a"), keys(&["x"]));
        state.subscribe(&component_key("b"), [key("other", "x")].into());
        state.show(key("t", "x"), Shown::Ending);
        state.show(key("other", "x"), Shown::Ending);
        state.access_changed("t");
        assert_eq!(state.shown.keys().collect::<Vec<_>>(), [&key("other", "x")]);
        state.access_changed("other");
        assert!(is_empty(&state));
    }
}

//! Namespaces of targets that are being deleted, from streams of their own: a component that needs such a namespace
//! waits for its end, without requests meanwhile.

mod read_times;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kyma_controller::{ObjectEvent, Process, WatchSpec, Watches};
use kyma_targets::{ComponentTarget, SecretKey};
use parking_lot::Mutex;

use crate::component_key::ComponentKey;
use read_times::ReadTimes;

/// Maximum number of streams for one component; further namespaces are read instead.
const MAX_WATCHED_NAMESPACES: usize = 8;
/// Prefix of the field selector of a stream.
const NAME_SELECTOR_PREFIX: &str = "metadata.name=";

/// State of a namespace as a stream shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchedPhase {
    /// Unknown: there is no healthy stream.
    Unknown,
    /// The namespace is being deleted.
    Terminating,
    /// The namespace exists or not; in either case, objects or the namespace itself may be created.
    NotTerminating,
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
    phases: HashMap<NamespaceKey, WatchedPhase>,
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
            let name =
                watch_spec.fields.as_deref().and_then(|fields| fields.strip_prefix(NAME_SELECTOR_PREFIX));
            let Some(name) = name else { return };
            let phase = phase(event);
            let is_news = listening.lock().record_phase((target.cloned(), name.to_owned()), phase);
            if phase == WatchedPhase::NotTerminating && is_news {
                subscribers.iter().for_each(&wake);
            }
        };
        Self { watches: Watches::new(operator, process, listener), state, subscribing: Arc::default() }
    }

    /// Subscribes a component to exactly these namespaces.
    pub(crate) fn subscribe(
        &self,
        target: &ComponentTarget,
        component_key: &ComponentKey,
        names: BTreeSet<String>,
    ) {
        let _subscribing = self.subscribing.lock();
        // A withdrawn target opens no streams, so no subscription is stored: the change of its Secret requeues the
        // component.
        if target.is_withdrawn() {
            return;
        }
        let names: BTreeSet<String> = names.into_iter().take(MAX_WATCHED_NAMESPACES).collect();
        let keys = names.iter().map(|name| key(target, name)).collect();
        if !self.state.lock().subscribe(component_key, keys) {
            return;
        }
        if let Err(limit) =
            self.watches.subscribe(target, component_key, names.iter().map(|name| watch_spec(name)))
        {
            tracing::info!(component = %component_key.name, "{limit}; its deletion is polled");
        }
    }

    /// Returns the state of a namespace that a component waits for.
    pub(crate) fn phase(&self, target: &ComponentTarget, name: &str) -> WatchedPhase {
        let phase = self.state.lock().phases.get(&key(target, name)).copied();
        match phase {
            Some(phase) if self.watches.is_healthy(target, [watch_spec(name)]) => phase,
            _ => WatchedPhase::Unknown,
        }
    }

    /// Reports whether a component read the namespace a moment ago and found it.
    pub(crate) fn was_read(&self, target: &ComponentTarget, name: &str) -> bool {
        self.state.lock().read.has(&key(target, name), Instant::now())
    }

    /// Records that a namespace exists.
    pub(crate) fn record_read(&self, target: &ComponentTarget, name: &str) {
        self.state.lock().read.record(key(target, name), Instant::now());
    }

    /// Records that a namespace is gone or is being deleted.
    pub(crate) fn forget_read(&self, target: &ComponentTarget, name: &str) {
        self.state.lock().read.remove(&key(target, name));
    }

    /// Ends the streams of a target whose Secret changed, and drops the state that they reported.
    pub(crate) fn access_changed(&self, secret: &str) {
        let _subscribing = self.subscribing.lock();
        self.watches.access_changed(secret);
        self.state.lock().access_changed(secret);
    }

    /// Removes a component that is gone.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        let _subscribing = self.subscribing.lock();
        self.watches.unsubscribe(component_key);
        self.state.lock().subscribe(component_key, BTreeSet::new());
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
                self.phases.remove(key);
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
    fn record_phase(&mut self, key: NamespaceKey, phase: WatchedPhase) -> bool {
        self.subscribers.contains_key(&key) && self.phases.insert(key, phase) != Some(phase)
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
    WatchSpec { fields: Some(format!("{NAME_SELECTOR_PREFIX}{name}")), ..WatchSpec::in_kind(&kind) }
}

fn phase(event: &ObjectEvent) -> WatchedPhase {
    let is_terminating = |object: &DynamicObject| object.metadata.deletion_timestamp.is_some();
    let terminating = match event {
        ObjectEvent::Listed { objects, .. } => objects.iter().any(is_terminating),
        ObjectEvent::Applied(object) => is_terminating(object),
        ObjectEvent::Deleted(_) => false,
    };
    if terminating { WatchedPhase::Terminating } else { WatchedPhase::NotTerminating }
}

#[cfg(test)]
impl Namespaces {
    /// Reports whether no component waits for a namespace.
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.count() == 0 && self.state.lock().is_empty()
    }
}

#[cfg(test)]
impl NamespaceState {
    /// Reports whether no namespace has a subscriber.
    fn is_empty(&self) -> bool {
        self.subscriptions.is_empty() && self.subscribers.is_empty() && self.phases.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(terminating: bool) -> DynamicObject {
        let deleted = terminating.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "n", "uid": "u", "deletionTimestamp": deleted});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .unwrap()
    }

    fn listed(objects: Vec<DynamicObject>) -> ObjectEvent {
        ObjectEvent::Listed { objects, version: "1".to_owned() }
    }

    #[test]
    fn a_namespace_terminates_until_it_is_deleted_or_recreated() {
        assert_eq!(phase(&listed(vec![namespace(true)])), WatchedPhase::Terminating);
        assert_eq!(phase(&ObjectEvent::Applied(Box::new(namespace(true)))), WatchedPhase::Terminating);
        assert_eq!(phase(&ObjectEvent::Deleted(Box::new(namespace(true)))), WatchedPhase::NotTerminating);
        assert_eq!(phase(&listed(vec![])), WatchedPhase::NotTerminating);
        assert_eq!(phase(&listed(vec![namespace(false)])), WatchedPhase::NotTerminating);
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

    #[test]
    fn state_of_a_namespace_is_dropped_with_its_last_subscriber() {
        let mut state = NamespaceState::default();
        assert!(state.subscribe(&component_key("a"), keys(&["x", "y"])));
        assert!(!state.subscribe(&component_key("a"), keys(&["x", "y"])), "the same as before");
        assert!(state.subscribe(&component_key("b"), keys(&["y"])));
        for name in ["x", "y"] {
            assert!(state.record_phase(key("t", name), WatchedPhase::Terminating));
        }
        assert!(!state.record_phase(key("t", "y"), WatchedPhase::Terminating), "the same as before");
        assert!(state.subscribe(&component_key("a"), BTreeSet::new()));
        assert_eq!(state.phases.keys().collect::<Vec<_>>(), [&key("t", "y")]);
        assert!(
            !state.record_phase(key("t", "x"), WatchedPhase::NotTerminating),
            "an event of an ended stream"
        );
        state.subscribe(&component_key("b"), BTreeSet::new());
        assert!(state.is_empty());
    }

    #[test]
    fn a_changed_secret_drops_the_state_of_its_targets() {
        let mut state = NamespaceState::default();
        state.subscribe(&component_key("a"), keys(&["x"]));
        state.subscribe(&component_key("b"), [key("other", "x")].into());
        state.record_phase(key("t", "x"), WatchedPhase::Terminating);
        state.record_phase(key("other", "x"), WatchedPhase::Terminating);
        state.access_changed("t");
        assert_eq!(state.phases.keys().collect::<Vec<_>>(), [&key("other", "x")]);
        state.access_changed("other");
        assert!(state.is_empty());
    }
}

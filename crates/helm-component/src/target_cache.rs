//! Cache of the owned objects on targets: the latest state from watches, reduced on arrival.
//!
//! One stream for each kind and target serves all components there. A component is requeued when the identity, the
//! operator's fields or the health of one of its objects changed.

mod health;
mod index;
mod objects;
mod store;
mod target_state;
mod targets;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use kyma_controller::{
    Content, Failure, Listener, ObjectEvent, Process, ResourceVersion, WatchLimit, WatchSpec, Watches,
};
use kyma_health::Health;
use kyma_object_set::{Cluster, GroupKind, Identity, Inventory, Kinds, Mapping, ObservedObject};
use kyma_targets::{ComponentTarget, SecretKey};
use parking_lot::Mutex;

use crate::component_key::ComponentKey;
use crate::expressions::Rules;
use crate::watch_wait::UnsyncedKind;
use store::Store;
use target_state::Subscription;

/// Time for which discovery may be outdated after a change of CRDs.
const MAX_DISCOVERY_LAG: Duration = Duration::from_secs(20);
/// Minimum pause between two discoveries of a target.
const MIN_DISCOVERY_PAUSE: Duration = Duration::from_millis(200);

/// Last watched state of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WatchedObject {
    /// Fields for drift and deletion.
    pub observed: ObservedObject,
    /// Health; `None` for kinds of which only metadata is watched.
    pub health: Option<Health>,
    /// Time at which this process first saw it failed; `None` while it has not failed.
    pub failed_since: Option<Timestamp>,
    /// Version of the module that the operator annotated.
    pub version: Option<String>,
}

/// Watched state of a component's objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// All objects with the component's owner label, and the requested ones whatever their owner.
    pub objects: BTreeMap<Identity, WatchedObject>,
    /// Objects that were applied and that no stream has reported since, so that their health is outdated.
    pub unreported: BTreeSet<Identity>,
    /// Whether every stream that the component subscribes to is complete and healthy; true without subscriptions.
    pub complete: bool,
    /// Objects that were seen before the component had the expressions that determine their health.
    pub unjudged: BTreeSet<Identity>,
}

/// Rules for the health of a component's objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judging {
    /// Kind of the one object whose health counts.
    pub manager: Option<GroupKind>,
    /// The component's own expressions.
    pub rules: Arc<Rules>,
}

/// The watches of all components on all targets. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TargetCache {
    watches: Watches<ComponentKey>,
    store: Arc<Store>,
    /// Held while subscriptions change: store and streams must agree on them.
    subscribing: Arc<Mutex<()>>,
}

impl TargetCache {
    /// Returns an empty cache. Streams call `wake`, which must not block.
    pub(crate) fn new(
        operator: &'static str,
        process: &Process,
        wake: impl Fn(&ComponentKey) + Send + Sync + 'static,
    ) -> Self {
        let store = Arc::new(Store::new(operator));
        let listener = CacheListener { store: Arc::clone(&store), wake };
        Self { watches: Watches::new(operator, process, listener), store, subscribing: Arc::default() }
    }

    /// Subscribes a component to exactly these kinds, and to the target's CRDs and APIServices if it waits for kinds.
    pub(crate) fn subscribe(
        &self,
        target: &ComponentTarget,
        component_key: &ComponentKey,
        kinds: &BTreeSet<GroupKind>,
        judging: &Judging,
        served: &Kinds,
        kinds_may_come: bool,
    ) -> Result<(), WatchLimit> {
        let watch_specs = watch_specs(kinds, judging, served, kinds_may_come);
        self.subscribe_to(target, component_key, watch_specs, &judging.rules)
    }

    fn subscribe_to(
        &self,
        target: &ComponentTarget,
        component_key: &ComponentKey,
        watch_specs: Vec<WatchSpec>,
        rules: &Arc<Rules>,
    ) -> Result<(), WatchLimit> {
        let _subscribing = self.subscribing.lock();
        let subscription = Subscription::new(watch_specs.clone(), Arc::clone(rules));
        self.store.subscribe(target.key(), component_key, subscription);
        self.watches.subscribe(target, component_key, watch_specs)
    }

    /// Returns the watched state of the component's objects, and of those in `also`.
    pub(crate) fn snapshot(
        &self,
        target: &ComponentTarget,
        component_key: &ComponentKey,
        also: &Inventory,
    ) -> Snapshot {
        let subscribed = self.store.subscribed(target.key(), component_key);
        let complete = subscribed.is_empty()
            || self.store.all_listed(target.key(), &subscribed)
                && self.watches.is_healthy(target, subscribed);
        let objects = self.store.objects(target.key(), &component_key.owner, also);
        let unjudged = self.store.unjudged(target.key(), component_key);
        let unreported = self.store.unreported(target.key(), &objects);
        Snapshot { objects, unreported, complete, unjudged }
    }

    /// Returns the subscribed kinds of a component whose streams are unhealthy, each with the cause if it is known.
    pub(crate) fn unsynced_kinds(
        &self,
        target: &ComponentTarget,
        component_key: &ComponentKey,
    ) -> Vec<UnsyncedKind> {
        let subscribed = self.store.subscribed(target.key(), component_key);
        let unhealthy = self.watches.unhealthy(target, subscribed);
        let kind = |watch_spec: WatchSpec| GroupKind::new(&watch_spec.group, &watch_spec.kind);
        let mut unsynced = BTreeMap::<GroupKind, Option<Failure>>::new();
        for (watch_spec, why) in unhealthy {
            let known = unsynced.entry(kind(watch_spec)).or_default();
            *known = known.take().or(why);
        }
        unsynced.into_iter().collect()
    }

    /// Determines the health of an object that was just read, unless its stream did so meanwhile.
    pub(crate) fn judge(
        &self,
        target: &ComponentTarget,
        rules: &Rules,
        identity: &Identity,
        object: &DynamicObject,
    ) {
        self.store.judge(target.key(), rules, identity, object);
    }

    /// Records that the health of all outdated objects of a component was determined.
    pub(crate) fn all_judged(&self, target: &ComponentTarget, component_key: &ComponentKey) {
        self.store.all_judged(target.key(), component_key);
    }

    /// Returns the objects of an inventory that have finished ([`kyma_health::is_finished`]). Objects that are gone are
    /// returned once.
    pub(crate) fn finished(&self, target: &ComponentTarget, inventory: &Inventory) -> Vec<Identity> {
        self.store.finished(target.key(), inventory)
    }

    /// Takes the result of an apply at this resourceVersion, unless the stream is further already.
    pub(crate) fn record_apply(
        &self,
        target: &ComponentTarget,
        identity: &Identity,
        observed: ObservedObject,
        version: Option<String>,
        revision: Option<ResourceVersion>,
    ) {
        self.store.record_apply(target.key(), identity, (observed, version), revision);
    }

    /// Registers the component on the target and returns the target, with the state that all components there share.
    /// The state is kept until the component is removed with [`forget`](Self::forget).
    pub(crate) fn cluster(&self, target: &ComponentTarget, component_key: &ComponentKey) -> Cluster {
        let (discovery, object_locks) = self.store.register_component(target.key(), component_key);
        Cluster { client: target.client(), discovery, object_locks, dry_run: None, deleter: None }
    }

    /// Reports whether CRDs or aggregated APIs of the target changed recently, so that discovery may lag behind.
    pub(crate) fn has_recent_kind_changes(&self, target: &ComponentTarget) -> bool {
        self.pause_before_discovery(target).is_some()
    }

    /// Returns the pause until the next discovery of the target is useful; `None` once its kinds have settled.
    pub(crate) fn pause_before_discovery(&self, target: &ComponentTarget) -> Option<Duration> {
        pause_before_discovery(self.store.kinds_unchanged_for(target.key())?)
    }

    /// Ends the streams of a target whose Secret changed, and drops the state that they reported.
    pub(crate) fn access_changed(&self, secret: &str) {
        let _subscribing = self.subscribing.lock();
        self.watches.access_changed(secret);
        self.store.access_changed(secret);
    }

    /// Removes a component that is gone.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        let _subscribing = self.subscribing.lock();
        self.watches.unsubscribe(component_key);
        self.store.forget(component_key);
    }
}

/// Stores the events of streams, and requeues the components that they concern.
struct CacheListener<W> {
    store: Arc<Store>,
    wake: W,
}

impl<W: Fn(&ComponentKey) + Send + Sync + 'static> Listener<ComponentKey> for CacheListener<W> {
    fn is_expensive(&self, target: Option<&SecretKey>, watch_spec: &WatchSpec) -> bool {
        self.store.has_rules(target, watch_spec)
    }

    fn on_event(
        &self,
        target: Option<&SecretKey>,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        subscribers: &[ComponentKey],
    ) {
        let affected = self.store.take(target, watch_spec, event);
        subscribers.iter().filter(|component_key| affected.concerns(component_key)).for_each(&self.wake);
    }

    /// Requeues all subscribers: without the watch, changes of health would go unnoticed.
    fn on_refused(&self, _target: Option<&SecretKey>, _watch_spec: &WatchSpec, subscribers: &[ComponentKey]) {
        subscribers.iter().for_each(&self.wake);
    }
}

impl std::fmt::Debug for TargetCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetCache").finish_non_exhaustive()
    }
}

/// Returns the pause before the next discovery, by the time since kinds changed: it grows, and ends once the watches
/// of CRDs and APIServices alone are to report changes.
fn pause_before_discovery(unchanged: Duration) -> Option<Duration> {
    (unchanged < MAX_DISCOVERY_LAG).then(|| (unchanged / 2).max(MIN_DISCOVERY_PAUSE))
}

/// Returns the streams for these kinds: limited by owner label, with whole objects if health needs them.
fn watch_specs(
    kinds: &BTreeSet<GroupKind>,
    judging: &Judging,
    served: &Kinds,
    kinds_may_come: bool,
) -> Vec<WatchSpec> {
    let owned = kinds.iter().filter_map(|kind| served.preferred(kind)).filter(|mapping| mapping.can("watch"));
    let mut watch_specs: Vec<WatchSpec> = owned.map(|mapping| of_kind(mapping, judging)).collect();
    if kinds_may_come {
        let arrivals =
            [("apiextensions.k8s.io", "CustomResourceDefinition"), ("apiregistration.k8s.io", "APIService")];
        let arrivals =
            arrivals.iter().filter_map(|(group, kind)| served.preferred(&GroupKind::new(*group, *kind)));
        watch_specs.extend(arrivals.map(|mapping| WatchSpec::in_kind(&mapping.resource)));
    }
    watch_specs
}

/// Reports whether the health of objects of a kind counts: workloads, and other kinds that `helm --wait` waits for.
pub(crate) fn health_counts(kind: &GroupKind) -> bool {
    let (group, name) = (kind.group.as_str(), kind.kind.as_str());
    kyma_health::needs_whole_object(group, name)
        || matches!(
            (group, name),
            ("", "PersistentVolumeClaim" | "Pod" | "ReplicationController" | "Service")
                | ("apps", "ReplicaSet")
                | ("apiregistration.k8s.io", "APIService")
        )
}

fn of_kind(mapping: &Mapping, judging: &Judging) -> WatchSpec {
    let mut watch_spec = WatchSpec::in_kind(&mapping.resource).owned();
    let kind = mapping.gvk().group_kind();
    if health_counts(&kind) || judging.manager.as_ref() == Some(&kind) || judging.rules.has(&kind) {
        watch_spec.content = Content::Whole;
    }
    watch_spec
}

#[cfg(test)]
impl TargetCache {
    /// Reports whether no component uses a target.
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.count() == 0 && self.store.is_empty()
    }
}

#[cfg(test)]
mod tests;

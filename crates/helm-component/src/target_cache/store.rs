//! State behind the watches, by target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicObject;
use kyma_controller::{ObjectEvent, ResourceVersion, WatchSpec};
use kyma_object_set::{Discovery, GroupKind, Identity, Inventory, ObjectLocks, ObservedObject};
use kyma_targets::SecretKey;
use parking_lot::{Mutex, MutexGuard};

use super::WatchedObject;
use super::objects::AffectedComponents;
use super::target_state::{Subscription, TargetState};
use super::targets::TargetStates;
use super::verdict::{self, Verdict};
use crate::component_key::ComponentKey;
use crate::expressions::Rules;

/// State of all targets that components use.
pub(super) struct Store {
    manager: &'static str,
    targets: Mutex<TargetStates>,
}

impl Store {
    pub(super) fn new(manager: &'static str) -> Self {
        Self { manager, targets: Mutex::default() }
    }

    /// Subscribes a component to exactly these streams of a target, and cancels its subscriptions on other targets.
    pub(super) fn subscribe(
        &self,
        target: Option<&SecretKey>,
        component_key: &ComponentKey,
        subscription: Subscription,
    ) {
        let mut targets = self.targets.lock();
        targets.leave_others(target, component_key);
        targets.register(target, component_key).subscribe(component_key, subscription);
    }

    /// Returns the streams of a component's subscription.
    pub(super) fn subscribed(
        &self,
        target: Option<&SecretKey>,
        component_key: &ComponentKey,
    ) -> Vec<WatchSpec> {
        let watch_specs =
            |state: &TargetState| Some(state.subscriptions.get(component_key)?.watch_specs.clone());
        self.read(target, |state| watch_specs(state).unwrap_or_default())
    }

    pub(super) fn all_listed(&self, target: Option<&SecretKey>, watch_specs: &[WatchSpec]) -> bool {
        self.read(target, |state| state.all_listed(watch_specs))
    }

    /// Returns the objects of an owner, and those in `also`.
    pub(super) fn objects(
        &self,
        target: Option<&SecretKey>,
        owner: &str,
        also: &Inventory,
    ) -> BTreeMap<Identity, WatchedObject> {
        self.read(target, |state| state.objects(owner, also))
    }

    /// Selects the objects that the operator applied and that no stream of whole objects has reported since.
    pub(super) fn unreported(
        &self,
        target: Option<&SecretKey>,
        objects: &BTreeMap<Identity, WatchedObject>,
    ) -> BTreeSet<Identity> {
        self.read(target, |state| state.unreported(objects))
    }

    pub(super) fn record_apply(
        &self,
        target: Option<&SecretKey>,
        identity: &Identity,
        applied: (ObservedObject, Option<String>),
        revision: Option<ResourceVersion>,
    ) {
        // Without a state no component uses the target any more, or its access has changed.
        if let Some(state) = self.targets.lock().get_mut(target) {
            state.record_apply(identity, applied, revision);
        }
    }

    /// Registers the component on the target and returns the state that all components there share.
    pub(super) fn register_component(
        &self,
        target: Option<&SecretKey>,
        component_key: &ComponentKey,
    ) -> (Arc<Discovery>, Arc<ObjectLocks>) {
        let mut targets = self.targets.lock();
        let state = targets.register(target, component_key);
        (Arc::clone(&state.discovery), Arc::clone(&state.object_locks))
    }

    /// Returns the time since CRDs or aggregated APIs changed; `None` if they never did.
    pub(super) fn kinds_unchanged_for(&self, target: Option<&SecretKey>) -> Option<Duration> {
        self.read(target, |state| state.kinds_changed.map(|changed| changed.elapsed()))
    }

    /// Returns the objects of a component that were seen before it had its rules.
    pub(super) fn unjudged(
        &self,
        target: Option<&SecretKey>,
        component_key: &ComponentKey,
    ) -> BTreeSet<Identity> {
        self.read(target, |state| state.unjudged(component_key))
    }

    /// Takes the verdict on an object that was read, unless its stream was faster or the rules have changed.
    pub(super) fn judge(
        &self,
        target: Option<&SecretKey>,
        rules: &Rules,
        identity: &Identity,
        object: &DynamicObject,
    ) {
        let verdict = Verdict::by(rules, &identity.group_kind(), object);
        if let Some(state) = self.targets.lock().get_mut(target) {
            state.judge(rules, identity, object, verdict);
        }
    }

    pub(super) fn all_judged(&self, target: Option<&SecretKey>, component_key: &ComponentKey) {
        if let Some(state) = self.targets.lock().get_mut(target) {
            state.all_judged(component_key);
        }
    }

    pub(super) fn finished(&self, target: Option<&SecretKey>, inventory: &Inventory) -> Vec<Identity> {
        let mut targets = self.targets.lock();
        targets.get_mut(target).map(|state| state.finished(inventory)).unwrap_or_default()
    }

    pub(super) fn forget(&self, component_key: &ComponentKey) {
        self.targets.lock().forget(component_key);
    }

    pub(super) fn access_changed(&self, secret: &str) {
        self.targets.lock().drop_secret(secret);
    }

    /// Returns whether expressions determine the health of a watch's objects.
    pub(super) fn has_rules(&self, target: Option<&SecretKey>, watch_spec: &WatchSpec) -> bool {
        let kind = GroupKind::new(&watch_spec.group, &watch_spec.kind);
        let rules = self.read(target, |state| Arc::clone(&state.rules));
        verdict::is_judged(watch_spec) && rules.values().any(|rules| rules.has(&kind))
    }

    pub(super) fn take(
        &self,
        target: Option<&SecretKey>,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
    ) -> AffectedComponents {
        // Expressions are evaluated without the lock, as they take time.
        let (mut targets, verdicts) = self.judged(target, watch_spec, event);
        // The last subscriber left while the stream delivered the event.
        let Some(state) = targets.get_mut(target) else { return AffectedComponents::default() };
        state.take(self.manager, watch_spec, event, verdicts)
    }

    /// Determines the health of a stream's objects, by rules that stay valid while the returned lock is held. `None`
    /// stands for metadata alone.
    fn judged(
        &self,
        target: Option<&SecretKey>,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
    ) -> (MutexGuard<'_, TargetStates>, Vec<Option<Verdict>>) {
        let objects = match event {
            ObjectEvent::Listed { objects, .. } => objects.as_slice(),
            ObjectEvent::Applied(object) | ObjectEvent::Deleted(object) => std::slice::from_ref(&**object),
        };
        if !verdict::is_judged(watch_spec) {
            return (self.targets.lock(), vec![None; objects.len()]);
        }
        let mut rules = self.read(target, |state| Arc::clone(&state.rules));
        loop {
            let verdicts = verdict::verdicts(&rules, watch_spec, objects);
            let targets = self.targets.lock();
            // A user changed the rules of a component meanwhile. That is rare, so this loop ends.
            match targets.get(target).map(|state| Arc::clone(&state.rules)) {
                Some(now) if !Arc::ptr_eq(&now, &rules) => rules = now,
                _ => return (targets, verdicts),
            }
        }
    }

    /// Reads the state of a target; the default if it has none.
    fn read<T: Default>(&self, target: Option<&SecretKey>, what: impl FnOnce(&TargetState) -> T) -> T {
        self.targets.lock().get(target).map(what).unwrap_or_default()
    }
}

#[cfg(test)]
impl Store {
    /// Reports whether no target has a state.
    pub(super) fn is_empty(&self) -> bool {
        self.targets.lock().is_empty()
    }
}

#[cfg(test)]
mod tests;

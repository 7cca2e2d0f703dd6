//! Results of hooks on targets, as separate streams show them. Kubernetes may delete a Job as soon as it is done,
//! before a reconcile reads it, so a result that a stream showed counts after the deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::core::DynamicObject;
use kyma_api::{annotations, labels};
use kyma_controller::{ObjectEvent, Process, WatchSpec, Watches};
use kyma_helm::hooks::{self, HookState};
use kyma_object_set::{GroupKind, Identity};
use kyma_targets::{ComponentTarget, SecretKey};
use parking_lot::Mutex;

use crate::component_key::ComponentKey;

/// Maximum wait for the first list of a stream: events of a hook before that list may be missed.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a stream may take to report an object that is already gone.
const DELETION_REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a failure that is kept, in characters.
const MAX_FAILURE_CHARS: usize = 1024;

/// Results of the hooks that components wait for, as streams show them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HookWatches {
    watches: Watches<ComponentKey>,
    state: Arc<Mutex<HookSubscriptions>>,
    /// Held while subscriptions change: the stored state and the streams must agree on them.
    subscribing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct HookSubscriptions {
    subscriptions: HashMap<ComponentKey, HookSubscription>,
}

/// Hooks that a component waits for.
#[derive(Default)]
struct HookSubscription {
    target: Option<SecretKey>,
    /// Runs by the mark on their objects.
    runs: BTreeMap<String, HookRun>,
}

/// Hooks of one event that have an end to wait for.
#[derive(Default)]
struct HookRun {
    watch_specs: Vec<WatchSpec>,
    hooks: BTreeMap<Identity, AwaitedHook>,
    /// Beginning of the wait for the first lists of its streams.
    first_lists_awaited: Option<Instant>,
}

/// Known state of a hook.
#[derive(Default)]
struct AwaitedHook {
    state: HookState,
    /// Time of the first read that did not find it.
    first_missed: Option<Instant>,
}

/// Hooks of one run for a subscription.
pub(crate) struct HookRunSpec {
    /// Mark of the run on their objects.
    pub(crate) mark: String,
    /// Streams of their kinds.
    pub(crate) watch_specs: Vec<WatchSpec>,
    /// Hooks that have an end to wait for.
    pub(crate) hooks: BTreeSet<Identity>,
}

impl HookWatches {
    /// Returns an empty registry. Streams call `wake`, which must not block.
    pub(crate) fn new(
        operator: &'static str,
        process: &Process,
        wake: impl Fn(&ComponentKey) + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::<Mutex<HookSubscriptions>>::default();
        let listening = Arc::clone(&state);
        let listener = move |target: Option<&SecretKey>,
                             watch_spec: &WatchSpec,
                             event: &ObjectEvent,
                             subscribers: &[ComponentKey]| {
            let concerned: Vec<&ComponentKey> =
                subscribers.iter().filter(|component_key| concerns(event, component_key)).collect();
            {
                let mut state = listening.lock();
                for component_key in &concerned {
                    state.take(component_key, target, watch_spec, event);
                }
            }
            concerned.into_iter().for_each(&wake);
        };
        Self { watches: Watches::new(operator, process, listener), state, subscribing: Arc::default() }
    }

    /// Subscribes a component to the hooks of a run. Returns the remaining time for the first lists of its streams;
    /// `None` once they have arrived, have failed or took too long. A list requeues the component.
    pub(crate) fn subscribe(
        &self,
        target: &ComponentTarget,
        component_key: &ComponentKey,
        run: &HookRunSpec,
    ) -> Option<Duration> {
        if run.watch_specs.is_empty() || !self.open(target, component_key, run) {
            return None;
        }
        let unhealthy = self.watches.unhealthy(target, run.watch_specs.clone());
        let is_awaited = unhealthy.iter().any(|(_, why)| why.is_none());
        is_awaited
            .then(|| self.state.lock().remaining_list_time(component_key, &run.mark, Instant::now()))
            .flatten()
    }

    fn open(&self, target: &ComponentTarget, component_key: &ComponentKey, run: &HookRunSpec) -> bool {
        let _subscribing = self.subscribing.lock();
        // A withdrawn target opens no streams: the change of its Secret requeues the component.
        if target.is_withdrawn() {
            return false;
        }
        let streams = self.state.lock().subscribe(target.key(), component_key, run);
        let refused = self.watches.subscribe(target, component_key, streams).err();
        if let Some(limit) = &refused {
            tracing::info!(component = %component_key.name, "{limit}; the results of hooks are polled");
        }
        refused.is_none()
    }

    /// Returns the state of a hook of the run with this mark, as streams showed it.
    pub(super) fn hook_state(&self, component_key: &ComponentKey, mark: &str, hook: &Identity) -> HookState {
        let mut state = self.state.lock();
        state.awaited(component_key, mark, hook).map(|awaited| awaited.state.clone()).unwrap_or_default()
    }

    /// Returns the remaining time for a stream to report a hook whose object is missing.
    pub(super) fn remaining_report_time(
        &self,
        component_key: &ComponentKey,
        mark: &str,
        hook: &Identity,
    ) -> Duration {
        let mut state = self.state.lock();
        let awaited = state.awaited(component_key, mark, hook);
        awaited.map(|awaited| awaited.remaining_report_time(Instant::now())).unwrap_or_default()
    }

    /// Limits the subscriptions of a component to these runs, and drops the state of others.
    pub(super) fn retain(&self, target: &ComponentTarget, component_key: &ComponentKey, marks: &[String]) {
        let _subscribing = self.subscribing.lock();
        let left = self.state.lock().retain(component_key, marks);
        match left {
            Some(left) if left.is_empty() => self.watches.unsubscribe(component_key),
            Some(left) => {
                if let Err(limit) = self.watches.subscribe(target, component_key, left) {
                    tracing::info!(component = %component_key.name, "{limit}; the results of hooks are polled");
                }
            }
            None => {}
        }
    }

    /// Ends the streams of a target whose Secret changed. Known results of hooks stay.
    pub(crate) fn access_changed(&self, secret: &str) {
        let _subscribing = self.subscribing.lock();
        self.watches.access_changed(secret);
    }

    /// Removes a component that is gone.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        let _subscribing = self.subscribing.lock();
        self.watches.unsubscribe(component_key);
        self.state.lock().subscriptions.remove(component_key);
    }
}

impl HookSubscriptions {
    /// Adds a run; returns all streams that the component needs now.
    fn subscribe(
        &mut self,
        target: Option<&SecretKey>,
        component_key: &ComponentKey,
        spec: &HookRunSpec,
    ) -> Vec<WatchSpec> {
        let subscription = self.subscriptions.entry(component_key.clone()).or_default();
        if subscription.target.as_ref() != target {
            *subscription = HookSubscription { target: target.cloned(), runs: BTreeMap::new() };
        }
        let run = subscription.runs.entry(spec.mark.clone()).or_default();
        run.watch_specs.clone_from(&spec.watch_specs);
        for hook in &spec.hooks {
            run.hooks.entry(hook.clone()).or_default();
        }
        subscription.watch_specs()
    }

    /// Returns the remaining time for the first lists of a run's streams.
    fn remaining_list_time(
        &mut self,
        component_key: &ComponentKey,
        mark: &str,
        now: Instant,
    ) -> Option<Duration> {
        let run = self.subscriptions.get_mut(component_key)?.runs.get_mut(mark)?;
        let since = *run.first_lists_awaited.get_or_insert(now);
        FIRST_LIST_TIMEOUT.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    /// Drops other runs; returns the streams that are still needed, if that changed.
    fn retain(&mut self, component_key: &ComponentKey, marks: &[String]) -> Option<Vec<WatchSpec>> {
        let subscription = self.subscriptions.get_mut(component_key)?;
        let before = subscription.runs.len();
        subscription.runs.retain(|mark, _| marks.contains(mark));
        let (after, left) = (subscription.runs.len(), subscription.watch_specs());
        if after == 0 {
            self.subscriptions.remove(component_key);
        }
        (after != before).then_some(left)
    }

    fn awaited(
        &mut self,
        component_key: &ComponentKey,
        mark: &str,
        hook: &Identity,
    ) -> Option<&mut AwaitedHook> {
        self.subscriptions.get_mut(component_key)?.runs.get_mut(mark)?.hooks.get_mut(hook)
    }

    fn take(
        &mut self,
        component_key: &ComponentKey,
        target: Option<&SecretKey>,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(component_key) else { return };
        if subscription.target.as_ref() != target {
            return;
        }
        let kind = GroupKind::new(&watch_spec.group, &watch_spec.kind);
        for (mark, run) in &mut subscription.runs {
            match event {
                ObjectEvent::Listed { objects, .. } => run.take_list(mark, &kind, objects),
                ObjectEvent::Applied(object) => run.take_one(mark, &kind, object, false),
                ObjectEvent::Deleted(object) => run.take_one(mark, &kind, object, true),
            }
        }
    }
}

impl HookSubscription {
    fn watch_specs(&self) -> Vec<WatchSpec> {
        self.runs.values().flat_map(|run| run.watch_specs.clone()).collect()
    }
}

impl HookRun {
    fn take_list(&mut self, mark: &str, kind: &GroupKind, objects: &[DynamicObject]) {
        let listed: BTreeSet<Identity> = objects
            .iter()
            .filter(|object| is_of(mark, object))
            .map(|object| identity(kind, object))
            .collect();
        // The object was deleted while the stream was interrupted.
        let is_lost = |hook: &Identity, awaited: &AwaitedHook| {
            hook.group_kind() == *kind && awaited.state == HookState::Running && !listed.contains(hook)
        };
        for (hook, awaited) in &mut self.hooks {
            if is_lost(hook, awaited) {
                awaited.state = HookState::Gone;
            }
        }
        for object in objects {
            self.take_one(mark, kind, object, false);
        }
    }

    fn take_one(&mut self, mark: &str, kind: &GroupKind, object: &DynamicObject, gone: bool) {
        if !is_of(mark, object) {
            return;
        }
        let Some(awaited) = self.hooks.get_mut(&identity(kind, object)) else { return };
        // A result is final, whatever happens to the object.
        if matches!(awaited.state, HookState::Ended(_)) {
            return;
        }
        let deleting = object.metadata.deletion_timestamp.is_some();
        awaited.state = match hooks::end(&object.data, deleting) {
            Some(end) => HookState::Ended(end.map_err(|why| why.chars().take(MAX_FAILURE_CHARS).collect())),
            None if gone => HookState::Gone,
            None => HookState::Running,
        };
    }
}

impl AwaitedHook {
    fn remaining_report_time(&mut self, now: Instant) -> Duration {
        let first_missed = *self.first_missed.get_or_insert(now);
        DELETION_REPORT_TIMEOUT.saturating_sub(now.saturating_duration_since(first_missed))
    }
}

impl std::fmt::Debug for HookWatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookWatches").finish_non_exhaustive()
    }
}

/// Reports whether the event is about a hook of this component, or is a list, after which earlier reads must be
/// repeated.
fn concerns(event: &ObjectEvent, component_key: &ComponentKey) -> bool {
    match event {
        ObjectEvent::Listed { .. } => true,
        ObjectEvent::Applied(object) | ObjectEvent::Deleted(object) => {
            object.labels().get(labels::HOOK_OF).is_some_and(|owner| **owner == *component_key.owner)
        }
    }
}

fn is_of(mark: &str, object: &DynamicObject) -> bool {
    object.annotations().get(annotations::HOOK_RUN).is_some_and(|run| run == mark)
}

fn identity(kind: &GroupKind, object: &DynamicObject) -> Identity {
    let metadata = &object.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    Identity::new(&kind.group, &kind.kind, metadata.namespace.as_deref(), name)
}

#[cfg(test)]
impl HookWatches {
    /// Reports whether no component waits for a hook.
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.count() == 0 && self.state.lock().subscriptions.is_empty()
    }
}

#[cfg(test)]
mod tests;

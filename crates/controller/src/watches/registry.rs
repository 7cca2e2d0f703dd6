//! Registry of streams and their subscribers.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
};

use kyma_targets::{SecretKey, Streams};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::pulse::Pulse;
use super::spec::{Listener, ObjectEvent, WatchSpec, WatchTimes};
use super::stream::Source;
use crate::expression::evaluation::{contain_panic, run_on_thread, target_group};
use crate::failure::Failure;
use crate::process::metrics::Metrics;
use crate::process::runtime::Process;

/// Maximum number of streams on one target. Further subscriptions are refused, and [`Watches::is_healthy`] returns
/// false for them.
const MAX_STREAMS_PER_TARGET: usize = 96;

/// A subscription that would exceed the maximum number of streams on one target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_STREAMS_PER_TARGET} watches on one target are not opened; {kind} is not watched")]
pub struct WatchLimit {
    /// The first refused kind.
    pub kind: String,
}

/// The watches on all targets, for dependents named `D`. Cheap to clone.
///
/// Equal specifications on the same target have one stream for all subscribers, which ends with the last one. All
/// streams end with the process.
pub struct Watches<D> {
    inner: Arc<WatchesInner<D>>,
}

struct WatchesInner<D> {
    operator: &'static str,
    metrics: Metrics,
    shutdown: CancellationToken,
    listener: Box<dyn Listener<D>>,
    times: WatchTimes,
    registry: Mutex<Registry<D>>,
}

/// The open streams, indexed by target, Secret and subscriber.
struct Registry<D> {
    streams: HashMap<Key, OpenStream<D>>,
    /// Number of streams on each target.
    on_target: HashMap<Option<SecretKey>, usize>,
    /// The streams through the Secret of each name.
    through_secret: HashMap<String, HashSet<Key>>,
    subscriptions: HashMap<D, Vec<Key>>,
}

impl<D> Registry<D> {
    fn insert(&mut self, key: &Key, running: OpenStream<D>) {
        *self.on_target.entry(key.target.clone()).or_default() += 1;
        if let Some(target) = &key.target {
            self.through_secret.entry(target.name.clone()).or_default().insert(key.clone());
        }
        self.streams.insert(key.clone(), running);
    }

    fn remove(&mut self, key: &Key) -> Option<OpenStream<D>> {
        let running = self.streams.remove(key)?;
        if let Some(count) = self.on_target.get_mut(&key.target) {
            *count -= 1;
            if *count == 0 {
                self.on_target.remove(&key.target);
            }
        }
        if let Some(target) = &key.target
            && let Some(keys) = self.through_secret.get_mut(&target.name)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.through_secret.remove(&target.name);
            }
        }
        Some(running)
    }
}

impl<D> Default for Registry<D> {
    fn default() -> Self {
        Self {
            streams: HashMap::new(),
            on_target: HashMap::new(),
            through_secret: HashMap::new(),
            subscriptions: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    target: Option<SecretKey>,
    watch_spec: WatchSpec,
}

/// One stream, as distinct from a later one with the same key.
#[derive(Clone)]
struct StreamIdentity {
    key: Key,
    pulse: Arc<Pulse>,
}

/// A stream and its subscribers.
struct OpenStream<D> {
    dependents: Arc<[D]>,
    pulse: Arc<Pulse>,
    task: AbortHandle,
}

impl<D: Clone + Debug + Eq + Hash + Send + Sync + 'static> Watches<D> {
    /// Returns a registry without streams, which reports events to `listener`.
    pub fn new(operator: &'static str, process: &Process, listener: impl Listener<D>) -> Self {
        Self::with_times(operator, process, WatchTimes::default(), listener)
    }

    /// Returns the same as [`Self::new`], with other timeouts of streams.
    pub fn with_times(
        operator: &'static str,
        process: &Process,
        times: WatchTimes,
        listener: impl Listener<D>,
    ) -> Self {
        let Process { metrics, shutdown, .. } = process.clone();
        let registry = Mutex::default();
        let inner =
            WatchesInner { operator, metrics, shutdown, listener: Box::new(listener), times, registry };
        Self { inner: Arc::new(inner) }
    }

    /// Subscribes `dependent` to exactly these streams and cancels its other subscriptions. Opens missing streams.
    /// Must run inside of a tokio runtime.
    ///
    /// The first event of a new stream is its list. No event reports a change between an earlier read of the caller
    /// and that list, so the caller has to read again on `Listed`. A stream that was listed before sends no list to a
    /// new subscriber: [`Listener::on_joined`] is called instead.
    ///
    /// Opens nothing if the access Secret changed since `target` was created from it: the change requeues
    /// `dependent`.
    ///
    /// # Errors
    /// The maximum number of streams on this target is reached; earlier specifications have streams.
    pub fn subscribe(
        &self,
        target: impl Into<Streams>,
        dependent: &D,
        watch_specs: impl IntoIterator<Item = WatchSpec>,
    ) -> Result<(), WatchLimit> {
        let target = target.into();
        let target_key = target.key().cloned();
        let keys = watch_specs.into_iter().map(|watch_spec| Key { target: target_key.clone(), watch_spec });
        let mut desired = HashSet::new();
        let ordered: Vec<Key> = keys.filter(|key| desired.insert(key.clone())).collect();
        let mut registry = self.registry();
        let before = registry.subscriptions.remove(dependent).unwrap_or_default();
        for key in before.iter().filter(|key| !desired.contains(key)) {
            self.leave(&mut registry, key, dependent);
        }
        let (mut kept, mut joined) = (vec![], vec![]);
        let mut refused = None;
        for key in ordered {
            if before.contains(&key) {
                kept.push(key);
                continue;
            }
            // Checked under the lock, since `access_changed` ends the streams of a target that is withdrawn later.
            if target.is_withdrawn() {
                continue;
            }
            // A list that completes from here on is reported to this subscriber too.
            let is_listed = registry.streams.get(&key).is_some_and(|running| running.pulse.is_listed());
            if self.join(&mut registry, &key, &target, dependent) {
                joined.extend(is_listed.then(|| key.clone()));
                kept.push(key);
            } else {
                refused.get_or_insert(WatchLimit { kind: key.watch_spec.kind });
            }
        }
        if !kept.is_empty() {
            registry.subscriptions.insert(dependent.clone(), kept);
        }
        // The listener may call this registry.
        drop(registry);
        for key in &joined {
            self.call_listener(key, |listener| {
                listener.on_joined(key.target.as_ref(), &key.watch_spec, dependent);
            });
        }
        refused.map_or(Ok(()), Err)
    }

    /// Returns the subscriptions of `dependent`.
    pub fn subscriptions(&self, dependent: &D) -> Vec<WatchSpec> {
        let registry = self.registry();
        registry
            .subscriptions
            .get(dependent)
            .into_iter()
            .flatten()
            .map(|key| key.watch_spec.clone())
            .collect()
    }

    /// Cancels all subscriptions of `dependent`.
    pub fn unsubscribe(&self, dependent: &D) {
        let mut registry = self.registry();
        for key in registry.subscriptions.remove(dependent).unwrap_or_default() {
            self.leave(&mut registry, &key, dependent);
        }
    }

    /// Ends all streams through the Secret `name`, whose content changed; dependents open them again with the new
    /// access when they reconcile. Targets that were created from the old content must be withdrawn before, as
    /// [`Access`](crate::Access) does.
    pub fn access_changed(&self, name: &str) {
        let mut registry = self.registry();
        for key in registry.through_secret.get(name).cloned().unwrap_or_default() {
            let Some(running) = registry.remove(&key) else { continue };
            self.end(&running);
            for dependent in running.dependents.iter() {
                if let Some(subscriptions) = registry.subscriptions.get_mut(dependent) {
                    subscriptions.retain(|subscribed| *subscribed != key);
                    if subscriptions.is_empty() {
                        registry.subscriptions.remove(dependent);
                    }
                }
            }
        }
    }

    /// Reports whether each of `watch_specs` on `target` has a stream with a complete list and a recent sign of life.
    pub fn is_healthy(
        &self,
        target: impl Into<Streams>,
        watch_specs: impl IntoIterator<Item = WatchSpec>,
    ) -> bool {
        let target_key = target.into().key().cloned();
        let registry = self.registry();
        watch_specs.into_iter().all(|watch_spec| {
            let key = Key { target: target_key.clone(), watch_spec };
            registry.streams.get(&key).is_some_and(|running| running.pulse.is_healthy())
        })
    }

    /// Returns those of `watch_specs` whose streams are not healthy, each with the failure of its stream's last call,
    /// if there is one.
    pub fn unhealthy(
        &self,
        target: impl Into<Streams>,
        watch_specs: impl IntoIterator<Item = WatchSpec>,
    ) -> Vec<(WatchSpec, Option<Failure>)> {
        let target_key = target.into().key().cloned();
        let registry = self.registry();
        let keys = watch_specs.into_iter().map(|watch_spec| Key { target: target_key.clone(), watch_spec });
        let states = keys.map(|key| {
            let pulse = registry.streams.get(&key).map(|running| &running.pulse);
            let is_healthy = pulse.is_some_and(|pulse| pulse.is_healthy());
            (is_healthy, (key.watch_spec, pulse.and_then(|pulse| pulse.last_failure())))
        });
        states.filter(|(is_healthy, _)| !is_healthy).map(|(_, unhealthy)| unhealthy).collect()
    }

    /// Returns the number of open streams.
    pub fn count(&self) -> usize {
        self.registry().streams.len()
    }

    /// Adds a subscriber that the stream does not have yet, and opens the stream if needed. Returns false at the
    /// maximum number of streams.
    fn join(&self, registry: &mut Registry<D>, key: &Key, target: &Streams, dependent: &D) -> bool {
        if let Some(running) = registry.streams.get_mut(key) {
            running.dependents = running.dependents.iter().chain([dependent]).cloned().collect();
            return true;
        }
        if registry.on_target.get(&key.target).is_some_and(|count| *count >= MAX_STREAMS_PER_TARGET) {
            return false;
        }
        let running = self.open(key, target, dependent);
        registry.insert(key, running);
        true
    }

    fn open(&self, key: &Key, target: &Streams, dependent: &D) -> OpenStream<D> {
        let WatchTimes { silence, verify } = self.inner.times;
        let pulse = Pulse::new(silence);
        let source = Source {
            target: target.clone(),
            client: target.client(),
            watch_spec: key.watch_spec.clone(),
            pulse: Arc::clone(&pulse),
            verify,
        };
        let watches = self.clone();
        let stream = StreamIdentity { key: key.clone(), pulse: Arc::clone(&pulse) };
        let task = tokio::spawn(async move {
            let (watches, stream) = (&watches, &stream);
            let on_event = |event: ObjectEvent| watches.notify(stream, event);
            let WatchesInner { operator, metrics, shutdown, .. } = &*watches.inner;
            let restarted = |cause| metrics.watch_restarted(operator, cause);
            let missed = |objects| metrics.watch_missed(operator, objects);
            let refused = || watches.notify_of_refusal(stream);
            shutdown.run_until_cancelled(source.run(on_event, restarted, missed, refused)).await;
        });
        self.inner.metrics.watches(self.inner.operator, 1);
        OpenStream { dependents: Arc::from([dependent.clone()]), pulse, task: task.abort_handle() }
    }

    fn leave(&self, registry: &mut Registry<D>, key: &Key, dependent: &D) {
        let Some(running) = registry.streams.get_mut(key) else {
            return;
        };
        running.dependents = running.dependents.iter().filter(|one| *one != dependent).cloned().collect();
        if running.dependents.is_empty()
            && let Some(running) = registry.remove(key)
        {
            self.end(&running);
        }
    }

    fn end(&self, running: &OpenStream<D>) {
        running.task.abort();
        self.inner.metrics.watches(self.inner.operator, -1);
    }

    /// Reports an event to the listener, on a separate thread if that is expensive. Returns false if the listener
    /// panicked.
    async fn notify(&self, stream: &StreamIdentity, event: ObjectEvent) -> bool {
        let Key { target, watch_spec } = &stream.key;
        let target = target.as_ref();
        match self.call_listener(&stream.key, |listener| listener.is_expensive(target, watch_spec)) {
            None => return false,
            Some(false) => return self.notify_here(stream, &event),
            Some(true) => {}
        }
        let (watches, stream) = (self.clone(), stream.clone());
        let done = run_on_thread(&target_group(target), move || watches.notify_here(&stream, &event)).await;
        done.unwrap_or_else(|failure| {
            tracing::error!(%failure, kind = watch_spec.kind, "watch on target");
            false
        })
    }

    fn notify_here(&self, stream: &StreamIdentity, event: &ObjectEvent) -> bool {
        let Key { target, watch_spec } = &stream.key;
        let call = |dependents: &[D]| {
            let called = self.call_listener(&stream.key, |listener| {
                listener.on_event(target.as_ref(), watch_spec, event, dependents);
            });
            called.is_some()
        };
        let Some(mut before) = self.dependents(stream) else { return true };
        let mut is_processed = call(&before);
        // Subscribers that joined meanwhile may have read the listener's state before this event, so the listener is
        // called for them too.
        while let Some(after) = self.dependents(stream).filter(|after| !Arc::ptr_eq(after, &before)) {
            let known: HashSet<&D> = before.iter().collect();
            let late: Vec<D> = after.iter().filter(|one| !known.contains(one)).cloned().collect();
            if !late.is_empty() {
                is_processed &= call(&late);
            }
            before = after;
        }
        is_processed
    }

    fn notify_of_refusal(&self, stream: &StreamIdentity) {
        if let Some(dependents) = self.dependents(stream) {
            let Key { target, watch_spec } = &stream.key;
            self.call_listener(&stream.key, |listener| {
                listener.on_refused(target.as_ref(), watch_spec, &dependents);
            });
        }
    }

    /// Calls the listener about a stream. Returns `None` if it panicked: a panic must not end the stream, which serves
    /// other objects too.
    fn call_listener<T>(&self, key: &Key, call: impl FnOnce(&dyn Listener<D>) -> T) -> Option<T> {
        let what = format!("listener of {} on {:?}", key.watch_spec.kind, key.target);
        contain_panic(&what, || call(&*self.inner.listener))
    }

    /// Returns the subscribers of a stream; `None` if it has ended. A later stream with the same key may read another
    /// cluster, so an event that waited for a thread must not reach its subscribers.
    fn dependents(&self, stream: &StreamIdentity) -> Option<Arc<[D]>> {
        let registry = self.registry();
        let open = registry.streams.get(&stream.key)?;
        Arc::ptr_eq(&open.pulse, &stream.pulse).then(|| Arc::clone(&open.dependents))
    }

    fn registry(&self) -> MutexGuard<'_, Registry<D>> {
        self.inner.registry.lock()
    }
}

impl<D> Clone for Watches<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D> Debug for Watches<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

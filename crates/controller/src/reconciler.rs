//! Runs reconciles for watch events and pushed triggers: with bounded concurrency, a deadline each, and back-off by
//! error class.

pub(crate) mod backoff;
mod changes;
mod cleanup;
pub(crate) mod context;
mod event_filter;
pub(crate) mod index;
pub(crate) mod jitter;
mod pause_changes;
mod records;
mod slots;
pub(crate) mod trigger;
pub(crate) mod wait;

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, TryStreamExt};
use kube::{Api, Resource};
use kube_runtime::{
    Controller,
    controller::{Action, Config as ControllerConfig, Error as ControllerError},
    reflector::{self, ObjectRef, Store, store::Writer},
    watcher,
};
use kyma_api::{Reason, SecretKeyRef};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use changes::Change;
use changes::{Hook, own_changes};
use cleanup::{CleanupGuard, StateRemover};
use records::Records;
use slots::{MAX_WAITING, Slots};

use crate::expression::evaluation::panic_text;
use crate::failure::Failure;
use crate::hub::resource::HubResource;
use crate::process::diagnosis::{Diagnosis, TargetDiagnosis};
use crate::process::metrics::ReconcileResult;
use crate::process::runtime::Runtime;
use crate::reconciler::backoff::delay_after;
use crate::reconciler::context::ReconcileContext;
use crate::reconciler::jitter::{jitter, shorten_randomly};
use crate::reconciler::trigger::Trigger;
use crate::reconciler::wait::Wait;

/// Divisor: of this many reconciles at a time, one may be of an object whose target did not answer last time.
const UNHEALTHY_SHARE: u16 = 8;
/// Longest time until such an object is requeued if too many of them are reconciled, shortened at random by up to half.
const UNHEALTHY_DELAY: Duration = Duration::from_secs(2);
/// Share by which the resync is shortened at random.
const RESYNC_SHARE: f64 = 0.1;

/// Delay before a failed verification is repeated. Longer than the delay of ordinary retries, since a verification
/// reads everything again.
const VERIFICATION_RETRY_DELAY: Duration = Duration::from_mins(10);

/// Time for running reconciles to finish after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Result of a reconcile, for the schedule of verifications.
#[derive(Clone, Copy, Debug)]
enum ReconcileOutcome {
    /// The reconcile checked everything.
    Complete,
    /// The reconcile failed.
    Failed,
    /// Nothing was checked: a Pause is in force, or a first answer is awaited.
    Skipped,
}

/// One controller over a custom resource on the hub.
///
/// Its own watch triggers on changes of generation, labels, annotations and finalizers, so status writes do not cause
/// reconciles, and on objects that reappear after a list without them; all other triggers are pushed through
/// [`Reconciler::trigger`].
pub struct Reconciler<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    runtime: Runtime,
    api: Api<K>,
    store: Store<K>,
    writer: Writer<K>,
    trigger: Trigger<ObjectRef<K>>,
    /// Label selector and field selector of the objects.
    scope: (Option<String>, Option<String>),
    hooks: Vec<Hook<K>>,
    access: Option<AccessOf<K>>,
    forget: Option<StateRemover<K>>,
}

/// Function that returns the access Secret of an object's target.
type AccessOf<K> = Box<dyn Fn(&K) -> Option<SecretKeyRef> + Send + Sync>;

impl<K> Reconciler<K>
where
    K: HubResource,
{
    /// Returns a controller over the objects of `K` in the hub namespace that match the selector. The process is not
    /// ready before they are listed.
    pub fn new(runtime: &Runtime) -> Self {
        runtime.process.health.expect(&K::kind(&()));
        let (store, writer) = reflector::store();
        let api = Api::namespaced(runtime.hub.clone(), &runtime.settings.hub_namespace);
        let scope = runtime.settings.scope(&K::kind(&()));
        Self {
            runtime: runtime.clone(),
            api,
            store,
            writer,
            trigger: Trigger::new(),
            scope,
            hooks: vec![],
            access: None,
            forget: None,
        }
    }

    /// Watches all objects of the kind, without the selector of the settings: for a kind that several operators share.
    pub fn without_selector(self) -> Self {
        Self { scope: (None, None), ..self }
    }

    /// Returns the cached objects of the watch.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Returns a trigger for reconciles besides the reconciler's own watch.
    pub fn trigger(&self) -> Trigger<ObjectRef<K>> {
        self.trigger.clone()
    }

    /// Calls `hook` on every change, status included, before it can trigger a reconcile. The hook must not block.
    pub fn on_change(mut self, hook: impl Fn(Change<'_, K>) + Send + Sync + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Sets the function that returns the access Secret of an object, for its diagnosis.
    pub fn reaching(self, access: impl Fn(&K) -> Option<SecretKeyRef> + Send + Sync + 'static) -> Self {
        Self { access: Some(Box::new(access)), ..self }
    }

    /// Calls `forget` at the end of a reconcile whose object vanished meanwhile, also if the reconcile was cancelled: it
    /// may have recorded state after [`Change::Deleted`].
    pub fn forgetting(self, forget: impl Fn(&ObjectRef<K>) + Send + Sync + 'static) -> Self {
        Self { forget: Some(Box::new(forget)), ..self }
    }

    /// Reconciles until the process shuts down. Running reconciles get five seconds to finish; a cancelled one leaves
    /// the same state as a crash.
    ///
    /// `reconcile` gets the cached object and the context of the reconcile, and returns when to reconcile again
    /// without an event. It is cancelled at the deadline of the settings. One object never has two reconciles at the
    /// same time, and objects whose target did not answer last time share an eighth of the slots.
    pub async fn run<F, Fut>(self, reconcile: F)
    where
        F: Fn(Arc<K>, ReconcileContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Wait, Failure>> + Send + 'static,
    {
        let Self { runtime, api, store, writer, trigger, scope, hooks, access, forget } = self;
        let kind = K::kind(&()).into_owned();
        runtime.process.health.ready(runtime.operator.name);
        // Creates the series before the first repair is counted.
        runtime.process.metrics.repaired(runtime.operator.name, 0);
        let shutdown = runtime.process.shutdown.clone();
        let records: Arc<Records<ObjectRef<K>>> = Arc::default();
        diagnose(&runtime, &store, &records, access);
        let unhealthy = Semaphore::new(usize::from(runtime.settings.concurrency.div_ceil(UNHEALTHY_SHARE)));
        let work = Work {
            runtime: runtime.clone(),
            store: store.clone(),
            records: Arc::clone(&records),
            slots: Slots::new(runtime.settings.concurrency),
            unhealthy,
            forget,
            reconcile,
        };
        let context = Arc::new(work);
        let own = Arc::clone(&records);
        let stream = own_changes(&runtime, api, scope, writer, hooks)
            .inspect_ok(move |object| own.record_request(ObjectRef::from_obj(object)));
        let pause_changes = pause_changes::requeue(runtime.pauses.changes(), store.clone(), trigger.clone());
        let ready = wait_until_ready(runtime.clone(), store.clone(), kind);
        let max_tasks = runtime.settings.concurrency.saturating_add(MAX_WAITING);
        let controller = Controller::for_stream(stream, store)
            .with_config(ControllerConfig::default().concurrency(max_tasks))
            .reconcile_on(trigger.stream().inspect(move |key| records.record_request(key.clone())))
            .graceful_shutdown_on(shutdown.clone().cancelled_owned())
            .run(run_one::<K, F, Fut>, after_failure::<K, F>, context)
            .for_each(|result| {
                log_result(result);
                futures::future::ready(())
            });
        let controller = async {
            if shutdown.run_until_cancelled(runtime.pauses.listed()).await.is_some() {
                tokio::select! {
                    () = controller => {}
                    () = cut_off(&shutdown) => tracing::info!("unfinished reconciles are aborted"),
                }
            }
        };
        let ready = shutdown.run_until_cancelled(ready);
        let pause_changes = shutdown.run_until_cancelled(pause_changes);
        tokio::join!(controller, ready, pause_changes);
    }
}

/// Waits for the shutdown and then for the time that running reconciles get. A slow target must not delay the next
/// process until the kubelet kills this one.
async fn cut_off(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(SHUTDOWN_GRACE).await;
}

struct Work<K: Resource<DynamicType = ()> + 'static, F> {
    runtime: Runtime,
    store: Store<K>,
    records: Arc<Records<ObjectRef<K>>>,
    slots: Slots,
    /// Permits for objects whose target did not answer the last time.
    unhealthy: Semaphore,
    forget: Option<StateRemover<K>>,
    reconcile: F,
}

impl<K, F> Work<K, F>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// Runs a reconcile. If its object vanishes meanwhile, its state is removed at the end.
    async fn run<Fut>(&self, object: Arc<K>, context: ReconcileContext) -> Result<Wait, Failure>
    where
        F: Fn(Arc<K>, ReconcileContext) -> Fut,
        Fut: Future<Output = Result<Wait, Failure>> + Send,
    {
        let key = ObjectRef::from_obj(&*object);
        let _cleanup = CleanupGuard { store: &self.store, forget: self.forget.as_ref(), key };
        contained(|| (self.reconcile)(object, context)).await
    }

    /// Schedules the next reconcile after `wait`, or when the object is due for verification, with jitter.
    fn again(&self, key: ObjectRef<K>, wait: Option<Duration>, outcome: ReconcileOutcome) -> Action {
        let now = Instant::now();
        let resync = shorten_randomly(self.runtime.settings.resync, RESYNC_SHARE);
        self.records.forget(self.store.len(), |key| self.store.get(key).is_some());
        let due = match outcome {
            ReconcileOutcome::Complete => {
                self.records.verify_after(key.clone(), now, resync);
                Some(resync)
            }
            ReconcileOutcome::Failed => {
                self.records.not_verified(&key, now, resync.min(VERIFICATION_RETRY_DELAY))
            }
            ReconcileOutcome::Skipped => self.records.verifies_in(&key, now),
        };
        let due = due.unwrap_or(resync);
        self.put_off(key, wait.map_or(due, |wait| wait.min(due)))
    }

    /// Schedules the next reconcile after `delay`. The time of the next verification stays.
    fn put_off(&self, key: ObjectRef<K>, delay: Duration) -> Action {
        self.records.again_after(key, Instant::now(), delay);
        Action::requeue(delay)
    }
}

/// Registers the diagnosis of the reconciler's objects.
fn diagnose<K>(
    runtime: &Runtime,
    store: &Store<K>,
    records: &Arc<Records<ObjectRef<K>>>,
    access: Option<AccessOf<K>>,
) where
    K: HubResource,
{
    let (operator, targets) = (runtime.operator.name, runtime.access.clone());
    let (store, records) = (store.clone(), Arc::clone(records));
    runtime.process.diagnoses.add(move |namespace, name| {
        let key = ObjectRef::new(name).within(namespace);
        let object = store.get(&key)?;
        let secret = access.as_ref().and_then(|access| access(&object));
        let target = secret.and_then(|secret| targets.cached_target(&secret));
        Some(Diagnosis {
            operator: operator.to_owned(),
            kind: K::kind(&()).into_owned(),
            target: target.as_ref().map(TargetDiagnosis::of),
            ..records.diagnosis(&key, Instant::now()).unwrap_or_default()
        })
    });
}

async fn wait_until_ready<K>(runtime: Runtime, store: Store<K>, kind: String)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    if store.wait_until_ready().await.is_ok() {
        runtime.process.health.ready(&kind);
    }
}

async fn run_one<K, F, Fut>(object: Arc<K>, work: Arc<Work<K, F>>) -> Result<Action, Failure>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    F: Fn(Arc<K>, ReconcileContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Wait, Failure>> + Send,
{
    let Runtime { operator, settings, process, pauses, .. } = &work.runtime;
    let key = ObjectRef::from_obj(&*object);
    let Some(slot) = process.shutdown.run_until_cancelled(work.slots.take()).await.map(Arc::new) else {
        return Ok(Action::await_change());
    };
    if let Some(left) = work.records.remaining_delay(&key, Instant::now()) {
        return Ok(work.put_off(key, left));
    }
    // Objects of unreachable targets must not take all slots.
    let _unhealthy = match work.records.was_unreachable(&key).then(|| work.unhealthy.try_acquire()) {
        Some(Err(_)) => return Ok(work.put_off(key, shorten_randomly(UNHEALTHY_DELAY, 0.5))),
        Some(Ok(permit)) => Some(permit),
        None => None,
    };
    let started = Instant::now();
    let beginning = work.records.begins(key.clone(), started);
    // Read after the events that this reconcile handles were taken from the record: a later event requests another one.
    let Some(object) = work.store.get(&key) else { return Ok(Action::await_change()) };
    if let Some(since) = beginning.first_request {
        process.metrics.waited(operator.name, started.duration_since(since));
    }
    let paused_operations = pauses.paused_operations(&*object);
    let context = ReconcileContext::new(
        operator.name,
        beginning.verifies,
        paused_operations.clone(),
        process.metrics.clone(),
    );
    let context = context.with_last_request(beginning.last_request).in_slot(&slot);
    let reconcile = work.run(Arc::clone(&object), context);
    let result = tokio::select! {
        result = tokio::time::timeout(settings.reconcile_deadline, reconcile) => result,
        // A new Pause cancels the reconcile like a crash between two writes; the next one continues from the live
        // state.
        () = pauses.tightened(&*object, &paused_operations) => return Ok(work.put_off(key, Duration::ZERO)),
    };
    let result = result.unwrap_or_else(|_| {
        let seconds = settings.reconcile_deadline.as_secs();
        Err(Failure::new(Reason::DeadlineExceeded, format!("not finished within {seconds} s")))
    });
    let ended = if result.is_ok() { ReconcileResult::Done } else { ReconcileResult::Failed };
    process.metrics.reconciled(operator.name, started.elapsed(), ended);
    let wait = result?;
    let (wait, is_answered) = match wait {
        Wait::Event => (None, true),
        Wait::Timer(delay) => (Some(delay), true),
        Wait::Answer(delay) => (Some(delay), false),
    };
    if is_answered {
        work.records.got_through(&key);
    }
    let outcome = if is_answered && paused_operations.writes().is_none() {
        ReconcileOutcome::Complete
    } else {
        ReconcileOutcome::Skipped
    };
    Ok(work.again(key, wait, outcome))
}

/// Runs a reconcile; a panic in it fails this one alone.
async fn contained<Fut>(reconcile: impl FnOnce() -> Fut) -> Result<Wait, Failure>
where
    Fut: Future<Output = Result<Wait, Failure>> + Send,
{
    let reconcile = AssertUnwindSafe(async { reconcile().await }).catch_unwind();
    reconcile.await.unwrap_or_else(|panic| {
        tracing::error!(panic = panic_text(&*panic), "a reconcile panicked");
        let message =
            "the reconcile panicked; the log of the operator has the place: report it with this object";
        Err(Failure::new(Reason::Internal, message))
    })
}

// Signature of kube's controller.
#[allow(clippy::needless_pass_by_value)]
fn after_failure<K, F>(object: Arc<K>, failure: &Failure, work: Arc<Work<K, F>>) -> Action
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let Runtime { operator, process, .. } = &work.runtime;
    process.metrics.failed(operator.name, failure);
    let key = ObjectRef::from_obj(&*object);
    let in_a_row = work.records.failed(key.clone(), failure);
    tracing::info!(object = %key, reason = %failure.reason, class = %failure.class, in_a_row, "{}", failure.message);
    work.again(key, delay_after(failure, in_a_row, jitter()), ReconcileOutcome::Failed)
}

fn log_result<K: Resource<DynamicType = ()>>(
    result: Result<(ObjectRef<K>, Action), ControllerError<Failure, watcher::Error>>,
) {
    match result {
        // Logged where they occurred.
        Ok(_) | Err(ControllerError::ReconcilerFailed(..) | ControllerError::QueueError(_)) => {}
        // A trigger for an object that is gone.
        Err(ControllerError::ObjectNotFound(key)) => {
            tracing::debug!(%key, "reconcile of a deleted object");
        }
        Err(error) => tracing::warn!(%error, kind = %K::kind(&()), "controller"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_in_a_reconcile_is_internal() {
        let panics = || async {
            assert!(std::env::args().count() == 0);
            Ok(Wait::Event)
        };
        assert_eq!(contained(panics).await.unwrap_err().reason, Reason::Internal);
        let at_once = || {
            assert!(std::env::args().count() == 0);
            std::future::ready(Ok(Wait::Event))
        };
        assert_eq!(contained(at_once).await.unwrap_err().reason, Reason::Internal);
        assert_eq!(contained(|| async { Ok(Wait::Event) }).await.unwrap(), Wait::Event);
    }
}

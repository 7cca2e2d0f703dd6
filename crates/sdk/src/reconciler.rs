//! From watches and pushed triggers to reconciles: bounded, each within a deadline, backing off by error class.

mod changes;
mod halted;
mod news;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt};
use kube::{Api, Resource};
use kube_runtime::{
    Controller,
    controller::{Action, Config as ControllerConfig, Error as ControllerError},
    reflector::{self, ObjectRef, Store, store::Writer},
    watcher,
};
use kyma_api::{ErrorClass, Reason};
use tokio::sync::Semaphore;

pub use changes::Change;
use changes::{Hook, own_changes};

use crate::{
    Failure, HubResource, Runtime, Trigger, Wait,
    backoff::delay_after,
    jitter::{jitter, shortened},
    metrics::ReconcileResult,
    pass::{Asked, Pass, Schedule},
};

/// Failures remembered beyond the number of objects before those of gone objects are dropped.
const FORGET_ABOVE: usize = 1024;
/// One of so many slots is for objects whose target did not answer the last time.
const UNHEALTHY_SHARE: u16 = 8;
/// Longest time until such an object asks for its turn again, shortened at random by up to half.
const TURN: Duration = Duration::from_secs(2);
/// Share by which the resync is shortened at random.
const RESYNC_SHARE: f64 = 0.1;

/// One controller over a custom resource on the hub.
///
/// Its own watch triggers on changes of generation, labels, annotations and finalizers, so status writes do not
/// come back, and on what is there again after a list without it; everything else that matters is pushed through
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
    selector: Option<String>,
    hooks: Vec<Hook<K>>,
}

impl<K> Reconciler<K>
where
    K: HubResource,
{
    /// A controller over the objects of `K` in the hub namespace that match the selector.
    pub fn new(runtime: &Runtime) -> Self {
        let (store, writer) = reflector::store();
        let api = Api::namespaced(runtime.hub.clone(), &runtime.settings.hub_namespace);
        let selector = runtime.settings.selector.clone();
        Self {
            runtime: runtime.clone(),
            api,
            store,
            writer,
            trigger: Trigger::new(),
            selector,
            hooks: vec![],
        }
    }

    /// All objects of the kind, whatever the selector of the settings: for a kind that others share.
    pub fn without_selector(self) -> Self {
        Self { selector: None, ..self }
    }

    /// The objects as last seen.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Asks for reconciles from outside of the own watch.
    pub fn trigger(&self) -> Trigger<ObjectRef<K>> {
        self.trigger.clone()
    }

    /// Calls `hook` on every change, status included, before it can trigger a reconcile. It must return at once.
    pub fn on_change(mut self, hook: impl Fn(Change<'_, K>) + Send + Sync + 'static) -> Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Reconciles until the process shuts down; reconciles under way are finished first.
    ///
    /// `reconcile` gets objects as last seen and whether the pass is a periodic verification, and says when to come back without an event. It is cut off at the
    /// deadline of the settings. One object is never reconciled twice at the same time, and objects whose target did
    /// not answer the last time share an eighth of the slots.
    pub async fn run<F, Fut>(self, reconcile: F)
    where
        F: Fn(Arc<K>, Pass) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Wait, Failure>> + Send + 'static,
    {
        let Self { runtime, api, store, writer, trigger, selector, hooks } = self;
        let kind = K::kind(&()).into_owned();
        runtime.process.health.expect(&kind);
        // So that it is there before the first one is found.
        runtime.process.metrics.repaired(runtime.operator.name, 0);
        let shutdown = runtime.process.shutdown.clone();
        let asked: Arc<Asked<ObjectRef<K>>> = Arc::default();
        let unhealthy = Semaphore::new(usize::from(runtime.settings.concurrency.div_ceil(UNHEALTHY_SHARE)));
        let work = Work {
            runtime: runtime.clone(),
            store: store.clone(),
            failures: Mutex::default(),
            due: Schedule::default(),
            asked: Arc::clone(&asked),
            unhealthy,
            reconcile,
        };
        let context = Arc::new(work);
        let own = Arc::clone(&asked);
        let stream = own_changes(&runtime, api, selector, writer, hooks)
            .inspect_ok(move |object| own.ask(ObjectRef::from_obj(object)));
        let halted = halted::follow(runtime.pauses.changes(), store.clone(), trigger.clone());
        let ready = wait_until_ready(runtime.clone(), store.clone(), kind);
        let controller = Controller::for_stream(stream, store)
            .with_config(ControllerConfig::default().concurrency(runtime.settings.concurrency))
            .reconcile_on(trigger.stream().inspect(move |key| asked.ask(key.clone())))
            .graceful_shutdown_on(shutdown.clone().cancelled_owned())
            .run(run_one::<K, F, Fut>, after_failure::<K, F>, context)
            .for_each(|result| {
                log_result(result);
                futures::future::ready(())
            });
        let controller = async {
            if shutdown.run_until_cancelled(runtime.pauses.listed()).await.is_some() {
                controller.await;
            }
        };
        let ready = shutdown.run_until_cancelled(ready);
        let halted = shutdown.run_until_cancelled(halted);
        tokio::join!(controller, ready, halted);
    }
}

struct Work<K: Resource<DynamicType = ()> + 'static, F> {
    runtime: Runtime,
    store: Store<K>,
    /// Objects that have not got through since they failed.
    failures: Mutex<HashMap<ObjectRef<K>, Failed>>,
    /// When objects are due to be verified.
    due: Schedule<ObjectRef<K>>,
    /// Since when an event has asked for a pass.
    asked: Arc<Asked<ObjectRef<K>>>,
    /// Slots for objects whose target did not answer the last time.
    unhealthy: Semaphore,
    reconcile: F,
}

#[derive(Clone, Copy, Debug, Default)]
struct Failed {
    in_a_row: u32,
    unreachable: bool,
}

impl<K, F> Work<K, F>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// Counts one more failure in a row.
    fn failed(&self, key: ObjectRef<K>, failure: &Failure) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() > FORGET_ABOVE + self.store.len() {
            failures.retain(|key, _| self.store.get(key).is_some());
        }
        let failed = failures.entry(key).or_default();
        failed.in_a_row = failed.in_a_row.saturating_add(1);
        failed.unreachable = failure.class == ErrorClass::Unreachable;
        failed.in_a_row
    }

    /// The time until the object is due to be verified, spread at random.
    fn verified_by(&self, key: ObjectRef<K>, resync: Duration) -> Duration {
        let resync = shortened(resync, RESYNC_SHARE);
        self.due.forget(self.store.len(), |key| self.store.get(key).is_some());
        self.asked.forget(self.store.len(), |key| self.store.get(key).is_some());
        self.due.ended(key, Instant::now() + resync);
        resync
    }

    fn was_unreachable(&self, key: &ObjectRef<K>) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(key).is_some_and(|failed| failed.unreachable)
    }

    fn got_through(&self, key: &ObjectRef<K>) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
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
    F: Fn(Arc<K>, Pass) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Wait, Failure>> + Send,
{
    let Runtime { operator, settings, process, pauses, .. } = &work.runtime;
    let key = ObjectRef::from_obj(&*object);
    // Targets that do not answer must not take the slots of those that do: no worker waits for its turn here.
    let _slot = match work.was_unreachable(&key).then(|| work.unhealthy.try_acquire()) {
        Some(Err(_)) => return Ok(Action::requeue(shortened(TURN, 0.5))),
        Some(Ok(slot)) => Some(slot),
        None => None,
    };
    let started = Instant::now();
    if let Some(since) = work.asked.begins(&key) {
        process.metrics.waited(operator.name, started.duration_since(since));
    }
    let halt = pauses.of(&*object);
    let pass =
        Pass::new(operator.name, work.due.begins(&key, started), halt.clone(), process.metrics.clone());
    let reconcile = (work.reconcile)(Arc::clone(&object), pass);
    let result = tokio::select! {
        result = tokio::time::timeout(settings.reconcile_deadline, reconcile) => result,
        // As if killed between two writes; the next pass finds what there is.
        () = pauses.tightened(&*object, &halt) => return Ok(Action::requeue(Duration::ZERO)),
    };
    let result = result.unwrap_or_else(|_| {
        let seconds = settings.reconcile_deadline.as_secs();
        Err(Failure::new(Reason::DeadlineExceeded, format!("not finished within {seconds} s")))
    });
    let ended = if result.is_ok() { ReconcileResult::Done } else { ReconcileResult::Failed };
    process.metrics.reconciled(operator.name, started.elapsed(), ended);
    let wait = result?;
    if !matches!(wait, Wait::Answer(_)) {
        work.got_through(&key);
    }
    let resync = work.verified_by(key, settings.resync);
    Ok(Action::requeue(match wait {
        Wait::Event => resync,
        Wait::Timer(delay) | Wait::Answer(delay) => delay.min(resync),
    }))
}

// Takes what kube's controller gives.
#[allow(clippy::needless_pass_by_value)]
fn after_failure<K, F>(object: Arc<K>, failure: &Failure, work: Arc<Work<K, F>>) -> Action
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let Runtime { operator, settings, process, .. } = &work.runtime;
    process.metrics.failed(operator.name, failure);
    let key = ObjectRef::from_obj(&*object);
    let in_a_row = work.failed(key.clone(), failure);
    tracing::info!(object = %key, reason = %failure.reason, class = %failure.class, in_a_row, "{}", failure.message);
    let resync = work.verified_by(key, settings.resync);
    Action::requeue(delay_after(failure, in_a_row, jitter()).map_or(resync, |delay| delay.min(resync)))
}

fn log_result<K: Resource<DynamicType = ()>>(
    result: Result<(ObjectRef<K>, Action), ControllerError<Failure, watcher::Error>>,
) {
    match result {
        // Told where they happened.
        Ok(_) | Err(ControllerError::ReconcilerFailed(..) | ControllerError::QueueError(_)) => {}
        // Pushed for an object that is gone meanwhile.
        Err(ControllerError::ObjectNotFound(key)) => {
            tracing::debug!(%key, "reconcile of an object that is gone");
        }
        Err(error) => tracing::warn!(%error, kind = %K::kind(&()), "controller"),
    }
}

//! Transport of all calls to one target: breaker, slots, deadline and body limit; reports the outcomes to the
//! breaker.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};

use crate::access::AccessPolicy;
use crate::connection::breaker::{Breaker, Effect, Outcome};
use crate::connection::contact::{Contact, LastAnswer};
use crate::connection::dial::Servers;
use crate::connection::limits::Limits;
use crate::connection::notices::Notices;
use crate::connection::request;
use crate::connection::throttle::{Slot, Throttle};
use crate::credentials::kubeconfig::{Kubeconfig, KubeconfigError};
use crate::error::TargetError;

use body::{AnswerBody, CollectedAnswer};
use outcome::judged;
use probe::{ProbeResult, probe};
use wire::Wire;

mod answer;
mod authorization;
mod body;
mod expected_cluster;
mod outcome;
mod pace;
mod pool;
mod probe;
mod stream;
mod verified;
mod weight;
mod wire;

pub(crate) use expected_cluster::ExpectedCluster;

#[cfg(fuzzing)]
pub(crate) use answer::{AuditIdPresence, Bounds, Queue, read as read_answer};

/// Delay that a caller is asked for if all slots stayed taken.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Connection to one target, shared by all of its clients.
pub(crate) struct Transport {
    wire: Wire,
    limits: Limits,
    breaker: Mutex<Breaker>,
    /// Failure that opened the breaker.
    cause: Mutex<Option<TargetError>>,
    throttle: Mutex<Throttle>,
    freed: Notify,
    watches: Arc<Semaphore>,
    servers: Arc<Servers>,
    answered: Arc<LastAnswer>,
    pace: Arc<Mutex<pace::Pace>>,
    /// Permit for reading a large answer, one at a time.
    large: Arc<Semaphore>,
    /// Number of recoveries of the breaker, and whether calls pass.
    health: watch::Sender<Health>,
    notices: Notices,
    audits: answer::AuditIdPresence,
    /// The uid of the cluster in the last identity read.
    identified: Mutex<Option<String>>,
}

/// State of a target as seen by its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) calls_pass: bool,
    pub(crate) recoveries: u64,
}

impl Transport {
    pub(crate) fn remote(
        kubeconfig: &Kubeconfig,
        policy: Arc<AccessPolicy>,
        limits: Limits,
        notices: Notices,
    ) -> Result<Arc<Self>, KubeconfigError> {
        let servers = Arc::<Servers>::default();
        let wire = Wire::remote(kubeconfig, policy, &limits, Arc::clone(&servers))?;
        Ok(Self::new(wire, servers, limits, notices))
    }

    pub(crate) fn local(client: kube::Client, limits: Limits, notices: Notices) -> Arc<Self> {
        Self::new(Wire::Local(client), Arc::default(), limits, notices)
    }

    fn new(wire: Wire, servers: Arc<Servers>, limits: Limits, notices: Notices) -> Arc<Self> {
        Arc::new(Self {
            wire,
            servers,
            answered: Arc::default(),
            breaker: Mutex::new(Breaker::new(limits.breaker.clone())),
            cause: Mutex::default(),
            throttle: Mutex::new(Throttle::new(limits.calls)),
            freed: Notify::new(),
            watches: Arc::new(Semaphore::new(limits.watches)),
            pace: Arc::new(Mutex::new(pace::Pace::new(limits.watch_pace, Instant::now()))),
            large: Arc::new(Semaphore::new(1)),
            health: watch::Sender::new(Health { calls_pass: true, recoveries: 0 }),
            audits: answer::AuditIdPresence::default(),
            identified: Mutex::default(),
            notices,
            limits,
        })
    }

    pub(crate) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Returns the state of the connection to the target.
    pub(crate) fn contact(&self) -> Contact {
        let answered = self.answered.ago();
        match self.breaker.lock().admit() {
            Ok(()) => Contact { answered, ..Contact::default() },
            Err(probe_at) => Contact {
                answered,
                held_for: Some(probe_at.saturating_duration_since(Instant::now())),
                cause: self.cause.lock().as_ref().map(ToString::to_string),
            },
        }
    }

    /// Records the uid of an identity read.
    pub(crate) fn identified(&self, uid: &str) {
        *self.identified.lock() = Some(uid.to_owned());
    }

    /// Returns a number that grows whenever another server may answer than before.
    pub(crate) fn connection(&self) -> u64 {
        self.health.borrow().recoveries + self.servers.changes()
    }

    /// Sends a request of kube and returns an answer that is limited in time and size. A caller that has to wait gets
    /// a 429, whether the API server sent it or the call was not sent.
    pub(crate) async fn call(
        self: Arc<Self>,
        mut request: Request<Body>,
        agent: HeaderValue,
    ) -> Result<Response<AnswerBody>, TargetError> {
        if request::is_write(request.method())
            && request.extensions().get::<ExpectedCluster>().is_none()
            && let Some(uid) = self.identified.lock().clone()
        {
            request.extensions_mut().insert(ExpectedCluster(uid));
        }
        match self.admitted(request, agent).await {
            Err(TargetError::Throttled(pause)) => {
                answer::throttled(pause).map(|answer| answer.map(AnswerBody::from))
            }
            other => other,
        }
    }

    async fn admitted(
        self: Arc<Self>,
        request: Request<Body>,
        agent: HeaderValue,
    ) -> Result<Response<AnswerBody>, TargetError> {
        self.not_suspended()?;
        if request::is_stream(request.uri()) {
            return self.watch(request, agent).await;
        }
        let slot = self.slot().await?;
        let queue = answer::Queue::new(&self.large);
        let sent = tokio::time::timeout(self.limits.call, self.exchange(request, agent, &queue)).await;
        let answer = match sent {
            Ok(answer) => answer,
            // The time passed in the queue of this process, so the target is not slow.
            Err(_) if queue.has_waited() => return Err(TargetError::Throttled(BUSY_RETRY_DELAY)),
            Err(_) => Err(TargetError::Deadline(self.limits.call)),
        };
        let answer = self.noted(answer);
        drop(slot);
        answer.map(|answer| answer.map(AnswerBody::from))
    }

    fn not_suspended(&self) -> Result<(), TargetError> {
        let Err(probe_at) = self.breaker.lock().admit() else { return Ok(()) };
        let retry_in = probe_at.saturating_duration_since(Instant::now());
        let cause =
            self.cause.lock().clone().unwrap_or_else(|| self.with_address(TargetError::Connect("no answer")));
        Err(TargetError::Suspended { retry_in, cause: Box::new(cause) })
    }

    /// Adds the server's address to a failure of the connection.
    fn with_address(&self, error: TargetError) -> TargetError {
        match self.wire.address() {
            Some(address) => error.with_address(&address),
            None => error,
        }
    }

    async fn watch(
        self: Arc<Self>,
        request: Request<Body>,
        agent: HeaderValue,
    ) -> Result<Response<AnswerBody>, TargetError> {
        // Refuses instead of waiting, since a wait would hide a leak of streams.
        let permit = Arc::clone(&self.watches)
            .try_acquire_owned()
            .map_err(|_| TargetError::Throttled(BUSY_RETRY_DELAY))?;
        let slot = self.slot().await?;
        let queue = answer::Queue::new(&self.large);
        let path = request.uri().path().to_owned();
        let opening = async {
            let answer = self.wire.send(request, agent).await?;
            if answer.status().is_success() {
                let shared = stream::SharedState {
                    pace: Arc::clone(&self.pace),
                    servers: Arc::clone(&self.servers),
                    answered: Arc::clone(&self.answered),
                    _permit: permit,
                };
                return Ok(answer.map(|body| stream::bounded(body, &self.limits, shared)));
            }
            let bounds = answer::Bounds::of(&self.limits, &queue, &self.audits);
            answer::read(answer, bounds, &path).await.map(|answer| answer.map(AnswerBody::from))
        };
        let opened = tokio::time::timeout(self.limits.call, opening).await;
        let opened = self.noted(opened.unwrap_or(Err(TargetError::Deadline(self.limits.call))));
        drop(slot);
        opened
    }

    async fn exchange(
        &self,
        request: Request<Body>,
        agent: HeaderValue,
        queue: &answer::Queue<'_>,
    ) -> Result<Response<CollectedAnswer>, TargetError> {
        let (path, changes) = (request.uri().path().to_owned(), request::changes(&request));
        let answer = self.wire.send(request, agent).await?;
        if changes && answer.status().is_success() {
            self.pace.lock().wrote();
        }
        answer::read(answer, answer::Bounds::of(&self.limits, queue, &self.audits), &path).await
    }

    /// Waits for a slot, at most for the deadline of a call. That time does not count for the call: otherwise a
    /// working target would be suspended because of earlier calls.
    async fn slot(&self) -> Result<SlotGuard<'_>, TargetError> {
        let deadline = tokio::time::Instant::now() + self.limits.call;
        loop {
            // Registered before the check, so that no slot that is freed in between is missed.
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            // Checked each time, or a caller that is woken for every slot and gets none would wait forever.
            if tokio::time::Instant::now() >= deadline {
                return Err(TargetError::Throttled(BUSY_RETRY_DELAY));
            }
            let slot = self.throttle.lock().take(Instant::now());
            match slot {
                Slot::Taken => {
                    let slot = SlotGuard { transport: self };
                    // Earlier calls may have opened the breaker.
                    self.not_suspended()?;
                    return Ok(slot);
                }
                Slot::Full => {
                    tokio::time::timeout_at(deadline, freed)
                        .await
                        .map_err(|_| TargetError::Throttled(BUSY_RETRY_DELAY))?;
                }
                Slot::Paused(until) if tokio::time::Instant::from_std(until) >= deadline => {
                    let pause = until.saturating_duration_since(Instant::now());
                    return Err(TargetError::Throttled(pause));
                }
                Slot::Paused(until) => tokio::time::sleep_until(until.into()).await,
            }
        }
    }

    /// Reports the outcome of a call to breaker and throttle.
    fn noted<B>(
        self: &Arc<Self>,
        answer: Result<Response<B>, TargetError>,
    ) -> Result<Response<B>, TargetError> {
        let answer = answer.and_then(|answer| self.paced(answer)).map_err(|error| self.with_address(error));
        let Some((outcome, cause)) = judged(&answer) else { return answer };
        match outcome {
            Outcome::Unreachable => self.servers.record_failed_connection(),
            Outcome::Healthy | Outcome::Failing | Outcome::Refused => self.answered.now(),
        }
        let effect = self.breaker.lock().record(outcome, Instant::now(), fastrand::f64());
        match effect {
            Effect::None | Effect::Recovered => {}
            Effect::ProbeNow => {
                *self.cause.lock() = cause;
                self.probe_after(Duration::ZERO);
            }
            Effect::Open(delay) => {
                *self.cause.lock() = cause;
                self.suspended();
                self.probe_after(delay);
            }
        }
        answer
    }

    /// Reports to the throttle whether the target requested fewer calls.
    fn paced<B>(&self, answer: Response<B>) -> Result<Response<B>, TargetError> {
        if answer.status() != StatusCode::TOO_MANY_REQUESTS {
            self.throttle.lock().accepted();
            return Ok(answer);
        }
        if answer.extensions().get::<answer::RequestRefusal>().is_some() {
            return Ok(answer);
        }
        let asked = answer.headers().get(RETRY_AFTER);
        let seconds: Option<u64> = asked.and_then(|value| value.to_str().ok()?.parse().ok());
        let pause = self.throttle.lock().rejected(seconds.map(Duration::from_secs), Instant::now());
        Err(TargetError::Throttled(pause))
    }

    /// Starts the only probing task of this target, which ends when calls pass again or the target is no longer used.
    fn probe_after(self: &Arc<Self>, delay: Duration) {
        tokio::spawn(probe_until_healthy(Arc::downgrade(self), delay));
    }

    async fn is_healthy(&self) -> bool {
        let _permit = self.notices.probe_permit().await;
        let result = probe(&self.wire, &self.limits, &self.audits).await;
        if result == ProbeResult::Unauthorized {
            *self.cause.lock() = Some(TargetError::Unauthorized);
        }
        result == ProbeResult::Healthy
    }

    fn suspended(&self) {
        let changed = self.health.send_if_modified(|health| std::mem::replace(&mut health.calls_pass, false));
        if changed {
            self.notices.suspended();
        }
    }

    fn recovered(&self) {
        self.health.send_modify(|health| {
            health.calls_pass = true;
            health.recoveries += 1;
        });
        self.notices.recovered();
    }
}

/// Releases the slot, also if the call is dropped before its end.
struct SlotGuard<'a> {
    transport: &'a Transport,
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.transport.throttle.lock().done();
        self.transport.freed.notify_waiters();
    }
}

async fn probe_until_healthy(target: Weak<Transport>, mut delay: Duration) {
    loop {
        tokio::time::sleep(delay).await;
        let Some(target) = target.upgrade() else { return };
        let healthy = target.is_healthy().await;
        let effect = target.breaker.lock().probed(healthy, Instant::now(), fastrand::f64());
        match effect {
            Effect::Open(next) => {
                target.suspended();
                delay = next;
            }
            Effect::Recovered => return target.recovered(),
            Effect::None | Effect::ProbeNow => return,
        }
    }
}

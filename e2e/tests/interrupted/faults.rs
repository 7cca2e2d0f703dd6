//! Proxies between operators and clusters. They record each write and each watch, and disturb those of a Kyma.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Response;
use parking_lot::Mutex;
use serde_json::Value;
use testbed::{Answer, Body, EventDelivery, InterceptedRequest, Interceptor, disorder_events};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock::Clock;
use crate::writes::{Write, WriteSelection};

/// Time by which stale lists and late events are behind.
const EVENT_LAG: Duration = Duration::from_secs(1);
/// Message of an apiserver that refuses a write because of another one in between.
const CONFLICT: &str = "Operation cannot be fulfilled: the object has been modified; please apply your changes to \
                        the latest version and try again";

/// A disturbance of the operators' requests for a Kyma.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The operator is killed after the write, before it receives the response.
    Kill(WriteSelection),
    /// The first attempt at the write is refused with a conflict.
    Conflict(WriteSelection),
    /// Events are duplicated, reordered, or lost with the end of their watch.
    Disorder,
    /// Events are late, and the list that begins a watch is old.
    Stale,
}

/// A jump of the clock of all operators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockJump {
    /// Number of writes after which the clock jumps.
    pub(crate) after: usize,
    /// Seconds from the real time after the jump.
    pub(crate) to: i64,
}

/// Faults and records of one Kyma.
struct KymaFaults {
    faults: Vec<Fault>,
    /// Writes that were refused and not retried yet.
    refused: BTreeSet<String>,
    /// Number of attempted writes without retries of refused ones.
    attempts: usize,
    record: Record,
}

impl KymaFaults {
    fn is_late(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Stale))
    }
}

/// Writes and faults of one stage.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Distinct successful writes, in order.
    pub(crate) writes: Vec<Write>,
    /// Number of faults that occurred.
    pub(crate) faults: usize,
    /// Time of the last successful write.
    pub(crate) last: Instant,
}

impl Default for Record {
    fn default() -> Self {
        Self { writes: Vec::new(), faults: 0, last: Instant::now() }
    }
}

/// State shared by all proxies.
pub(crate) struct FaultInjector {
    cases: Mutex<BTreeMap<String, KymaFaults>>,
    /// Operators that are about to be killed; none of their requests passes.
    killed_operators: Mutex<BTreeSet<String>>,
    kill_requests: UnboundedSender<String>,
    clock: Clock,
    jump: Mutex<Option<ClockJump>>,
}

impl FaultInjector {
    pub(crate) fn new(kill_requests: UnboundedSender<String>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            cases: Mutex::default(),
            killed_operators: Mutex::default(),
            kill_requests,
            clock,
            jump: Mutex::default(),
        })
    }

    /// Begins a stage: from now on these faults apply to the Kyma.
    pub(crate) fn begin(&self, kyma: &str, faults: Vec<Fault>) {
        let case = KymaFaults { faults, refused: BTreeSet::new(), attempts: 0, record: Record::default() };
        self.cases.lock().insert(kyma.to_owned(), case);
    }

    /// Returns what was recorded since the stage began.
    pub(crate) fn record(&self, kyma: &str) -> Record {
        self.cases.lock().get(kyma).map(|case| case.record.clone()).unwrap_or_default()
    }

    /// Removes the state of a Kyma.
    pub(crate) fn forget(&self, kyma: &str) {
        self.cases.lock().remove(kyma);
    }

    /// Lets requests of an operator pass again after it was killed.
    pub(crate) fn resume_requests(&self, operator: &str) {
        self.killed_operators.lock().remove(operator);
    }

    fn is_killed(&self, operator: &str) -> bool {
        self.killed_operators.lock().contains(operator)
    }

    /// Returns the Kyma that a text names. A text that names none belongs to the only Kyma, if there is only one.
    fn concerned_kyma(&self, text: &str) -> Option<String> {
        let cases = self.cases.lock();
        let named = cases.keys().find(|kyma| text.contains(kyma.as_str()));
        named.or_else(|| cases.keys().next().filter(|_| cases.len() == 1)).cloned()
    }

    fn is_stale(&self, kyma: Option<&str>) -> bool {
        let cases = self.cases.lock();
        let mut some = cases.iter().filter(|(name, _)| kyma.is_none_or(|kyma| kyma == name.as_str()));
        some.any(|(_, case)| case.is_late())
    }

    /// Reports whether the write is refused. A retry of a refused write passes.
    fn refuses(&self, kyma: &str, write: &Write) -> bool {
        let mut cases = self.cases.lock();
        let Some(case) = cases.get_mut(kyma) else { return false };
        if case.refused.remove(&write.line) {
            return false;
        }
        let is_selected =
            |fault: &Fault| matches!(fault, Fault::Conflict(writes) if writes.contains(case.attempts));
        let refused = case.faults.iter().any(is_selected);
        case.attempts += 1;
        case.record.faults += usize::from(refused);
        if refused {
            case.refused.insert(write.line.clone());
        }
        refused
    }

    /// Sets the next jump of the clock.
    pub(crate) fn prepare(&self, jump: ClockJump) {
        *self.jump.lock() = Some(jump);
    }

    /// Reports whether the next jump of the clock is still to come.
    pub(crate) fn is_prepared(&self) -> bool {
        self.jump.lock().is_some()
    }

    /// Records a successful write. Returns whether its operator is to be killed.
    fn record_success(&self, kyma: &str, write: &Write) -> io::Result<bool> {
        let mut cases = self.cases.lock();
        let Some(case) = cases.get_mut(kyma) else { return Ok(false) };
        case.record.last = Instant::now();
        let is_new = !case.record.writes.iter().any(|other| other.digest == write.digest);
        let number = case.record.writes.len();
        if is_new {
            case.record.writes.push(write.clone());
        }
        if let Some(jump) = self.jump.lock().take_if(|jump| case.record.writes.len() >= jump.after) {
            self.clock.set(jump.to)?;
        }
        let kills = |fault: &Fault| matches!(fault, Fault::Kill(writes) if writes.contains(number));
        let is_killed = is_new && case.faults.iter().any(kills);
        case.record.faults += usize::from(is_killed);
        Ok(is_killed)
    }

    /// Returns how a watch event is delivered.
    fn delivery(&self, kyma: &str, number: usize) -> EventDelivery {
        let mut cases = self.cases.lock();
        let Some(case) = cases.get_mut(kyma) else { return EventDelivery::OnTime };
        let is_disordered = case.faults.iter().any(|fault| matches!(fault, Fault::Disorder));
        let delivery = match number % 4 {
            _ if case.is_late() => EventDelivery::Late(EVENT_LAG),
            0 if is_disordered => EventDelivery::Twice,
            1 if is_disordered => EventDelivery::Overtaken,
            3 if is_disordered => EventDelivery::Lost,
            _ => EventDelivery::OnTime,
        };
        case.record.faults += usize::from(delivery != EventDelivery::OnTime);
        delivery
    }
}

/// A proxy between operators and a cluster.
pub(crate) struct FaultProxy {
    injector: Arc<FaultInjector>,
    connection: Connection,
    /// resourceVersions that were sent on watches, and when.
    sent_versions: Mutex<Vec<(Instant, u64)>>,
    /// Number of events that concerned a Kyma.
    events: Mutex<usize>,
    /// Collections whose watch lost an event; their next watch is answered as expired.
    gaps: Mutex<BTreeSet<String>>,
}

enum Connection {
    /// Between this operator and the hub.
    Hub(String),
    /// Between all operators and the target of this Kyma.
    Target(String),
}

impl FaultProxy {
    pub(crate) fn of_hub(injector: &Arc<FaultInjector>, operator: &str) -> Arc<Self> {
        Self::new(injector, Connection::Hub(operator.to_owned()))
    }

    pub(crate) fn of_target(injector: &Arc<FaultInjector>, kyma: &str) -> Arc<Self> {
        Self::new(injector, Connection::Target(kyma.to_owned()))
    }

    fn new(injector: &Arc<FaultInjector>, connection: Connection) -> Arc<Self> {
        let injector = Arc::clone(injector);
        Arc::new(Self {
            injector,
            connection,
            sent_versions: Mutex::default(),
            events: Mutex::default(),
            gaps: Mutex::default(),
        })
    }

    fn operator(&self, user_agent: &str) -> String {
        match &self.connection {
            Connection::Hub(operator) => operator.clone(),
            Connection::Target(_) => user_agent.split('/').next().unwrap_or_default().to_owned(),
        }
    }

    fn concerned_kyma(&self, text: &str) -> Option<String> {
        match &self.connection {
            Connection::Hub(_) => self.injector.concerned_kyma(text),
            Connection::Target(kyma) => Some(kyma.clone()),
        }
    }

    async fn decide(self: Arc<Self>, passing: InterceptedRequest) -> io::Result<Response<Body>> {
        let seen = passing.received().clone();
        let operator = self.operator(&seen.user_agent);
        if self.injector.is_killed(&operator) {
            return std::future::pending().await;
        }
        if seen.query.contains("watch=true") {
            return self.watch(passing).await;
        }
        if seen.method == "GET" {
            return self.read(passing).await;
        }
        let text = format!("{} {}", seen.path, String::from_utf8_lossy(passing.body()));
        let Some(kyma) = self.concerned_kyma(&text) else { return passing.onward().await };
        let Some(write) = Write::of(&operator, &kyma, &seen, passing.body()) else {
            return passing.onward().await;
        };
        if self.injector.refuses(&kyma, &write) {
            let refusal = Answer::failure(409, "Conflict", CONFLICT).into_response();
            return refusal.ok_or_else(|| io::ErrorKind::Unsupported.into());
        }
        let answer = passing.onward().await?;
        if answer.status().is_success() && self.injector.record_success(&kyma, &write)? {
            self.injector.killed_operators.lock().insert(operator.clone());
            self.injector.kill_requests.send(operator).ok();
            return std::future::pending().await;
        }
        Ok(answer)
    }

    /// Forwards a read. The list that begins a watch may be old; one that is read for a decision is not, as
    /// apiservers guarantee.
    async fn read(&self, passing: InterceptedRequest) -> io::Result<Response<Body>> {
        let seen = passing.received();
        let is_watch_list = seen.query.contains("limit=500") && !seen.query.contains("continue=");
        let kyma = match &self.connection {
            Connection::Hub(_) => None,
            Connection::Target(kyma) => Some(kyma.as_str()),
        };
        let old = self
            .sent_versions
            .lock()
            .iter()
            .rev()
            .find(|(sent, _)| sent.elapsed() >= EVENT_LAG)
            .map(|(_, version)| *version);
        match old.filter(|_| is_watch_list && self.injector.is_stale(kyma)) {
            None => passing.onward().await,
            Some(old) => {
                let query = format!("{}&resourceVersion={old}&resourceVersionMatch=Exact", seen.query);
                passing.with_query(&query).onward().await
            }
        }
    }

    async fn watch(self: Arc<Self>, passing: InterceptedRequest) -> io::Result<Response<Body>> {
        let path = passing.received().path.clone();
        if self.gaps.lock().remove(&path) {
            let expired = Answer::expired().into_response();
            return expired.ok_or_else(|| io::ErrorKind::Unsupported.into());
        }
        let answer = passing.onward().await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let this = Arc::clone(&self);
        Ok(disorder_events(answer, move |event| this.observe_event(&path, event)))
    }

    fn observe_event(&self, path: &str, event: &Value) -> EventDelivery {
        let meta = &event["object"]["metadata"];
        if let Some(version) = meta["resourceVersion"].as_str().and_then(|version| version.parse().ok()) {
            self.sent_versions.lock().push((Instant::now(), version));
        }
        let Some(kyma) = self.concerned_kyma(meta["name"].as_str().unwrap_or_default()) else {
            return EventDelivery::OnTime;
        };
        let number = {
            let mut events = self.events.lock();
            *events += 1;
            *events
        };
        let delivery = self.injector.delivery(&kyma, number);
        // Half of the watches that lost an event can be resumed, which delivers it again; the others expire, which
        // forces a list.
        if delivery == EventDelivery::Lost && number % 8 == 3 {
            self.gaps.lock().insert(path.to_owned());
        }
        delivery
    }
}

/// Implements `Interceptor` for a shared proxy.
pub(crate) struct FaultInterceptor(pub(crate) Arc<FaultProxy>);

impl Interceptor for FaultInterceptor {
    fn pass(&self, passing: InterceptedRequest) -> BoxFuture<'_, io::Result<Response<Body>>> {
        Arc::clone(&self.0).decide(passing).boxed()
    }
}

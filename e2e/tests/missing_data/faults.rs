//! Proxies between operators and clusters: they alter lists, and end watches so that everything is listed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use anyhow::{Result, ensure};
use e2e::landscape::ProxiedConnection;
use futures::FutureExt;
use http::Response;
use parking_lot::Mutex;
use testbed::{
    Answer, Body, InterceptedRequest, Interceptor, ReceivedRequest, empty_list, expire_watch, truncate_body,
    until_or_why,
};
use tokio::sync::watch;

use crate::world::DEADLINE;

/// The resource of CRDs.
pub(crate) const CRDS: &str = "customresourcedefinitions";

/// Number of failed lists after which an operator has met the fault on a cluster: it retried one, or several
/// failed.
const MIN_FAILED_LISTS: usize = 2;

/// The cluster of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Hub,
    Targets,
}

/// A fault of requests.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// Lists of these resources have no items.
    Empty(fn(Side, &str) -> bool),
    /// Lists of this resource have no items.
    EmptyOf(Side, &'static str),
    /// All requests to this side are answered with 500.
    Fails(Side),
    /// All reads of this side break off in the middle.
    Halved(Side),
    /// Lists have one object per page, and the token after the first page has expired.
    FirstPage,
}

impl Fault {
    /// Reports whether lists of the resource have no items.
    pub(crate) fn empties(self, side: Side, resource: &str) -> bool {
        match self {
            Self::Empty(of) => of(side, resource),
            Self::EmptyOf(on, of) => side == on && resource == of,
            Self::Fails(_) | Self::Halved(_) | Self::FirstPage => false,
        }
    }

    /// Reports whether lists of this resource are altered.
    fn concerns(self, stream: &Stream) -> bool {
        match self {
            Self::Empty(_) | Self::EmptyOf(..) => self.empties(stream.side, &stream.resource),
            Self::Fails(side) | Self::Halved(side) => side == stream.side,
            Self::FirstPage => true,
        }
    }

    /// Reports whether the fault hides from an operator the objects that lead it to targets: an operator that finds
    /// none stops its streams there.
    fn may_end(self, stream: &Stream) -> bool {
        if !self.is_believed() {
            return false;
        }
        let leads = match stream.agent.as_str() {
            "helm-component" => "helmcomponents",
            "greeting-component" => "greetings",
            _ => "kymas",
        };
        stream.side == Side::Targets && self.empties(Side::Hub, leads)
    }

    /// Reports whether operators accept the altered answer and do not retry.
    pub(crate) fn is_believed(self) -> bool {
        matches!(self, Self::Empty(_) | Self::EmptyOf(..))
    }
}

/// A list followed by a watch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stream {
    pub(crate) side: Side,
    /// The operator for the hub, the target for targets.
    place: String,
    agent: String,
    path: String,
    resource: String,
    /// Label and field selectors.
    selectors: Vec<String>,
}

impl Stream {
    /// Reports whether the same operator asks the same cluster.
    fn asks_the_same(&self, other: &Self) -> bool {
        (&self.place, &self.agent) == (&other.place, &other.agent)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {} {}: {} {:?}", self.side, self.place, self.agent, self.path, self.selectors)
    }
}

/// State shared by all proxies.
pub(crate) struct FaultInjector {
    state: Mutex<ProxyState>,
    /// Changes when all watches end.
    rounds: watch::Sender<usize>,
}

#[derive(Default)]
struct ProxyState {
    fault: Option<Fault>,
    /// Watches that are open.
    open: Vec<Stream>,
    /// Lists since the fault last changed: those that were altered, and those that were not.
    altered: Vec<Stream>,
    unaltered: Vec<Stream>,
    /// The round in which each stream was listed last.
    listed: BTreeMap<Stream, usize>,
}

impl FaultInjector {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), rounds: watch::Sender::new(0) })
    }

    /// Returns the interceptor of a connection between an operator and a cluster.
    pub(crate) fn interceptor(self: &Arc<Self>, connection: ProxiedConnection<'_>) -> Arc<dyn Interceptor> {
        let (side, place) = match connection {
            ProxiedConnection::ToHub(operator) => (Side::Hub, operator.to_owned()),
            ProxiedConnection::ToTarget(name) => (Side::Targets, name.to_owned()),
        };
        let injector = Arc::clone(self);
        Arc::new(move |passing: InterceptedRequest| {
            let stream = stream(side, &place, passing.received());
            Arc::clone(&injector).pass(side, stream, passing).boxed()
        })
    }

    /// Returns the streams that are watched now.
    pub(crate) fn watched(&self) -> BTreeSet<Stream> {
        self.state.lock().open.iter().cloned().collect()
    }

    /// Sets or removes the fault, and ends all watches so that everything is listed again.
    pub(crate) fn set(&self, fault: Option<Fault>) {
        let mut state = self.state.lock();
        (state.altered, state.unaltered) = (Vec::new(), Vec::new());
        state.fault = fault;
        self.rounds.send_modify(|round| *round += 1);
    }

    /// Waits until the fault has altered the lists of all these streams that it concerns, of which there must be some.
    /// If requests fail, an operator stops asking that cluster after a few of them, so `MIN_FAILED_LISTS` failed lists
    /// for each operator and cluster suffice.
    pub(crate) async fn until_met(&self, fault: Fault, streams: &BTreeSet<Stream>) -> Result<()> {
        let concerned: Vec<&Stream> =
            streams.iter().filter(|stream| fault.concerns(stream) && !fault.may_end(stream)).collect();
        ensure!(!concerned.is_empty(), "the fault concerns nothing of {streams:?}");
        until_or_why("the fault has met all that it concerns", DEADLINE, || async {
            let state = self.state.lock();
            let met = |stream: &Stream| match fault {
                Fault::Empty(_) | Fault::EmptyOf(..) | Fault::FirstPage => state.altered.contains(stream),
                Fault::Fails(_) | Fault::Halved(_) => {
                    state.altered.iter().filter(|other| other.asks_the_same(stream)).count()
                        >= MIN_FAILED_LISTS
                }
            };
            Ok(missing(concerned.iter().copied(), met))
        })
        .await
    }

    /// Waits until each operator of these streams has found no CRD on the hub. An operator that starts lists nothing
    /// else before its own CRDs exist.
    pub(crate) async fn until_crds_are_missing(&self, streams: &BTreeSet<Stream>) -> Result<()> {
        let of_hub = streams.iter().filter(|stream| stream.side == Side::Hub);
        let operators: BTreeSet<&str> = of_hub.map(|stream| stream.place.as_str()).collect();
        until_or_why("all operators find no CRD", DEADLINE, || async {
            let state = self.state.lock();
            let altered = state.altered.iter().filter(|list| list.side == Side::Hub && list.resource == CRDS);
            let met: BTreeSet<&str> = altered.map(|list| list.place.as_str()).collect();
            let rest: Vec<_> = operators.difference(&met).collect();
            Ok(if rest.is_empty() { Ok(()) } else { Err(format!("without {rest:?}")) })
        })
        .await
    }

    /// Waits until all of these were listed unaltered.
    pub(crate) async fn until_unaltered(&self, streams: &BTreeSet<Stream>) -> Result<()> {
        until_or_why("all lists are unaltered", DEADLINE, || async {
            let state = self.state.lock();
            Ok(missing(streams, |stream| state.unaltered.contains(stream)))
        })
        .await
    }

    async fn pass(
        self: Arc<Self>,
        side: Side,
        stream: Option<Stream>,
        passing: InterceptedRequest,
    ) -> io::Result<Response<Body>> {
        let (fault, round) = {
            let state = self.state.lock();
            (state.fault, *self.rounds.borrow())
        };
        let is_read = passing.received().method == "GET";
        let is_watch = passing.received().query.contains("watch=true");
        match (fault, stream) {
            (Some(Fault::Fails(failing)), stream) if failing == side => {
                self.record_list(stream.filter(|_| !is_watch), true, round);
                let failure = Answer::failure(500, "InternalError", "etcdserver: request timed out");
                failure.into_response().ok_or_else(|| io::ErrorKind::Unsupported.into())
            }
            (_, Some(stream)) if is_watch => self.watch(stream, passing).await,
            (Some(Fault::Halved(broken)), stream) if broken == side && is_read => {
                let halved = truncate_body(passing.onward().await?).await;
                self.record_list(stream, true, round);
                halved
            }
            (_, None) => passing.onward().await,
            (Some(fault), Some(stream)) if fault.empties(side, &stream.resource) => {
                let emptied = empty_list(passing.onward().await?).await;
                self.record_list(Some(stream), true, round);
                emptied
            }
            (Some(Fault::FirstPage), Some(stream)) => self.first_page(stream, passing, round).await,
            (_, Some(stream)) => {
                let answer = passing.onward().await?;
                self.record_list(Some(stream).filter(|_| answer.status().is_success()), false, round);
                Ok(answer)
            }
        }
    }

    async fn first_page(
        &self,
        stream: Stream,
        passing: InterceptedRequest,
        round: usize,
    ) -> io::Result<Response<Body>> {
        self.record_list(Some(stream), true, round);
        let query = passing.received().query.clone();
        if query.contains("continue=") {
            return Answer::expired().into_response().ok_or_else(|| io::ErrorKind::Unsupported.into());
        }
        let others = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("limit="));
        let one = others.chain(["limit=1"]).collect::<Vec<_>>().join("&");
        passing.with_query(&one).onward().await
    }

    async fn watch(
        self: Arc<Self>,
        stream: Stream,
        passing: InterceptedRequest,
    ) -> io::Result<Response<Body>> {
        let mut rounds = self.rounds.subscribe();
        // A stream that was listed in an earlier round has to be listed again, even if its watch began after that
        // round.
        if self.state.lock().listed.get(&stream).is_some_and(|listed| *listed < *rounds.borrow()) {
            rounds.mark_changed();
        }
        let answer = passing.onward().await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let open = OpenWatch::new(Arc::clone(&self), stream);
        Ok(expire_watch(answer, async move {
            let _open = open;
            rounds.changed().await.ok();
        }))
    }

    /// Records a list that was requested in this round.
    fn record_list(&self, stream: Option<Stream>, altered: bool, round: usize) {
        let Some(stream) = stream else { return };
        let mut state = self.state.lock();
        state.listed.insert(stream.clone(), round);
        if round == *self.rounds.borrow() {
            let lists = if altered { &mut state.altered } else { &mut state.unaltered };
            lists.push(stream);
        }
    }
}

/// A watch that is open until this is dropped.
struct OpenWatch {
    injector: Arc<FaultInjector>,
    stream: Stream,
}

impl OpenWatch {
    fn new(injector: Arc<FaultInjector>, stream: Stream) -> Self {
        injector.state.lock().open.push(stream.clone());
        Self { injector, stream }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        let mut state = self.injector.state.lock();
        if let Some(position) = state.open.iter().position(|open| *open == self.stream) {
            state.open.swap_remove(position);
        }
    }
}

/// Checks that all streams are there. The error lists those that are not, for the message of a wait.
fn missing<'a>(
    streams: impl IntoIterator<Item = &'a Stream>,
    is_there: impl Fn(&Stream) -> bool,
) -> Result<(), String> {
    let missing: Vec<&Stream> = streams.into_iter().filter(|stream| !is_there(stream)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("without {missing:#?}")) }
}

/// Returns the stream that a request lists or watches, if any.
fn stream(side: Side, place: &str, seen: &ReceivedRequest) -> Option<Stream> {
    let resource = collection(&seen.path).filter(|_| seen.method == "GET")?.to_owned();
    let is_selector = |part: &&str| part.starts_with("labelSelector=") || part.starts_with("fieldSelector=");
    Some(Stream {
        side,
        place: place.to_owned(),
        agent: seen.user_agent.split('/').next().unwrap_or_default().to_owned(),
        path: seen.path.clone(),
        resource,
        selectors: seen.query.split('&').filter(is_selector).map(str::to_owned).collect(),
    })
}

/// Returns the resource of a collection's path.
fn collection(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (["api", _, ref within @ ..] | ["apis", _, _, ref within @ ..]) = *parts.as_slice() else {
        return None;
    };
    match *within {
        [resource] | ["namespaces", _, resource] => Some(resource),
        _ => None,
    }
}

#[test]
fn paths_of_collections_and_objects_differ() {
    assert_eq!(collection("/api/v1/secrets"), Some("secrets"));
    assert_eq!(collection("/api/v1/namespaces/n/secrets"), Some("secrets"));
    assert_eq!(collection("/apis/apps/v1/namespaces/n/deployments"), Some("deployments"));
    assert_eq!(collection("/api/v1/namespaces"), Some("namespaces"));
    for other in ["/api", "/apis/apps/v1", "/api/v1/namespaces/n", "/apis/apps/v1/namespaces/n/deployments/d"]
    {
        assert_eq!(collection(other), None, "{other}");
    }
}

//! An HTTP server that responds as a test defines and records the requests.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{
        Response,
        header::{ACCEPT, AUTHORIZATION, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE},
    },
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::JoinHandle};

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    /// `Host`: the server's own address.
    pub(crate) host: String,
    pub(crate) accept: Option<String>,
    pub(crate) authorization: Option<String>,
    /// `If-None-Match`, or `If-Modified-Since`.
    pub(crate) condition: Option<String>,
    pub(crate) range: Option<String>,
    pub(crate) body: Bytes,
}

/// A response of the server.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<Bytes>) -> Self {
        Self { status: 200, headers: Vec::new(), body: Body::from(body.into()) }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::empty() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

type Script = dyn Fn(&ReceivedRequest) -> Reply + Send + Sync;

#[derive(Clone)]
struct Shared {
    script: Arc<Script>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// The server; it stops when it is dropped.
pub(crate) struct Server {
    address: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), script).await
    }

    /// Starts a server at this address. One of [`testbed::free_address`] stays unused after the server stops.
    pub(crate) async fn start_at(
        address: SocketAddr,
        script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let shared = Shared { script: Arc::new(script), requests: requests.clone() };
        let app = Router::new().fallback(answer).with_state(shared);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, requests, task }
    }

    /// Returns `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().clone()
    }

    /// Returns the number of requests that begin with this text, as `GET /v2/…`.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        self.requests()
            .iter()
            .filter(|request| format!("{} {}", request.method, request.path).starts_with(beginning))
            .count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let header = |name| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let received = ReceivedRequest {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        host: header(HOST).unwrap_or_default(),
        accept: header(ACCEPT),
        authorization: header(AUTHORIZATION),
        condition: header(IF_NONE_MATCH).or_else(|| header(IF_MODIFIED_SINCE)),
        range: header(RANGE),
        body: axum::body::to_bytes(body, 64 << 20).await.unwrap(),
    };
    let reply = (shared.script)(&received);
    shared.requests.lock().push(received);
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(reply.body).unwrap()
}

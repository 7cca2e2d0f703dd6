//! A proxy in front of a registry that requires a password.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A proxy of a registry that requires user and password (HTTP Basic) and passes everything else on. It ends when
/// it is dropped, and belongs to the tokio runtime that created it.
pub struct PasswordProxy {
    address: String,
    server: JoinHandle<()>,
}

struct PasswordCheck {
    upstream: String,
    expected: String,
    client: Client<HttpConnector, Incoming>,
}

impl PasswordProxy {
    pub(crate) async fn start(upstream: &str, user: &str, password: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let address = listener.local_addr()?.to_string();
        let check = Arc::new(PasswordCheck {
            upstream: upstream.to_owned(),
            expected: format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            client: Client::builder(TokioExecutor::new()).build_http(),
        });
        Ok(Self { address, server: tokio::spawn(serve(listener, check)) })
    }

    /// Returns host and port, `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for PasswordProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, check: Arc<PasswordCheck>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let check = Arc::clone(&check);
        let service = service_fn(move |request| Arc::clone(&check).pass(request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // A client that disconnects is no failure.
        connections.spawn(async move { connection.await.ok() });
        while connections.try_join_next().is_some() {}
    }
}

impl PasswordCheck {
    /// Forwards a request with the right credentials. The Host header stays that of the proxy, since the registry
    /// builds upload addresses from it.
    async fn pass(self: Arc<Self>, mut request: Request<Incoming>) -> io::Result<Response<Body>> {
        let shown = request.headers_mut().remove(AUTHORIZATION);
        if shown.is_none_or(|shown| shown != self.expected.as_str()) {
            return Ok(refusal());
        }
        let place = request.uri().path_and_query().map_or("/", |place| place.as_str());
        let target = format!("http://{}{place}", self.upstream);
        *request.uri_mut() = target.parse::<Uri>().map_err(io::Error::other)?;
        let response = self.client.request(request).await.map_err(io::Error::other)?;
        Ok(response.map(|body| body.map_err(io::Error::other).boxed_unsync()))
    }
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

fn refusal() -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"testbed\""));
    response
}

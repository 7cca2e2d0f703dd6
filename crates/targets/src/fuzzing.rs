//! Internals that fuzz targets call. Only in their builds: `cargo fuzz` sets the cfg.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::Semaphore;

use crate::connection::limits::Limits;
use crate::connection::transport::{AuditIdPresence, Bounds, Queue, read_answer};
use crate::credentials::kubeconfig::Kubeconfig;
use crate::error::{TargetError, classify};

/// All fields of a parsed kubeconfig.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// URL of the apiserver.
    pub server: String,
    /// PEM bundle.
    pub authorities: Vec<u8>,
    /// Name expected in the certificate.
    pub server_name: Option<String>,
    /// URL of the proxy.
    pub proxy: Option<String>,
    /// Bearer token.
    pub token: Option<String>,
    /// Client certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Namespace of the context.
    pub namespace: Option<String>,
}

/// Returns all fields of a kubeconfig.
pub fn parts(kubeconfig: &Kubeconfig) -> Parts {
    let identity = kubeconfig.identity.as_ref();
    Parts {
        server: kubeconfig.server.to_string(),
        authorities: kubeconfig.authorities.clone(),
        server_name: kubeconfig.server_name.clone(),
        proxy: kubeconfig.proxy.as_ref().map(ToString::to_string),
        token: kubeconfig.token.clone(),
        identity: identity.map(|identity| (identity.certificate.clone(), identity.key.clone())),
        namespace: kubeconfig.namespace.clone(),
    }
}

/// Reads a target's answer like a call; `None` if code or header are not valid HTTP.
pub fn answer(
    code: u16,
    content_type: &[u8],
    body: &[u8],
    limit: usize,
) -> Option<Result<Response<Bytes>, TargetError>> {
    let body = Full::new(Bytes::copy_from_slice(body)).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).ok()?;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_bytes(content_type).ok()?);
    let (limits, large) = (Limits { body: limit, ..Limits::default() }, Arc::new(Semaphore::new(1)));
    let queue = Queue::new(&large);
    let audits = AuditIdPresence::default();
    let reading =
        std::pin::pin!(read_answer(answer, Bounds::of(&limits, &queue, &audits), "/api/v1/namespaces"));
    match reading.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => Some(read.map(|answer| answer.map(|read| read.bytes))),
        Poll::Pending => None,
    }
}

/// Returns the error of a refused call with a body that [`answer`] accepted.
pub fn refusal(body: &[u8]) -> Option<TargetError> {
    serde_json::from_slice(body).ok().map(|status| classify(&kube::Error::Api(status)))
}

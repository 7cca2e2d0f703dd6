//! Connections for writes. Each new connection is verified to lead to the expected cluster before a request is sent.
//!
//! A pool can open a connection at any time, and another server can answer at the same address. A check of one connection
//! therefore does not cover the next.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::client::legacy::Client as HyperClient;
use kube::client::Body;
use kube::core::Status;
use parking_lot::Mutex;
use serde_json::Value;
use tower::Service;

use super::answer::{AuditIdPresence, is_foreign, status_in};
use super::expected_cluster::IDENTITY_PATH;
use super::pool::{absolute, pool};
use crate::connection::dial::{Dialer, Servers};
use crate::connection::limits::Limits;
use crate::error::{TargetError, classify, from_chain};
use crate::identity::Verdict;

const METADATA_ACCEPT: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
const IDENTITY_USER_AGENT: &str = concat!("kyma-targets/", env!("CARGO_PKG_VERSION"), " (identity)");
/// Maximum size of the response to the identity request, in bytes.
const MAX_IDENTITY_BYTES: usize = 256 * 1024;

type Stream = <Dialer as Service<Uri>>::Response;

/// The pool of connections that lead to one cluster.
pub(super) struct VerifiedPool {
    dialer: Dialer,
    base: Uri,
    timeout: Duration,
    /// Maximum number of idle connections.
    max_idle: usize,
    servers: Arc<Servers>,
    /// Authorization header of the last request, used for the identity request.
    authorization: Arc<Mutex<Option<HeaderValue>>>,
    /// Uid of the expected cluster, and the client whose connections lead only to that cluster. Both are replaced if
    /// another uid is expected.
    current: Mutex<Option<(String, HyperClient<VerifiedDialer, Body>)>>,
}

impl VerifiedPool {
    pub(super) fn new(dialer: Dialer, base: Uri, limits: &Limits, servers: Arc<Servers>) -> Self {
        let (timeout, max_idle) = (limits.connect, limits.calls);
        Self {
            dialer,
            base,
            timeout,
            max_idle,
            servers,
            authorization: Arc::default(),
            current: Mutex::default(),
        }
    }

    /// Returns the client whose connections lead to the cluster with this uid.
    pub(super) fn client(
        &self,
        uid: &str,
        authorization: Option<&HeaderValue>,
    ) -> HyperClient<VerifiedDialer, Body> {
        *self.authorization.lock() = authorization.cloned();
        let mut current = self.current.lock();
        if let Some((_, client)) = current.as_ref().filter(|(known, _)| known == uid) {
            return client.clone();
        }
        let dialer = VerifiedDialer {
            dialer: self.dialer.clone(),
            check: ClusterCheck {
                base: self.base.clone(),
                uid: uid.to_owned(),
                authorization: Arc::clone(&self.authorization),
                servers: Arc::clone(&self.servers),
            },
            timeout: self.timeout,
        };
        let client = pool(dialer, self.max_idle);
        *current = Some((uid.to_owned(), client.clone()));
        client
    }
}

/// Opens a connection, and returns it only if it leads to the expected cluster.
#[derive(Clone)]
pub(super) struct VerifiedDialer {
    dialer: Dialer,
    check: ClusterCheck,
    timeout: Duration,
}

impl Service<Uri> for VerifiedDialer {
    type Response = Stream;
    type Error = TargetError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, TargetError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TargetError>> {
        self.dialer.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (opening, check, timeout) = (self.dialer.call(to), self.check.clone(), self.timeout);
        Box::pin(async move {
            let stream = opening.await?;
            let checked = tokio::time::timeout(timeout, check.verify(stream)).await;
            checked.map_err(|_| TargetError::Deadline(timeout))?
        })
    }
}

#[derive(Clone)]
struct ClusterCheck {
    base: Uri,
    uid: String,
    authorization: Arc<Mutex<Option<HeaderValue>>>,
    servers: Arc<Servers>,
}

impl ClusterCheck {
    /// Returns the connection if the cluster has the expected uid.
    async fn verify(&self, stream: Stream) -> Result<Stream, TargetError> {
        let (mut sender, connection) =
            http1::handshake::<_, Empty<Bytes>>(stream).await.map_err(|error| from_chain(&error))?;
        let request = self.request()?;
        let exchange = async move {
            let answer = sender.send_request(request).await.map_err(|error| from_chain(&error))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, MAX_IDENTITY_BYTES).collect().await;
            let body = body.map_err(|error| body_error(error.as_ref()))?.to_bytes();
            drop(sender);
            Ok::<_, TargetError>((parts, body))
        };
        let (answer, parts) = tokio::join!(exchange, connection.without_shutdown());
        let (head, body) = answer?;
        let found = parse_uid(head.status.as_u16(), &body)?;
        if found != self.uid {
            self.servers.record_failed_connection();
            let changed = Verdict::TargetChanged { recorded: self.uid.clone(), found };
            return Err(TargetError::Refused(Box::new(changed)));
        }
        if !stays_open(head.version, &head.headers) {
            return Err(TargetError::Connect("the server closes the connection after each response"));
        }
        let parts = parts.map_err(|error| from_chain(&error))?;
        // Unread bytes after the response would be parsed as the response to the next request.
        if parts.read_buf.is_empty() { Ok(parts.io) } else { Err(TargetError::Unreadable) }
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, TargetError> {
        let uri = absolute(&self.base, &Uri::from_static(IDENTITY_PATH)).ok_or(TargetError::Request)?;
        let path = uri.path_and_query().ok_or(TargetError::Request)?.as_str();
        let host = uri.authority().ok_or(TargetError::Request)?.as_str();
        let mut request = Request::get(path).body(Empty::new()).map_err(|_| TargetError::Request)?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| TargetError::Request)?);
        headers.insert(ACCEPT, HeaderValue::from_static(METADATA_ACCEPT));
        headers.insert(USER_AGENT, HeaderValue::from_static(IDENTITY_USER_AGENT));
        if let Some(authorization) = self.authorization.lock().clone() {
            headers.insert(AUTHORIZATION, authorization);
        }
        Ok(request)
    }
}

/// Returns whether the server keeps the connection open after a response (RFC 9112, 9.3).
fn stays_open(version: Version, headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut options = values.flat_map(|value| value.split(',')).map(str::trim);
    version > Version::HTTP_10 && !options.any(|option| option.eq_ignore_ascii_case("close"))
}

fn body_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> TargetError {
    if error.is::<LengthLimitError>() { TargetError::TooLarge(MAX_IDENTITY_BYTES) } else { from_chain(error) }
}

/// Returns the uid in the response.
fn parse_uid(code: u16, body: &[u8]) -> Result<String, TargetError> {
    if code == 200 {
        let object: Value = serde_json::from_slice(body).map_err(|_| TargetError::Unreadable)?;
        let uid = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
        return uid.map(ToOwned::to_owned).ok_or(TargetError::Unreadable);
    }
    if (300..400).contains(&code) {
        return Err(TargetError::Redirected(code));
    }
    // Every cluster has the namespace kube-system, so this response does not come from an API server.
    if code == 404 {
        return Err(TargetError::NotApiServer(code));
    }
    let audits = AuditIdPresence::default();
    let is_proxy_response =
        StatusCode::from_u16(code).is_ok_and(|code| is_foreign(code, IDENTITY_PATH, &audits));
    let status = match status_in(body) {
        Some(status) => status,
        None if is_proxy_response => return Err(TargetError::NotApiServer(code)),
        None => Status::failure("", ""),
    };
    Err(classify(&kube::Error::Api(Box::new(status.with_code(code)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_that_stay_open_are_used() {
        let headers =
            |value: &'static str| HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static(value))]);
        assert!(stays_open(Version::HTTP_11, &HeaderMap::new()));
        assert!(stays_open(Version::HTTP_11, &headers("keep-alive")));
        assert!(!stays_open(Version::HTTP_11, &headers("Close")));
        assert!(!stays_open(Version::HTTP_11, &headers("keep-alive, close")));
        assert!(!stays_open(Version::HTTP_10, &HeaderMap::new()));
    }

    #[test]
    fn uid_is_read_from_a_namespace_and_errors_keep_their_reason() {
        let found = |code, body: &str| parse_uid(code, body.as_bytes());
        assert_eq!(found(200, r#"{"metadata":{"uid":"u"}}"#), Ok("u".to_owned()));
        assert_eq!(found(200, r#"{"metadata":{"uid":""}}"#), Err(TargetError::Unreadable));
        assert_eq!(found(200, "<html>"), Err(TargetError::Unreadable));
        assert_eq!(found(302, ""), Err(TargetError::Redirected(302)));
        assert_eq!(found(401, ""), Err(TargetError::Unauthorized));
        assert!(matches!(found(503, "<html>"), Err(TargetError::Server { code: 503, .. })));
        for proxy_body in ["<html>", r#"{"kind":"Status","reason":"NotFound","details":{"kind":"clusters"}}"#]
        {
            assert_eq!(found(404, proxy_body), Err(TargetError::NotApiServer(404)));
        }
        assert_eq!(found(403, r#"{"type":"error"}"#), Err(TargetError::NotApiServer(403)));
        assert_eq!(
            found(403, r#"{"kind":"Status"}"#),
            Err(TargetError::Forbidden("no known reason".to_owned()))
        );
    }
}

//! Reads a whole answer within its limits, and removes foreign text from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::core::Status;
use kube::core::response::reason;
use kyma_api::Refusal;
use serde_json::json;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::{AnswerBody, CollectedAnswer};
use super::expected_cluster::IDENTITY_PATH;
use super::weight::Weight;
use crate::connection::limits::Limits;
use crate::error::TargetError;

/// Size in bytes from which an answer counts as large.
const LARGE_ANSWER_BYTES: usize = 1024 * 1024;

/// Queue in which a large answer waits for the previous one.
#[derive(Debug)]
pub(crate) struct Queue<'a> {
    large: &'a Arc<Semaphore>,
    waited: AtomicBool,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(large: &'a Arc<Semaphore>) -> Self {
        Self { large, waited: AtomicBool::new(false) }
    }

    /// Reports whether the answer had to wait: then the time of its call says nothing about the target.
    pub(super) fn has_waited(&self) -> bool {
        self.waited.load(Ordering::Relaxed)
    }

    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(self.large).try_acquire_owned() {
            return Some(permit);
        }
        self.waited.store(true, Ordering::Relaxed);
        // The semaphore is never closed.
        Arc::clone(self.large).acquire_owned().await.ok()
    }
}

/// Limits for reading an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    bytes: usize,
    weight: usize,
    queue: &'a Queue<'a>,
    audits: &'a AuditIdPresence,
}

impl<'a> Bounds<'a> {
    pub(crate) fn of(limits: &Limits, queue: &'a Queue<'a>, audits: &'a AuditIdPresence) -> Self {
        Self { bytes: limits.body, weight: limits.body_weight, queue, audits }
    }
}

/// Reads a whole answer. `path`: the requested path, since API servers answer some paths in plain text.
///
/// Errors: redirects, bodies that exceed `bounds`, answers that are not JSON, and refusals that the API server did
/// not write. Other refusals and server errors without `Status` get one that contains only the code.
pub(crate) async fn read(
    answer: Response<AnswerBody>,
    bounds: Bounds<'_>,
    path: &str,
) -> Result<Response<CollectedAnswer>, TargetError> {
    let is_audited = answer.headers().contains_key(AUDIT_ID);
    let (parts, body) = answer.into_parts();
    if parts.status.is_redirection() {
        return Err(TargetError::Redirected(parts.status.as_u16()));
    }
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > bounds.bytes) {
        return Err(TargetError::TooLarge(bounds.bytes));
    }
    let mut answer = Response::from_parts(parts, collect(body, bounds).await?);
    if answer.status().is_success() {
        bounds.audits.note(is_audited);
        let readable = answers_in_text(path) || is_json(answer.headers().get(CONTENT_TYPE));
        return readable.then_some(answer).ok_or(TargetError::Unreadable);
    }
    if answer.status() == StatusCode::NOT_FOUND && path == IDENTITY_PATH {
        // Every cluster has this namespace. A proxy may write a Status about a cluster that it does not find.
        return Err(TargetError::NotApiServer(StatusCode::NOT_FOUND.as_u16()));
    }
    if let Some(mut status) = status_in(&answer.body().bytes) {
        let code = answer.status().as_u16();
        if std::mem::replace(&mut status.code, code) != code {
            // Some proxies leave the code out of the body, and kube reads it only there.
            *answer.body_mut() = to_json(&status)?.into();
        }
        if is_request_refusal(&status) {
            answer.extensions_mut().insert(RequestRefusal);
        }
        return Ok(answer);
    }
    if !is_audited && is_foreign(answer.status(), path, bounds.audits) {
        return Err(TargetError::NotApiServer(answer.status().as_u16()));
    }
    *answer.body_mut() = to_json(&bare_status(answer.status()))?.into();
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if answer.status().is_server_error() {
        answer.extensions_mut().insert(NotFromApiserver);
    }
    Ok(answer)
}

/// Header that API servers put on every answer, refusals included.
const AUDIT_ID: &str = "audit-id";

/// Whether answers of the target's API server carry [`AUDIT_ID`]. A proxy may remove headers.
#[derive(Debug, Default)]
pub(crate) struct AuditIdPresence(AtomicBool);

impl AuditIdPresence {
    fn note(&self, is_audited: bool) {
        if is_audited {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Reports whether a refusal without `Status` and [`AUDIT_ID`] comes from a proxy or load balancer in front of the
/// API server.
///
/// API servers refuse with a `Status`, except for kinds that they do not serve: they answer those with 404 and plain
/// text, like any Go program.
pub(super) fn is_foreign(code: StatusCode, path: &str, audits: &AuditIdPresence) -> bool {
    match code.as_u16() {
        // Refusals for credentials, size and rate mean the same from any server.
        401 | 413 | 429 => false,
        404 => is_always_served(path) || audits.0.load(Ordering::Relaxed),
        _ => code.is_client_error(),
    }
}

/// Reports whether every API server serves this path.
fn is_always_served(path: &str) -> bool {
    ["/version", "/api", "/apis", "/readyz"].contains(&path) || path.starts_with("/api/v1")
}

/// Marks a server error that did not come from the API server.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotFromApiserver;

/// Marks a refusal of one request by a working API server, which answers other calls meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRefusal;

/// Reports whether only this request is refused, whatever the code. Policies and webhooks can deny with any code,
/// also with 401 and 429; an API server that loads the objects of a kind answers 429.
fn is_request_refusal(status: &Status) -> bool {
    matches!(Refusal::of(status), Refusal::Denied(_) | Refusal::Initializing)
}

/// Returns the 429 of an API server for a call that is not sent.
pub(super) fn throttled(pause: Duration) -> Result<Response<CollectedAnswer>, TargetError> {
    let mut status = json!(bare_status(StatusCode::TOO_MANY_REQUESTS));
    status["details"] = json!({ "retryAfterSeconds": pause.as_millis().div_ceil(1000) });
    let mut answer = Response::new(to_json(&status)?.into());
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    Ok(answer)
}

fn to_json(value: &impl serde::Serialize) -> Result<Bytes, TargetError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|_| TargetError::Unreadable)
}

async fn collect(mut body: AnswerBody, bounds: Bounds<'_>) -> Result<CollectedAnswer, TargetError> {
    let (mut read, mut weight, mut permit) = (BytesMut::new(), Weight::default(), None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if read.len() + data.len() > bounds.bytes {
            return Err(TargetError::TooLarge(bounds.bytes));
        }
        if weight.add(&data) > bounds.weight {
            return Err(TargetError::TooLarge(bounds.weight));
        }
        if permit.is_none() && read.len() + data.len() > LARGE_ANSWER_BYTES {
            permit = bounds.queue.acquire().await;
        }
        read.extend_from_slice(&data);
    }
    Ok(CollectedAnswer::new(read.freeze(), permit))
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    let value = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

fn answers_in_text(path: &str) -> bool {
    ["/readyz", "/livez", "/healthz", "/metrics"].iter().any(|text| path.starts_with(text))
        || path.ends_with("/log")
}

/// Returns the Kubernetes `Status` in a body.
pub(super) fn status_in(body: &[u8]) -> Option<Status> {
    #[derive(serde::Deserialize)]
    struct Kind {
        kind: String,
    }
    let object = serde_json::from_slice::<Kind>(body).ok().filter(|object| object.kind == "Status");
    object.and_then(|_| serde_json::from_slice(body).ok())
}

fn bare_status(code: StatusCode) -> Status {
    let reason = match code.as_u16() {
        401 => reason::UNAUTHORIZED,
        403 => reason::FORBIDDEN,
        404 => reason::NOT_FOUND,
        409 => reason::CONFLICT,
        410 => reason::GONE,
        413 => reason::REQUEST_ENTITY_TOO_LARGE,
        429 => reason::TOO_MANY_REQUESTS,
        _ => reason::UNKNOWN,
    };
    Status::failure("the answer contains no Kubernetes status", reason).with_code(code.as_u16())
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    async fn read_refusal(code: u16, status: &serde_json::Value) -> Response<CollectedAnswer> {
        let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
        let answer = Response::builder().status(code).body(body.boxed_unsync()).unwrap();
        let (limits, large) = (Limits::default(), Arc::new(Semaphore::new(1)));
        let (queue, audits) = (Queue::new(&large), AuditIdPresence::default());
        read(answer, Bounds::of(&limits, &queue, &audits), "/api/v1/namespaces").await.unwrap()
    }

    #[tokio::test]
    async fn a_status_has_the_code_of_its_response() {
        for body in [json!({"kind": "Status"}), json!({"kind": "Status", "code": 500})] {
            let answer = read_refusal(403, &body).await;
            let status: Status = serde_json::from_slice(&answer.body().bytes).unwrap();
            assert_eq!(Refusal::of(&status), Refusal::Forbidden, "{body}");
        }
    }

    #[tokio::test]
    async fn a_denial_is_a_refusal_of_one_request_with_any_code() {
        let denied = "admission webhook \"w\" denied the request: no";
        for (code, message, expected) in [
            (401, denied, true),
            (429, denied, true),
            (503, denied, true),
            (429, "storage is (re)initializing", true),
            (401, "Unauthorized", false),
            (429, "too many requests", false),
        ] {
            let status = json!({"kind": "Status", "code": code, "message": message});
            let answer = read_refusal(code, &status).await;
            let marked = answer.extensions().get::<RequestRefusal>().is_some();
            assert_eq!(marked, expected, "{code} {message}");
        }
    }

    #[test]
    fn refusals_by_a_proxy_in_front_of_api_server_are_identified() {
        let (new, audited) = (AuditIdPresence::default(), AuditIdPresence::default());
        audited.note(true);
        let foreign =
            |code: u16, path: &str, audits| is_foreign(StatusCode::from_u16(code).unwrap(), path, audits);
        for code in [400, 402, 403, 405, 406, 409, 410, 415, 422, 451] {
            assert!(foreign(code, "/apis/x.example.org/v1/things", &new), "{code}");
        }
        for code in [401, 413, 429, 500, 502, 503] {
            assert!(!foreign(code, "/api/v1/namespaces/kube-system", &audited), "{code}");
        }
        assert!(foreign(404, "/api/v1/namespaces/kube-system", &new));
        assert!(foreign(404, "/version", &new));
        assert!(!foreign(404, "/apis/x.example.org/v1/things", &new), "a kind that is not served");
        assert!(foreign(404, "/apis/x.example.org/v1/things", &audited));
    }
}

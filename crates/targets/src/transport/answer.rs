//! Reads an answer whole, within the limit, and keeps foreign text out of it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use kube::core::Status;
use kube::core::response::reason;
use serde_json::json;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::AnswerBody;
use super::weight::Weight;
use crate::error::{TargetError, is_filling};
use crate::limits::Limits;

/// Bytes of an answer from which on it counts as large.
const LARGE: usize = 1024 * 1024;

/// Where a large answer waits for the one before it.
#[derive(Debug)]
pub(crate) struct Queue<'a> {
    large: &'a Arc<Semaphore>,
    stood: AtomicBool,
}

impl<'a> Queue<'a> {
    pub(crate) fn at(large: &'a Arc<Semaphore>) -> Self {
        Self { large, stood: AtomicBool::new(false) }
    }

    /// Whether the answer had to wait: then the time that its call took says nothing of the target.
    pub(super) fn held_up(&self) -> bool {
        self.stood.load(Ordering::Relaxed)
    }

    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(turn) = Arc::clone(self.large).try_acquire_owned() {
            return Some(turn);
        }
        self.stood.store(true, Ordering::Relaxed);
        // The semaphore is never closed.
        Arc::clone(self.large).acquire_owned().await.ok()
    }
}

/// Within which bounds an answer is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    bytes: usize,
    weight: usize,
    queue: &'a Queue<'a>,
}

impl<'a> Bounds<'a> {
    pub(crate) fn of(limits: &Limits, queue: &'a Queue<'a>) -> Self {
        Self { bytes: limits.body, weight: limits.body_weight, queue }
    }
}

/// An answer that was read. A large one keeps others waiting until it is handed over.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: Bytes,
    _turn: Option<OwnedSemaphorePermit>,
}

impl From<Read> for AnswerBody {
    fn from(read: Read) -> Self {
        read.boxed_unsync()
    }
}

impl HttpBody for Read {
    type Data = Bytes;
    type Error = TargetError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TargetError>>> {
        let bytes = std::mem::take(&mut self.get_mut().bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }
}

impl From<Bytes> for Read {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, _turn: None }
    }
}

/// Reads `answer` whole. `path` is the path asked for: a few of them answer in plain text.
///
/// Errors: redirects, bodies out of `bounds`, and answers that are not JSON. Refusals and server errors that hold no
/// `Status` get one that says no more than the code.
pub(crate) async fn read(
    answer: Response<AnswerBody>,
    bounds: Bounds<'_>,
    path: &str,
) -> Result<Response<Read>, TargetError> {
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
        let readable = answers_in_text(path) || is_json(answer.headers().get(CONTENT_TYPE));
        return readable.then_some(answer).ok_or(TargetError::Unreadable);
    }
    if let Some(status) = status_in(&answer.body().bytes) {
        if is_filling(&status) {
            answer.extensions_mut().insert(Filling);
        }
        return Ok(answer);
    }
    *answer.body_mut() = to_json(&bare_status(answer.status()))?.into();
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if answer.status().is_server_error() {
        answer.extensions_mut().insert(NotFromApiserver);
    }
    Ok(answer)
}

/// Marks a server error that something in front of the apiserver wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotFromApiserver;

/// Marks a 429 that asks for no peace ([`is_filling`]): other calls are answered meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling;

/// The answer that an apiserver gives to whom it asks to wait, for calls that are not even sent.
pub(super) fn throttled(pause: Duration) -> Result<Response<Read>, TargetError> {
    let mut status = json!(bare_status(StatusCode::TOO_MANY_REQUESTS));
    status["details"] = json!({ "retryAfterSeconds": pause.as_millis().div_ceil(1000) });
    let mut answer = Response::new(to_json(&status)?.into());
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    Ok(answer)
}

fn to_json(value: &impl serde::Serialize) -> Result<Bytes, TargetError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|_| TargetError::Unreadable)
}

async fn collect(mut body: AnswerBody, bounds: Bounds<'_>) -> Result<Read, TargetError> {
    let (mut read, mut weight, mut turn) = (BytesMut::new(), Weight::default(), None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if read.len() + data.len() > bounds.bytes {
            return Err(TargetError::TooLarge(bounds.bytes));
        }
        if weight.add(&data) > bounds.weight {
            return Err(TargetError::TooLarge(bounds.weight));
        }
        if turn.is_none() && read.len() + data.len() > LARGE {
            turn = bounds.queue.turn().await;
        }
        read.extend_from_slice(&data);
    }
    Ok(Read { bytes: read.freeze(), _turn: turn })
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

fn status_in(body: &Bytes) -> Option<Status> {
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
    Status::failure("the answer holds no Kubernetes status", reason).with_code(code.as_u16())
}

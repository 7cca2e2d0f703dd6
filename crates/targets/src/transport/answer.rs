//! Reads an answer whole, within the limit, and keeps foreign text out of it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use kube::core::Status;
use kube::core::response::reason;
use serde_json::json;

use super::AnswerBody;
use crate::error::{TargetError, from_chain};

/// Reads `answer` whole. `path` is the path asked for: a few of them answer in plain text.
///
/// Errors: redirects, bodies over `limit`, and answers that are not JSON. Refusals and server errors that hold no
/// `Status` get one that says no more than the code.
pub(crate) async fn read(
    answer: Response<AnswerBody>,
    limit: usize,
    path: &str,
) -> Result<Response<Bytes>, TargetError> {
    let (parts, body) = answer.into_parts();
    if parts.status.is_redirection() {
        return Err(TargetError::Redirected(parts.status.as_u16()));
    }
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > limit) {
        return Err(TargetError::TooLarge(limit));
    }
    let mut answer = Response::from_parts(parts, collect(body, limit).await?);
    if answer.status().is_success() {
        let readable = answers_in_text(path) || is_json(answer.headers().get(CONTENT_TYPE));
        return readable.then_some(answer).ok_or(TargetError::Unreadable);
    }
    if is_status(answer.body()) {
        return Ok(answer);
    }
    *answer.body_mut() = to_json(&bare_status(answer.status()))?;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if answer.status().is_server_error() {
        answer.extensions_mut().insert(NotFromApiserver);
    }
    Ok(answer)
}

/// Marks a server error that something in front of the apiserver wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotFromApiserver;

/// The answer that an apiserver gives to whom it asks to wait, for calls that are not even sent.
pub(super) fn throttled(pause: Duration) -> Result<Response<Bytes>, TargetError> {
    let mut status = json!(bare_status(StatusCode::TOO_MANY_REQUESTS));
    status["details"] = json!({ "retryAfterSeconds": pause.as_millis().div_ceil(1000) });
    let mut answer = Response::new(to_json(&status)?);
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    Ok(answer)
}

fn to_json(value: &impl serde::Serialize) -> Result<Bytes, TargetError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|_| TargetError::Unreadable)
}

async fn collect(body: AnswerBody, limit: usize) -> Result<Bytes, TargetError> {
    let collected = Limited::new(body, limit).collect().await;
    collected.map(Collected::to_bytes).map_err(|error| {
        let over = error.downcast_ref::<LengthLimitError>().is_some();
        if over { TargetError::TooLarge(limit) } else { from_chain(error.as_ref()) }
    })
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

fn is_status(body: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct Kind {
        kind: String,
    }
    serde_json::from_slice::<Kind>(body).is_ok_and(|object| object.kind == "Status")
        && serde_json::from_slice::<Status>(body).is_ok()
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

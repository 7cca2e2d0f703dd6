//! The answers of a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

/// Bodies of requests and answers, own and passed on.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The connection breaks (RST).
    Reset,
    /// No answer; the connection stays open.
    Silence,
    /// The cluster's answer, after a delay.
    Forward(Duration),
    Respond(Respond),
}

#[derive(Clone, Debug)]
pub(crate) struct Respond {
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Whole(Bytes),
    /// One byte at a time.
    Drip(Bytes, Duration),
    /// The bytes, and then nothing more, without an end.
    Stalled(Bytes),
    /// First the beginning, then the filler again and again.
    Endless(Bytes, Bytes),
    /// Piece after piece, as they are made.
    Made(Pieces),
}

/// Makes the pieces of a body, by number, to the last.
#[derive(Clone)]
struct Pieces(Arc<dyn Fn(u64) -> Option<Bytes> + Send + Sync>);

impl fmt::Debug for Pieces {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Pieces")
    }
}

impl Answer {
    /// 200 with a JSON body.
    pub fn json(body: &Value) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Whole(body.to_string().into()))
    }

    /// A Kubernetes `Status` failure with this HTTP code and reason, such as `422` and `Invalid`.
    pub fn failure(code: u16, reason: &str, message: &str) -> Self {
        let status = status_object(code, reason, message);
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::respond(code, "application/json", Content::Whole(status.to_string().into()))
    }

    /// 429 that asks to come back after this many seconds, as API priority and fairness sends it.
    pub fn too_many_requests(seconds: u32) -> Self {
        let answer = Self::failure(429, "TooManyRequests", "too many requests, please try again later");
        answer.header(RETRY_AFTER.as_str(), &seconds.to_string())
    }

    /// A 5xx as a load balancer sends it: a page of HTML.
    pub fn html(code: u16, text: &str) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
        let page = format!("<html><head><title>{code}</title></head><body><h1>{text}</h1></body></html>");
        Self::respond(code, "text/html", Content::Whole(page.into()))
    }

    /// 302 to another place.
    pub fn redirect(location: &str) -> Self {
        Self::respond(StatusCode::FOUND, "text/plain", Content::Whole(Bytes::new()))
            .header(LOCATION.as_str(), location)
    }

    /// 410 `Expired`, as a list or watch from a compacted resourceVersion gets it.
    pub fn expired() -> Self {
        Self::failure(410, "Expired", "too old resource version")
    }

    /// A watch that sends these events, each `{"type", "object"}`, and then stays open.
    pub fn watch(events: &[Value]) -> Self {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        Self::respond(StatusCode::OK, "application/json", Content::Stalled(lines.into()))
    }

    /// A watch that starts well and whose first event is the error 410.
    pub fn watch_expired() -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Whole(watch_expired_event().into()))
    }

    /// 200 with a JSON body of which one byte comes per `interval`.
    pub fn slow_drip(body: &Value, interval: Duration) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Drip(body.to_string().into(), interval))
    }

    /// 200 with the beginning of a body that never goes on.
    pub fn stalled(beginning: &str) -> Self {
        let beginning = Bytes::copy_from_slice(beginning.as_bytes());
        Self::respond(StatusCode::OK, "application/json", Content::Stalled(beginning))
    }

    /// 200 with a list that never ends, as fast as it is read.
    pub fn endless() -> Self {
        let beginning =
            Bytes::from_static(b"{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[{}");
        let filler = Bytes::from(",{\"metadata\":{\"name\":\"filler\"}}".repeat(1024));
        Self::respond(StatusCode::OK, "application/json", Content::Endless(beginning, filler))
    }

    /// 200 with a body of which each piece is made when it is sent: the first one has number 0, and after none the
    /// body is at its end.
    pub fn made(piece: impl Fn(u64) -> Option<Bytes> + Send + Sync + 'static) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Made(Pieces(Arc::new(piece))))
    }

    /// 200 with these bytes, as `application/json`.
    pub fn raw(body: impl Into<Bytes>) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Whole(body.into()))
    }

    /// The connection breaks without an answer.
    pub fn reset() -> Self {
        Self { what: What::Reset }
    }

    /// No answer ever; the connection stays open.
    pub fn silence() -> Self {
        Self { what: What::Silence }
    }

    /// The cluster's own answer, later.
    pub fn delayed(time: Duration) -> Self {
        Self { what: What::Forward(time) }
    }

    /// Adds a header; one that HTTP does not allow is left out.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let parsed = (name.parse::<http::HeaderName>(), HeaderValue::from_str(value));
        if let (What::Respond(respond), (Ok(name), Ok(value))) = (&mut self.what, parsed) {
            respond.headers.insert(name, value);
        }
        self
    }

    fn respond(status: StatusCode, kind: &'static str, content: Content) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        Self { what: What::Respond(Respond { status, headers, content }) }
    }
}

impl Respond {
    pub(crate) fn response(self) -> Response<Body> {
        let mut response = Response::new(self.content.body());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

impl Content {
    fn body(self) -> Body {
        let frames = match self {
            Self::Whole(bytes) => return whole(bytes),
            Self::Drip(bytes, interval) => drip(bytes, interval).boxed(),
            Self::Stalled(bytes) => stream::iter([bytes]).chain(stream::pending()).boxed(),
            Self::Endless(beginning, filler) => {
                stream::iter([beginning]).chain(stream::repeat(filler)).boxed()
            }
            Self::Made(pieces) => stream::iter((0..).map_while(move |number| (pieces.0)(number))).boxed(),
        };
        StreamBody::new(frames.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync()
    }
}

pub(crate) fn whole(bytes: Bytes) -> Body {
    http_body_util::Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// The line by which a watch says that it cannot go on from where it is.
pub(super) fn watch_expired_event() -> String {
    let status = status_object(410, "Expired", "too old resource version");
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

fn drip(bytes: Bytes, interval: Duration) -> impl futures::Stream<Item = Bytes> {
    stream::unfold(bytes, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(interval).await;
        let byte = rest.split_to(1);
        Some((byte, rest))
    })
}

fn status_object(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

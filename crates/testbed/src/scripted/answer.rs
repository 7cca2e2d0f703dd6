//! The responses of a script.

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

/// Body of a request or response, own or passed on.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Response to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) behaviour: Behaviour,
}

/// The server's reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// The connection breaks (RST).
    Reset,
    /// No response; the connection stays open.
    Silence,
    /// The cluster's response, after a delay.
    Forward(Duration),
    /// A response of the script.
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
    /// The bytes, and then nothing more; the body does not end.
    Stalled(Bytes),
    /// First the beginning, then the filler without end.
    Endless(Bytes, Bytes),
    /// One piece after another, each created when it is sent.
    Generated(BodyChunks),
}

/// Creates the pieces of a body by number, until there is none.
#[derive(Clone)]
struct BodyChunks(Arc<dyn Fn(u64) -> Option<Bytes> + Send + Sync>);

impl fmt::Debug for BodyChunks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BodyChunks")
    }
}

impl Answer {
    /// Returns 200 with a JSON body.
    pub fn json(body: &Value) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Whole(body.to_string().into()))
    }

    /// Returns a Kubernetes `Status` failure with this HTTP code and reason, such as `422` and `Invalid`.
    pub fn failure(code: u16, reason: &str, message: &str) -> Self {
        let status = status_object(code, reason, message);
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::respond(code, "application/json", Content::Whole(status.to_string().into()))
    }

    /// Returns 404 as an API server sends it for an absent object of this resource. `group` is empty for the core
    /// group.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        let mut status = status_object(404, "NotFound", &format!("{resource} \"{name}\" not found"));
        status["details"] = json!({ "name": name, "kind": plural });
        if !group.is_empty() {
            status["details"]["group"] = json!(group);
        }
        Self::respond(StatusCode::NOT_FOUND, "application/json", Content::Whole(status.to_string().into()))
    }

    /// Returns 429 with a retry after this many seconds, as API priority and fairness sends it.
    pub fn too_many_requests(seconds: u32) -> Self {
        let answer = Self::failure(429, "TooManyRequests", "too many requests, please try again later");
        answer.header(RETRY_AFTER.as_str(), &seconds.to_string())
    }

    /// Returns a page of HTML, as a load balancer sends it with a 5xx.
    pub fn html(code: u16, text: &str) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
        let page = format!("<html><head><title>{code}</title></head><body><h1>{text}</h1></body></html>");
        Self::respond(code, "text/html", Content::Whole(page.into()))
    }

    /// Returns plain text, as an API server sends it with 404 for a path that it does not serve.
    pub fn text(code: u16, text: &str) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
        Self::respond(code, "text/plain; charset=utf-8", Content::Whole(text.to_owned().into()))
    }

    /// Returns 302 with this location.
    pub fn redirect(location: &str) -> Self {
        Self::respond(StatusCode::FOUND, "text/plain", Content::Whole(Bytes::new()))
            .header(LOCATION.as_str(), location)
    }

    /// Returns 410 `Expired`, as for a list or watch from a compacted resourceVersion.
    pub fn expired() -> Self {
        Self::failure(410, "Expired", "too old resource version")
    }

    /// Returns a watch that sends these events, each `{"type", "object"}`, and then stays open.
    pub fn watch(events: &[Value]) -> Self {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        Self::respond(StatusCode::OK, "application/json", Content::Stalled(lines.into()))
    }

    /// Returns a watch that starts with success and whose first event is the error 410.
    pub fn watch_expired() -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Whole(watch_expired_event().into()))
    }

    /// Returns 200 with a JSON body of which one byte is sent per `interval`.
    pub fn slow_drip(body: &Value, interval: Duration) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Drip(body.to_string().into(), interval))
    }

    /// Returns 200 with the beginning of a body that does not continue.
    pub fn stalled(beginning: &str) -> Self {
        let beginning = Bytes::copy_from_slice(beginning.as_bytes());
        Self::respond(StatusCode::OK, "application/json", Content::Stalled(beginning))
    }

    /// Returns 200 with an endless list, sent as fast as it is read.
    pub fn endless() -> Self {
        let beginning =
            Bytes::from_static(b"{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[{}");
        let filler = Bytes::from(",{\"metadata\":{\"name\":\"filler\"}}".repeat(1024));
        Self::respond(StatusCode::OK, "application/json", Content::Endless(beginning, filler))
    }

    /// Returns 200 with a body whose pieces are created when they are sent: the first one has number 0, and `None`
    /// ends the body.
    pub fn made(piece: impl Fn(u64) -> Option<Bytes> + Send + Sync + 'static) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Generated(BodyChunks(Arc::new(piece))))
    }

    /// Returns 200 with these bytes as `application/json`.
    pub fn raw(body: impl Into<Bytes>) -> Self {
        Self::respond(StatusCode::OK, "application/json", Content::Whole(body.into()))
    }

    /// Breaks the connection without a response.
    pub fn reset() -> Self {
        Self { behaviour: Behaviour::Reset }
    }

    /// Sends no response; the connection stays open.
    pub fn silence() -> Self {
        Self { behaviour: Behaviour::Silence }
    }

    /// Sends the cluster's own response after this time.
    pub fn delayed(time: Duration) -> Self {
        Self { behaviour: Behaviour::Forward(time) }
    }

    /// Adds a header. A header that HTTP does not allow is ignored.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let parsed = (name.parse::<http::HeaderName>(), HeaderValue::from_str(value));
        if let (Behaviour::Respond(respond), (Ok(name), Ok(value))) = (&mut self.behaviour, parsed) {
            respond.headers.insert(name, value);
        }
        self
    }

    fn respond(status: StatusCode, kind: &'static str, content: Content) -> Self {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        Self { behaviour: Behaviour::Respond(Respond { status, headers, content }) }
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
            Self::Generated(pieces) => {
                stream::iter((0..).map_while(move |number| (pieces.0)(number))).boxed()
            }
        };
        StreamBody::new(frames.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync()
    }
}

pub(crate) fn whole(bytes: Bytes) -> Body {
    http_body_util::Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Returns the event with which a watch reports that its resourceVersion has expired.
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

//! Code in place of a script.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::Seen;
use super::answer::{Answer, Body, What, whole};
use super::forward::Upstream;

/// What stands between a client and a cluster, and decides about each request: pass it on, before or after something
/// else happens, answer in the cluster's place, or change what it says.
pub trait Between: Send + Sync {
    /// The answer to a request. An error breaks the connection; an answer that never comes leaves the client waiting.
    fn pass(&self, passing: Passing) -> BoxFuture<'_, io::Result<Response<Body>>>;
}

impl<F> Between for F
where
    F: Fn(Passing) -> BoxFuture<'static, io::Result<Response<Body>>> + Send + Sync,
{
    fn pass(&self, passing: Passing) -> BoxFuture<'_, io::Result<Response<Body>>> {
        self(passing)
    }
}

/// A request on its way to a cluster.
pub struct Passing {
    seen: Seen,
    body: Bytes,
    request: Request<()>,
    upstream: Arc<Upstream>,
}

impl Passing {
    pub(super) async fn whole(
        seen: Seen,
        request: Request<Incoming>,
        upstream: &Arc<Upstream>,
    ) -> io::Result<Self> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(Self { seen, body, request: Request::from_parts(head, ()), upstream: Arc::clone(upstream) })
    }

    /// Returns the request.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The request's body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Asks with another query, `name=value` joined by `&`; one that no URI can have changes nothing.
    pub fn with_query(mut self, query: &str) -> Self {
        if let Ok(place) = format!("{}?{query}", self.seen.path).parse::<Uri>() {
            *self.request.uri_mut() = place;
        }
        self
    }

    /// Passes it on.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn onward(self) -> io::Result<Response<Body>> {
        let Self { body, request, upstream, .. } = self;
        upstream.forward(request.map(|()| whole(body))).await
    }
}

impl Answer {
    /// As what [`Between::pass`] gives, unless it is none that is written at once.
    pub fn into_response(self) -> Option<Response<Body>> {
        match self.what {
            What::Respond(respond) => Some(respond.response()),
            What::Reset | What::Silence | What::Forward(_) => None,
        }
    }
}

//! Interceptors: code that decides about each request, in place of a script.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::answer::{Answer, Behaviour, Body, whole};
use super::forward::Upstream;
use super::request::ReceivedRequest;

/// Code between a client and a cluster that decides about each request: it passes the request on, before or after
/// another action, responds in place of the cluster, or changes the cluster's response.
pub trait Interceptor: Send + Sync {
    /// Returns the response to a request. An error breaks the connection; a future that never ends leaves the
    /// client waiting.
    fn pass(&self, request: InterceptedRequest) -> BoxFuture<'_, io::Result<Response<Body>>>;
}

impl<F> Interceptor for F
where
    F: Fn(InterceptedRequest) -> BoxFuture<'static, io::Result<Response<Body>>> + Send + Sync,
{
    fn pass(&self, request: InterceptedRequest) -> BoxFuture<'_, io::Result<Response<Body>>> {
        self(request)
    }
}

/// A request that an [`Interceptor`] has to answer or pass on.
pub struct InterceptedRequest {
    seen: ReceivedRequest,
    body: Bytes,
    request: Request<()>,
    upstream: Arc<Upstream>,
}

impl InterceptedRequest {
    pub(super) async fn whole(
        seen: ReceivedRequest,
        request: Request<Incoming>,
        upstream: &Arc<Upstream>,
    ) -> io::Result<Self> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(Self { seen, body, request: Request::from_parts(head, ()), upstream: Arc::clone(upstream) })
    }

    /// Returns the request.
    pub fn received(&self) -> &ReceivedRequest {
        &self.seen
    }

    /// Returns the request's body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Replaces the query, `name=value` joined by `&`. An invalid query changes nothing.
    pub fn with_query(mut self, query: &str) -> Self {
        if let Ok(place) = format!("{}?{query}", self.seen.path).parse::<Uri>() {
            *self.request.uri_mut() = place;
        }
        self
    }

    /// Passes the request on, and returns the cluster's response.
    ///
    /// # Errors
    /// The cluster does not respond.
    pub async fn onward(self) -> io::Result<Response<Body>> {
        let Self { body, request, upstream, .. } = self;
        upstream.forward(request.map(|()| whole(body))).await
    }
}

impl Answer {
    /// Returns the response for [`Interceptor::pass`], or `None` if the answer is not one that is written at once.
    pub fn into_response(self) -> Option<Response<Body>> {
        match self.behaviour {
            Behaviour::Respond(respond) => Some(respond.response()),
            Behaviour::Reset | Behaviour::Silence | Behaviour::Forward(_) => None,
        }
    }
}

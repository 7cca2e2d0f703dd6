//! Requests that arrived, and the selection of some of them.

use http::{Method, Request};

/// Selects the requests of a rule.
#[derive(Clone, Debug, Default)]
pub struct RequestMatcher {
    method: Option<String>,
    path: Option<String>,
    query: Option<String>,
}

/// A request that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// The method, such as `PATCH`.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query without the question mark; empty if there is none.
    pub query: String,
    /// Its `Accept` header; empty if absent.
    pub accept: String,
    /// The User-Agent; empty if there is none.
    pub user_agent: String,
    /// The impersonated user, `Impersonate-User`; empty if there is none.
    pub impersonated: String,
}

impl RequestMatcher {
    /// Selects every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Selects requests whose path starts with `path`.
    pub fn path(path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..Self::default() }
    }

    /// Selects watches of the collection at `path`.
    pub fn watch(path: &str) -> Self {
        Self { query: Some("watch=true".to_owned()), ..Self::path(path) }
    }

    /// Selects only requests with this method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Selects only requests whose query contains `part`.
    pub fn query(mut self, part: &str) -> Self {
        self.query = Some(part.to_owned());
        self
    }

    /// Reports whether the request is selected.
    pub fn fits(&self, request: &ReceivedRequest) -> bool {
        self.method.as_ref().is_none_or(|method| *method == request.method)
            && self.path.as_ref().is_none_or(|path| request.path.starts_with(path.as_str()))
            && self.query.as_ref().is_none_or(|query| request.query.contains(query.as_str()))
    }
}

impl ReceivedRequest {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let header = |name: &str| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        Self {
            method: Method::as_str(request.method()).to_owned(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            accept: header("accept"),
            user_agent: header("user-agent"),
            impersonated: header("impersonate-user"),
        }
    }
}

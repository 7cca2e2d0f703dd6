//! Credentials of requests.

use std::sync::Arc;

use http::Request;
use http::header::HeaderValue;
use kube::client::Body;

use crate::credentials::kubeconfig::{Kubeconfig, KubeconfigError};
use crate::credentials::tokens::{TokenCache, TokenProviders};

/// Credentials besides a client certificate.
pub(super) enum Authorization {
    None,
    Token(HeaderValue),
    Provided(Box<TokenCache>),
}

impl Authorization {
    pub(super) fn of(kubeconfig: &Kubeconfig, providers: &TokenProviders) -> Result<Self, KubeconfigError> {
        if let Some(name) = &kubeconfig.provider {
            let field = "users[].user.exec";
            let why = "no token provider is registered under its command";
            let provider = providers.get(name).ok_or(KubeconfigError::Refused { field, why })?;
            let held = TokenCache::new(Arc::clone(provider), kubeconfig.server.clone());
            return Ok(Self::Provided(Box::new(held)));
        }
        let Some(token) = &kubeconfig.token else { return Ok(Self::None) };
        let why = "a header value is expected";
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| KubeconfigError::Malformed { field: "users[].user.token", why })?;
        value.set_sensitive(true);
        Ok(Self::Token(value))
    }
}

/// Returns a request and a copy of it, if its body can be cloned.
pub(super) fn doubled(request: Request<Body>) -> (Request<Body>, Option<Request<Body>>) {
    let (parts, body) = request.into_parts();
    let again = body.try_clone().map(|body| Request::from_parts(parts.clone(), body));
    (Request::from_parts(parts, body), again)
}

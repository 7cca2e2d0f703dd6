//! Connection to a target: its address, the HTTP client, and the credentials.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client as HyperClient;
use kube::client::Body;

use super::authorization::{Authorization, doubled};
use super::body::AnswerBody;
use super::expected_cluster::ExpectedCluster;
use super::pool::{absolute, pool};
use super::verified::VerifiedPool;
use crate::access::AccessPolicy;
use crate::connection::dial::{Dialer, Servers};
use crate::connection::limits::Limits;
use crate::credentials::kubeconfig::{Kubeconfig, KubeconfigError};
use crate::credentials::tokens::TokenCache;
use crate::error::{TargetError, from_chain};

/// Destination of calls.
pub(super) enum Wire {
    Remote(Box<Remote>),
    Local(kube::Client),
}

pub(super) struct Remote {
    http: HyperClient<Dialer, Body>,
    /// For requests to an expected cluster.
    verified: VerifiedPool,
    base: Uri,
    authorization: Authorization,
}

impl Wire {
    /// Returns the wire to the server of a kubeconfig. Connects with the first call.
    pub(super) fn remote(
        kubeconfig: &Kubeconfig,
        policy: Arc<AccessPolicy>,
        limits: &Limits,
        servers: Arc<Servers>,
    ) -> Result<Self, KubeconfigError> {
        let malformed = |field, why| KubeconfigError::Malformed { field, why };
        let providers = policy.token_providers.clone();
        let dialer = Dialer::new(kubeconfig, policy, limits.connect, Arc::clone(&servers))?;
        let http = pool(dialer.clone(), limits.calls);
        let base = kubeconfig.server.as_str().parse::<Uri>();
        let base = base.map_err(|_| malformed("clusters[].cluster.server", "an https URL is expected"))?;
        let authorization = Authorization::of(kubeconfig, &providers)?;
        let verified = VerifiedPool::new(dialer, base.clone(), limits, servers);
        Ok(Self::Remote(Box::new(Remote { http, verified, base, authorization })))
    }

    /// Sends a request with credentials; repeats it once with a new token if the target refuses the cached one.
    pub(super) async fn send(
        &self,
        request: Request<Body>,
        agent: HeaderValue,
    ) -> Result<Response<AnswerBody>, TargetError> {
        let Some(tokens) = self.tokens() else { return self.dispatch(request, agent, None).await };
        let shown = tokens.authorization().await?;
        let (request, again) = doubled(request);
        let answer = self.dispatch(request, agent.clone(), Some(shown.clone())).await;
        // A connection whose identity check was refused was never used for the request.
        let is_refused = match &answer {
            Ok(answer) => answer.status() == StatusCode::UNAUTHORIZED,
            Err(error) => *error == TargetError::Unauthorized,
        };
        if !is_refused {
            if answer.is_ok() {
                tokens.accepted();
            }
            return answer;
        }
        // The API server refuses unknown credentials before it does anything, so the call may be repeated.
        let Some(again) = again else { return answer };
        if !tokens.refused(&shown).await {
            return answer;
        }
        let answer = self.dispatch(again, agent, Some(tokens.authorization().await?)).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            tokens.accepted();
        }
        Ok(answer)
    }

    /// Returns host and port of the server; `None` for the local cluster.
    pub(super) fn address(&self) -> Option<String> {
        let Self::Remote(remote) = self else { return None };
        let port = remote.base.port_u16().unwrap_or(443);
        remote.base.host().map(|host| format!("{host}:{port}"))
    }

    /// Returns the source of this target's tokens, if its kubeconfig names a token provider.
    pub(super) fn tokens(&self) -> Option<&TokenCache> {
        match self {
            Self::Remote(remote) => match &remote.authorization {
                Authorization::Provided(held) => Some(held),
                Authorization::None | Authorization::Token(_) => None,
            },
            Self::Local(_) => None,
        }
    }

    /// Sends a request once, with the provided token if the kubeconfig has none of its own.
    pub(super) async fn dispatch(
        &self,
        mut request: Request<Body>,
        agent: HeaderValue,
        provided: Option<HeaderValue>,
    ) -> Result<Response<AnswerBody>, TargetError> {
        request.headers_mut().insert(USER_AGENT, agent);
        match self {
            Self::Local(client) => {
                let sent = client.send(request).await.map_err(|error| from_chain(&error))?;
                Ok(sent.map(|body| body.map_err(|error| from_chain(&error)).boxed_unsync()))
            }
            Self::Remote(remote) => {
                let Remote { http, verified, base, authorization } = remote.as_ref();
                *request.uri_mut() = absolute(base, request.uri()).ok_or(TargetError::Request)?;
                let given = match authorization {
                    Authorization::Token(token) => Some(token.clone()),
                    Authorization::None | Authorization::Provided(_) => provided,
                };
                if let Some(authorization) = &given {
                    request.headers_mut().insert(AUTHORIZATION, authorization.clone());
                }
                let sent = match request.extensions_mut().remove::<ExpectedCluster>() {
                    Some(ExpectedCluster(uid)) => {
                        verified.client(&uid, given.as_ref()).request(request).await
                    }
                    None => http.request(request).await,
                };
                let sent = sent.map_err(|error| from_chain(&error))?;
                Ok(sent.map(|body| body.map_err(|error| from_chain(&error)).boxed_unsync()))
            }
        }
    }
}

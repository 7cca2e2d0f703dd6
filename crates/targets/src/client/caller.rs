//! Identity of the caller of a target, and a filter for its calls.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use kube::client::Body;
use tower::service_fn;

use crate::apply_body::with_safe_body;
use crate::client::account::ServiceAccount;
use crate::connection::request::is_write;
use crate::connection::transport::{ExpectedCluster, Transport};
use crate::error::TargetError;
use crate::fencing::fence::Fence;
use crate::identity_cache::IdentityCache;

/// Operator and replica that call: the first part of the User-Agent.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) operator: String,
    pub(crate) replica: String,
}

/// A caller of a target: its User-Agent, account and allowed calls.
pub(crate) struct Caller {
    agent: HeaderValue,
    /// The impersonated user.
    account: Option<HeaderValue>,
    allowed: AllowedCalls,
}

/// The calls that a client allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedCalls {
    All,
    /// Allows only reads.
    Reads,
    /// Reads, and everything else as a dry run.
    DryRuns,
}

impl AllowedCalls {
    /// Checks a request, and turns a write into a dry run where only those are allowed.
    fn judge(self, request: &mut Request<Body>) -> Result<(), TargetError> {
        match self {
            Self::All => Ok(()),
            _ if !is_write(request.method()) => Ok(()),
            Self::DryRuns if request.method() != Method::DELETE => {
                *request.uri_mut() = dry_run(request.uri()).ok_or(TargetError::Request)?;
                Ok(())
            }
            Self::Reads | Self::DryRuns => Err(TargetError::Request),
        }
    }
}

/// Returns the URI of the same call as a dry run.
fn dry_run(uri: &Uri) -> Option<Uri> {
    let query = uri.query().unwrap_or_default();
    let kept = query.split('&').filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("dryRun"));
    let query: Vec<&str> = kept.chain(["dryRun=All"]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{}", uri.path(), query.join("&")).parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Header of impersonation: the API server handles the request as this user's, if the kubeconfig's user may
/// impersonate it.
const IMPERSONATE: HeaderName = HeaderName::from_static("impersonate-user");

impl Caller {
    pub(crate) fn operator(Agent { operator, replica }: &Agent) -> Self {
        Self { agent: agent(&format!("{operator} ({replica})")), account: None, allowed: AllowedCalls::All }
    }

    pub(crate) fn component(
        Agent { operator, replica }: &Agent,
        uid: &str,
        account: Option<&ServiceAccount>,
    ) -> Self {
        let agent = agent(&format!("{operator} ({replica}; {uid})"));
        Self { agent, account: account.map(|account| account.user().clone()), allowed: AllowedCalls::All }
    }

    /// Returns the same caller, limited to these calls.
    pub(crate) fn limited_to(self, allowed: AllowedCalls) -> Self {
        Self { allowed, ..self }
    }

    /// Returns a client of this caller. A write needs the admission of the fence, if there is one.
    pub(crate) fn client(
        self,
        transport: &Arc<Transport>,
        guard: Option<(Arc<Fence>, IdentityCache)>,
    ) -> kube::Client {
        let transport = Arc::clone(transport);
        let (caller, guard) = (Arc::new(self), guard.map(Arc::new));
        let service = service_fn(move |mut request: Request<Body>| {
            let (transport, caller, guard) = (Arc::clone(&transport), Arc::clone(&caller), guard.clone());
            async move {
                caller.allowed.judge(&mut request)?;
                if let Some((fence, identity_cache)) = guard.as_deref().filter(|_| is_write(request.method()))
                {
                    let uid = fence.admit(identity_cache).await?;
                    request.extensions_mut().insert(ExpectedCluster(uid));
                }
                if let Some(account) = &caller.account {
                    request.headers_mut().insert(IMPERSONATE, account.clone());
                }
                let request = with_safe_body(request).await.map_err(|_| TargetError::Request)?;
                transport.call(request, caller.agent.clone()).await
            }
        });
        kube::Client::new(service, "default")
    }
}

/// Returns the User-Agent. Names and uids of Kubernetes are valid header values; any other text falls back to `kyma`.
fn agent(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("kyma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(allowed: AllowedCalls, method: Method, uri: &str) -> Option<String> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        allowed.judge(&mut request).ok().map(|()| request.uri().to_string())
    }

    #[test]
    fn a_dry_run_sends_writes_with_dry_run_all_and_no_deletions() {
        let sent = |method, uri| judged(AllowedCalls::DryRuns, method, uri);
        assert_eq!(sent(Method::GET, "/api/v1/pods?limit=1").as_deref(), Some("/api/v1/pods?limit=1"));
        assert_eq!(sent(Method::POST, "/api/v1/pods").as_deref(), Some("/api/v1/pods?dryRun=All"));
        let patch = sent(Method::PATCH, "/a/b?&fieldManager=x&dryRun=&force=true");
        assert_eq!(patch.as_deref(), Some("/a/b?fieldManager=x&force=true&dryRun=All"));
        assert_eq!(sent(Method::DELETE, "/a/b?dryRun=All"), None, "its body decides, not its query");
        assert_eq!(judged(AllowedCalls::Reads, Method::POST, "/a/b?dryRun=All"), None);
        assert_eq!(judged(AllowedCalls::All, Method::POST, "/a/b").as_deref(), Some("/a/b"));
    }
}

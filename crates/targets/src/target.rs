//! One target: clients for it, whether it answers, and which cluster it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::json;
use tokio::sync::Mutex;
use tower::service_fn;

use crate::acting::{Acting, ServiceAccount};
use crate::cache::{Agent, SecretKey};
use crate::contact::Contact;
use crate::error::{TargetError, classify};
use crate::fence::{Fence, is_write};
use crate::identity::{Found, Recorded, STAMP_NAME, STAMP_NAMESPACE, Stamp, Verdict};
use crate::transport::{Health, Transport};

/// A cluster that modules get installed on. Cheap to clone; clones share connections, breaker and budgets.
#[derive(Clone)]
pub struct Target {
    transport: Arc<Transport>,
    place: Option<SecretKey>,
    agent: Agent,
    fence: Option<Arc<Fence>>,
    client: kube::Client,
    looked: Arc<Mutex<Option<Look>>>,
    /// What the hub was last seen to have on record for it.
    hub: Arc<SyncMutex<Option<Recorded>>>,
}

/// What the target said about itself, when, and through which connection.
struct Look {
    connection: u64,
    at: Instant,
    found: Found,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Target {
    pub(crate) fn new(transport: Arc<Transport>, place: Option<SecretKey>, agent: Agent) -> Self {
        let client = Caller::operator(&agent).client(&transport, None);
        Self { transport, place, agent, fence: None, client, looked: Arc::default(), hub: Arc::default() }
    }

    /// Client for calls and watches. Each call is bounded as [`Limits`](crate::Limits) says, the body
    /// included; a watch is bounded by silence and event size. It never retries and follows no redirect.
    /// Errors are for [`classify`].
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The same target for one component: as `account` if there is one, and with `component_uid` in the User-Agent,
    /// so that the target's audit log tells which component caused a call.
    pub fn acting_for(&self, component_uid: &str, account: Option<ServiceAccount>) -> Acting {
        let caller = Caller::component(&self.agent, component_uid, account.as_ref());
        let client = caller.client(&self.transport, self.guard());
        Acting::new(self.clone(), account, client)
    }

    /// As [`Target::acting_for`], but nothing is changed: each call that would change something is sent as a dry run, and
    /// deletions, which say so in their body, are not sent at all; they end with [`TargetError::Request`].
    pub fn rehearsing_for(&self, component_uid: &str, account: Option<ServiceAccount>) -> Acting {
        let caller = Caller::component(&self.agent, component_uid, account.as_ref());
        let client = Caller { passes: Passes::DryRuns, ..caller }.client(&self.transport, None);
        Acting::new(self.clone(), account, client)
    }

    /// Client that only reads.
    pub(crate) fn reader(&self) -> kube::Client {
        Caller { passes: Passes::Reads, ..Caller::operator(&self.agent) }.client(&self.transport, None)
    }

    /// The same target, to which nothing is written unless `fence` admits it at that moment. What it refuses ends with
    /// [`TargetError::Refused`].
    pub fn fenced(&self, fence: Fence) -> Self {
        Self { fence: Some(Arc::new(fence)), ..self.clone() }.connected()
    }

    fn connected(mut self) -> Self {
        self.client = Caller::operator(&self.agent).client(&self.transport, self.guard());
        self
    }

    fn guard(&self) -> Option<(Arc<Fence>, Self)> {
        self.fence.clone().map(|fence| (fence, self.unfenced()))
    }

    /// Reads, and the stamp: that is guarded by its resourceVersion.
    fn unfenced(&self) -> Self {
        if self.fence.is_none() {
            return self.clone();
        }
        Self { fence: None, ..self.clone() }.connected()
    }

    /// The Secret that leads here; none for the hub itself.
    pub fn key(&self) -> Option<&SecretKey> {
        self.place.as_ref()
    }

    /// Whether this is the hub itself.
    pub fn is_local(&self) -> bool {
        self.place.is_none()
    }

    /// Whether calls are tried, as opposed to refused with [`TargetError::Suspended`].
    pub fn calls_pass(&self) -> bool {
        self.transport.health().borrow().calls_pass
    }

    /// When it last answered, and what keeps calls from it.
    pub fn contact(&self) -> Contact {
        self.transport.contact()
    }

    /// Returns once calls pass. At once if they do.
    pub async fn healthy_again(&self) {
        let mut health = self.transport.health();
        // The sender lives as long as `self`, so this ends only with the state waited for.
        health.wait_for(|health: &Health| health.calls_pass).await.ok();
    }

    /// Another number whenever another server may answer than before: after an outage, after a connection that
    /// broke, and where the server shows another certificate.
    pub fn connection(&self) -> u64 {
        self.transport.connection()
    }

    /// Which cluster this is and whose, from the target itself: one look for each access Secret version and
    /// [`Target::connection`].
    ///
    /// Errors: any [`TargetError`]. That the stamp may not be read is an error, not its absence.
    pub async fn identify(&self) -> Result<Found, TargetError> {
        self.look_within(Duration::MAX).await
    }

    /// The same, from a look that is not older than `age`.
    pub(crate) async fn look_within(&self, age: Duration) -> Result<Found, TargetError> {
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        let connection = self.connection();
        // Of those who wait for a look one looks for all, however long that takes.
        let is_recent = |look: &Look| look.at >= asked || look.at.elapsed() < age;
        let counts = |look: &&Look| look.connection == connection && is_recent(look);
        if let Some(look) = looked.as_ref().filter(counts) {
            return Ok(look.found.clone());
        }
        let (at, found) = (Instant::now(), self.look().await?);
        *looked = Some(Look { connection, at, found: found.clone() });
        Ok(found)
    }

    /// The same, from a look that is made now.
    pub async fn identify_anew(&self) -> Result<Found, TargetError> {
        self.look_within(Duration::ZERO).await
    }

    /// The error of a verdict that forbids to write. The next [`Target::identify`] looks again: somebody may mend that.
    pub async fn refuse(&self, verdict: Verdict) -> TargetError {
        self.doubt().await;
        TargetError::Refused(Box::new(verdict))
    }

    /// Lets the next [`Target::identify`] look again.
    async fn doubt(&self) {
        *self.looked.lock().await = None;
    }

    /// The hub was seen to have this on record.
    pub fn hub_has(&self, recorded: Recorded) {
        *self.hub() = Some(recorded);
    }

    pub(crate) fn hub_record(&self) -> Option<Recorded> {
        self.hub().clone()
    }

    pub(crate) fn forget_hub_record(&self) {
        *self.hub() = None;
    }

    fn hub(&self) -> MutexGuard<'_, Option<Recorded>> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self) -> Result<Found, TargetError> {
        let namespaces = Api::<PartialObjectMeta<Namespace>>::all(self.client());
        let stamps = Api::<ConfigMap>::namespaced(self.client(), STAMP_NAMESPACE);
        let (namespace, stamp) = tokio::join!(namespaces.get("kube-system"), stamps.get_opt(STAMP_NAME));
        let namespace = namespace.map_err(|error| classify(&error))?;
        let stamp = stamp.map_err(|error| classify(&error))?;
        Ok(Found {
            target_uid: namespace.metadata.uid.ok_or(TargetError::Unreadable)?,
            stamp_version: stamp.as_ref().and_then(|stamp| stamp.metadata.resource_version.clone()),
            stamp: stamp.as_ref().map(Stamp::from_config_map),
        })
    }

    /// Puts `stamp` on the target, provided that the one there is still the one in `over`.
    ///
    /// Errors: 409 if somebody else wrote it since (look again with [`Target::identify`]); 404 if the
    /// namespace [`STAMP_NAMESPACE`] is missing, which the caller ensures.
    pub async fn put_stamp(&self, stamp: &Stamp, over: &Found) -> Result<(), TargetError> {
        let stamps = Api::<ConfigMap>::namespaced(self.unfenced().client(), STAMP_NAMESPACE);
        let map = stamp.to_config_map();
        let written = match &over.stamp_version {
            None => stamps.create(&PostParams::default(), &map).await,
            Some(version) => {
                let data = over_what_was(&map, over.stamp.as_ref());
                let body = json!({ "metadata": { "resourceVersion": version }, "data": data });
                stamps.patch(STAMP_NAME, &PatchParams::default(), &Patch::Merge(&body)).await
            }
        };
        self.doubt().await;
        written.map(drop).map_err(|error| classify(&error))
    }
}

/// The data of `map`, and null for what the stamp there has beyond.
fn over_what_was(map: &ConfigMap, was: Option<&Stamp>) -> BTreeMap<String, Option<String>> {
    let before = was.and_then(|was| was.to_config_map().data).unwrap_or_default();
    let gone = before.into_keys().map(|key| (key, None));
    let now = map.data.iter().flatten().map(|(key, value)| (key.clone(), Some(value.clone())));
    gone.chain(now).collect()
}

/// Who calls.
struct Caller {
    agent: HeaderValue,
    /// The user to act as.
    account: Option<HeaderValue>,
    passes: Passes,
}

/// Which calls pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    All,
    /// Nothing but reads.
    Reads,
    /// Reads, and everything else as a dry run.
    DryRuns,
}

impl Passes {
    /// The request as it may be sent.
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

/// The same call, which then changes nothing.
fn dry_run(uri: &Uri) -> Option<Uri> {
    let query = uri.query().unwrap_or_default();
    let kept = query.split('&').filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("dryRun"));
    let query: Vec<&str> = kept.chain(["dryRun=All"]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{}", uri.path(), query.join("&")).parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The apiserver takes the request as this user's, if the kubeconfig's user may act as that one.
const IMPERSONATE: HeaderName = HeaderName::from_static("impersonate-user");

impl Caller {
    fn operator(Agent { operator, replica }: &Agent) -> Self {
        Self { agent: agent(&format!("{operator} ({replica})")), account: None, passes: Passes::All }
    }

    fn component(Agent { operator, replica }: &Agent, uid: &str, account: Option<&ServiceAccount>) -> Self {
        let agent = agent(&format!("{operator} ({replica}; {uid})"));
        Self { agent, account: account.map(|account| account.user().clone()), passes: Passes::All }
    }

    fn client(self, transport: &Arc<Transport>, guard: Option<(Arc<Fence>, Target)>) -> kube::Client {
        let transport = Arc::clone(transport);
        let (caller, guard) = (Arc::new(self), guard.map(Arc::new));
        let service = service_fn(move |mut request: Request<Body>| {
            let (transport, caller, guard) = (Arc::clone(&transport), Arc::clone(&caller), guard.clone());
            async move {
                caller.passes.judge(&mut request)?;
                if let Some((fence, target)) = guard.as_deref().filter(|_| is_write(request.method())) {
                    fence.admit(target).await?;
                }
                if let Some(account) = &caller.account {
                    request.headers_mut().insert(IMPERSONATE, account.clone());
                }
                transport.call(request, caller.agent.clone()).await
            }
        });
        kube::Client::new(service, "default")
    }
}

/// Names and uids of Kubernetes are header values; anything else is not worth failing for.
fn agent(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("kyma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(passes: Passes, method: Method, uri: &str) -> Option<String> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        passes.judge(&mut request).ok().map(|()| request.uri().to_string())
    }

    #[test]
    fn a_rehearsal_sends_writes_as_dry_runs_and_deletions_not_at_all() {
        let rehearsed = |method, uri| judged(Passes::DryRuns, method, uri);
        assert_eq!(rehearsed(Method::GET, "/api/v1/pods?limit=1").as_deref(), Some("/api/v1/pods?limit=1"));
        assert_eq!(rehearsed(Method::POST, "/api/v1/pods").as_deref(), Some("/api/v1/pods?dryRun=All"));
        let patch = rehearsed(Method::PATCH, "/a/b?&fieldManager=x&dryRun=&force=true");
        assert_eq!(patch.as_deref(), Some("/a/b?fieldManager=x&force=true&dryRun=All"));
        assert_eq!(rehearsed(Method::DELETE, "/a/b?dryRun=All"), None, "its body decides, not its query");
        assert_eq!(judged(Passes::Reads, Method::POST, "/a/b?dryRun=All"), None);
        assert_eq!(judged(Passes::All, Method::POST, "/a/b").as_deref(), Some("/a/b"));
    }
}

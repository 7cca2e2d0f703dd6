//! One target: clients for it, whether it answers, and which cluster it is.

use std::sync::Arc;

use http::{HeaderValue, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::client::Body;
use tokio::sync::Mutex;
use tower::service_fn;

use crate::cache::{Agent, SecretKey};
use crate::error::{TargetError, classify};
use crate::identity::{Found, STAMP_NAME, STAMP_NAMESPACE, Stamp};
use crate::transport::{Health, Transport};

/// A cluster that modules get installed on. Cheap to clone; clones share connections, breaker and budgets.
#[derive(Clone)]
pub struct Target {
    transport: Arc<Transport>,
    place: Option<SecretKey>,
    agent: Agent,
    client: kube::Client,
    found: Arc<Mutex<Option<(u64, Found)>>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Target {
    pub(crate) fn new(transport: Arc<Transport>, place: Option<SecretKey>, agent: Agent) -> Self {
        let client = client(&transport, &agent, None);
        Self { transport, place, agent, client, found: Arc::default() }
    }

    /// Client for calls and watches. Each call is bounded as [`Limits`](crate::Limits) says, the body
    /// included; a watch is bounded by silence and event size. It never retries and follows no redirect.
    /// Errors are for [`classify`].
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The same target with `component_uid` in the User-Agent, so that the target's audit log tells which
    /// component caused a call.
    pub fn acting_for(&self, component_uid: &str) -> Self {
        Self { client: client(&self.transport, &self.agent, Some(component_uid)), ..self.clone() }
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
        let mut known = self.found.lock().await;
        let connection = self.connection();
        if let Some((_, found)) = known.as_ref().filter(|(seen, _)| *seen == connection) {
            return Ok(found.clone());
        }
        let found = self.look().await?;
        *known = Some((connection, found.clone()));
        Ok(found)
    }

    /// Lets the next [`Target::identify`] look again: what it said was refused, and somebody may mend that.
    pub async fn doubt(&self) {
        *self.found.lock().await = None;
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
        let stamps = Api::<ConfigMap>::namespaced(self.client(), STAMP_NAMESPACE);
        let mut map = stamp.to_config_map();
        let written = match &over.stamp_version {
            None => stamps.create(&PostParams::default(), &map).await,
            Some(version) => {
                map.metadata.resource_version = Some(version.clone());
                stamps.patch(STAMP_NAME, &PatchParams::default(), &Patch::Merge(&map)).await
            }
        };
        self.doubt().await;
        written.map(drop).map_err(|error| classify(&error))
    }
}

fn client(transport: &Arc<Transport>, agent: &Agent, component_uid: Option<&str>) -> kube::Client {
    let (operator, replica) = (&agent.operator, &agent.replica);
    let text = match component_uid {
        None => format!("{operator} ({replica})"),
        Some(uid) => format!("{operator} ({replica}; {uid})"),
    };
    // Names and uids of Kubernetes are header values; anything else is not worth failing for.
    let agent = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("kyma"));
    let transport = Arc::clone(transport);
    let service =
        service_fn(move |request: Request<Body>| Arc::clone(&transport).call(request, agent.clone()));
    kube::Client::new(service, "default")
}

//! Cache of the identity read from a target, and of its record on the hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Resource as _;
use kube::api::{Api, PartialObjectMeta, Patch, PatchParams, PostParams};
use kyma_api::refusal::proves_absence;
use parking_lot::Mutex as SyncMutex;
use serde_json::json;
use tokio::sync::Mutex;

use crate::connection::transport::{ExpectedCluster, Transport};
use crate::error::{TargetError, classify};
use crate::identity::{LiveIdentity, STAMP_NAME, STAMP_NAMESPACE, Stamp, TargetRecord, Verdict};

/// Cache of the identity of one target. Cheap to clone; clones share the cache.
#[derive(Clone)]
pub(crate) struct IdentityCache {
    transport: Arc<Transport>,
    /// For reads and writes of the stamp, which need no fence: the resourceVersion guards the stamp.
    client: kube::Client,
    last: Arc<Mutex<Option<CachedIdentity>>>,
    /// The record that was last read from the hub, and the epoch of `hub_epoch` at that time.
    hub: Arc<SyncMutex<Option<(u64, TargetRecord)>>>,
    hub_epoch: HubEpoch,
}

/// Counts possible restores of the hub from a backup. Shared by all targets, including those that left the cache: a
/// record of an earlier epoch is invalid.
#[derive(Clone, Debug, Default)]
pub(crate) struct HubEpoch(Arc<AtomicU64>);

impl HubEpoch {
    /// Begins the next epoch, at a cost independent of the number of targets.
    pub(crate) fn advance(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn current(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Identity and stamp as read from the target, with time and connection of the read.
struct CachedIdentity {
    connection: u64,
    at: Instant,
    found: LiveIdentity,
}

impl IdentityCache {
    /// Returns an empty cache.
    pub(crate) fn new(transport: Arc<Transport>, client: kube::Client, hub_epoch: HubEpoch) -> Self {
        Self { transport, client, last: Arc::default(), hub: Arc::default(), hub_epoch }
    }

    /// Returns identity and stamp from a read that is not older than `age` and used the current connection.
    pub(crate) async fn read_within(&self, age: Duration) -> Result<LiveIdentity, TargetError> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        let connection = self.transport.connection();
        // A read that began after this call counts whatever its age, so waiting callers share one read.
        let is_recent = |cached: &CachedIdentity| cached.at >= asked || cached.at.elapsed() < age;
        let counts = |cached: &&CachedIdentity| cached.connection == connection && is_recent(cached);
        if let Some(cached) = last.as_ref().filter(counts) {
            return Ok(cached.found.clone());
        }
        let (at, found) = (Instant::now(), self.read_identity().await?);
        self.transport.identified(&found.target_uid);
        *last = Some(CachedIdentity { connection, at, found: found.clone() });
        Ok(found)
    }

    /// Returns the error of a verdict that forbids writes, and drops the cached read, since the conflict may be
    /// resolved.
    pub(crate) async fn refuse(&self, verdict: Verdict) -> TargetError {
        self.invalidate().await;
        TargetError::Refused(Box::new(verdict))
    }

    /// Drops the cached read.
    async fn invalidate(&self) {
        *self.last.lock().await = None;
    }

    /// Caches a record that was read from the hub.
    pub(crate) fn set_hub_record(&self, recorded: TargetRecord) {
        *self.hub.lock() = Some((self.hub_epoch.current(), recorded));
    }

    pub(crate) fn hub_record(&self) -> Option<TargetRecord> {
        let current = self.hub_epoch.current();
        self.hub.lock().as_ref().filter(|(epoch, _)| *epoch == current).map(|(_, recorded)| recorded.clone())
    }

    async fn read_identity(&self) -> Result<LiveIdentity, TargetError> {
        let namespaces = Api::<PartialObjectMeta<Namespace>>::all(self.client.clone());
        let stamps = Api::<ConfigMap>::namespaced(self.client.clone(), STAMP_NAMESPACE);
        let (namespace, stamp) = tokio::join!(namespaces.get("kube-system"), stamps.get(STAMP_NAME));
        let namespace = namespace.map_err(|error| classify(&error))?;
        let stamp = match stamp {
            Ok(stamp) => Some(stamp),
            // A target without a stamp counts as new, so every other 404 is a failure.
            Err(kube::Error::Api(status)) if proves_absence(&status, "", "configmaps", STAMP_NAME) => None,
            Err(error) => return Err(classify(&error)),
        };
        Ok(LiveIdentity {
            target_uid: namespace.metadata.uid.ok_or(TargetError::Unreadable)?,
            stamp_version: stamp.as_ref().and_then(|stamp| stamp.metadata.resource_version.clone()),
            stamp: stamp.as_ref().map(Stamp::from_config_map),
        })
    }

    /// Writes `stamp` to the target, if the stamp there is still the one in `over`.
    ///
    /// Errors: 409 if another client wrote it since; 404 if the namespace [`STAMP_NAMESPACE`] is missing.
    pub(crate) async fn put_stamp(&self, stamp: &Stamp, over: &LiveIdentity) -> Result<(), TargetError> {
        let stamps = kube::core::Request::new(ConfigMap::url_path(&(), Some(STAMP_NAMESPACE)));
        let map = stamp.to_config_map();
        let request = match &over.stamp_version {
            None => {
                let body = serde_json::to_vec(&map).map_err(|_| TargetError::Request)?;
                stamps.create(&PostParams::default(), body)
            }
            Some(version) => {
                let data = data_to_replace(&map, over.stamp.as_ref());
                let body = json!({ "metadata": { "resourceVersion": version }, "data": data });
                stamps.patch(STAMP_NAME, &PatchParams::default(), &Patch::Merge(&body))
            }
        };
        let mut request = request.map_err(|_| TargetError::Request)?;
        request.extensions_mut().insert(ExpectedCluster(over.target_uid.clone()));
        let written = self.client.request::<ConfigMap>(request).await;
        self.invalidate().await;
        written.map(drop).map_err(|error| classify(&error))
    }
}

/// Returns the data of `map`, with null for further keys of the previous stamp.
fn data_to_replace(map: &ConfigMap, previous: Option<&Stamp>) -> BTreeMap<String, Option<String>> {
    let before = previous.and_then(|stamp| stamp.to_config_map().data).unwrap_or_default();
    let gone = before.into_keys().map(|key| (key, None));
    let now = map.data.iter().flatten().map(|(key, value)| (key.clone(), Some(value.clone())));
    gone.chain(now).collect()
}

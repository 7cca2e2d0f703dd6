//! One [`Target`] for each access Secret and version of it, in a bounded cache.

use std::num::NonZeroUsize;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, broadcast};

use crate::access::AccessPolicy;
use crate::client::caller::Agent;
use crate::client::target::Target;
use crate::connection::limits::Limits;
use crate::connection::notices::{Notices, TargetEvent};
use crate::connection::transport::Transport;
use crate::credentials::kubeconfig::Kubeconfig;
use crate::credentials::secret_key::SecretKey;
use crate::error::TargetError;
use crate::identity_cache::HubEpoch;

/// Maximum number of concurrent probes of unhealthy targets, over all targets.
const MAX_PARALLEL_PROBES: usize = 16;
/// Number of events kept for a slow receiver, which otherwise gets an error for missed ones.
const EVENT_CHANNEL_CAPACITY: usize = 1024;

/// Cache of an operator's targets. Cheap to clone; clones share the cache.
#[derive(Clone)]
pub struct Targets {
    shared: Arc<Shared>,
}

struct Shared {
    policy: Arc<AccessPolicy>,
    limits: Limits,
    agent: Agent,
    cache: Mutex<LruCache<SecretKey, Cached>>,
    probes: Arc<Semaphore>,
    events: broadcast::Sender<TargetEvent>,
    hub_epoch: HubEpoch,
}

struct Cached {
    uid: String,
    version: String,
    target: Target,
}

impl Targets {
    /// Returns an empty cache for at most `capacity` targets.
    ///
    /// `operator` is `<name>/<version>` and `replica` the name of the pod: both appear in the User-Agent, so
    /// that the audit log of a target explains who called.
    pub fn new(policy: AccessPolicy, limits: Limits, operator: &str, replica: &str, capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        let shared = Shared {
            policy: Arc::new(policy),
            limits,
            agent: Agent { operator: operator.to_owned(), replica: replica.to_owned() },
            cache: Mutex::new(LruCache::new(capacity)),
            probes: Arc::new(Semaphore::new(MAX_PARALLEL_PROBES)),
            events: broadcast::Sender::new(EVENT_CHANNEL_CAPACITY),
            hub_epoch: HubEpoch::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the target behind `secret`. The same uid and resourceVersion give the same connections, breaker and
    /// budgets as before; a changed Secret gets new ones.
    ///
    /// Makes no call. Must run inside of a tokio runtime. Errors: no data under `key`, or no usable
    /// kubeconfig there.
    pub fn from_secret(&self, secret: &Secret, key: &str) -> Result<Target, TargetError> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let place = SecretKey {
            namespace: text(&secret.metadata.namespace),
            name: text(&secret.metadata.name),
            key: key.to_owned(),
        };
        let (uid, version) = (text(&secret.metadata.uid), text(&secret.metadata.resource_version));
        if let Some(target) = self.cached_target(&place, &uid, &version) {
            return Ok(target);
        }
        let built = self.build(secret, &place);
        match &built {
            Ok(target) => {
                let cached = Cached { uid, version, target: target.clone() };
                self.cache().put(place, cached);
            }
            // The old credentials were withdrawn with the old content.
            Err(_) => self.forget(&place),
        }
        built
    }

    /// Returns the cached target of a Secret with this uid and resourceVersion.
    pub fn cached_target(&self, place: &SecretKey, uid: &str, version: &str) -> Option<Target> {
        let mut cache = self.cache();
        let held = cache.get(place).filter(|cached| cached.uid == uid && cached.version == version);
        held.map(|cached| cached.target.clone())
    }

    fn build(&self, secret: &Secret, place: &SecretKey) -> Result<Target, TargetError> {
        let data = secret.data.as_ref().and_then(|data| data.get(&place.key));
        let data = data.ok_or_else(|| TargetError::KeyMissing {
            namespace: place.namespace.clone(),
            name: place.name.clone(),
            key: place.key.clone(),
        })?;
        let shared = &self.shared;
        let kubeconfig = Kubeconfig::parse(&data.0, &shared.policy)?;
        let notices = self.notices(Some(place.clone()));
        let policy = Arc::clone(&shared.policy);
        let transport = Transport::remote(&kubeconfig, policy, shared.limits.clone(), notices)?;
        Ok(Target::new(transport, Some(place.clone()), shared.agent.clone(), shared.hub_epoch.clone()))
    }

    /// Returns the hub itself as a target, for single-cluster mode, with the same deadlines and limits. Not cached:
    /// the caller keeps it.
    pub fn local(&self, hub: kube::Client) -> Target {
        let transport = Transport::local(hub, self.shared.limits.clone(), self.notices(None));
        Target::new(transport, None, self.shared.agent.clone(), self.shared.hub_epoch.clone())
    }

    /// Drops the cached target of a Secret that is gone. Clients in use keep working until they are dropped.
    pub fn forget(&self, place: &SecretKey) {
        self.cache().pop(place);
    }

    /// Drops the cached targets of all keys of a Secret that is gone. Clients in use keep working until they are
    /// dropped. Takes time in proportion to the number of cached targets.
    pub fn forget_secret(&self, namespace: &str, name: &str) {
        let mut cache = self.cache();
        let is_of_secret = |place: &&SecretKey| place.namespace == namespace && place.name == name;
        let gone: Vec<SecretKey> =
            cache.iter().map(|(place, _)| place).filter(is_of_secret).cloned().collect();
        for place in &gone {
            cache.pop(place);
        }
    }

    /// Invalidates the records that were read from the hub, which may have been restored from a backup. Includes
    /// targets that are in use but no longer cached.
    pub fn invalidate_hub_records(&self) {
        self.shared.hub_epoch.advance();
    }

    /// Returns a receiver of later suspensions and recoveries of all targets. A receiver that lags has to assume that
    /// every target recovered.
    pub fn events(&self) -> broadcast::Receiver<TargetEvent> {
        self.shared.events.subscribe()
    }

    /// Returns the number of cached targets.
    pub fn len(&self) -> usize {
        self.cache().len()
    }

    /// Reports whether no target is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn notices(&self, place: Option<SecretKey>) -> Notices {
        Notices { place, events: self.shared.events.clone(), probes: Arc::clone(&self.shared.probes) }
    }

    fn cache(&self) -> MutexGuard<'_, LruCache<SecretKey, Cached>> {
        self.shared.cache.lock()
    }
}

//! What all reconciles share. Everything in it can be rebuilt from the API.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::Kyma;
use kyma_sdk::{Index, Runtime, Trigger, Watches};

use crate::catalogue::Catalogue;
use crate::program::Flags;
use crate::session::Session;

/// Namespace and name of a Kyma.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KymaKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl KymaKey {
    pub(crate) fn of(kyma: &Kyma) -> Self {
        let meta = &kyma.metadata;
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for KymaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The shared state of one release-meta-syncer.
pub(crate) struct State {
    pub(crate) runtime: Runtime,
    pub(crate) restricted: BTreeSet<String>,
    pub(crate) cluster_gone_after: std::time::Duration,
    pub(crate) watches: Watches<KymaKey>,
    kymas: Store<Kyma>,
    trigger: Trigger<ObjectRef<Kyma>>,
    catalogue: RwLock<Catalogue>,
    sessions: Mutex<HashMap<KymaKey, Arc<Session>>>,
    by_secret: Mutex<Index<String, KymaKey>>,
    reported: Mutex<HashMap<KymaKey, (u64, Condition)>>,
    missing_access: Mutex<HashMap<KymaKey, Instant>>,
}

impl State {
    pub(crate) fn new(
        runtime: Runtime,
        flags: &Flags,
        kymas: Store<Kyma>,
        trigger: Trigger<ObjectRef<Kyma>>,
        watches: Watches<KymaKey>,
    ) -> Self {
        Self {
            restricted: flags.restricted(),
            cluster_gone_after: flags.cluster_gone_after.unsigned_abs(),
            runtime,
            watches,
            kymas,
            trigger,
            catalogue: RwLock::default(),
            sessions: Mutex::default(),
            by_secret: Mutex::default(),
            reported: Mutex::default(),
            missing_access: Mutex::default(),
        }
    }

    pub(crate) fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn catalogue_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        self.catalogue.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Kyma has to look again.
    pub(crate) fn wake(&self, kyma: &KymaKey) {
        self.trigger.enqueue(ObjectRef::new(&kyma.name).within(&kyma.namespace));
    }

    /// Every Kyma that the hub has.
    pub(crate) fn all(&self) -> Vec<KymaKey> {
        self.kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect()
    }

    /// The catalogue changed: every Kyma compares, and only those whom it concerns write.
    pub(crate) fn wake_all(&self) {
        for kyma in self.all() {
            self.wake(&kyma);
        }
    }

    pub(crate) fn session(&self, kyma: &KymaKey) -> Option<Arc<Session>> {
        lock(&self.sessions).get(kyma).cloned()
    }

    pub(crate) fn begin_session(&self, kyma: &KymaKey, session: &Arc<Session>) {
        lock(&self.sessions).insert(kyma.clone(), Arc::clone(session));
    }

    /// The session ends: a call through it failed or its access changed.
    pub(crate) fn end_session(&self, kyma: &KymaKey) {
        lock(&self.sessions).remove(kyma);
        self.watches.leave_all(kyma);
    }

    /// The Kyma depends on these access Secrets.
    pub(crate) fn depends_on_secrets(&self, kyma: &KymaKey, secrets: Vec<String>) {
        lock(&self.by_secret).set(kyma.clone(), secrets);
    }

    /// Kymas that depend on this access Secret.
    pub(crate) fn of_secret(&self, secret: &str) -> Vec<KymaKey> {
        lock(&self.by_secret).dependents(&secret.to_owned()).cloned().collect()
    }

    /// Our condition in `kyma` as seen, or the one that we wrote after that.
    pub(crate) fn latest_condition(&self, kyma: &Kyma) -> Option<Condition> {
        let seen = || crate::report::own(kyma).cloned();
        match lock(&self.reported).get(&KymaKey::of(kyma)) {
            Some((version, condition)) if *version > version_of(kyma) => Some(condition.clone()),
            _ => seen(),
        }
    }

    /// Remembers what a write of ours returned until the watch has caught up.
    pub(crate) fn wrote(&self, kyma: &Kyma, condition: Condition) {
        lock(&self.reported).insert(KymaKey::of(kyma), (version_of(kyma), condition));
    }

    /// The watch brought a Kyma. True if the condition that we wrote is gone from it, as some backup tools leave it.
    pub(crate) fn has_lost_condition(&self, kyma: &Kyma) -> bool {
        let mut reported = lock(&self.reported);
        let is_behind = |(version, _): &(u64, Condition)| *version < version_of(kyma);
        let key = KymaKey::of(kyma);
        let is_lost = crate::report::own(kyma).is_none() && reported.get(&key).is_some_and(is_behind);
        if is_lost {
            reported.remove(&key);
        }
        is_lost
    }

    /// A list of Kymas begins: what it shows is how they are, even where resourceVersions went back with a restored hub.
    pub(crate) fn forget_reported(&self) {
        lock(&self.reported).values_mut().for_each(|(version, _)| *version = 0);
    }

    /// Since when a deleted Kyma's access has been seen missing; starts now.
    pub(crate) fn missing_since(&self, kyma: &KymaKey) -> Instant {
        *lock(&self.missing_access).entry(kyma.clone()).or_insert_with(Instant::now)
    }

    /// A deleted Kyma's access is there.
    pub(crate) fn is_accessible(&self, kyma: &KymaKey) {
        lock(&self.missing_access).remove(kyma);
    }

    /// The Kyma is gone: nothing about it is kept.
    pub(crate) fn forget(&self, kyma: &KymaKey) {
        self.end_session(kyma);
        lock(&self.by_secret).remove(kyma);
        lock(&self.reported).remove(kyma);
        lock(&self.missing_access).remove(kyma);
    }
}

/// Resource versions of one object are ordered numbers.
fn version_of(kyma: &Kyma) -> u64 {
    kyma.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! State shared by all reconciles. It can be rebuilt from the API.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::Kyma;
use kyma_sdk::{Index, KymaKey, LongNames, PendingSessions, Runtime, Trigger, Watches};

use crate::args::Flags;
use crate::catalogue::Catalogue;
use crate::condition_cache::ConditionCache;
use crate::session::Session;

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
    /// Sessions that are being opened.
    pub(crate) pending_sessions: PendingSessions,
    /// Kymas whose names are longer than a label value.
    pub(crate) long_names: LongNames,
    by_secret: Mutex<Index<String, KymaKey>>,
    conditions: Mutex<ConditionCache>,
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
            pending_sessions: PendingSessions::default(),
            long_names: LongNames::default(),
            by_secret: Mutex::default(),
            conditions: Mutex::default(),
        }
    }

    pub(crate) fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn catalogue_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        self.catalogue.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requeues a Kyma.
    pub(crate) fn requeue(&self, kyma: &KymaKey) {
        self.trigger.enqueue(ObjectRef::new(&kyma.name).within(&kyma.namespace));
    }

    /// Returns all Kymas of the hub.
    pub(crate) fn all(&self) -> Vec<KymaKey> {
        self.kymas.state().iter().map(|kyma| KymaKey::of(kyma)).collect()
    }

    /// Requeues all Kymas after a change of the catalogue; only affected ones write.
    pub(crate) fn requeue_all(&self) {
        for kyma in self.all() {
            self.requeue(&kyma);
        }
    }

    pub(crate) fn session(&self, kyma: &KymaKey) -> Option<Arc<Session>> {
        lock(&self.sessions).get(kyma).cloned()
    }

    pub(crate) fn begin_session(&self, kyma: &KymaKey, session: &Arc<Session>) {
        lock(&self.sessions).insert(kyma.clone(), Arc::clone(session));
    }

    /// Ends a session after a failed call or a changed access Secret.
    pub(crate) fn end_session(&self, kyma: &KymaKey) {
        lock(&self.sessions).remove(kyma);
        self.pending_sessions.interrupt(kyma);
        self.watches.unsubscribe(kyma);
    }

    /// Sets the access Secrets that the Kyma depends on.
    pub(crate) fn depends_on_secrets(&self, kyma: &KymaKey, secrets: Vec<String>) {
        lock(&self.by_secret).set(kyma.clone(), secrets);
    }

    /// Returns the Kymas that depend on this access Secret.
    pub(crate) fn of_secret(&self, secret: &str) -> Vec<KymaKey> {
        lock(&self.by_secret).dependents(&secret.to_owned()).cloned().collect()
    }

    /// Locks the recorded conditions.
    pub(crate) fn conditions(&self) -> MutexGuard<'_, ConditionCache> {
        lock(&self.conditions)
    }

    /// Removes all state of a deleted Kyma.
    pub(crate) fn forget(&self, kyma: &KymaKey) {
        self.end_session(kyma);
        self.long_names.remove(&kyma.name);
        lock(&self.by_secret).remove(kyma);
        self.conditions().forget(kyma);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

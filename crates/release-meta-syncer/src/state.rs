//! What all reconciles share. Everything in it can be rebuilt from the API.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::Kyma;
use kyma_sdk::{Index, KymaKey, LongNames, PendingSessions, Runtime, Trigger, Watches};

use crate::args::Flags;
use crate::catalogue::Catalogue;
use crate::reported::Reported;
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
    reported: Mutex<Reported>,
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
            reported: Mutex::default(),
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
        self.pending_sessions.interrupt(kyma);
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

    /// What is known of our conditions.
    pub(crate) fn reported(&self) -> MutexGuard<'_, Reported> {
        lock(&self.reported)
    }

    /// The Kyma is gone: nothing about it is kept.
    pub(crate) fn forget(&self, kyma: &KymaKey) {
        self.end_session(kyma);
        self.long_names.remove(&kyma.name);
        lock(&self.by_secret).remove(kyma);
        self.reported().forget(kyma);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

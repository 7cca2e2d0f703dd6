//! State shared by all reconciles. It can be rebuilt from the API.

use std::collections::BTreeSet;

use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::Kyma;
use kyma_connection::Sessions;
use kyma_controller::{Index, KymaKey, LongNames, Runtime, Trigger, Watches};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::args::Flags;
use crate::catalogue::Catalogue;
use crate::condition_cache::ConditionCache;
use crate::target::session::Session;

/// The shared state of one release-meta-syncer.
pub(crate) struct State {
    pub(crate) runtime: Runtime,
    pub(crate) restricted: BTreeSet<String>,
    pub(crate) cluster_gone_after: std::time::Duration,
    pub(crate) watches: Watches<KymaKey>,
    kymas: Store<Kyma>,
    trigger: Trigger<ObjectRef<Kyma>>,
    catalogue: RwLock<Catalogue>,
    pub(crate) sessions: Sessions<Session>,
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
            sessions: Sessions::default(),
            long_names: LongNames::default(),
            by_secret: Mutex::default(),
            conditions: Mutex::default(),
        }
    }

    pub(crate) fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read()
    }

    pub(crate) fn catalogue_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        self.catalogue.write()
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

    /// Ends a session after a failed call or a changed access Secret.
    pub(crate) fn end_session(&self, kyma: &KymaKey) {
        self.sessions.end(kyma);
        self.watches.unsubscribe(kyma);
    }

    /// Sets the access Secrets that the Kyma depends on.
    pub(crate) fn depends_on_secrets(&self, kyma: &KymaKey, secrets: Vec<String>) {
        self.by_secret.lock().set(kyma.clone(), secrets);
    }

    /// Returns the Kymas that depend on this access Secret.
    pub(crate) fn of_secret(&self, secret: &str) -> Vec<KymaKey> {
        self.by_secret.lock().dependents(&secret.to_owned()).cloned().collect()
    }

    /// Locks the recorded conditions.
    pub(crate) fn conditions(&self) -> MutexGuard<'_, ConditionCache> {
        self.conditions.lock()
    }

    /// Removes all state of a deleted Kyma.
    pub(crate) fn forget(&self, kyma: &KymaKey) {
        self.end_session(kyma);
        self.long_names.remove(&kyma.name);
        self.by_secret.lock().remove(kyma);
        self.conditions().forget(kyma);
    }
}

#[cfg(test)]
pub(crate) mod tests;

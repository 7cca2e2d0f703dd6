//! State shared by all reconciles: the indexes, the sessions with targets, and the triggers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use kube_runtime::reflector::ObjectRef;
use kyma_api::{Kyma, ModuleConfig, ModuleReleaseMeta};
use kyma_connection::{Connection, Sessions};
use kyma_controller::{KymaKey, LongNames, Runtime, Trigger, Watches};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::decision::maintenance::{self, Maintenance};
use crate::decision::resolve::Policy;
use crate::hub::catalogue::{AffectedKymas, Catalogue};
use crate::hub::component::Components;
use crate::hub::config::{Configs, CountsByConfig, EffectiveEntry, InitialKymas, RuleRefusals};
use crate::hub::kinds::{GroupKind, Kinds};
use crate::hub::mirror::Manifests;
use crate::hub::own_writes::OwnWrites;
use crate::process::args::KymaArgs;
use crate::process::metrics::KymaMetrics;
use crate::target::target_kyma::{Remote, TargetKyma};

mod kymas;

use kymas::{KymaState, Kymas};

/// Triggers that requeue objects.
pub(crate) struct Triggers {
    pub(crate) kymas: Trigger<ObjectRef<Kyma>>,
    pub(crate) releases: Trigger<ObjectRef<ModuleReleaseMeta>>,
    pub(crate) configs: Trigger<ObjectRef<ModuleConfig>>,
}

/// The shared state of one kyma-operator. It can be rebuilt from the API.
pub(crate) struct State {
    pub(crate) runtime: Runtime,
    pub(crate) args: KymaArgs,
    pub(crate) policy: Policy,
    triggers: Triggers,
    pub(crate) watches: Watches<KymaKey>,
    pub(crate) metrics: KymaMetrics,
    catalogue: RwLock<Catalogue>,
    components: RwLock<Components>,
    kinds: RwLock<Kinds>,
    pub(crate) sessions: Sessions<Connection>,
    kymas: Mutex<Kymas>,
    own_writes: Mutex<OwnWrites>,
    configs: RwLock<Configs>,
    config_counts: Mutex<CountsByConfig>,
    initial_kymas: Mutex<InitialKymas>,
    maintenance: RwLock<Arc<Maintenance>>,
    /// Kymas with names longer than a label value.
    pub(crate) long_names: LongNames,
    manifests: Mutex<Manifests>,
}

impl State {
    pub(crate) fn new(
        runtime: Runtime,
        args: KymaArgs,
        triggers: Triggers,
        watches: Watches<KymaKey>,
        metrics: KymaMetrics,
    ) -> Self {
        Self {
            policy: args.policy(),
            runtime,
            args,
            triggers,
            watches,
            metrics,
            catalogue: RwLock::default(),
            components: RwLock::default(),
            kinds: RwLock::default(),
            sessions: Sessions::default(),
            kymas: Mutex::default(),
            own_writes: Mutex::default(),
            configs: RwLock::default(),
            config_counts: Mutex::default(),
            initial_kymas: Mutex::default(),
            maintenance: RwLock::default(),
            long_names: LongNames::default(),
            manifests: Mutex::default(),
        }
    }

    pub(crate) fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read()
    }

    pub(crate) fn catalogue_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        self.catalogue.write()
    }

    pub(crate) fn configs(&self) -> RwLockReadGuard<'_, Configs> {
        self.configs.read()
    }

    pub(crate) fn configs_mut(&self) -> RwLockWriteGuard<'_, Configs> {
        self.configs.write()
    }

    /// Locks the counts of Kymas by ModuleConfig.
    pub(crate) fn config_counts(&self) -> MutexGuard<'_, CountsByConfig> {
        self.config_counts.lock()
    }

    /// Locks the Kymas without a decision since the start.
    pub(crate) fn initial_kymas(&self) -> MutexGuard<'_, InitialKymas> {
        self.initial_kymas.lock()
    }

    /// Records a list of Kymas. Until all Kymas of the first list have a decision, the status of ModuleConfigs keeps
    /// its counts.
    pub(crate) fn record_list(&self, kymas: impl IntoIterator<Item = KymaKey>) {
        let is_complete = self.initial_kymas().record_list(kymas, Instant::now());
        if is_complete {
            self.report_on_all_configs();
        }
    }

    /// Records that ModuleConfigs count the Kyma, or that none is evaluated for it. The last Kyma of the first list
    /// requeues all ModuleConfigs, since their counts are complete now.
    pub(crate) fn record_decision(&self, kyma: &KymaKey) {
        let is_complete = self.initial_kymas().record_decision(kyma);
        if is_complete {
            self.report_on_all_configs();
        }
    }

    fn report_on_all_configs(&self) {
        let names = self.configs().names();
        for name in &names {
            self.report_on_config(name);
        }
    }

    /// Requeues a ModuleConfig to update its status.
    pub(crate) fn report_on_config(&self, name: &str) {
        let namespace = &self.runtime.settings.hub_namespace;
        self.triggers.configs.enqueue(ObjectRef::new(name).within(namespace));
    }

    /// Replaces the ModuleConfigs that count a Kyma, and requeues those whose counts changed.
    pub(crate) fn count_for_configs(&self, kyma: &KymaKey, entries: &[EffectiveEntry]) {
        let changed = self.config_counts().decided(kyma, entries);
        for name in &changed {
            self.report_on_config(name);
        }
    }

    /// Records why a Kyma's target refuses resourceRules. Requeues the ModuleConfigs, whose status names the Kyma.
    pub(crate) fn record_rule_refusals(&self, kyma: &KymaKey, refusals: RuleRefusals) {
        let changed = self.config_counts().record_rule_refusals(kyma, refusals);
        for name in &changed {
            self.report_on_config(name);
        }
    }

    pub(crate) fn components(&self) -> RwLockReadGuard<'_, Components> {
        self.components.read()
    }

    pub(crate) fn components_mut(&self) -> RwLockWriteGuard<'_, Components> {
        self.components.write()
    }

    pub(crate) fn kinds(&self) -> RwLockReadGuard<'_, Kinds> {
        self.kinds.read()
    }

    pub(crate) fn kinds_mut(&self) -> RwLockWriteGuard<'_, Kinds> {
        self.kinds.write()
    }

    /// Locks the states of all Kymas, for one operation.
    pub(crate) fn kymas(&self) -> MutexGuard<'_, Kymas> {
        self.kymas.lock()
    }

    /// Records an event of a target. Returns whether it is news; false for a Kyma without state, which was deleted
    /// meanwhile.
    pub(crate) fn record_target_event(
        &self,
        kyma: &KymaKey,
        record: impl FnOnce(&mut KymaState) -> bool,
    ) -> bool {
        self.kymas().get_mut(kyma).is_some_and(record)
    }

    /// Returns the state of the target's Kyma; `None` before the first list.
    pub(crate) fn target_kyma(&self, kyma: &KymaKey) -> Option<Remote> {
        self.kymas().get(kyma)?.target.kyma.get().cloned()
    }

    /// Records the result of a write to the target's Kyma.
    pub(crate) fn record_target_write(&self, kyma: &KymaKey, written: TargetKyma) {
        if let Some(state) = self.kymas().get_mut(kyma) {
            state.target.kyma.record_write(written);
        }
    }

    /// Locks the states of Manifests, with `--manifest-mirror`.
    pub(crate) fn manifests(&self) -> MutexGuard<'_, Manifests> {
        self.manifests.lock()
    }

    /// Ends a session after a failed call or a changed access Secret. State that it reported is forgotten.
    pub(crate) fn end_session(&self, kyma: &KymaKey) {
        self.sessions.end(kyma);
        self.watches.unsubscribe(kyma);
        self.kymas().end_session(kyma);
    }

    /// Requeues a Kyma.
    pub(crate) fn requeue(&self, kyma: &KymaKey) {
        self.triggers.kymas.enqueue(ObjectRef::new(&kyma.name).within(&kyma.namespace));
    }

    /// Requeues withdrawn mandatory modules after a component or a Kyma's record of them changed: it may have been
    /// the last one.
    pub(crate) fn requeue_withdrawn(&self) {
        for module in self.catalogue().withdrawn() {
            let release = ObjectRef::new(module).within(&self.runtime.settings.hub_namespace);
            self.triggers.releases.enqueue(release);
        }
    }

    /// Requeues these Kymas.
    pub(crate) fn requeue_all<'a>(&self, kymas: impl IntoIterator<Item = &'a KymaKey>) {
        for kyma in kymas {
            self.requeue(kyma);
        }
    }

    /// Requeues the Kymas that a catalogue change affects.
    pub(crate) fn requeue_affected(&self, affected: AffectedKymas, all: impl FnOnce() -> Vec<KymaKey>) {
        match affected {
            AffectedKymas::None => {}
            AffectedKymas::Some(kymas) => self.requeue_all(&kymas),
            AffectedKymas::All => self.requeue_all(&all()),
        }
    }

    /// Sets the access Secrets that the Kyma depends on.
    pub(crate) fn depends_on_secrets(&self, kyma: &KymaKey, secrets: Vec<String>) {
        self.kymas().by_secret.set(kyma.clone(), secrets);
    }

    /// Returns all Kymas that depend on an access Secret.
    pub(crate) fn with_secrets(&self) -> Vec<KymaKey> {
        self.kymas().by_secret.objects().cloned().collect()
    }

    /// Returns the Kymas that depend on this access Secret.
    pub(crate) fn of_secret(&self, secret: &str) -> Vec<KymaKey> {
        self.kymas().by_secret.dependents(&secret.to_owned()).cloned().collect()
    }

    /// Sets the component kinds that the Kyma waits for.
    pub(crate) fn set_awaited_kinds(&self, kyma: &KymaKey, kinds: Vec<GroupKind>) {
        self.kymas().by_kind.set(kyma.clone(), kinds);
    }

    /// Requeues Kymas that wait for a component kind.
    pub(crate) fn requeue_waiting_for(&self, kind: &GroupKind) {
        let waiting: Vec<KymaKey> = self.kymas().by_kind.dependents(kind).cloned().collect();
        self.requeue_all(&waiting);
    }

    /// Locks the results of the operator's writes that the watch has not delivered yet.
    pub(crate) fn own_writes(&self) -> MutexGuard<'_, OwnWrites> {
        self.own_writes.lock()
    }

    /// Returns the Kymas that wait for another one to release their target.
    pub(crate) fn blocked(&self) -> Vec<KymaKey> {
        self.kymas().blocked.iter().cloned().collect()
    }

    /// Sets whether the Kyma waits for another one to release its target.
    pub(crate) fn set_blocked(&self, kyma: &KymaKey, is_blocked: bool) {
        put(&mut self.kymas().blocked, kyma, is_blocked);
    }

    /// Records that another operator handles the Kyma. Returns true if that is new.
    pub(crate) fn record_klm_kyma(&self, kyma: &KymaKey) -> bool {
        self.kymas().get_or_add(kyma).record_klm()
    }

    /// Returns the maintenance policy.
    pub(crate) fn maintenance(&self) -> Arc<Maintenance> {
        Arc::clone(&self.maintenance.read())
    }

    /// Sets the maintenance policy or the error of reading it.
    pub(crate) fn set_maintenance(&self, policy: Result<maintenance::Policy, String>) {
        let maintenance = Maintenance { policy, least: self.args.min_maintenance_window_size };
        *self.maintenance.write() = Arc::new(maintenance);
    }

    /// Sets whether the Kyma depends on the maintenance policy.
    pub(crate) fn awaits_window(&self, kyma: &KymaKey, waits: bool) {
        put(&mut self.kymas().awaiting_windows, kyma, waits);
    }

    /// Requeues Kymas that depend on the maintenance policy.
    pub(crate) fn requeue_awaiting_windows(&self) {
        let waiting: Vec<KymaKey> = self.kymas().awaiting_windows.iter().cloned().collect();
        self.requeue_all(&waiting);
    }

    /// Stores the result of a write until the watch has delivered it.
    pub(crate) fn record_write(&self, kyma: Kyma) -> Arc<Kyma> {
        let kyma = Arc::new(kyma);
        self.own_writes().record_write(Arc::clone(&kyma));
        kyma
    }

    /// Removes all state of a deleted Kyma.
    pub(crate) fn forget(&self, kyma: &KymaKey) {
        self.end_session(kyma);
        self.kymas().remove(kyma);
        // Indexes with other keys, and own writes, of which one list of all Kymas ends many.
        self.catalogue_mut().forget(kyma);
        let changed = self.config_counts().forget(kyma);
        for name in &changed {
            self.report_on_config(name);
        }
        self.own_writes().forget(kyma);
        self.long_names.remove(&kyma.name);
        self.manifests().forget(kyma);
        self.metrics.forget(kyma);
        self.record_decision(kyma);
    }
}

fn put(set: &mut HashSet<KymaKey>, kyma: &KymaKey, is_in: bool) {
    if is_in {
        set.insert(kyma.clone());
    } else {
        set.remove(kyma);
    }
}

#[cfg(test)]
pub(crate) mod tests;

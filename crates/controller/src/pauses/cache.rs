//! A cache of the Pauses on the hub, and a receiver of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use kyma_api::Pause;
use tokio::sync::watch;

use super::names::{brake_name, braked_operator};
use super::snapshot::{PauseSnapshot, PauseSubject, PausedOperations, is_in_force};

/// Name under which the watch of Pauses appears in /readyz.
pub(crate) const READYZ_PART: &str = "pauses";

/// Cache of the Pauses in the hub namespace. Cheap to clone; each operator has one.
#[derive(Clone, Debug)]
pub struct Pauses {
    operator: &'static str,
    /// Name of the Pause that the operator's brake creates.
    pub(super) brake: String,
    /// Receives a new value whenever the Pauses in force may have changed.
    pub(super) snapshot: watch::Sender<PauseSnapshot>,
    /// Whether the first list is complete.
    pub(super) listed: watch::Sender<bool>,
}

impl Pauses {
    pub(crate) fn new(operator: &'static str) -> Self {
        Self {
            operator,
            brake: brake_name(operator),
            snapshot: watch::Sender::new(PauseSnapshot::default()),
            listed: watch::Sender::new(false),
        }
    }

    /// Waits until all Pauses are listed. Before that nothing may be written.
    pub async fn listed(&self) {
        // The sender lives as long as this.
        _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Returns all Pauses by name.
    pub fn all(&self) -> BTreeMap<String, Arc<Pause>> {
        let snapshot = self.snapshot.borrow();
        let shown = snapshot.pauses.iter().filter(|(name, _)| !snapshot.missing.contains(*name));
        shown.map(|(name, pause)| (name.clone(), Arc::clone(pause))).collect()
    }

    /// Returns a receiver that reports when a Pause is created, changed, deleted or expires.
    pub fn changes(&self) -> PauseChanges {
        let snapshot = self.snapshot.subscribe();
        let now = (snapshot.borrow().clone(), Timestamp::now());
        let labels = now.0.labels_revision();
        PauseChanges { operator: self.operator, snapshot, before: now.clone(), now, labels: (labels, labels) }
    }

    /// Returns how often a user deleted a Pause of an operator's brake, which confirms the deletions of all
    /// operators. A count, since a receiver may miss a short-lived Pause.
    pub(crate) fn released(&self) -> u64 {
        self.snapshot.borrow().released
    }

    /// Returns how often a list lacked the brake's Pause without a DELETE event: the hub may have been restored from
    /// a backup.
    pub(crate) fn lost(&self) -> u64 {
        self.snapshot.borrow().lost
    }

    /// Returns the operations that Pauses forbid for an object. Selectors match the labels of a Kyma itself, or of the
    /// Kyma that the label `kyma-name` of the object names; for an object of no Kyma only Pauses without selector count.
    pub fn paused_operations<K: Resource<DynamicType = ()>>(&self, object: &K) -> PausedOperations {
        self.snapshot.borrow().paused_operations(self.operator, PauseSubject::of(object), Timestamp::now())
    }

    /// Waits until the Pauses of an object forbid more than `before`.
    pub(crate) async fn tightened<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        before: &PausedOperations,
    ) {
        let mut changes = self.changes();
        while !self.paused_operations(object).is_tighter_than(before) {
            changes.next().await;
        }
    }

    /// Puts the recorded Pauses in force. They count as missing until a list shows them.
    pub(super) fn restore(&self, pauses: Vec<Pause>) {
        self.snapshot.send_modify(|snapshot| {
            for pause in pauses {
                let name = pause.name_any();
                snapshot.missing.insert(name.clone());
                snapshot.pauses.insert(name, Arc::new(pause));
            }
        });
    }

    pub(super) fn applied(&self, pause: Box<Pause>) {
        let name = pause.name_any();
        let held = self.snapshot.borrow().pauses.get(&name).cloned();
        if held.is_none_or(|held| held.spec != pause.spec) {
            tracing::info!(pause = name, scope = ?pause.spec.scope, reason = pause.spec.reason, "paused");
        }
        self.snapshot.send_modify(|snapshot| {
            snapshot.missing.remove(&name);
            snapshot.pauses.insert(name, Arc::from(pause));
        });
    }

    pub(super) fn gone(&self, name: &str) {
        tracing::info!(pause = name, "no longer paused");
        self.snapshot.send_modify(|snapshot| {
            snapshot.missing.remove(name);
            let gone = snapshot.pauses.remove(name);
            let confirms = gone.is_some_and(|pause| braked_operator(name, &pause.spec).is_some());
            if confirms {
                snapshot.confirm_brakes();
            }
        });
    }

    /// Processes a complete list. A Pause that the list lacks stays in force: only a requested deletion or its expiry
    /// lifts it. The brake's own Pause is dropped, since the brake creates it again before it allows a deletion.
    pub(super) fn keep(&self, names: &BTreeSet<String>) {
        self.snapshot.send_if_modified(|snapshot| {
            let before = (snapshot.pauses.len(), snapshot.missing.clone());
            let now = Timestamp::now();
            snapshot.lost += u64::from(snapshot.pauses.contains_key(&self.brake) && !names.contains(&self.brake));
            snapshot.pauses.retain(|name, pause| {
                names.contains(name) || *name != self.brake && is_in_force(pause, now)
            });
            snapshot.missing = snapshot.pauses.keys().filter(|name| !names.contains(*name)).cloned().collect();
            for name in snapshot.missing.difference(&before.1) {
                tracing::warn!(
                    pause = name,
                    "the hub lacks this Pause, which stays in force: create it again under its name, then delete it to end it"
                );
            }
            before != (snapshot.pauses.len(), snapshot.missing.clone())
        });
    }
}

/// Receiver of changes of Pauses.
#[derive(Debug)]
pub struct PauseChanges {
    operator: &'static str,
    snapshot: watch::Receiver<PauseSnapshot>,
    before: (PauseSnapshot, Timestamp),
    now: (PauseSnapshot, Timestamp),
    /// Number of the last change of Kymas' labels at both times.
    labels: (u64, u64),
}

impl PauseChanges {
    /// Waits for the next change.
    pub async fn next(&mut self) {
        if self.snapshot.changed().await.is_err() {
            // The sender is gone, so the Pauses cannot change any more.
            std::future::pending::<()>().await;
        }
        let now = (self.snapshot.borrow_and_update().clone(), Timestamp::now());
        self.labels = (self.labels.1, now.0.labels_revision());
        self.before = std::mem::replace(&mut self.now, now);
    }

    /// Reports whether the last change may alter the Pauses of an object, or lifts a stop by the brake.
    pub fn concern<K: Resource<DynamicType = ()>>(&self, object: &K) -> bool {
        let paused_operations = |(snapshot, at): &(PauseSnapshot, Timestamp)| {
            snapshot.paused_operations(self.operator, PauseSubject::of(object), *at)
        };
        let relabelled = match (PauseSubject::of(object), &self.now.0.kymas) {
            (PauseSubject::OfKyma(kyma), Some(kymas)) => kymas.changed_since(kyma, self.labels.0),
            _ => false,
        };
        relabelled
            || self.before.0.released != self.now.0.released
            || paused_operations(&self.before) != paused_operations(&self.now)
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::{HelmComponent, HelmComponentSpec, PauseSpec};

    use super::*;

    #[tokio::test]
    async fn brake_released_before_it_was_read_still_requeues_components() {
        let pauses = Pauses::new("x");
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        for (name, concerns) in [("maintenance", false), ("brake-", false), ("brake-x", true)] {
            let mut changes = pauses.changes();
            pauses.applied(Box::new(Pause::new(name, of_brake("x"))));
            pauses.gone(name);
            changes.next().await;
            assert_eq!(changes.concern(&component), concerns, "{name}");
        }
        assert_eq!(pauses.released(), 1);
    }

    fn of_brake(operator: &str) -> PauseSpec {
        PauseSpec {
            scope: kyma_api::PauseScope::Deletes,
            operators: vec![operator.to_owned()],
            ..PauseSpec::default()
        }
    }

    #[tokio::test]
    async fn one_confirmation_of_a_brake_serves_all_operators() {
        let pauses = Pauses::new("x");
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        let apply = |name: &str, operator: &str, uid: &str| {
            let mut pause = Pause::new(name, of_brake(operator));
            pause.metadata.uid = Some(uid.to_owned());
            pauses.applied(Box::new(pause));
        };
        apply("brake-x", "x", "first");
        apply("brake-y", "y", "other");
        assert!(pauses.paused_operations(&component).deletes().is_some());
        pauses.gone("brake-y");
        assert_eq!(pauses.released(), 1);
        assert!(
            pauses.paused_operations(&component).deletes().is_none(),
            "the brake's Pause that is left has no effect"
        );
        apply("brake-x", "x", "first");
        assert!(pauses.paused_operations(&component).deletes().is_none(), "also when it is seen again");
        apply("brake-x", "x", "second");
        assert!(pauses.paused_operations(&component).deletes().is_some(), "a later one holds");
        apply("maintenance", "x", "third");
        pauses.gone("maintenance");
        assert_eq!(pauses.released(), 1, "a Pause that a person made confirms nothing");
    }

    #[tokio::test]
    async fn pause_missing_from_a_list_stays_in_force_until_delete_event() {
        let pauses = Pauses::new("x");
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        let writes = || pauses.paused_operations(&component).writes().map(ToOwned::to_owned);
        pauses.applied(Box::new(Pause::new("maintenance", PauseSpec::default())));
        pauses.keep(&BTreeSet::from(["maintenance".to_owned()]));
        assert_eq!(writes().unwrap(), "Pause maintenance is in force");
        for _ in 0..2 {
            pauses.keep(&BTreeSet::new());
            let message = writes().unwrap();
            assert!(message.contains("the hub lacks it") && message.contains("create it again"), "{message}");
        }
        pauses.applied(Box::new(Pause::new("maintenance", PauseSpec::default())));
        assert_eq!(writes().unwrap(), "Pause maintenance is in force", "created again");
        pauses.gone("maintenance");
        assert_eq!(writes(), None);
    }

    #[tokio::test]
    async fn recorded_pause_is_in_force_after_restart_with_empty_list() {
        let pauses = Pauses::new("x");
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        pauses.restore(vec![Pause::new("maintenance", PauseSpec::default())]);
        pauses.keep(&BTreeSet::new());
        assert!(pauses.paused_operations(&component).writes().is_some());
        let until = Timestamp::from_second(1).unwrap();
        let ended = PauseSpec {
            until: Some(serde_json::from_value(serde_json::json!(until)).unwrap()),
            ..PauseSpec::default()
        };
        pauses.restore(vec![Pause::new("maintenance", ended)]);
        assert!(pauses.paused_operations(&component).writes().is_none());
        pauses.keep(&BTreeSet::new());
        assert!(pauses.snapshot.borrow().pauses.is_empty(), "one that has ended is forgotten");
    }

    #[tokio::test]
    async fn a_brake_that_is_missing_from_a_list_was_released_by_nobody() {
        let pauses = Pauses::new("x");
        pauses.applied(Box::new(Pause::new("brake-x", PauseSpec::default())));
        pauses.keep(&BTreeSet::from(["brake-x".to_owned()]));
        assert_eq!((pauses.released(), pauses.lost()), (0, 0));
        pauses.keep(&BTreeSet::new());
        assert_eq!((pauses.released(), pauses.lost(), pauses.all().len()), (0, 1, 0));
        pauses.keep(&BTreeSet::new());
        assert_eq!(pauses.lost(), 1, "once");
    }
}

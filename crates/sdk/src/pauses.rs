//! Pauses on the hub: known before the first reconcile, asked by each, and obeyed by those that are under way.

mod halt;
mod kymas;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use kyma_api::Pause;
use tokio::sync::watch;

pub use halt::{Halt, is_in_force};
use halt::{Known, Whose};

use crate::{News, Runtime, await_crds, brake::brake_name, feed};

/// Name under which the watch of Pauses appears in /readyz.
pub(crate) const PART: &str = "pauses";
/// The clock on the wall may be set meanwhile, so the end of a Pause is looked at again after this time.
const LONGEST_NAP: Duration = Duration::from_mins(5);

/// The Pauses of the hub namespace. Cheap to clone; one for each operator.
#[derive(Clone, Debug)]
pub struct Pauses {
    operator: &'static str,
    /// Name of the Pause that the operator makes for itself.
    brake: String,
    /// A new value whenever what stands still may be other than before.
    known: watch::Sender<Known>,
    /// Whether the first list is complete.
    listed: watch::Sender<bool>,
}

impl Pauses {
    pub(crate) fn new(operator: &'static str) -> Self {
        Self {
            operator,
            brake: brake_name(operator),
            known: watch::Sender::new(Known::default()),
            listed: watch::Sender::new(false),
        }
    }

    /// Returns once all Pauses are known. Before that nothing may be written.
    pub async fn listed(&self) {
        // The sender lives as long as this.
        _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// All Pauses, by name.
    pub fn all(&self) -> BTreeMap<String, Arc<Pause>> {
        self.known.borrow().pauses.clone()
    }

    /// Tells when a Pause came, changed, went or ended.
    pub fn changes(&self) -> PauseChanges {
        let known = self.known.subscribe();
        let now = (known.borrow().clone(), Timestamp::now());
        PauseChanges { operator: self.operator, known, before: now.clone(), now }
    }

    /// How often a person took away the Pause that the brake had made. A count, since a Pause that comes and goes at
    /// once is seen by nobody.
    pub(crate) fn released(&self) -> u64 {
        self.known.borrow().released
    }

    /// How often a list lacked that Pause, and nobody was seen to take it away: the hub may have been restored from a
    /// backup.
    pub(crate) fn lost(&self) -> u64 {
        self.known.borrow().lost
    }

    /// What stands still for an object now: for a Kyma by its own labels, for another by those of the Kyma that its
    /// label `kyma-name` names; for an object of no Kyma only Pauses without selector count.
    pub fn of<K: Resource<DynamicType = ()>>(&self, object: &K) -> Halt {
        self.known.borrow().halt(self.operator, Whose::of(object), Timestamp::now())
    }

    /// Returns once more stands still for an object than `before`.
    pub(crate) async fn tightened<K: Resource<DynamicType = ()>>(&self, object: &K, before: &Halt) {
        let mut changes = self.changes();
        while !self.of(object).is_tighter_than(before) {
            changes.next().await;
        }
    }

    /// Keeps in step with the hub, for ever. An object that cannot be read any more stays as it was.
    pub(crate) async fn run(self, runtime: Runtime) {
        // Older ones are told by whoever starts the operator.
        if let Err(error) = await_crds(&runtime.hub, &[kyma_api::crds::pause()]).await {
            tracing::error!(%error, "Pauses cannot be read, so nothing is written");
            return;
        }
        let mut news = pin!(feed::<Pause>(&runtime));
        let labels = kymas::Labels::new(&runtime, self.known.clone());
        let mut labels = pin!(labels.follow());
        loop {
            let end = self.known.borrow().next_end(Timestamp::now());
            runtime
                .process
                .metrics
                .pauses(runtime.operator.name, &self.known.borrow().in_force(Timestamp::now()));
            tokio::select! {
                news = news.next() => match news {
                    Some(news) => self.take(news, &runtime),
                    None => return,
                },
                () = nap(end) => {
                    let is_over = end.is_some_and(|end| end <= Timestamp::now());
                    self.known.send_if_modified(|_| is_over);
                }
                () = &mut labels => return,
            }
        }
    }

    fn take(&self, news: News<Pause>, runtime: &Runtime) {
        match news {
            News::Applied(pause) => self.applied(pause),
            News::Gone(name) => self.gone(&name),
            News::Listed(names) => {
                self.keep(&names);
                self.listed.send_replace(true);
                runtime.process.health.ready(PART);
            }
        }
    }

    fn applied(&self, pause: Box<Pause>) {
        let name = pause.name_any();
        let held = self.known.borrow().pauses.get(&name).cloned();
        if held.is_none_or(|held| held.spec != pause.spec) {
            tracing::info!(pause = name, scope = ?pause.spec.scope, reason = pause.spec.reason, "paused");
        }
        self.known.send_modify(|known| drop(known.pauses.insert(name, Arc::from(pause))));
    }

    fn gone(&self, name: &str) {
        tracing::info!(pause = name, "no longer paused");
        self.known.send_modify(|known| {
            known.pauses.remove(name);
            known.released += u64::from(name == self.brake);
        });
    }

    fn keep(&self, names: &BTreeSet<String>) {
        self.known.send_if_modified(|known| {
            let before = known.pauses.len();
            known.lost += u64::from(known.pauses.contains_key(&self.brake) && !names.contains(&self.brake));
            known.pauses.retain(|name, _| names.contains(name));
            known.pauses.len() != before
        });
    }
}

/// Sleeps until a moment on the wall clock, or for ever.
async fn nap(until: Option<Timestamp>) {
    let Some(until) = until else { return std::future::pending().await };
    let left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep((left + Duration::from_millis(10)).min(LONGEST_NAP)).await;
}

/// Tells of changes among the Pauses.
#[derive(Debug)]
pub struct PauseChanges {
    operator: &'static str,
    known: watch::Receiver<Known>,
    before: (Known, Timestamp),
    now: (Known, Timestamp),
}

impl PauseChanges {
    /// Returns at the next change.
    pub async fn next(&mut self) {
        if self.known.changed().await.is_err() {
            // Nobody is left who could pause anything.
            std::future::pending::<()>().await;
        }
        let now = (self.known.borrow_and_update().clone(), Timestamp::now());
        self.before = std::mem::replace(&mut self.now, now);
    }

    /// Whether the last change makes another thing stand still for an object than before, or lets go on what the brake
    /// had stopped.
    pub fn concern<K: Resource<DynamicType = ()>>(&self, object: &K) -> bool {
        let halt = |(known, at): &(Known, Timestamp)| known.halt(self.operator, Whose::of(object), *at);
        self.before.0.released != self.now.0.released || halt(&self.before) != halt(&self.now)
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::{HelmComponent, HelmComponentSpec, PauseSpec};

    use super::*;

    #[tokio::test]
    async fn a_brake_that_was_released_before_anybody_looked_wakes_all_the_same() {
        let pauses = Pauses::new("x");
        let component = HelmComponent::new("c", HelmComponentSpec::default());
        for (name, concerns) in [("maintenance", false), ("brake-y", false), ("brake-x", true)] {
            let mut changes = pauses.changes();
            pauses.applied(Box::new(Pause::new(name, PauseSpec::default())));
            pauses.gone(name);
            changes.next().await;
            assert_eq!(changes.concern(&component), concerns, "{name}");
        }
        assert_eq!(pauses.released(), 1);
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

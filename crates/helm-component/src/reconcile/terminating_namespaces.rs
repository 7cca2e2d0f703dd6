//! Namespaces that are being deleted accept no new objects: their objects wait, without repeated requests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kyma_api::Reason;
use kyma_controller::Failure;
use kyma_object_set::Identity;
use kyma_object_set::drift::Drift;

use crate::namespaces::WatchedPhase;
use crate::pass::Pass;
use crate::plan::{ObjectState, Observed};

/// Time for which the last read counts if no stream shows the namespace.
const TERMINATING_READ_TTL: Duration = Duration::from_secs(30);

/// State of a namespace that was being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TerminationState {
    /// The Namespace is still being deleted.
    Running,
    /// The Namespace has to be read from the target.
    Unknown,
    /// The Namespace is no longer being deleted.
    Finished,
}

/// Decides by the state in a stream, and by the time since the target reported that the namespace is being deleted.
/// Pure.
fn termination_state(phase: WatchedPhase, age: Duration) -> TerminationState {
    match phase {
        WatchedPhase::Terminating => TerminationState::Running,
        WatchedPhase::NotTerminating => TerminationState::Finished,
        WatchedPhase::Unknown if age < TERMINATING_READ_TTL => TerminationState::Running,
        WatchedPhase::Unknown => TerminationState::Unknown,
    }
}

impl Pass<'_> {
    /// Forgets namespaces that are no longer being deleted, at the beginning of a pass.
    pub(super) fn forget_deleted_namespaces(&mut self) {
        if self.context.is_requested() {
            self.state.terminating_namespaces.clear();
        }
        let is_finished = |name: &&String| self.termination_state(name) == Some(TerminationState::Finished);
        let finished: Vec<String> =
            self.state.terminating_namespaces.keys().filter(is_finished).cloned().collect();
        for name in finished {
            self.forget_terminating(&name);
        }
    }

    /// Reports whether a namespace is known to be in deletion, without a request.
    pub(super) fn is_known_terminating(&self, name: &str) -> bool {
        self.termination_state(name) == Some(TerminationState::Running)
    }

    /// Reports whether a namespace is being deleted. The target is asked at most once in a pass, and only if
    /// nothing else shows it.
    async fn is_terminating(&mut self, name: &str) -> Result<bool, Failure> {
        match self.termination_state(name) {
            Some(TerminationState::Running) => return Ok(true),
            None if self.done.read_namespaces.contains(name) || self.was_read(name) => return Ok(false),
            _ => {}
        }
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let terminating = match namespaces.get_metadata_opt(name).await {
            Ok(found) => found.is_some_and(|found| found.metadata.deletion_timestamp.is_some()),
            // A role that allows use of the namespace may not allow get.
            Err(kube::Error::Api(status)) if status.code == 403 => false,
            Err(error) => return Err(Failure::target(&format!("read Namespace {name}"), &error)),
        };
        self.record_namespace(name, terminating);
        Ok(terminating)
    }

    /// Reports whether a component read the namespace a moment ago and found it.
    pub(super) fn was_read(&self, name: &str) -> bool {
        self.shared.namespaces.was_read(&self.context.target, name)
    }

    /// Stores the state of a namespace that the target reported.
    pub(super) fn record_namespace(&mut self, name: &str, terminating: bool) {
        self.done.read_namespaces.insert(name.to_owned());
        if terminating {
            self.shared.namespaces.forget_read(&self.context.target, name);
            self.state.terminating_namespaces.insert(name.to_owned(), Instant::now());
        } else {
            self.forget_terminating(name);
        }
    }

    /// Removes objects from `due` that would be created in a namespace that is being deleted.
    pub(super) async fn exclude_terminating_namespaces(
        &mut self,
        seen: &Observed,
        mut due: BTreeSet<Identity>,
    ) -> Result<BTreeSet<Identity>, Failure> {
        let to_create: Vec<&Identity> = seen
            .objects
            .iter()
            .filter(|object| due.contains(&object.identity) && is_absent(seen, object))
            .map(|object| &object.identity)
            .collect();
        let namespaces: BTreeSet<&String> =
            to_create.iter().filter_map(|identity| identity.namespace.as_ref()).collect();
        let mut terminating = BTreeSet::new();
        for name in namespaces {
            if self.is_terminating(name).await? {
                terminating.insert(name);
            }
        }
        for identity in to_create {
            let Some(name) = identity.namespace.as_ref().filter(|name| terminating.contains(name)) else {
                continue;
            };
            due.remove(identity);
            self.done.faults.insert(identity.clone(), fault_of(Some(identity), name));
        }
        Ok(due)
    }

    /// Requeues the component when a namespace that it waits for is gone.
    pub(super) fn watch_terminating_namespaces(&self) {
        let names = self.state.terminating_namespaces.keys().cloned().collect();
        self.shared.namespaces.subscribe(&self.context.target, &self.key, names);
    }

    fn termination_state(&self, name: &str) -> Option<TerminationState> {
        let reported = self.state.terminating_namespaces.get(name)?;
        Some(termination_state(self.shared.namespaces.phase(&self.context.target, name), reported.elapsed()))
    }

    fn forget_terminating(&mut self, name: &str) {
        let was_ending = self.state.terminating_namespaces.remove(name).is_some();
        let is_own = self.inputs.as_ref().is_ok_and(|inputs| inputs.release.namespace == name);
        if was_ending && is_own {
            // The namespace may have to be created again.
            self.state.namespace_ready = false;
        }
    }
}

/// Returns the failure of an object whose namespace is being deleted.
pub(super) fn fault_of(object: Option<&Identity>, namespace: &str) -> Failure {
    let object = object.map(|object| format!("{object}: ")).unwrap_or_default();
    let message = format!(
        "{object}the namespace {namespace} is being deleted; the operator continues once it is deleted"
    );
    Failure::new(Reason::NamespaceTerminating, message)
}

/// Reports whether an object would be created.
fn is_absent(seen: &Observed, object: &ObjectState) -> bool {
    !seen.inventory.was_sent(&object.identity) || object.drift == Some(Drift::Gone)
}

#[cfg(test)]
mod tests {
    use kyma_controller::delay_after;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// Returns the number of requests to the target within an hour in which a namespace is being deleted. Passes
    /// begin after each back-off, and also with each event, one per `event`.
    fn asked(phase: WatchedPhase, jitter: f64, event: Option<Duration>) -> usize {
        let failure = fault_of(None, "n");
        let (mut now, mut reported, mut failures, mut asked) = (Duration::ZERO, Duration::ZERO, 1, 1);
        loop {
            let delay = delay_after(&failure, failures, jitter).unwrap();
            now += event.map_or(delay, |event| event.min(delay));
            if now >= HOUR {
                return asked;
            }
            failures += 1;
            if termination_state(phase, now.saturating_sub(reported)) == TerminationState::Unknown {
                (reported, asked) = (now, asked + 1);
            }
        }
    }

    #[test]
    fn an_hour_of_termination_costs_few_requests() {
        for jitter in [0.0, 0.5, 1.0] {
            assert_eq!(asked(WatchedPhase::Terminating, jitter, None), 1, "the first one");
            assert_eq!(
                asked(WatchedPhase::Terminating, jitter, Some(Duration::from_millis(100))),
                1,
                "whatever happens"
            );
            let blind = asked(WatchedPhase::Unknown, jitter, None);
            assert!((9..=14).contains(&blind), "{blind} without a stream");
        }
    }

    #[test]
    fn termination_ends_by_an_event_or_without_a_stream_by_a_read() {
        assert_eq!(
            termination_state(WatchedPhase::NotTerminating, Duration::ZERO),
            TerminationState::Finished
        );
        assert_eq!(termination_state(WatchedPhase::Unknown, TERMINATING_READ_TTL), TerminationState::Unknown);
        assert_eq!(
            termination_state(WatchedPhase::Unknown, TERMINATING_READ_TTL / 2),
            TerminationState::Running
        );
        assert_eq!(termination_state(WatchedPhase::Terminating, HOUR), TerminationState::Running);
    }
}

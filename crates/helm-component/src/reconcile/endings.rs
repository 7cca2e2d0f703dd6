//! Namespaces that are being deleted accept no new objects: their objects wait, without repeated requests.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kyma_api::Reason;
use kyma_object_set::Identity;
use kyma_object_set::drift::Drift;
use kyma_sdk::Failure;

use super::Pass;
use crate::namespaces::Shown;
use crate::plan::{Observed, Piece};

/// Time for which the last read counts if no stream shows the namespace.
const COUNTS: Duration = Duration::from_secs(30);

/// State of a namespace that was being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The Namespace is still being deleted.
    Ends,
    /// The Namespace has to be read from the target.
    Ask,
    /// The Namespace is no longer being deleted.
    Over,
}

/// Decides by the state in a stream, and by the time since the target reported that the namespace is being deleted.
/// Pure.
fn verdict(shown: Shown, said: Duration) -> Verdict {
    match shown {
        Shown::Ending => Verdict::Ends,
        Shown::Over => Verdict::Over,
        Shown::Nothing if said < COUNTS => Verdict::Ends,
        Shown::Nothing => Verdict::Ask,
    }
}

impl Pass<'_> {
    /// Forgets namespaces that are no longer being deleted, at the beginning of a pass.
    pub(super) fn see_endings(&mut self) {
        if self.context.is_requested() {
            self.session.ending.clear();
        }
        let is_over = |name: &&String| self.verdict(name) == Some(Verdict::Over);
        let over: Vec<String> = self.session.ending.keys().filter(is_over).cloned().collect();
        for name in over {
            self.ended(&name);
        }
    }

    /// Reports whether a namespace is known to be in deletion, without a request.
    pub(super) fn ends(&self, name: &str) -> bool {
        self.verdict(name) == Some(Verdict::Ends)
    }

    /// Reports whether a namespace is being deleted. The target is asked at most once in a pass, and only if
    /// nothing else shows it.
    async fn is_ending(&mut self, name: &str) -> Result<bool, Failure> {
        match self.verdict(name) {
            Some(Verdict::Ends) => return Ok(true),
            None if self.done.looked_at.contains(name) || self.is_seen(name) => return Ok(false),
            _ => {}
        }
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let ending = match namespaces.get_metadata_opt(name).await {
            Ok(found) => found.is_some_and(|found| found.metadata.deletion_timestamp.is_some()),
            // A role that allows use of the namespace may not allow get.
            Err(kube::Error::Api(status)) if status.code == 403 => false,
            Err(error) => return Err(Failure::target(&format!("read Namespace {name}"), &error)),
        };
        self.looked_at(name, ending);
        Ok(ending)
    }

    /// Reports whether a component read the namespace a moment ago and found it.
    pub(super) fn is_seen(&self, name: &str) -> bool {
        self.shared.namespaces.is_seen(&self.context.target, name)
    }

    /// Stores the state of a namespace that the target reported.
    pub(super) fn looked_at(&mut self, name: &str, ending: bool) {
        self.done.looked_at.insert(name.to_owned());
        if ending {
            self.shared.namespaces.missed(&self.context.target, name);
            self.session.ending.insert(name.to_owned(), Instant::now());
        } else {
            self.ended(name);
        }
    }

    /// Removes objects from `due` that would be created in a namespace that is being deleted.
    pub(super) async fn hold_back(
        &mut self,
        seen: &Observed,
        mut due: BTreeSet<Identity>,
    ) -> Result<BTreeSet<Identity>, Failure> {
        let to_make: Vec<&Identity> = seen
            .pieces
            .iter()
            .filter(|piece| due.contains(&piece.identity) && is_absent(seen, piece))
            .map(|piece| &piece.identity)
            .collect();
        let places: BTreeSet<&String> =
            to_make.iter().filter_map(|identity| identity.namespace.as_ref()).collect();
        let mut ending = BTreeSet::new();
        for name in places {
            if self.is_ending(name).await? {
                ending.insert(name);
            }
        }
        for identity in to_make {
            let Some(name) = identity.namespace.as_ref().filter(|name| ending.contains(name)) else {
                continue;
            };
            due.remove(identity);
            self.done.faults.insert(identity.clone(), fault_of(Some(identity), name));
        }
        Ok(due)
    }

    /// Requeues the component when a namespace that it waits for is gone.
    pub(super) fn await_endings(&self) {
        let names = self.session.ending.keys().cloned().collect();
        self.shared.namespaces.subscribe(&self.context.target, &self.key, names);
    }

    fn verdict(&self, name: &str) -> Option<Verdict> {
        let said = self.session.ending.get(name)?;
        Some(verdict(self.shared.namespaces.shown(&self.context.target, name), said.elapsed()))
    }

    fn ended(&mut self, name: &str) {
        let was_ending = self.session.ending.remove(name).is_some();
        let is_own = self.inputs.as_ref().is_ok_and(|inputs| inputs.release.namespace == name);
        if was_ending && is_own {
            // The namespace may have to be created again.
            self.session.namespace_ready = false;
        }
    }
}

/// Returns the failure of an object whose namespace is being deleted.
pub(super) fn fault_of(object: Option<&Identity>, namespace: &str) -> Failure {
    let object = object.map(|object| format!("{object}: ")).unwrap_or_default();
    let message = format!("{object}the namespace {namespace} is being deleted; work goes on once it is gone");
    Failure::new(Reason::NamespaceTerminating, message)
}

/// Reports whether an object would be created.
fn is_absent(seen: &Observed, piece: &Piece) -> bool {
    !seen.inventory.was_sent(&piece.identity) || piece.drift == Some(Drift::Gone)
}

#[cfg(test)]
mod tests {
    use kyma_sdk::delay_after;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// Returns the number of requests to the target within an hour in which a namespace is being deleted. Passes
    /// begin after each back-off, and also with each event, one per `event`.
    fn asked(shown: Shown, jitter: f64, event: Option<Duration>) -> usize {
        let failure = fault_of(None, "n");
        let (mut now, mut said, mut failures, mut asked) = (Duration::ZERO, Duration::ZERO, 1, 1);
        loop {
            let delay = delay_after(&failure, failures, jitter).unwrap();
            now += event.map_or(delay, |event| event.min(delay));
            if now >= HOUR {
                return asked;
            }
            failures += 1;
            if verdict(shown, now.saturating_sub(said)) == Verdict::Ask {
                (said, asked) = (now, asked + 1);
            }
        }
    }

    #[test]
    fn an_hour_of_ending_costs_a_handful_of_questions() {
        for jitter in [0.0, 0.5, 1.0] {
            assert_eq!(asked(Shown::Ending, jitter, None), 1, "the first one");
            assert_eq!(asked(Shown::Ending, jitter, Some(Duration::from_millis(100))), 1, "whatever happens");
            let blind = asked(Shown::Nothing, jitter, None);
            assert!((9..=14).contains(&blind), "{blind} without a stream");
        }
    }

    #[test]
    fn the_end_is_seen_by_the_stream_and_without_one_by_a_question() {
        assert_eq!(verdict(Shown::Over, Duration::ZERO), Verdict::Over);
        assert_eq!(verdict(Shown::Nothing, COUNTS), Verdict::Ask);
        assert_eq!(verdict(Shown::Nothing, COUNTS / 2), Verdict::Ends);
        assert_eq!(verdict(Shown::Ending, HOUR), Verdict::Ends);
    }
}

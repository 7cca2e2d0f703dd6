//! Reports of work under way wait a moment: what comes next often makes them needless (pure).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kube_runtime::reflector::ObjectRef;
use kyma_api::{Reason, condition};

use super::Report;
use crate::ComponentResource;

/// How long one waits, from the first on that was not written.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reports that were not written yet. Whoever dies meanwhile finds out anew what they said.
pub(super) struct Held<R: ComponentResource>(HashMap<ObjectRef<R>, (Instant, Report)>);

impl<R: ComponentResource> Default for Held<R> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<R: ComponentResource> Held<R> {
    /// `report` with what an earlier one says that still waits, where it says nothing of that itself.
    pub(super) fn added_to(&self, key: &ObjectRef<R>, report: &Report) -> Report {
        let Some((_, held)) = self.0.get(key) else { return report.clone() };
        let is_said = |type_: &str| report.conditions.iter().any(|step| step.type_ == type_);
        let unsaid = held.conditions.iter().filter(|step| !is_said(step.type_));
        Report {
            state: report.state.or(held.state),
            version: report.version.clone().or_else(|| held.version.clone()),
            conditions: report.conditions.iter().chain(unsaid).cloned().collect(),
            fields: held.fields.clone().into_iter().chain(report.fields.clone()).collect(),
        }
    }

    /// How long `report` may still wait; `None` where it has to be written now.
    pub(super) fn hold(&mut self, key: &ObjectRef<R>, report: &Report, now: Instant) -> Option<Duration> {
        if !is_under_way(report) {
            return None;
        }
        let since = self.0.get(key).map_or(now, |(since, _)| *since);
        let left = PATIENCE.checked_sub(now.duration_since(since)).filter(|left| !left.is_zero())?;
        self.0.insert(key.clone(), (since, report.clone()));
        Some(left)
    }

    /// Nothing waits any more: it was written, is needless, or the object is gone.
    pub(super) fn forget(&mut self, key: &ObjectRef<R>) {
        self.0.remove(key);
    }
}

/// Whether it only says that work goes on.
fn is_under_way(report: &Report) -> bool {
    let ready = report.conditions.iter().find(|step| step.type_ == condition::types::READY);
    ready.is_some_and(|ready| matches!(ready.reason, Reason::Progressing | Reason::Deleting))
}

#[cfg(test)]
mod tests {
    use kyma_api::condition::Status;
    use kyma_api::{FreeForm, HelmComponent, State};
    use serde_json::json;

    use super::*;
    use crate::Step;

    fn key() -> ObjectRef<HelmComponent> {
        ObjectRef::new("a").within("n")
    }

    fn step(type_: &'static str, reason: Reason) -> Step {
        Step { type_, status: Status::False, reason, message: String::new() }
    }

    fn report(reason: Reason, fields: serde_json::Value) -> Report {
        let fields: FreeForm = serde_json::from_value(fields).unwrap();
        Report {
            state: Some(State::Processing),
            version: None,
            conditions: vec![step(condition::types::READY, reason)],
            fields,
        }
    }

    #[test]
    fn work_under_way_waits_once_for_a_second_and_all_else_not_at_all() {
        let mut held = Held::default();
        let start = Instant::now();
        let (working, ready) = (report(Reason::Progressing, json!({})), report(Reason::Ready, json!({})));
        assert_eq!(held.hold(&key(), &ready, start), None);
        assert_eq!(held.hold(&key(), &working, start), Some(PATIENCE));
        assert_eq!(held.hold(&key(), &working, start + PATIENCE / 4), Some(PATIENCE * 3 / 4));
        assert_eq!(held.hold(&key(), &working, start + PATIENCE), None, "however many follow");
        held.forget(&key());
        assert_eq!(held.hold(&key(), &working, start + PATIENCE), Some(PATIENCE), "the next work");
    }

    #[test]
    fn what_only_the_one_that_waits_says_comes_with_the_next() {
        let mut held = Held::default();
        let mut first = report(Reason::Progressing, json!({"attemptedVersion": "2", "digests": 1}));
        first.version = Some("1".to_owned());
        first.conditions.push(step("Healthy", Reason::Progressing));
        held.hold(&key(), &first, Instant::now());
        let second = Report { state: None, ..report(Reason::Ready, json!({"digests": null})) };
        let both = held.added_to(&key(), &second);
        assert_eq!((both.state, both.version.as_deref()), (Some(State::Processing), Some("1")));
        assert_eq!(both.fields["attemptedVersion"], "2");
        assert!(both.fields["digests"].is_null());
        let reasons: Vec<_> = both.conditions.iter().map(|step| (step.type_, step.reason)).collect();
        assert_eq!(reasons, [(condition::types::READY, Reason::Ready), ("Healthy", Reason::Progressing)]);
        held.forget(&key());
        assert_eq!(held.added_to(&key(), &second), second);
    }
}

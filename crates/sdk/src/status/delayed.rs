//! Delays reports of work in progress, since the next report often replaces them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube_runtime::reflector::ObjectRef;
use kyma_api::{FreeForm, Reason, condition};

use super::report::{Report, next_status};
use crate::contract::{ComponentResource, HANDLED};

/// Maximum delay, counted from the first report that was not written.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(1);

/// Reports that are not written yet. After a crash the next reconcile computes them again.
pub(super) struct DelayedReports<R: ComponentResource>(HashMap<ObjectRef<R>, DelayedReport>);

/// The object and status that a report is for.
#[derive(Clone, Debug)]
pub(super) struct ReportSubject<R: ComponentResource> {
    pub(super) key: ObjectRef<R>,
    uid: Option<String>,
    pub(super) generation: Option<i64>,
}

impl<R: ComponentResource> ReportSubject<R> {
    pub(super) fn resource(resource: &R) -> Self {
        let (uid, generation) = (resource.uid(), resource.meta().generation);
        Self { key: ObjectRef::from_obj(resource), uid, generation }
    }
}

/// A report that is not written yet.
struct DelayedReport {
    /// Time of the first report that was not written.
    since: Instant,
    uid: Option<String>,
    generation: Option<i64>,
    report: Report,
}

impl<R: ComponentResource> Default for DelayedReports<R> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<R: ComponentResource> DelayedReports<R> {
    /// Returns the status to write `report` over, and `report` completed by a delayed one of the same generation. A
    /// delayed one of another generation is added to that status first.
    pub(super) fn with(
        &self,
        of: &ReportSubject<R>,
        before: &FreeForm,
        report: &Report,
        now: &Time,
    ) -> (FreeForm, Report) {
        match self.0.get(&of.key).filter(|held| held.uid == of.uid) {
            None => (before.clone(), report.clone()),
            Some(held) if held.generation == of.generation => (before.clone(), added(&held.report, report)),
            Some(held) => (next_status(before, &held.report, held.generation, now), report.clone()),
        }
    }

    /// Returns how long `report` may still be delayed; `None` if it has to be written now.
    pub(super) fn hold(&mut self, of: &ReportSubject<R>, report: &Report, now: Instant) -> Option<Duration> {
        if !is_under_way(report) || report.fields.contains_key(HANDLED) {
            return None;
        }
        let held = self.0.get(&of.key).filter(|held| held.uid == of.uid);
        if held.is_some_and(|held| held.generation != of.generation) {
            return None;
        }
        let since = held.map_or(now, |held| held.since);
        let left = MAX_WRITE_DELAY.checked_sub(now.duration_since(since)).filter(|left| !left.is_zero())?;
        let (uid, generation) = (of.uid.clone(), of.generation);
        self.0.insert(of.key.clone(), DelayedReport { since, uid, generation, report: report.clone() });
        Some(left)
    }

    /// Drops these fields from a delayed report, after they were written separately.
    pub(super) fn overtaken(&mut self, key: &ObjectRef<R>, fields: &FreeForm) {
        if let Some(held) = self.0.get_mut(key) {
            held.report.fields.retain(|name, _| !fields.contains_key(name));
        }
    }

    /// Drops a delayed report that was written or is needless, or whose object is gone.
    pub(super) fn forget(&mut self, key: &ObjectRef<R>) {
        self.0.remove(key);
    }
}

fn added(held: &Report, report: &Report) -> Report {
    let is_said = |type_: &str| report.conditions.iter().any(|one| one.type_ == type_);
    let unsaid = held.conditions.iter().filter(|one| !is_said(one.type_));
    Report {
        state: report.state.or(held.state),
        version: report.version.clone().or_else(|| held.version.clone()),
        conditions: report.conditions.iter().chain(unsaid).cloned().collect(),
        fields: held.fields.clone().into_iter().chain(report.fields.clone()).collect(),
    }
}

/// Reports whether it only describes work in progress.
fn is_under_way(report: &Report) -> bool {
    let ready = report.conditions.iter().find(|one| one.type_ == condition::types::READY);
    ready.is_some_and(|ready| matches!(ready.reason, Reason::Progressing | Reason::Deleting))
}

#[cfg(test)]
impl<R: ComponentResource> DelayedReports<R> {
    /// Reports whether no report is delayed.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kyma_api::condition::{Condition, Status};
    use kyma_api::{HelmComponent, State};
    use serde_json::json;

    use super::*;

    fn of(uid: &str, generation: i64) -> ReportSubject<HelmComponent> {
        let key = ObjectRef::new("a").within("n");
        ReportSubject { key, uid: Some(uid.to_owned()), generation: Some(generation) }
    }

    fn now() -> Time {
        Time(Timestamp::from_second(1).unwrap())
    }

    fn condition(type_: &'static str, reason: Reason) -> Condition {
        Condition::new(type_, Status::False, reason)
    }

    fn report(reason: Reason, fields: serde_json::Value) -> Report {
        let fields: FreeForm = serde_json::from_value(fields).unwrap();
        Report {
            state: Some(State::Processing),
            version: None,
            conditions: vec![condition(condition::types::READY, reason)],
            fields,
        }
    }

    #[test]
    fn progress_report_waits_once_for_a_second_and_others_never() {
        let mut held = DelayedReports::default();
        let (of, start) = (of("u", 1), Instant::now());
        let (working, ready) = (report(Reason::Progressing, json!({})), report(Reason::Ready, json!({})));
        assert_eq!(held.hold(&of, &ready, start), None);
        assert_eq!(held.hold(&of, &working, start), Some(MAX_WRITE_DELAY));
        assert_eq!(held.hold(&of, &working, start + MAX_WRITE_DELAY / 4), Some(MAX_WRITE_DELAY * 3 / 4));
        assert_eq!(held.hold(&of, &working, start + MAX_WRITE_DELAY), None, "however many follow");
        held.forget(&of.key);
        assert_eq!(held.hold(&of, &working, start + MAX_WRITE_DELAY), Some(MAX_WRITE_DELAY), "the next work");
    }

    #[test]
    fn report_of_a_handled_request_is_not_delayed() {
        let handled = report(Reason::Progressing, json!({HANDLED: "now"}));
        assert_eq!(DelayedReports::default().hold(&of("u", 1), &handled, Instant::now()), None);
    }

    #[test]
    fn what_only_the_one_that_waits_says_comes_with_the_next() {
        let mut held = DelayedReports::default();
        let of = of("u", 1);
        let mut first = report(Reason::Progressing, json!({"attemptedVersion": "2", "digests": 1}));
        first.version = Some("1".to_owned());
        first.conditions.push(condition("Healthy", Reason::Progressing));
        held.hold(&of, &first, Instant::now());
        let second = Report { state: None, ..report(Reason::Ready, json!({"digests": null})) };
        let (base, both) = held.with(&of, &FreeForm::new(), &second, &now());
        assert!(base.is_empty());
        assert_eq!((both.state, both.version.as_deref()), (Some(State::Processing), Some("1")));
        assert_eq!(both.fields["attemptedVersion"], "2");
        assert!(both.fields["digests"].is_null());
        let reasons: Vec<_> = both.conditions.iter().map(|one| (one.type_, one.reason)).collect();
        assert_eq!(reasons, [(condition::types::READY, Reason::Ready), ("Healthy", Reason::Progressing)]);
        held.forget(&of.key);
        assert_eq!(held.with(&of, &FreeForm::new(), &second, &now()).1, second);
    }

    #[test]
    fn what_was_found_for_an_earlier_generation_is_told_as_that() {
        let mut held = DelayedReports::default();
        let mut first = report(Reason::Progressing, json!({"digests": 1}));
        first.conditions.push(condition("Healthy", Reason::Progressing));
        held.hold(&of("u", 1), &first, Instant::now());
        let second = report(Reason::Progressing, json!({}));
        assert_eq!(held.hold(&of("u", 2), &second, Instant::now()), None, "both are written now");
        let (base, second) = held.with(&of("u", 2), &FreeForm::new(), &second, &now());
        let both = next_status(&base, &second, Some(2), &now());
        assert_eq!((&both["digests"], &both["observedGeneration"]), (&json!(1), &json!(2)));
        let found: Vec<_> =
            both["conditions"].as_array().unwrap().iter().map(|one| &one["observedGeneration"]).collect();
        assert_eq!(found, [&json!(2), &json!(1)], "Ready, Healthy");
    }

    #[test]
    fn nothing_passes_to_a_successor_of_the_name() {
        let mut held = DelayedReports::default();
        held.hold(&of("u", 1), &report(Reason::Progressing, json!({"digests": 1})), Instant::now());
        let second = report(Reason::Ready, json!({}));
        let (base, told) = held.with(&of("v", 1), &FreeForm::new(), &second, &now());
        assert_eq!((base, told), (FreeForm::new(), second));
    }

    #[test]
    fn a_field_that_was_written_meanwhile_is_not_taken_back() {
        let mut held = DelayedReports::default();
        let of = of("u", 1);
        held.hold(
            &of,
            &report(Reason::Progressing, json!({"rollback": "old", "digests": 1})),
            Instant::now(),
        );
        held.overtaken(&of.key, &serde_json::from_value(json!({"rollback": "new"})).unwrap());
        let told = held.with(&of, &FreeForm::new(), &report(Reason::Ready, json!({})), &now()).1;
        assert_eq!(serde_json::to_value(&told.fields).unwrap(), json!({"digests": 1}));
    }
}

//! The outcome of a reconcile.

use kyma_api::condition::{self, Condition, Status};
use kyma_api::{Reason, State};
use kyma_controller::{Failure, Wait};

use crate::component::{Progress, failure_state};
use crate::contract::HANDLED;
use crate::status::Report;

/// Outcome of a reconcile: the status to report, and when to reconcile again.
pub(super) struct Outcome {
    pub(super) report: Report,
    pub(super) result: Result<Wait, Failure>,
}

impl Outcome {
    pub(super) fn of_install(progress: Progress) -> Self {
        let ready = match progress.state {
            State::Ready | State::Warning if progress.failure.is_none() => Status::True,
            _ => Status::False,
        };
        Self::of(progress, ready)
    }

    /// Returns the outcome of a refusal before any call was sent.
    pub(super) fn refused(failure: Failure) -> Self {
        let ready = failure_condition(condition::types::READY, &failure);
        let state = Some(failure_state(&failure));
        Self { report: Report { state, conditions: vec![ready], ..Report::default() }, result: Err(failure) }
    }

    /// Returns the outcome of a reconcile that changes nothing; the reported state stays.
    pub(super) fn unchanged(ready: Condition) -> Self {
        Self { report: Report { conditions: vec![ready], ..Report::default() }, result: Ok(Wait::Event) }
    }

    /// Returns the outcome for a target that could not be opened; the state of its objects is unknown.
    pub(super) fn unreached(failure: Failure) -> Self {
        let state = failure_state(&failure);
        let mut conditions = vec![failure_condition(condition::types::READY, &failure)];
        if !failure.is_about_hub() {
            conditions.push(failure_condition(condition::types::TARGET_REACHABLE, &failure));
        }
        Self { report: Report { state: Some(state), conditions, ..Report::default() }, result: Err(failure) }
    }

    /// Records the reconcile request as handled, unless the step did nothing yet: then the next one handles it.
    pub(super) fn handling(mut self, request: Option<String>) -> Self {
        if !matches!(self.result, Ok(Wait::Answer(_))) {
            self.report.fields.extend(request.map(|request| (HANDLED.to_owned(), request.into())));
        }
        self
    }

    pub(super) fn of(progress: Progress, ready: Status) -> Self {
        let Progress { state, version, reason, message, mut conditions, status, wait, failure } = progress;
        let ready = Condition::new(condition::types::READY, ready, reason).with_message(message);
        conditions.insert(0, ready);
        conditions.insert(1, reachable(failure.as_ref()));
        let report = Report { state: Some(state), version, conditions, fields: status };
        Self { report, result: failure.map_or(Ok(wait), Err) }
    }
}

pub(super) fn reachable(failure: Option<&Failure>) -> Condition {
    let type_ = condition::types::TARGET_REACHABLE;
    match failure.filter(|failure| failure.class == kyma_api::ErrorClass::Unreachable) {
        Some(failure) => failure_condition(type_, failure),
        None => Condition::new(type_, Status::True, Reason::Succeeded),
    }
}

/// Returns a condition that is False because of a failure.
pub(super) fn failure_condition(type_: &'static str, failure: &Failure) -> Condition {
    Condition::new(type_, Status::False, failure.reason).with_message(&failure.message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_is_handled_by_the_first_step_that_acts_or_fails() {
        let handled = |outcome: Outcome| {
            let report = outcome.handling(Some("now".to_owned())).report;
            report.fields.get(HANDLED).is_some_and(|request| request == "now")
        };
        let idle = Progress { wait: Wait::Answer(Duration::from_secs(1)), ..Progress::ready("1") };
        assert!(!handled(Outcome::of_install(idle)));
        assert!(handled(Outcome::of_install(Progress::ready("1"))));
        assert!(handled(Outcome::of_install(Progress::working("").again_after(Duration::from_secs(1)))));
        assert!(handled(Outcome::unreached(Failure::new(Reason::TargetUnreachable, ""))));
    }
}

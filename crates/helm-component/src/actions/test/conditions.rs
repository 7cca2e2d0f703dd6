//! The condition `TestSuccess`. Pure.

use kyma_api::condition::{Condition, Status, types};
use kyma_api::{HookPhase, Hooks, Reason};
use kyma_controller::Failure;

use crate::actions::hooks::state::Outcome;
use crate::report::words::list;

/// State of the chart's tests.
pub(super) struct TestState<'a> {
    /// Whether a request is not handled yet.
    pub(super) is_requested: bool,
    /// Outcome in this pass, once the tests were handled.
    pub(super) outcome: Option<&'a Result<Outcome, Failure>>,
    /// Recorded progress.
    pub(super) record: Option<&'a Hooks>,
    /// Whether the recorded tests ran for the installed release.
    pub(super) is_of_release: bool,
}

/// Returns the condition of the last requested tests; `None` if none were ever requested.
pub(super) fn test_success(tests: &TestState<'_>) -> Option<Condition> {
    if tests.is_requested {
        return Some(requested(tests.outcome));
    }
    let record = tests.record?;
    if !tests.is_of_release {
        let message =
            "the last tests ran for another release, or their request was withdrawn before they ended";
        return Some(condition(Status::Unknown, Reason::Progressing, message));
    }
    let succeeded = record.succeeded.as_deref().unwrap_or_default();
    Some(match record.phase {
        HookPhase::Succeeded if succeeded.is_empty() => {
            condition(Status::True, Reason::Succeeded, "the chart has no tests")
        }
        HookPhase::Succeeded => {
            condition(Status::True, Reason::Succeeded, &format!("succeeded: {}", list(succeeded)))
        }
        HookPhase::Failed => {
            condition(Status::False, Reason::TestFailed, record.message.as_deref().unwrap_or_default())
        }
        HookPhase::Pending | HookPhase::Running | HookPhase::Cleaning => {
            condition(Status::Unknown, Reason::Progressing, "")
        }
    })
}

/// Returns the condition while a request is not handled.
fn requested(outcome: Option<&Result<Outcome, Failure>>) -> Condition {
    match outcome {
        Some(Err(failure)) => condition(Status::Unknown, failure.reason, &failure.message),
        Some(Ok(Outcome::Waiting(cause))) => {
            condition(Status::Unknown, Reason::Progressing, &format!("waiting for {cause}"))
        }
        Some(Ok(Outcome::Completed)) => condition(Status::Unknown, Reason::Progressing, ""),
        None => {
            let message = "the requested tests run once the component is Ready";
            condition(Status::Unknown, Reason::Progressing, message)
        }
    }
}

fn condition(status: Status, reason: Reason, message: &str) -> Condition {
    Condition::new(types::TEST_SUCCESS, status, reason).with_message(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(phase: HookPhase, succeeded: &[&str], message: Option<&str>) -> Hooks {
        let succeeded: Vec<String> = succeeded.iter().map(|name| (*name).to_owned()).collect();
        let succeeded = (!succeeded.is_empty()).then_some(succeeded);
        Hooks { phase, succeeded, message: message.map(str::to_owned), ..Hooks::default() }
    }

    fn reported(tests: &TestState<'_>) -> Option<(Status, Reason, String)> {
        test_success(tests).map(|condition| (condition.status, condition.reason, condition.message))
    }

    #[test]
    fn a_request_is_reported_until_it_is_handled() {
        let ended = record(HookPhase::Succeeded, &["Job.batch n/j"], None);
        let failure = Failure::new(Reason::TargetTimeout, "no answer");
        let rows = [
            (None, Reason::Progressing, "the requested tests run once the component is Ready"),
            (Some(Ok(Outcome::Completed)), Reason::Progressing, ""),
            (Some(Ok(Outcome::Waiting("a hook".to_owned()))), Reason::Progressing, "waiting for a hook"),
            (Some(Err(failure)), Reason::TargetTimeout, "no answer"),
        ];
        for (outcome, reason, message) in rows {
            let outcome = outcome.as_ref();
            let tests = TestState { is_requested: true, outcome, record: Some(&ended), is_of_release: true };
            assert_eq!(reported(&tests), Some((Status::Unknown, reason, message.to_owned())));
        }
    }

    #[test]
    fn the_result_of_the_last_tests_is_reported() {
        let of = |record: &Hooks, is_of_release: bool| {
            let tests = TestState { is_requested: false, outcome: None, record: Some(record), is_of_release };
            reported(&tests).map(|(status, reason, _)| (status, reason))
        };
        let succeeded = record(HookPhase::Succeeded, &["Job.batch n/j"], None);
        let failed = record(HookPhase::Failed, &[], Some("it failed"));
        let running = record(HookPhase::Running, &[], None);
        assert_eq!(of(&succeeded, true), Some((Status::True, Reason::Succeeded)));
        assert_eq!(of(&record(HookPhase::Succeeded, &[], None), true), of(&succeeded, true));
        assert_eq!(of(&failed, true), Some((Status::False, Reason::TestFailed)));
        assert_eq!(of(&running, true), Some((Status::Unknown, Reason::Progressing)));
        assert_eq!(of(&succeeded, false), Some((Status::Unknown, Reason::Progressing)));
        let never = TestState { is_requested: false, outcome: None, record: None, is_of_release: false };
        assert_eq!(reported(&never), None);
    }
}

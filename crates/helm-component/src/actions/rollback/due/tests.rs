use kyma_health::HealthStatus;
use kyma_helm::hooks::Event;

use super::*;
use crate::deadline::Deadline;
use crate::plan::tests::{applied, config, deployment, fault, fresh, id, object, running};
use crate::plan::{Content, HooksDue, ObjectState, next};

fn in_state(state: RollbackState) -> ObservedRollback {
    ObservedRollback { state, is_store_due: false }
}

fn with_rollback(seen: Observed) -> Observed {
    Observed { rollback: in_state(RollbackState::Available), ..seen }
}

fn hook_failed() -> Failure {
    Failure::new(Reason::HookFailed, "pre-upgrade hook Job.batch here/j: it failed")
}

/// Returns the state of an applied upgrade whose Deployment has this health.
fn with_health(health: HealthStatus) -> Observed {
    with_rollback(running(vec![ObjectState { health: Some(health), ..object(deployment()) }]))
}

#[test]
fn a_failed_release_is_rolled_back_if_a_target_is_available() {
    let mut hooks = fresh(vec![object(config("c"))]);
    let stop_reason = Some(StopReason::Failed(hook_failed()));
    hooks.hooks =
        HooksDue { before: Some(Event::PreUpgrade), release: true, stop_reason, ..HooksDue::default() };
    let refused = Observed {
        content: Content::Loaded,
        applied: true,
        ..running(vec![ObjectState { fault: Some(fault()), ..object(config("c")) }])
    };
    let mut late =
        running(vec![ObjectState { health: Some(HealthStatus::InProgress), ..object(deployment()) }]);
    late.deadline = Deadline { waited: 9, limit: Some(9) };
    let rows = [
        (hooks, Reason::HookFailed),
        (refused, Reason::ApplyRefused),
        (late, Reason::HealthTimeout),
        (with_health(HealthStatus::Failed), Reason::Unhealthy),
    ];
    for (seen, reason) in rows {
        let Step::Rollback(RollbackAction::RollBack(failure)) = next(&with_rollback(seen.clone())) else {
            panic!("{reason}")
        };
        assert_eq!(failure.reason, reason);
        for state in [RollbackState::None, RollbackState::Active] {
            let stays = next(&Observed { rollback: in_state(state), ..seen.clone() });
            assert!(matches!(stays, Step::Stop(_)), "{stays:?}");
        }
    }
}

#[test]
fn transient_failures_and_waits_do_not_cause_a_rollback() {
    let blocked = Failure::new(Reason::WebhookDenied, "no");
    let transient = Failure::new(Reason::TargetThrottled, "slow");
    for fault in [blocked, transient] {
        let object = ObjectState { fault: Some(fault.clone()), ..object(config("c")) };
        let seen = Observed { content: Content::Loaded, applied: true, ..running(vec![object]) };
        assert_eq!(next(&with_rollback(seen)), Step::Stop(StopReason::Failed(fault)));
    }
    let waiting = StopReason::Hook("a hook".to_owned());
    let mut hooks = running(vec![object(config("c"))]);
    hooks.content = Content::Loaded;
    hooks.hooks = HooksDue {
        after: Some(Event::PostUpgrade),
        stop_reason: Some(waiting.clone()),
        ..HooksDue::default()
    };
    assert_eq!(next(&with_rollback(hooks)), Step::Stop(waiting));
    let working = next(&with_health(HealthStatus::InProgress));
    assert!(matches!(working, Step::Stop(StopReason::Progressing(_))), "{working:?}");
}

#[test]
fn health_from_before_the_apply_does_not_trigger_a_rollback() {
    let mut seen = with_health(HealthStatus::Failed);
    seen.objects[0].health_is_old = true;
    assert!(matches!(next(&seen), Step::Stop(StopReason::Unhealthy(_))));
    let other = ObjectState { health: Some(HealthStatus::Failed), ..object(id("apps", "Deployment", "e")) };
    let mut both = with_health(HealthStatus::Failed);
    both.objects[0].health_is_old = true;
    both.inventory.insert(applied(&other.identity).0, applied(&other.identity).1);
    both.objects.push(other);
    assert!(matches!(next(&both), Step::Rollback(RollbackAction::RollBack(_))));
}

#[test]
fn health_from_before_the_apply_does_not_count_as_ready() {
    let mut seen = running(vec![ObjectState { health_is_old: true, ..object(deployment()) }]);
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready), "where only what worked was put right");
    let waiting = Step::Stop(StopReason::Progressing(vec![deployment().to_string()]));
    seen.awaited = true;
    assert_eq!(next(&seen), waiting, "other content");
    seen.awaited = false;
    for state in [RollbackState::Available, RollbackState::Active] {
        seen.rollback = in_state(state);
        assert_eq!(next(&seen), waiting);
    }
    seen.rollback = ObservedRollback { state: RollbackState::None, is_store_due: true };
    assert_eq!(next(&seen), waiting);
    seen.objects[0].health_is_old = false;
    assert_eq!(next(&seen), Step::Rollback(RollbackAction::Store));
}

#[test]
fn a_rolled_back_release_stays_until_the_retry_is_due() {
    let seen = Observed { rollback: in_state(RollbackState::Active), ..running(vec![object(deployment())]) };
    assert_eq!(next(&seen), Step::Stop(StopReason::RolledBack));
    let retried = Observed { rollback: in_state(RollbackState::RetryDue), ..seen };
    assert_eq!(next(&retried), Step::Rollback(RollbackAction::Retry));
}

#[test]
fn a_ready_release_is_stored_and_then_tested() {
    let mut seen = running(vec![object(deployment())]);
    seen.rollback.is_store_due = true;
    seen.tests_due = true;
    assert_eq!(next(&seen), Step::Rollback(RollbackAction::Store));
    seen.rollback.is_store_due = false;
    assert_eq!(next(&seen), Step::Test);
    seen.tests_due = false;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
    let mut working = with_health(HealthStatus::InProgress);
    working.rollback.is_store_due = true;
    assert!(
        matches!(next(&working), Step::Stop(StopReason::Progressing(_))),
        "nothing is kept before it works"
    );
}

#[test]
fn step_that_is_due_follows_from_state_and_result() {
    use RollbackState::{Active, Available, None as Unavailable, RetryDue};
    let refused = ObjectState { fault: Some(fault()), ..object(config("c")) };
    let observed = running(vec![refused]);
    let failed = || Step::Stop(StopReason::Failed(fault()));
    let (ready, start) = (Step::Stop(StopReason::Ready), RollbackAction::RollBack(fault()));
    let rows = [
        // An installation in progress continues.
        (Unavailable, false, Step::Apply, None),
        (Available, true, Step::Apply, None),
        (Active, true, Step::Apply, None),
        // A failure is rolled back once, and only to another release.
        (Unavailable, true, failed(), None),
        (Available, true, failed(), Some(start)),
        (Active, true, failed(), None),
        // A Ready release is stored once.
        (Unavailable, false, ready.clone(), None),
        (Unavailable, true, ready.clone(), Some(RollbackAction::Store)),
        (Available, true, ready.clone(), Some(RollbackAction::Store)),
        // A retry does not wait for the rollback to complete.
        (RetryDue, false, Step::Apply, Some(RollbackAction::Retry)),
        (RetryDue, true, ready, Some(RollbackAction::Retry)),
        (RetryDue, false, failed(), Some(RollbackAction::Retry)),
    ];
    for (state, is_store_due, step, expected) in rows {
        let rollback = ObservedRollback { state, is_store_due };
        let action = due(&Observed { rollback, ..observed.clone() }, &step);
        assert_eq!(action, expected, "{rollback:?} {step:?}");
    }
}

use kyma_helm::hooks::Event;

use super::*;

fn with_rollback(seen: Observed) -> Observed {
    Observed { rollback: RollbackState::Available, ..seen }
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
        let Step::RollBack(failure) = next(&with_rollback(seen.clone())) else { panic!("{reason}") };
        assert_eq!(failure.reason, reason);
        for rollback in [RollbackState::None, RollbackState::Active] {
            let stays = next(&Observed { rollback, ..seen.clone() });
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
    assert!(matches!(next(&both), Step::RollBack(_)));
}

#[test]
fn health_from_before_the_apply_does_not_count_as_ready() {
    let mut seen = running(vec![ObjectState { health_is_old: true, ..object(deployment()) }]);
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready), "where only what worked was put right");
    let waiting = Step::Stop(StopReason::Progressing(vec![deployment().to_string()]));
    seen.awaited = true;
    assert_eq!(next(&seen), waiting, "other content");
    seen.awaited = false;
    for rollback in [RollbackState::Available, RollbackState::Active] {
        seen.rollback = rollback;
        assert_eq!(next(&seen), waiting);
    }
    seen.rollback = RollbackState::None;
    seen.rollback_target_due = true;
    assert_eq!(next(&seen), waiting);
    seen.objects[0].health_is_old = false;
    assert_eq!(next(&seen), Step::StoreRollbackTarget);
}

#[test]
fn news_are_awaited_only_of_what_counts_and_was_applied() {
    let mut seen = running(vec![ObjectState { health_is_old: true, counts: false, ..object(deployment()) }]);
    seen.awaited = true;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
    seen.deadline = Deadline { waited: 9, limit: Some(9) };
    seen.objects[0].counts = true;
    assert!(
        matches!(next(&seen), Step::Stop(StopReason::Progressing(_))),
        "the watch is late, not the object"
    );
}

#[test]
fn a_rolled_back_release_stays_until_the_retry_is_due() {
    let seen = Observed { rollback: RollbackState::Active, ..running(vec![object(deployment())]) };
    assert_eq!(next(&seen), Step::Stop(StopReason::RolledBack));
    assert_eq!(next(&Observed { rollback: RollbackState::RetryDue, ..seen }), Step::Retry);
}

#[test]
fn a_ready_release_is_stored_and_then_tested() {
    let mut seen = Observed { rollback_target_due: true, ..running(vec![object(deployment())]) };
    seen.tests_due = true;
    assert_eq!(next(&seen), Step::StoreRollbackTarget);
    seen.rollback_target_due = false;
    assert_eq!(next(&seen), Step::Test);
    seen.tests_due = false;
    assert_eq!(next(&seen), Step::Stop(StopReason::Ready));
    let mut working = with_health(HealthStatus::InProgress);
    working.rollback_target_due = true;
    assert!(
        matches!(next(&working), Step::Stop(StopReason::Progressing(_))),
        "nothing is kept before it works"
    );
}

//! Decides between the desired release and a rollback.

use kyma_api::{ErrorClass, Reason};
use kyma_sdk::Failure;

use super::{Observed, RollbackState, Step, StopReason, install};

/// Maximum number of failed objects in a message.
const MAX_LISTED_OBJECTS: usize = 10;

/// Returns the next step of an installation or a rollback.
pub(super) fn next(seen: &Observed) -> Step {
    if seen.rollback == RollbackState::RetryDue {
        return Step::Retry;
    }
    let step = install(seen);
    let Step::Stop(stop_reason) = &step else { return step };
    match (seen.rollback, stop_reason) {
        (RollbackState::Available, stop_reason) if failed(seen, stop_reason).is_some() => {
            failed(seen, stop_reason).map_or(step, Step::RollBack)
        }
        (_, StopReason::Ready) => ready(seen),
        _ => step,
    }
}

/// Returns the step once the target is as desired.
fn ready(seen: &Observed) -> Step {
    match seen.rollback {
        // Health from before the apply says nothing about the applied objects.
        _ if seen.awaits_news() => Step::Stop(StopReason::Progressing(seen.unreported())),
        _ if seen.rollback_target_due => Step::StoreRollbackTarget,
        _ if seen.tests_due => Step::Test,
        RollbackState::Active => Step::Stop(StopReason::RolledBack),
        _ => Step::Stop(StopReason::Ready),
    }
}

/// Returns why the loaded release failed, if that ended the pass: a hook failed, the target refuses an object, or
/// objects are not healthy. Temporary failures and waits for the user do not count.
fn failed(seen: &Observed, stop_reason: &StopReason) -> Option<Failure> {
    match stop_reason {
        StopReason::Failed(failure) if seen.hooks.stop_reason.as_ref() == Some(stop_reason) => {
            (failure.reason == Reason::HookFailed).then(|| failure.clone())
        }
        StopReason::Failed(_) => {
            let mut faults = seen.objects.iter().filter_map(|object| object.fault.as_ref());
            faults.find(|fault| is_refused_as_it_is(fault)).cloned()
        }
        StopReason::Unhealthy(names) if seen.fails_as_it_is() => {
            Some(Failure::new(Reason::Unhealthy, format!("failed: {}", first(names))))
        }
        StopReason::HealthTimeout(names) => {
            let limit = seen.deadline.limit.unwrap_or_default();
            let late = format!("not ready within {limit} s: {}", first(names));
            Some(Failure::new(Reason::HealthTimeout, late))
        }
        _ => None,
    }
}

/// Returns whether the object cannot reach its desired state, so that a rollback may help.
fn is_refused_as_it_is(fault: &Failure) -> bool {
    let refused = [Reason::ApplyRefused, Reason::ImmutableField, Reason::ObjectTooLarge];
    fault.class == ErrorClass::Invalid || refused.contains(&fault.reason)
}

fn first(names: &[String]) -> String {
    names.iter().take(MAX_LISTED_OBJECTS).map(String::as_str).collect::<Vec<_>>().join(", ")
}

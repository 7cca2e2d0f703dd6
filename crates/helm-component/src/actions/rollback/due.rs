//! Decides which step of a rollback is due. Pure.

use kyma_api::{ErrorClass, Reason};
use kyma_controller::Failure;

use super::state::{ObservedRollback, RollbackAction, RollbackState};
use crate::plan::observed::Observed;
use crate::plan::step::{Step, StopReason};

/// Maximum number of failed objects in a message.
const MAX_LISTED_OBJECTS: usize = 10;

/// Returns the step of a rollback that is due instead of this step of the installation.
pub(crate) fn due(observed: &Observed, step: &Step) -> Option<RollbackAction> {
    let ObservedRollback { state, is_store_due } = observed.rollback;
    match (state, step) {
        (RollbackState::RetryDue, _) => Some(RollbackAction::Retry),
        // Health from before the apply says nothing about the applied objects.
        (_, Step::Stop(StopReason::Ready)) => {
            (is_store_due && !observed.awaits_news()).then_some(RollbackAction::Store)
        }
        (RollbackState::Available, Step::Stop(stop_reason)) => {
            failure(observed, stop_reason).map(RollbackAction::RollBack)
        }
        _ => None,
    }
}

/// Returns why a pass ends once everything is as desired.
pub(crate) fn stop_reason(rollback: ObservedRollback) -> StopReason {
    if rollback.state == RollbackState::Active { StopReason::RolledBack } else { StopReason::Ready }
}

/// Returns why the loaded release failed, if that ended the pass: a hook failed, the target refuses an object, or
/// objects are not healthy. Temporary failures and waits for the user do not count.
fn failure(observed: &Observed, stop_reason: &StopReason) -> Option<Failure> {
    match stop_reason {
        StopReason::Failed(failure) if observed.hooks.stop_reason.as_ref() == Some(stop_reason) => {
            (failure.reason == Reason::HookFailed).then(|| failure.clone())
        }
        StopReason::Failed(_) => {
            let mut faults = observed.objects.iter().filter_map(|object| object.fault.as_ref());
            faults.find(|fault| is_refused_as_it_is(fault)).cloned()
        }
        StopReason::Unhealthy(names) if observed.fails_as_it_is() => {
            Some(Failure::new(Reason::Unhealthy, format!("failed: {}", first(names))))
        }
        StopReason::HealthTimeout(names) => {
            let limit = observed.deadline.limit.unwrap_or_default();
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

#[cfg(test)]
mod tests;

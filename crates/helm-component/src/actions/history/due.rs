//! Decides when the release is recorded as Helm does. Pure.

use kyma_controller::Failure;
use kyma_helm::storage::ReleaseStatus;

use crate::plan::step::{Step, StopReason};

/// Helm's records of the release that must be written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryDue {
    /// The installed revision is not recorded as deployed.
    pub deployed: bool,
    /// The loaded content has no record; it is recorded as failed if it fails.
    pub failed: bool,
    /// Why it could not be recorded in this pass.
    pub failure: Option<Failure>,
}

/// Result of an apply, as far as the record of the release depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplyResult {
    /// The target refuses an object.
    Refused,
    /// All objects exist. As in Helm without `--wait`, they need not be healthy.
    Complete {
        /// Whether the content is loaded.
        is_loaded: bool,
    },
}

/// Returns the step that records the release, as failed or as deployed.
pub(crate) fn due(history: &HistoryDue, result: ApplyResult) -> Option<Step> {
    match (result, &history.failure) {
        (ApplyResult::Refused, _) => history.failed.then_some(Step::Record(ReleaseStatus::Failed)),
        (ApplyResult::Complete { .. }, _) if !history.deployed => None,
        (ApplyResult::Complete { .. }, Some(failure)) => {
            Some(Step::Stop(StopReason::Failed(failure.clone())))
        }
        (ApplyResult::Complete { is_loaded: true }, None) => Some(Step::Record(ReleaseStatus::Deployed)),
        (ApplyResult::Complete { is_loaded: false }, None) => Some(Step::Load),
    }
}

#[cfg(test)]
mod tests;

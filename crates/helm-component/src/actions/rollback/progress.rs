//! Progress of a rollback in one pass. Pure.

use kyma_controller::Failure;

/// Progress of a rollback in one pass.
#[derive(Debug, Default)]
pub(crate) struct RollbackProgress {
    /// Result of storing the Ready release, once it was tried.
    pub(super) stored: Option<Result<(), Failure>>,
    /// Whether the failed release is tried again in this pass.
    pub(super) is_retried: bool,
}

//! State and steps of a rollback. Pure.

use kyma_controller::Failure;

/// State of a rollback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RollbackState {
    /// No rollback is possible, or none is enabled.
    #[default]
    None,
    /// Another release was Ready before and is stored.
    Available,
    /// The stored release replaces the failed one.
    Active,
    /// A rollback took place, and the failed release is to be tried again.
    RetryDue,
}

/// Observed state of a rollback and of its target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObservedRollback {
    /// State of a rollback.
    pub state: RollbackState,
    /// Whether the Ready release must be stored, or the stored one discarded.
    pub is_store_due: bool,
}

impl ObservedRollback {
    /// Reports whether the next step depends on the health of newly applied objects.
    pub(crate) fn needs_current_health(self) -> bool {
        self.is_store_due || self.state != RollbackState::None
    }
}

/// Step of a rollback.
#[derive(Debug, Clone, PartialEq)]
pub enum RollbackAction {
    /// Store the Ready release, or discard the stored one.
    Store,
    /// Roll back to the stored release, since the desired one failed for this reason.
    RollBack(Failure),
    /// Try the failed release again.
    Retry,
}

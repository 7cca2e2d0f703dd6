//! Removal of mandatory modules: a finalizer keeps the deleted release meta until no Kyma has the module. The
//! decision is pure; [`follow`] reads and writes.
//!
//! A missing release meta requests nothing. One with a deletionTimestamp does, unless its namespace or CRD is being
//! deleted.

mod follow;

pub(crate) use follow::follow;

/// Observed state of a release meta.
#[derive(Debug, Clone, Copy)]
struct ReleaseMetaState {
    /// Whether the release meta makes its module mandatory.
    is_mandatory: bool,
    /// Whether the operator's finalizer is on it.
    has_finalizer: bool,
    /// Whether a deletion is in progress, and its cause.
    deletion: Deletion,
    /// Number of components that install the module because it is mandatory, plus Kymas that record it.
    remaining: usize,
}

/// Deletion of a release meta, by its deletionTimestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deletion {
    /// The ModuleReleaseMeta has no deletionTimestamp.
    Absent,
    /// A user requested the deletion.
    Requested,
    /// No user requested the deletion: the namespace or the CRD is gone or terminating, or the garbage collector
    /// deleted the release meta.
    NotRequested,
    /// The garbage collector may have deleted the release meta; an annotation may still confirm the deletion.
    Unconfirmed,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReleaseMetaStep {
    /// No step is due.
    Idle,
    /// Add the finalizer.
    AddFinalizer,
    /// Remove the module from every Kyma.
    Withdraw,
    /// Remove the finalizer.
    RemoveFinalizer,
}

fn next_step(observed: ReleaseMetaState) -> ReleaseMetaStep {
    let ReleaseMetaState { is_mandatory, has_finalizer, deletion, remaining } = observed;
    match (has_finalizer, deletion) {
        (false, Deletion::Absent) if is_mandatory => ReleaseMetaStep::AddFinalizer,
        (true, Deletion::Requested) if is_mandatory && remaining > 0 => ReleaseMetaStep::Withdraw,
        (true, Deletion::Absent | Deletion::Unconfirmed) if is_mandatory => ReleaseMetaStep::Idle,
        (false, _) => ReleaseMetaStep::Idle,
        (true, _) => ReleaseMetaStep::RemoveFinalizer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANDATORY: ReleaseMetaState = ReleaseMetaState {
        is_mandatory: true,
        has_finalizer: true,
        deletion: Deletion::Absent,
        remaining: 2,
    };

    #[test]
    fn only_a_mandatory_release_meta_has_the_finalizer() {
        assert_eq!(
            next_step(ReleaseMetaState { has_finalizer: false, ..MANDATORY }),
            ReleaseMetaStep::AddFinalizer
        );
        assert_eq!(next_step(MANDATORY), ReleaseMetaStep::Idle);
        assert_eq!(
            next_step(ReleaseMetaState { is_mandatory: false, ..MANDATORY }),
            ReleaseMetaStep::RemoveFinalizer
        );
        assert_eq!(
            next_step(ReleaseMetaState { is_mandatory: false, has_finalizer: false, ..MANDATORY }),
            ReleaseMetaStep::Idle
        );
    }

    #[test]
    fn a_requested_deletion_ends_once_no_component_is_left() {
        let deleted = ReleaseMetaState { deletion: Deletion::Requested, ..MANDATORY };
        assert_eq!(next_step(deleted), ReleaseMetaStep::Withdraw);
        assert_eq!(next_step(ReleaseMetaState { remaining: 0, ..deleted }), ReleaseMetaStep::RemoveFinalizer);
        assert_eq!(
            next_step(ReleaseMetaState { has_finalizer: false, ..deleted }),
            ReleaseMetaStep::Idle,
            "without the finalizer nothing is awaited"
        );
    }

    #[test]
    fn a_deletion_by_the_garbage_collector_waits_for_a_confirmation() {
        assert_eq!(
            next_step(ReleaseMetaState { deletion: Deletion::Unconfirmed, ..MANDATORY }),
            ReleaseMetaStep::Idle
        );
    }

    #[test]
    fn a_deletion_with_the_namespace_or_crd_withdraws_nothing() {
        let deleted = ReleaseMetaState { deletion: Deletion::NotRequested, ..MANDATORY };
        assert_eq!(next_step(deleted), ReleaseMetaStep::RemoveFinalizer);
    }

    #[test]
    fn release_meta_changed_before_its_deletion_withdraws_nothing() {
        let changed = ReleaseMetaState { is_mandatory: false, deletion: Deletion::Requested, ..MANDATORY };
        assert_eq!(next_step(changed), ReleaseMetaStep::RemoveFinalizer);
    }
}

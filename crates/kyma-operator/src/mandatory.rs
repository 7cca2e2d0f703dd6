//! Removal of mandatory modules: a finalizer keeps the deleted release meta until no Kyma has the module. The
//! decision is pure; [`follow`] reads and writes.
//!
//! A missing release meta requests nothing. One with a deletionTimestamp does, unless its namespace or CRD is being
//! deleted.

mod follow;

pub(crate) use follow::follow;

/// Observed state of a release meta.
#[derive(Debug, Clone, Copy)]
struct Facts {
    /// Whether it makes its module mandatory.
    is_mandatory: bool,
    /// Whether the operator's finalizer is on it.
    is_held: bool,
    /// Meaning of its deletionTimestamp.
    end: End,
    /// Number of components that install the module because it is mandatory, plus Kymas that record it.
    left: usize,
}

/// Meaning of a deletionTimestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The ModuleReleaseMeta has no deletionTimestamp.
    No,
    /// A user requested the deletion.
    Wished,
    /// Its namespace or CRD is gone or terminating, or the garbage collector deleted it: no user requested it.
    Swept,
    /// The garbage collector may have deleted it; an annotation may still confirm the deletion.
    Unconfirmed,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Rest,
    /// Add the finalizer.
    Hold,
    /// Remove the module from every Kyma.
    Withdraw,
    /// Remove the finalizer.
    Release,
}

fn next(facts: Facts) -> Step {
    let Facts { is_mandatory, is_held, end, left } = facts;
    match (is_held, end) {
        (false, End::No) if is_mandatory => Step::Hold,
        (true, End::Wished) if is_mandatory && left > 0 => Step::Withdraw,
        (true, End::No | End::Unconfirmed) if is_mandatory => Step::Rest,
        (false, _) => Step::Rest,
        (true, _) => Step::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANDATORY: Facts = Facts { is_mandatory: true, is_held: true, end: End::No, left: 2 };

    #[test]
    fn what_becomes_mandatory_is_held_and_what_ceases_to_be_is_released() {
        assert_eq!(next(Facts { is_held: false, ..MANDATORY }), Step::Hold);
        assert_eq!(next(MANDATORY), Step::Rest);
        assert_eq!(next(Facts { is_mandatory: false, ..MANDATORY }), Step::Release);
        assert_eq!(next(Facts { is_mandatory: false, is_held: false, ..MANDATORY }), Step::Rest);
    }

    #[test]
    fn a_deletion_withdraws_the_module_and_is_done_once_no_component_is_left() {
        let deleted = Facts { end: End::Wished, ..MANDATORY };
        assert_eq!(next(deleted), Step::Withdraw);
        assert_eq!(next(Facts { left: 0, ..deleted }), Step::Release);
        assert_eq!(next(Facts { is_held: false, ..deleted }), Step::Rest, "it goes without asking");
    }

    #[test]
    fn a_deletion_by_the_garbage_collector_waits_for_a_confirmation() {
        assert_eq!(next(Facts { end: End::Unconfirmed, ..MANDATORY }), Step::Rest);
    }

    #[test]
    fn what_goes_with_its_namespace_or_crd_withdraws_nothing() {
        let swept = Facts { end: End::Swept, ..MANDATORY };
        assert_eq!(next(swept), Step::Release);
    }

    #[test]
    fn a_release_meta_that_was_changed_before_its_deletion_withdraws_nothing() {
        let changed = Facts { is_mandatory: false, end: End::Wished, ..MANDATORY };
        assert_eq!(next(changed), Step::Release);
    }
}

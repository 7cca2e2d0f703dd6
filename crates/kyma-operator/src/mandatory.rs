//! The end of a mandatory module: its release meta is deleted, and the finalizer holds it until every Kyma is rid of
//! the module. The decision is pure; [`follow`] reads and writes.
//!
//! A release meta that is merely missing orders nothing. One with a deletion timestamp does, unless it goes because
//! its namespace or its CRD goes.

mod follow;

pub(crate) use follow::follow;

/// What is known of one release meta.
#[derive(Debug, Clone, Copy)]
struct Facts {
    /// It makes its module mandatory.
    is_mandatory: bool,
    /// Our finalizer is on it.
    is_held: bool,
    /// It has a deletion timestamp.
    is_deleted: bool,
    /// Its namespace or its CRD is gone or going.
    scope_terminating: bool,
    /// Components that install the module because it is mandatory.
    left: usize,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Rest,
    /// Put our finalizer on it.
    Hold,
    /// Have every Kyma remove the module.
    Withdraw,
    /// Take our finalizer off.
    Release,
}

fn next(facts: Facts) -> Step {
    match facts {
        Facts { is_held: false, is_deleted: false, is_mandatory: true, .. } => Step::Hold,
        Facts { is_held: false, .. } => Step::Rest,
        Facts { is_mandatory: false, .. } | Facts { is_deleted: true, scope_terminating: true, .. } => {
            Step::Release
        }
        Facts { is_deleted: false, .. } => Step::Rest,
        Facts { left: 0, .. } => Step::Release,
        Facts { .. } => Step::Withdraw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANDATORY: Facts =
        Facts { is_mandatory: true, is_held: true, is_deleted: false, scope_terminating: false, left: 2 };

    #[test]
    fn what_becomes_mandatory_is_held_and_what_ceases_to_be_is_released() {
        assert_eq!(next(Facts { is_held: false, ..MANDATORY }), Step::Hold);
        assert_eq!(next(MANDATORY), Step::Rest);
        assert_eq!(next(Facts { is_mandatory: false, ..MANDATORY }), Step::Release);
        assert_eq!(next(Facts { is_mandatory: false, is_held: false, ..MANDATORY }), Step::Rest);
    }

    #[test]
    fn a_deletion_withdraws_the_module_and_is_done_once_no_component_is_left() {
        let deleted = Facts { is_deleted: true, ..MANDATORY };
        assert_eq!(next(deleted), Step::Withdraw);
        assert_eq!(next(Facts { left: 0, ..deleted }), Step::Release);
        assert_eq!(next(Facts { is_held: false, ..deleted }), Step::Rest, "it goes without asking");
    }

    #[test]
    fn what_goes_with_its_namespace_or_crd_withdraws_nothing() {
        let swept = Facts { is_deleted: true, scope_terminating: true, ..MANDATORY };
        assert_eq!(next(swept), Step::Release);
    }

    #[test]
    fn a_release_meta_that_was_changed_before_its_deletion_withdraws_nothing() {
        let changed = Facts { is_mandatory: false, is_deleted: true, ..MANDATORY };
        assert_eq!(next(changed), Step::Release);
    }
}

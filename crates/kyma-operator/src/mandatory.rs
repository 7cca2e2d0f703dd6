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
    /// Whether it ends.
    end: End,
    /// Components that install the module because it is mandatory, and Kymas that have it on record.
    left: usize,
}

/// What a deletion timestamp means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// There is none.
    No,
    /// Somebody wished it.
    Wished,
    /// Its namespace or its CRD is gone or going, or the garbage collector deleted it: nobody requested it.
    Swept,
    /// The garbage collector may have deleted it, and a person may still confirm it.
    Unconfirmed,
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

//! Objects that were refused, and when they are tried again.

use std::time::Duration;

use super::*;

/// How a component ends whose objects were refused for these reasons, in this order.
fn refused(reasons: &[Reason]) -> (Reason, Option<Duration>) {
    let faulty = |(number, reason): (usize, &Reason)| Piece {
        fault: Some(Failure::new(*reason, "no")),
        ..piece(config(&number.to_string()))
    };
    let seen = Observed { applied: true, ..fresh(reasons.iter().enumerate().map(faulty).collect()) };
    let Step::Rest(Rest::Failed(failure)) = next(&seen) else { panic!("{:?}", next(&seen)) };
    (failure.reason, failure.retry_after)
}

#[test]
fn one_that_needs_a_person_keeps_no_other_from_being_tried_again() {
    use Reason::{ApplyRefused, NamespaceTerminating, QuotaExceeded, TargetForbidden, WebhookFailed};
    let minutes = |count| Some(Duration::from_mins(count));
    for (reasons, again) in [
        (&[ApplyRefused] as &[Reason], None),
        (&[ApplyRefused, ApplyRefused], None),
        (&[ApplyRefused, NamespaceTerminating], minutes(10)),
        (&[ApplyRefused, TargetForbidden], minutes(10)),
        (&[ApplyRefused, QuotaExceeded, WebhookFailed], minutes(1)),
        (&[NamespaceTerminating, WebhookFailed], minutes(1)),
        // By itself it comes back at least as soon.
        (&[WebhookFailed, NamespaceTerminating], None),
        (&[QuotaExceeded, NamespaceTerminating], None),
    ] {
        assert_eq!(refused(reasons), (reasons[0], again), "{reasons:?}");
    }
}

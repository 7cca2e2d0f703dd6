//! Refused objects, and the time of their retries.

use std::time::Duration;

use kyma_controller::delay_after;

use super::*;

/// Returns the failure of a component whose objects were refused for these reasons, in this order.
fn ended(faults: Vec<Failure>) -> Failure {
    let refused = |(number, fault): (usize, Failure)| ObjectState {
        fault: Some(fault),
        ..object(config(&number.to_string()))
    };
    let objects = faults.into_iter().enumerate().map(refused).collect();
    let seen = Observed { applied: true, ..fresh(objects) };
    let Step::Stop(StopReason::Failed(failure)) = next(&seen) else { panic!("{:?}", next(&seen)) };
    failure
}

/// Returns a failure that only other content resolves.
fn protected() -> Failure {
    Failure::new(Reason::Protected, "no")
}

#[test]
fn failure_that_needs_a_user_does_not_delay_retry_of_others() {
    use Reason::{
        ApplyRefused, NamespaceTerminating, Protected, QuotaExceeded, TargetForbidden, WebhookFailed,
    };
    for (reasons, beside) in [
        (&[Protected] as &[Reason], None),
        (&[Protected, Protected], None),
        (&[Protected, ApplyRefused], Some(ApplyRefused)),
        (&[Protected, NamespaceTerminating], Some(NamespaceTerminating)),
        (&[Protected, TargetForbidden], Some(TargetForbidden)),
        (&[Protected, QuotaExceeded, WebhookFailed], Some(WebhookFailed)),
        (&[ApplyRefused, WebhookFailed], Some(WebhookFailed)),
        (&[NamespaceTerminating, WebhookFailed], Some(WebhookFailed)),
        // These failures end by themselves at least as soon.
        (&[WebhookFailed, NamespaceTerminating], None),
        (&[QuotaExceeded, NamespaceTerminating], None),
    ] {
        let failure = ended(reasons.iter().map(|reason| Failure::new(*reason, "no")).collect());
        assert_eq!((failure.reason, failure.beside), (reasons[0], beside.map(Box::new)), "{reasons:?}");
        assert_eq!((failure.retry_after, failure.at_latest), (None, None), "{reasons:?}");
    }
}

#[test]
fn forbidden_object_keeps_retry_delays_beside_a_user_failure() {
    let forbidden = Failure::new(Reason::TargetForbidden, "no");
    let both = ended(vec![protected(), forbidden.clone()]);
    for failures in 1..10 {
        assert_eq!(delay_after(&both, failures, 0.5), delay_after(&forbidden, failures, 0.5));
    }
}

#[test]
fn a_moment_that_another_one_names_is_kept() {
    let moment = Duration::from_secs(7);
    let named = Failure::new(Reason::NamespaceTerminating, "no").retry_after(moment);
    let both = ended(vec![protected(), Failure::new(Reason::TargetForbidden, "no"), named.clone()]);
    assert_eq!(both.at_latest, Some(moment));
    assert_eq!(both.beside.as_deref(), Some(&Reason::TargetForbidden));
    assert_eq!(delay_after(&both, 9, 0.5), delay_after(&named, 9, 0.5));
}

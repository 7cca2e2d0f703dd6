//! Delays before a failed reconcile is retried.

use std::time::Duration;

use kyma_api::{Backoff, ErrorClass, Reason};

use crate::failure::Failure;

/// Random share of a delay of seconds, so that reconciles that failed together are not retried together.
pub(crate) const JITTER_SHARE: f64 = 0.5;
/// Delays after transient failures.
const TRANSIENT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_mins(1)).with_jitter(JITTER_SHARE);
/// Longest delay that a server may ask for.
const MAX_REQUESTED_DELAY: Duration = Duration::from_mins(10);
/// Shortest delay after a refusal.
const MIN_REFUSAL_DELAY: Duration = Duration::from_secs(5);
/// Random share of a delay after a refusal, which grows to minutes.
const REFUSAL_JITTER_SHARE: f64 = 0.1;

/// Returns the delays after a refusal by a target or by the hub's roles, or after an unusable answer of a source;
/// `None` for other reasons. No event announces that roles, policies, quotas or proxies were repaired, and each retry
/// costs a call. Users repair them soon after the report or much later, so the delays grow.
fn refusal_backoff(reason: Reason) -> Option<Backoff> {
    let max = match reason {
        Reason::SourceInvalid
        | Reason::SourceTooLarge
        | Reason::SourceHostRefused
        | Reason::ManifestInvalid => Duration::from_hours(1),
        Reason::ApplyRefused
        | Reason::DependencyMissing
        | Reason::HubForbidden
        | Reason::ImmutableField
        | Reason::NamespaceTerminating
        | Reason::ObjectTooLarge
        | Reason::QuotaExceeded
        | Reason::TargetForbidden
        | Reason::WebhookDenied => Duration::from_mins(10),
        _ => return None,
    };
    let first = MIN_REFUSAL_DELAY.div_f64(1.0 - REFUSAL_JITTER_SHARE);
    Some(Backoff::new(first, max).with_jitter(REFUSAL_JITTER_SHARE))
}

/// Returns the delays of [`refusal_backoff`] for a failure. Invalid input has none.
fn refusal_backoff_of(failure: &Failure) -> Option<Backoff> {
    refusal_backoff(failure.reason).filter(|_| failure.class != ErrorClass::Invalid)
}

/// Reports whether failures of both reasons count as failures in a row. Each lasting reason has its own count; all
/// others share one.
pub(crate) fn shares_delays(one: Reason, other: Reason) -> bool {
    one == other || refusal_backoff(one).is_none() && refusal_backoff(other).is_none()
}

/// Returns the longest delay between two retries of this failure without an event; `None`: only an event causes a
/// retry.
pub fn longest_delay(failure: &Failure) -> Option<Duration> {
    let beside = beside(failure).and_then(|beside| longest_alone(&beside));
    let latest = failure.at_latest.map(|latest| latest.min(MAX_REQUESTED_DELAY));
    longest_alone(failure).into_iter().chain(beside).chain(latest).min()
}

fn longest_alone(failure: &Failure) -> Option<Duration> {
    let named = failure.retry_after.map(|asked| asked.min(MAX_REQUESTED_DELAY));
    let own = || match failure.class {
        ErrorClass::Transient | ErrorClass::Unreachable => Some(TRANSIENT_BACKOFF.max_delay()),
        ErrorClass::Blocked | ErrorClass::Invalid => None,
    };
    named.or_else(|| refusal_backoff_of(failure).map(Backoff::max_delay)).or_else(own)
}

/// Returns the delay after the `failures`-th failure in a row (from 1), or `None` to wait for an event.
///
/// Transient and Unreachable double from 0.5 s to 60 s; calls to an unreachable target are refused by its breaker
/// meanwhile, so a try costs nothing. Every refusal by a target or by the hub's roles is tried again after 5 s, doubled
/// to 10 min; an unusable answer of a source after 5 s, doubled to 1 h. Other Blocked and Invalid wait for an event
/// unless the failure names a time. A second failure of the same reconcile, or a timer, shortens the delay and never
/// extends it. `jitter` lies in 0..1.
pub fn delay_after(failure: &Failure, failures: u32, jitter: f64) -> Option<Duration> {
    let beside = beside(failure).and_then(|beside| delay_alone(&beside, failures, jitter));
    let latest = failure.at_latest.map(|latest| named(latest, jitter));
    delay_alone(failure, failures, jitter).into_iter().chain(beside).chain(latest).min()
}

fn beside(failure: &Failure) -> Option<Failure> {
    failure.beside.as_deref().map(|reason| Failure::new(*reason, ""))
}

/// Returns a delay that the failure names, limited to 10 minutes, plus jitter.
fn named(moment: Duration, jitter: f64) -> Duration {
    moment.min(MAX_REQUESTED_DELAY) + TRANSIENT_BACKOFF.jittered_delay(1, jitter)
}

fn delay_alone(failure: &Failure, failures: u32, jitter: f64) -> Option<Duration> {
    if let Some(asked) = failure.retry_after {
        return Some(named(asked, jitter));
    }
    if let Some(backoff) = refusal_backoff_of(failure) {
        return Some(backoff.jittered_delay(failures, jitter).max(MIN_REFUSAL_DELAY));
    }
    match failure.class {
        ErrorClass::Transient | ErrorClass::Unreachable => {
            Some(TRANSIENT_BACKOFF.jittered_delay(failures, jitter))
        }
        ErrorClass::Blocked | ErrorClass::Invalid => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the delays after 1, 2, … failures in a row, in tenths of a second.
    fn delays(reason: Reason, jitter: f64) -> Vec<u128> {
        let failure = Failure::new(reason, "");
        let delay = |failures| delay_after(&failure, failures, jitter).unwrap() + Duration::from_micros(1);
        (1..=8).map(|failures| delay(failures).as_millis() / 100).collect()
    }

    #[test]
    fn what_may_pass_doubles_up_to_its_bound() {
        let failure = Failure::new(Reason::HubUnavailable, "");
        let delays: Vec<_> = [1, 2, 3, 7, 8, 40, u32::MAX]
            .map(|failures| delay_after(&failure, failures, 1.0).unwrap().as_millis())
            .into();
        assert_eq!(delays, [500, 1000, 2000, 32_000, 60_000, 60_000, 60_000]);
        assert_eq!(delay_after(&failure, 1, 0.0), Some(Duration::from_millis(250)));
    }

    #[test]
    fn what_waits_for_an_event_is_not_tried_again() {
        for reason in [Reason::DeletionBlocked, Reason::ValuesInvalid, Reason::Protected] {
            assert_eq!(delay_after(&Failure::new(reason, ""), 1, 0.5), None);
        }
    }

    #[test]
    fn every_refusal_by_a_target_is_tried_again_after_5_s_to_10_min() {
        for code in (400..500).filter(|code| ![401, 409, 410, 429].contains(code)) {
            let reason = refused(code, "text");
            assert_eq!(delays(reason, 0.0), [50, 100, 200, 400, 800, 1600, 3200, 5400], "{code} {reason}");
            assert_eq!(delays(reason, 1.0), [55, 111, 222, 444, 888, 1777, 3555, 6000], "{code} {reason}");
        }
        for (code, message) in [
            (403, "exceeded quota: q, requested: pods=1"),
            (403, "because it is being terminated"),
            (403, "admission webhook \"w\" denied the request"),
            (422, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request"),
            (500, "etcdserver: request is too large"),
            (500, "failed to create typed patch object"),
        ] {
            let reason = refused(code, message);
            assert_eq!(delays(reason, 0.0), [50, 100, 200, 400, 800, 1600, 3200, 5400], "{message} {reason}");
        }
        // Transient failures are retried sooner.
        for code in [401, 409, 410, 429, 500, 502, 503, 504] {
            let failure = Failure::new(refused(code, "text"), "");
            assert!(longest_delay(&failure).is_some_and(|delay| delay <= Duration::from_mins(1)), "{code}");
        }
    }

    /// Returns the reason for a `Status` of a target.
    fn refused(code: u16, message: &str) -> Reason {
        let status = kube::core::Status::failure(message, "").with_code(code);
        kyma_api::Refusal::of(&status).reason()
    }

    #[test]
    fn fault_within_a_minute_is_retried_within_a_minute_of_its_end() {
        let failure = Failure::new(Reason::ApplyRefused, "");
        for jitter in [0.0, 1.0] {
            let (mut tries, mut now) = (vec![], Duration::ZERO);
            for failures in 1..8 {
                now += delay_after(&failure, failures, jitter).unwrap();
                tries.push(now);
            }
            for end in (0..=60).map(Duration::from_secs) {
                let next = tries.iter().find(|tried| **tried >= end).unwrap();
                assert!(*next <= end + Duration::from_mins(1), "{end:?} {next:?}");
            }
        }
    }

    #[test]
    fn unusable_source_answers_are_requested_again_within_an_hour() {
        for reason in [Reason::SourceInvalid, Reason::SourceHostRefused, Reason::SourceTooLarge] {
            let failure = Failure::new(reason, "");
            let after = |failures| delay_after(&failure, failures, 1.0).map(|delay| delay.as_secs());
            assert_eq!([1, 2, 3, 4, 20].map(after), [5, 11, 22, 44, 3600].map(Some), "{reason}");
            assert_eq!(longest_delay(&failure), Some(Duration::from_hours(1)));
            let spec = Failure { class: ErrorClass::Invalid, ..failure };
            assert_eq!((delay_after(&spec, 1, 1.0), longest_delay(&spec)), (None, None), "{reason}");
        }
        assert_eq!(delay_after(&Failure::new(Reason::ManifestInvalid, ""), 1, 1.0), None);
    }

    #[test]
    fn what_nobody_tells_of_is_looked_at_again() {
        let longest = |reason| longest_delay(&Failure::new(reason, "")).map(|delay| delay.as_secs());
        assert_eq!(longest(Reason::TargetForbidden), Some(600));
        assert_eq!(longest(Reason::HubForbidden), Some(600));
        assert_eq!(longest(Reason::WebhookDenied), Some(600));
        assert_eq!(longest(Reason::NamespaceTerminating), Some(600));
        assert_eq!(longest(Reason::WebhookFailed), Some(60));
        assert_eq!(longest(Reason::TargetTimeout), Some(60));
        for waits in [Reason::ValuesInvalid, Reason::RenderFailed, Reason::OwnedByOther] {
            assert_eq!(longest(waits), None, "{waits}");
        }
        let named = Failure::new(Reason::ValuesInvalid, "").retry_after(Duration::from_secs(7));
        assert_eq!(longest_delay(&named), Some(Duration::from_secs(7)));
    }

    #[test]
    fn second_failure_or_due_time_only_shortens_the_retry_delay() {
        let after =
            |failure: &Failure, failures| delay_after(failure, failures, 1.0).map(|delay| delay.as_secs());
        let waits = Failure::new(Reason::ValuesInvalid, "");
        let beside = waits.clone().beside(Reason::TargetForbidden);
        assert_eq!([1, 2, 3, 9].map(|failures| after(&beside, failures)), [5, 11, 22, 600].map(Some));
        assert_eq!(longest_delay(&beside), Some(Duration::from_mins(10)));
        let due = beside.no_later_than(Duration::from_secs(90)).no_later_than(Duration::from_secs(99));
        assert_eq!([1, 2, 3, 9].map(|failures| after(&due, failures)), [5, 11, 22, 90].map(Some));
        assert_eq!(longest_delay(&due), Some(Duration::from_secs(90)));
        let sooner = Failure::new(Reason::TargetTimeout, "").beside(Reason::QuotaExceeded);
        assert_eq!(after(&sooner, 9), Some(60));
        assert_eq!(after(&waits.beside(Reason::ValuesInvalid), 1), None);
    }

    #[test]
    fn a_moment_named_by_a_server_is_kept_within_reason() {
        let failure = Failure::new(Reason::DeletionBlocked, "").retry_after(Duration::from_secs(7));
        assert_eq!(delay_after(&failure, 9, 0.0), Some(Duration::from_millis(7250)));
        let failure = failure.retry_after(Duration::from_hours(24));
        assert!(delay_after(&failure, 1, 1.0).unwrap() < Duration::from_secs(601));
    }
}

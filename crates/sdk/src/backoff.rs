//! When a failed reconcile is tried again.

use std::time::Duration;

use kyma_api::ErrorClass;

use crate::Failure;

/// Delay after the first failure in a row.
const FIRST: Duration = Duration::from_millis(500);
/// Longest delay between tries of what may pass by itself.
const LONGEST: Duration = Duration::from_mins(1);
/// Longest delay that a server may ask for.
const LONGEST_ASKED: Duration = Duration::from_mins(10);

/// `first` after one failure in a row, doubled for each further one up to `longest`. `jitter` in 0..1 spreads the
/// delay over its upper half, so that what failed together does not return together.
pub(crate) fn doubled(first: Duration, longest: Duration, failures: u32, jitter: f64) -> Duration {
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(longest).mul_f64(spread(jitter))
}

fn spread(jitter: f64) -> f64 {
    0.5 + jitter.clamp(0.0, 1.0) / 2.0
}

/// How long to wait after the `failures`-th failure in a row (from 1); `None`: until an event.
///
/// Transient and Unreachable double from 0.5 s to 60 s; calls to an unreachable target are refused by its breaker
/// meanwhile, so a try costs nothing. Blocked and Invalid wait for an event unless the failure names a moment.
/// `jitter` lies in 0..1.
pub fn delay_after(failure: &Failure, failures: u32, jitter: f64) -> Option<Duration> {
    if let Some(asked) = failure.retry_after {
        return Some(asked.min(LONGEST_ASKED) + FIRST.mul_f64(spread(jitter)));
    }
    match failure.class {
        ErrorClass::Transient | ErrorClass::Unreachable => Some(doubled(FIRST, LONGEST, failures, jitter)),
        ErrorClass::Blocked | ErrorClass::Invalid => None,
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::Reason;

    use super::*;

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
        for reason in [Reason::DeletionBlocked, Reason::ValuesInvalid] {
            assert_eq!(delay_after(&Failure::new(reason, ""), 1, 0.5), None);
        }
    }

    #[test]
    fn a_moment_named_by_a_server_is_kept_within_reason() {
        let failure = Failure::new(Reason::DeletionBlocked, "").retry_after(Duration::from_secs(7));
        assert_eq!(delay_after(&failure, 9, 0.0), Some(Duration::from_millis(7250)));
        let failure = failure.retry_after(Duration::from_hours(24));
        assert!(delay_after(&failure, 1, 1.0).unwrap() < Duration::from_secs(601));
    }
}

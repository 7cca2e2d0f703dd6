//! Exponential delays between retries. Pure.

use std::time::Duration;

/// Maximum exponent of a delay: larger ones do not fit into `u32`.
const MAX_DOUBLINGS: u32 = 31;

/// A delay that doubles with each further failure, up to a maximum. Without state: the caller counts the failures, in
/// memory or in a status that outlives the process.
///
/// ```
/// use std::time::Duration;
///
/// use kyma_api::Backoff;
///
/// const BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(1)).with_jitter(0.5);
///
/// let delays = [1, 2, 3, 4, 5].map(|failures| BACKOFF.delay(failures).as_secs());
/// assert_eq!(delays, [5, 10, 20, 40, 60]);
/// assert_eq!(BACKOFF.jittered_delay(2, 0.0), Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    jitter_share: f64,
}

impl Backoff {
    /// Returns a backoff without jitter: `first` after one failure, and at most `max` after many.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, jitter_share: 0.0 }
    }

    /// Sets the share of each delay, in 0..1, that is random, so that callers that failed together are not retried
    /// together.
    pub const fn with_jitter(self, share: f64) -> Self {
        Self { jitter_share: share, ..self }
    }

    /// Returns the longest delay.
    pub const fn max_delay(self) -> Duration {
        self.max
    }

    /// Returns the delay after the `failures`-th failure in a row, without jitter. The first is 1; 0 counts as 1.
    pub fn delay(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(MAX_DOUBLINGS);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }

    /// Returns the same delay with jitter. `jitter` in 0..1 is a random number: at 1 the delay is not shortened, at 0 by
    /// its whole random share.
    pub fn jittered_delay(self, failures: u32, jitter: f64) -> Duration {
        self.delay(failures).mul_f64(1.0 - self.jitter_share * (1.0 - jitter.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff::new(Duration::from_millis(500), Duration::from_mins(1));
        let delays = [0, 1, 2, 3, 7, 8, 40, u32::MAX].map(|failures| backoff.delay(failures).as_millis());
        assert_eq!(delays, [500, 500, 1_000, 2_000, 32_000, 60_000, 60_000, 60_000]);
        assert_eq!(backoff.max_delay(), Duration::from_mins(1));
    }

    #[test]
    fn a_delay_that_overflows_is_the_maximum() {
        let backoff = Backoff::new(Duration::from_hours(1), Duration::MAX);
        assert_eq!(backoff.delay(u32::MAX), Duration::from_hours(1).saturating_mul(1 << 31));
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).delay(2), Duration::MAX);
    }

    #[test]
    fn jitter_shortens_a_delay_by_its_random_share() {
        let backoff = Backoff::new(Duration::from_secs(8), Duration::from_secs(16)).with_jitter(0.25);
        for (failures, jitter, millis) in
            [(1, 1.0, 8_000), (1, 0.5, 7_000), (1, 0.0, 6_000), (9, 0.0, 12_000)]
        {
            let expected = Duration::from_millis(millis);
            assert_eq!(backoff.jittered_delay(failures, jitter), expected, "{failures} {jitter}");
        }
        for (jitter, clamped) in [(-1.0, 0.0), (2.0, 1.0)] {
            assert_eq!(backoff.jittered_delay(1, jitter), backoff.jittered_delay(1, clamped), "{jitter}");
        }
        let without_jitter = Backoff::new(Duration::from_secs(8), Duration::from_secs(16));
        assert_eq!(without_jitter.jittered_delay(1, 0.0), Duration::from_secs(8));
    }
}

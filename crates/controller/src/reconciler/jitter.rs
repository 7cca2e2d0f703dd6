//! Random jitter for timers. Not for cryptography.

use std::time::Duration;

/// Returns a random number in 0..1.
pub fn jitter() -> f64 {
    fastrand::f64()
}

/// Returns `longest`, shortened at random by up to `share` of it.
pub fn shorten_randomly(longest: Duration, share: f64) -> Duration {
    longest.mul_f64(1.0 - share.clamp(0.0, 1.0) * jitter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_spreads_over_the_whole_range_and_stays_in_it() {
        let drawn: Vec<f64> = (0..1000).map(|_| jitter()).collect();
        assert!(drawn.iter().all(|one| (0.0..=1.0).contains(one)));
        assert!(drawn.iter().any(|one| *one < 0.1) && drawn.iter().any(|one| *one > 0.9));
    }
}

//! Random jitter for timers. Not for cryptography.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Returns a number in 0..1 from the standard library's hash map seed, which avoids a dependency.
pub fn jitter() -> f64 {
    let random = RandomState::new().hash_one(0_u8) >> 32;
    f64::from(u32::try_from(random).unwrap_or_default()) / f64::from(u32::MAX)
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

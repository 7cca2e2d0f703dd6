//! Time limit after which an operation counts as late.

use std::time::Duration;

/// A wait and its bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Patience {
    /// Elapsed whole seconds.
    pub waited: i64,
    /// Limit in seconds; `None`: no limit.
    pub limit: Option<i64>,
}

impl Patience {
    /// Returns a wait that began at `since`, or begins `now` (both in Unix seconds).
    pub fn since(since: Option<i64>, now: i64, limit: Option<i32>) -> Self {
        Self { waited: (now - since.unwrap_or(now)).max(0), limit: limit.map(i64::from) }
    }

    /// Reports whether the limit is exceeded.
    pub fn is_over(self) -> bool {
        self.limit.is_some_and(|limit| self.waited >= limit)
    }

    /// Returns the time until the limit; `None` without a limit, or after it.
    pub fn left(self) -> Option<Duration> {
        let left = u64::try_from(self.limit? - self.waited).ok()?;
        (left > 0).then(|| Duration::from_secs(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_over_when_its_limit_has_passed_and_not_before() {
        let waiting = Patience::since(Some(100), 129, Some(30));
        assert_eq!((waiting.is_over(), waiting.left()), (false, Some(Duration::from_secs(1))));
        let late = Patience::since(Some(100), 130, Some(30));
        assert_eq!((late.is_over(), late.left()), (true, None));
        let begins = Patience::since(None, 130, Some(30));
        assert_eq!(begins.left(), Some(Duration::from_secs(30)));
    }

    #[test]
    fn without_a_limit_or_with_a_clock_that_went_back_it_is_never_late() {
        let patient = Patience::since(Some(0), i64::from(u32::MAX), None);
        assert_eq!((patient.is_over(), patient.left()), (false, None));
        assert!(!Patience::since(Some(100), 50, Some(30)).is_over());
    }
}

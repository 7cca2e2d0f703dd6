//! Deadline after which an operation counts as late.

use std::time::Duration;

/// The elapsed time of a wait, and its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deadline {
    /// Elapsed whole seconds.
    pub waited: i64,
    /// Limit in seconds; `None`: no limit.
    pub limit: Option<i64>,
}

impl Deadline {
    /// Returns a wait that began at `since`, or begins `now` (both in Unix seconds).
    pub fn since(since: Option<i64>, now: i64, limit: Option<i32>) -> Self {
        Self { waited: (now - since.unwrap_or(now)).max(0), limit: limit.map(i64::from) }
    }

    /// Reports whether the limit is reached.
    pub fn has_passed(self) -> bool {
        self.limit.is_some_and(|limit| self.waited >= limit)
    }

    /// Returns the time until the limit; `None` without a limit, or after it.
    pub fn remaining(self) -> Option<Duration> {
        let remaining = u64::try_from(self.limit? - self.waited).ok()?;
        (remaining > 0).then(|| Duration::from_secs(remaining))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_when_its_limit_is_reached() {
        let waiting = Deadline::since(Some(100), 129, Some(30));
        assert_eq!((waiting.has_passed(), waiting.remaining()), (false, Some(Duration::from_secs(1))));
        let late = Deadline::since(Some(100), 130, Some(30));
        assert_eq!((late.has_passed(), late.remaining()), (true, None));
        let begins = Deadline::since(None, 130, Some(30));
        assert_eq!(begins.remaining(), Some(Duration::from_secs(30)));
    }

    #[test]
    fn deadline_without_limit_or_with_an_earlier_clock_never_passes() {
        let unlimited = Deadline::since(Some(0), i64::from(u32::MAX), None);
        assert_eq!((unlimited.has_passed(), unlimited.remaining()), (false, None));
        assert!(!Deadline::since(Some(100), 50, Some(30)).has_passed());
    }
}

//! State of the connection to a target: the last answer, and the cause of refused calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// State of the connection to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// Time since its last answer to a call or through a watch. `None`: none since its access Secret was read.
    pub answered: Option<Duration>,
    /// Time until the next probe while calls are refused; `None`: calls pass.
    pub held_for: Option<Duration>,
    /// Cause of the refusal of calls.
    pub cause: Option<String>,
}

/// Time of the last answer.
#[derive(Debug)]
pub(crate) struct LastAnswer {
    start: Instant,
    /// Milliseconds after `start`, plus one; 0 before the first answer.
    last: AtomicU64,
}

impl Default for LastAnswer {
    fn default() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl LastAnswer {
    pub(crate) fn now(&self) {
        let after = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.last.store(after + 1, Ordering::Relaxed);
    }

    pub(crate) fn ago(&self) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.start.elapsed().saturating_sub(Duration::from_millis(last)))
    }
}

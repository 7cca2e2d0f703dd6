//! The time of the next reconcile.

use std::time::Duration;

/// When to reconcile again without an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// At the resync: all inputs are watched.
    #[default]
    Event,
    /// After this time, at which an action is due.
    Timer(Duration),
    /// At the first answer of a dependency, at the latest after this time. The step did nothing yet, so the number of
    /// failures in a row is kept, and a reconcile request counts as unhandled.
    Answer(Duration),
}

impl Wait {
    /// Returns the same wait, limited to this time.
    pub fn at_most(self, delay: Duration) -> Self {
        match self {
            Self::Event => Self::Timer(delay),
            Self::Timer(earlier) => Self::Timer(earlier.min(delay)),
            Self::Answer(earlier) => Self::Answer(earlier.min(delay)),
        }
    }
}

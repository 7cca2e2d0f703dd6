//! Classes of failures.

use std::fmt;

/// How to handle a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorClass {
    /// The failure is temporary: retry with backoff.
    Transient,
    /// The object waits for an event: a change of another object, an action of a user, or a dependency.
    Blocked,
    /// The input is invalid: stop until it changes.
    Invalid,
    /// The target does not answer properly: trip its circuit breaker.
    Unreachable,
}

impl ErrorClass {
    /// Returns the value in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "Transient",
            Self::Blocked => "Blocked",
            Self::Invalid => "Invalid",
            Self::Unreachable => "Unreachable",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

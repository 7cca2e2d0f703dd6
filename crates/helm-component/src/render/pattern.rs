//! Patterns in the text of charts.

use regex::bytes::Regex;

/// A constant pattern, exercised by tests.
pub(super) fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|_| unreachable!("a constant pattern"))
}

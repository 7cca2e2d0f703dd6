//! Patterns in the text of charts.

use regex::bytes::Regex;

/// Compiles a constant pattern, which tests cover.
pub(super) fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|_| unreachable!("a constant pattern"))
}

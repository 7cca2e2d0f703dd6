//! Durations on the command line.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a positive duration, such as 30s or 10m.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<SignedDuration>()
        .ok()
        .and_then(|parsed| Duration::try_from(parsed).ok())
        .filter(|parsed| !parsed.is_zero())
        .ok_or_else(|| format!("{text:?} is not a duration above zero, such as 30s or 10m"))
}

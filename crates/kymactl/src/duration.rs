//! Durations on the command line.

use std::time::Duration;

use jiff::SignedDuration;

/// Longest duration, about 100 years: the clock cannot represent every later deadline.
const MAX_DURATION: Duration = Duration::from_hours(100 * 365 * 24);

/// Parses a positive duration, such as 30s or 10m. A number without a unit is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(SignedDuration::from_secs);
    seconds
        .or_else(|| text.parse().ok())
        .and_then(|parsed| Duration::try_from(parsed).ok())
        .filter(|parsed| !parsed.is_zero() && *parsed <= MAX_DURATION)
        .ok_or_else(|| format!("{text:?} is not a duration above zero, such as 30s or 10m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        for (text, expected) in [("30s", 30), ("10m", 600), ("1h30m", 5400), ("120", 120)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for text in ["", "0", "0s", "-1", "-1s", "s", "9223372036854775807", "9223372036854775807s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}

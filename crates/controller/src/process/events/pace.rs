//! Rate limit of events. Pure.

use std::time::{Duration, Instant};

/// Average interval between events.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// Burst tolerance: 25 events at once.
const BURST_TOLERANCE: Duration = Duration::from_millis(2500);

/// State of the generic cell rate algorithm: when the next event would be due at the average interval.
#[derive(Debug, Default)]
pub(super) struct Pace {
    due: Option<Instant>,
}

impl Pace {
    /// Returns the delay of an event that is published now.
    pub(super) fn next_delay(&mut self, now: Instant) -> Duration {
        let due = self.due.map_or(now, |due| due.max(now));
        self.due = Some(due + EVENT_INTERVAL);
        due.saturating_duration_since(now).saturating_sub(BURST_TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_go_at_once_and_then_ten_a_second() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert!((0..=25).all(|_| pace.next_delay(now).is_zero()));
        assert_eq!(pace.next_delay(now), EVENT_INTERVAL);
        let later = now + EVENT_INTERVAL;
        assert_eq!(pace.next_delay(later), EVENT_INTERVAL, "one that came after a wait");
        let much_later = now + Duration::from_mins(1);
        assert!(
            (0..=25).all(|_| pace.next_delay(much_later).is_zero()),
            "a pause brings them back, and no more"
        );
        assert_eq!(pace.next_delay(much_later), EVENT_INTERVAL);
    }
}

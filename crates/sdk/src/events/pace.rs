//! How fast events are published. Pure.

use std::time::{Duration, Instant};

/// From one event to the next in the long run.
const EACH: Duration = Duration::from_millis(100);
/// How far ahead of that they may be: 25 at once.
const AHEAD: Duration = Duration::from_millis(2500);

/// The generic cell rate algorithm: when the next event would be due if they came evenly.
#[derive(Debug, Default)]
pub(super) struct Pace {
    due: Option<Instant>,
}

impl Pace {
    /// How long one that comes now has to wait.
    pub(super) fn turn(&mut self, now: Instant) -> Duration {
        let due = self.due.map_or(now, |due| due.max(now));
        self.due = Some(due + EACH);
        due.saturating_duration_since(now).saturating_sub(AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_go_at_once_and_then_ten_a_second() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert!((0..=25).all(|_| pace.turn(now).is_zero()));
        assert_eq!(pace.turn(now), EACH);
        let later = now + EACH;
        assert_eq!(pace.turn(later), EACH, "one that came after a wait");
        let much_later = now + Duration::from_mins(1);
        assert!((0..=25).all(|_| pace.turn(much_later).is_zero()), "a pause brings them back, and no more");
        assert_eq!(pace.turn(much_later), EACH);
    }
}

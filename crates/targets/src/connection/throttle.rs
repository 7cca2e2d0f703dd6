//! Limits the concurrent calls to a target: additive increase, multiplicative decrease on 429, and a pause after
//! each 429. The state machine has no clock and no task; callers pass the time.

use std::time::{Duration, Instant};

/// Longest pause that a target can impose with `Retry-After`.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Pause after a 429 without `Retry-After`.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// Limit of the concurrent calls to one target. A call holds a slot from [`Throttle::take`] to [`Throttle::done`].
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    /// Upper bound of `window`, at least 1.
    max_slots: usize,
    /// Current number of slots, 1 to `max_slots`. The fraction grows with each answer; at 1 it adds a slot.
    window: f64,
    /// Calls that hold a slot.
    in_flight: usize,
    /// End of the pause. No call gets a slot before it.
    paused_until: Option<Instant>,
}

/// Result of [`Throttle::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The call has a slot; its caller releases the slot with [`Throttle::done`].
    Taken,
    /// No slot is free; try again after the next [`Throttle::done`].
    Full,
    /// The target returned 429; try again at this time.
    Paused(Instant),
}

impl Throttle {
    /// Returns a throttle with `max_slots` free slots, at least one.
    pub(crate) fn new(max_slots: usize) -> Self {
        let max_slots = max_slots.max(1);
        Self { max_slots, window: as_f64(max_slots), in_flight: 0, paused_until: None }
    }

    /// Takes a slot for a call.
    pub(crate) fn take(&mut self, now: Instant) -> Slot {
        if let Some(until) = self.paused_until.filter(|until| *until > now) {
            return Slot::Paused(until);
        }
        self.paused_until = None;
        if as_f64(self.in_flight + 1) > self.window {
            return Slot::Full;
        }
        self.in_flight += 1;
        Slot::Taken
    }

    /// Releases the slot of a call.
    pub(crate) fn done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records an answer other than 429: a full window of such answers adds one slot.
    pub(crate) fn accepted(&mut self) {
        self.window = (self.window + 1.0 / self.window).min(as_f64(self.max_slots));
    }

    /// Records a 429 and its `Retry-After`: halves the slots and starts a pause. Returns the length of the pause.
    pub(crate) fn rejected(&mut self, retry_after: Option<Duration>, now: Instant) -> Duration {
        let pause = retry_after.unwrap_or(DEFAULT_PAUSE).min(MAX_PAUSE);
        let until = now + pause;
        // A 429 that arrives during a pause answers a call that was sent before it, so it does not halve again.
        if self.paused_until.is_none_or(|known| known <= now) {
            self.window = (self.window / 2.0).max(1.0);
        }
        self.paused_until = Some(self.paused_until.map_or(until, |known| known.max(until)));
        pause
    }
}

fn as_f64(slots: usize) -> f64 {
    f64::from(u32::try_from(slots).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(throttle: &mut Throttle, now: Instant) -> usize {
        (0..100).take_while(|_| throttle.take(now) == Slot::Taken).count()
    }

    #[test]
    fn slots_are_bounded_and_come_back() {
        let (mut throttle, now) = (Throttle::new(8), Instant::now());
        assert_eq!(taken(&mut throttle, now), 8);
        assert_eq!(throttle.take(now), Slot::Full);
        throttle.done();
        assert_eq!(throttle.take(now), Slot::Taken);
    }

    #[test]
    fn a_429_halves_the_slots_and_pauses_as_long_as_asked() {
        let (mut throttle, now) = (Throttle::new(8), Instant::now());
        let pause = Duration::from_secs(7);
        assert_eq!(throttle.rejected(Some(pause), now), pause);
        assert_eq!(throttle.take(now), Slot::Paused(now + pause));
        assert_eq!(taken(&mut throttle, now + pause), 4);
    }

    #[test]
    fn rejections_of_one_burst_count_once() {
        let (mut throttle, now) = (Throttle::new(8), Instant::now());
        for _ in 0..6 {
            throttle.rejected(None, now);
        }
        assert_eq!(taken(&mut throttle, now + DEFAULT_PAUSE), 4);
    }

    #[test]
    fn a_target_cannot_impose_an_endless_pause() {
        let (mut throttle, now) = (Throttle::new(8), Instant::now());
        assert_eq!(throttle.rejected(Some(Duration::from_secs(1_000_000)), now), MAX_PAUSE);
    }

    #[test]
    fn slots_come_back_one_by_one_and_never_fall_below_one() {
        let (mut throttle, mut now) = (Throttle::new(4), Instant::now());
        for _ in 0..10 {
            throttle.rejected(None, now);
            now += MAX_PAUSE;
        }
        assert_eq!(taken(&mut throttle, now), 1);
        throttle.done();
        for _ in 0..100 {
            throttle.accepted();
        }
        assert_eq!(taken(&mut throttle, now), 4);
    }
}

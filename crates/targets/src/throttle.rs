//! Limits the concurrent calls to a target, as a state machine without clock or task: additive increase,
//! multiplicative decrease on 429, and a pause if the target requests one.

use std::time::{Duration, Instant};

/// Longest pause that a target can impose with `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Pause after a 429 without `Retry-After`.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// Slots and pause of one target.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    most: usize,
    /// Calls allowed at once, 1 to `most`; the fraction is progress towards the next slot.
    window: f64,
    in_flight: usize,
    paused_until: Option<Instant>,
}

/// Answer to a call that requests a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// It holds one and gives it back with [`Throttle::done`].
    Taken,
    /// All slots are taken; ask again when one is given back.
    Full,
    /// The target asked for a pause; ask again at this moment.
    Paused(Instant),
}

impl Throttle {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { most, window: as_f64(most), in_flight: 0, paused_until: None }
    }

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

    pub(crate) fn done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records an answer other than 429.
    pub(crate) fn accepted(&mut self) {
        self.window = (self.window + 1.0 / self.window).min(as_f64(self.most));
    }

    /// Records a 429. Returns the pause.
    pub(crate) fn rejected(&mut self, retry_after: Option<Duration>, now: Instant) -> Duration {
        let pause = retry_after.unwrap_or(DEFAULT_PAUSE).min(LONGEST_PAUSE);
        let until = now + pause;
        // Several calls in flight together count as one signal.
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
        assert_eq!(throttle.rejected(Some(Duration::from_secs(1_000_000)), now), LONGEST_PAUSE);
    }

    #[test]
    fn slots_come_back_one_by_one_and_never_fall_below_one() {
        let (mut throttle, mut now) = (Throttle::new(4), Instant::now());
        for _ in 0..10 {
            throttle.rejected(None, now);
            now += LONGEST_PAUSE;
        }
        assert_eq!(taken(&mut throttle, now), 1);
        throttle.done();
        for _ in 0..100 {
            throttle.accepted();
        }
        assert_eq!(taken(&mut throttle, now), 4);
    }
}

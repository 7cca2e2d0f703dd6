//! Counts the targets with deletions in the last ten minutes. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Time for which a target is counted, on the monotonic clock.
pub(crate) const WINDOW: Duration = Duration::from_mins(10);
/// Longest time for which a confirmation suspends the count. A component whose removal hangs asks again and again.
const MAX_CONFIRMATION: Duration = Duration::from_hours(1);

/// Maximum number of targets with deletions within ten minutes: the larger of the two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BrakeLimit {
    /// Absolute number. Default: 10.
    pub targets: u32,
    /// Percentage of all targets. Default: 1.
    pub percent: u8,
}

impl Default for BrakeLimit {
    fn default() -> Self {
        Self { targets: 10, percent: 1 }
    }
}

impl BrakeLimit {
    fn for_total(self, all: usize) -> usize {
        let share = all.saturating_mul(usize::from(self.percent)) / 100;
        share.max(usize::try_from(self.targets).unwrap_or(usize::MAX))
    }
}

/// A point in time on both clocks: the monotonic one decides, the wall clock is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) monotonic: Instant,
    pub(crate) wall: Timestamp,
}

impl ClockReading {
    /// Returns the reading for a recorded wall time, or `None` if it is older than the window. A future time, which a
    /// clock change causes, counts as now.
    fn of_record(self, wall: Timestamp) -> Option<Self> {
        let age = Duration::try_from(self.wall.duration_since(wall)).unwrap_or_default();
        // On a machine that started lately the monotonic clock does not reach as far back.
        let monotonic = self.monotonic.checked_sub(age).unwrap_or(self.monotonic);
        (age < WINDOW).then(|| Self { monotonic, wall: wall.min(self.wall) })
    }

    fn is_recent(&self, now: Self) -> bool {
        now.monotonic.saturating_duration_since(self.monotonic) < WINDOW
    }
}

/// The first deletion on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FirstDeletion {
    at: ClockReading,
    /// Number of targets at that time.
    all: usize,
}

/// A confirmation of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Confirmation {
    since: ClockReading,
    /// The last deletion since then.
    last: ClockReading,
}

impl Confirmation {
    fn is_valid(&self, now: ClockReading) -> bool {
        self.last.is_recent(now)
            && now.monotonic.saturating_duration_since(self.since.monotonic) < MAX_CONFIRMATION
    }
}

/// The targets with deletions in the last ten minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// First deletion per target. Holds at most as many targets as the limit allows.
    first_deletions: BTreeMap<String, FirstDeletion>,
    /// The user confirmed the deletions.
    confirmation: Option<Confirmation>,
    /// The record was lost: since this time the window counts as full.
    record_lost_at: Option<ClockReading>,
}

/// Decision about a deletion on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrakeDecision {
    /// Allowed: the target is counted already, or nothing is counted now.
    Allowed,
    /// Allowed, and counted from now on.
    NewlyCounted,
    /// Refused: the target would exceed the limit.
    LimitReached {
        /// Maximum number of targets with deletions within the window.
        limit: usize,
        /// Largest number of targets during the window.
        all: usize,
    },
    /// Refused: the record of the window was lost, so it counts as full.
    RecordLost,
}

impl Window {
    /// Returns the window of a record: targets with the wall time of their first deletion, and the number of targets.
    pub(crate) fn from_record(recorded: BTreeMap<String, Timestamp>, all: usize, now: ClockReading) -> Self {
        let first = |(target, wall)| Some((target, FirstDeletion { at: now.of_record(wall)?, all }));
        Self { first_deletions: recorded.into_iter().filter_map(first).collect(), ..Self::default() }
    }

    /// Returns the window of an operator that deleted before and whose record is lost.
    pub(crate) fn without_record(now: ClockReading) -> Self {
        Self { record_lost_at: Some(now), ..Self::default() }
    }

    /// Returns the counted targets with the wall time of their first deletion.
    pub(crate) fn counted(&self) -> BTreeMap<&str, Timestamp> {
        self.first_deletions.iter().map(|(target, first)| (target.as_str(), first.at.wall)).collect()
    }

    /// Returns the largest number of targets during the window, so that deletions do not lower their own limit.
    pub(crate) fn all(&self) -> usize {
        self.first_deletions.values().map(|first| first.all).max().unwrap_or_default()
    }

    /// Decides on a deletion on `target`, of `all` targets, and counts it.
    pub(crate) fn check_target(
        &mut self,
        target: &str,
        limit: BrakeLimit,
        all: usize,
        now: ClockReading,
    ) -> BrakeDecision {
        if let Some(confirmation) = self.confirmation.as_mut().filter(|found| found.is_valid(now)) {
            confirmation.last = now;
            return BrakeDecision::Allowed;
        }
        self.confirmation = None;
        if self.record_lost_at.as_ref().is_some_and(|lost| lost.is_recent(now)) {
            // While deletions are requested, the lost count stays unknown.
            self.record_lost_at = Some(now);
            return BrakeDecision::RecordLost;
        }
        self.record_lost_at = None;
        self.first_deletions.retain(|_, first| first.at.is_recent(now));
        if self.first_deletions.contains_key(target) {
            return BrakeDecision::Allowed;
        }
        let largest = self.all().max(all);
        let limit = limit.for_total(largest);
        if self.first_deletions.len() >= limit {
            return BrakeDecision::LimitReached { limit, all: largest };
        }
        self.first_deletions.insert(target.to_owned(), FirstDeletion { at: now, all });
        BrakeDecision::NewlyCounted
    }

    /// Records that the user confirmed the deletions: nothing is counted until none happens for a whole window, for
    /// one hour at most.
    pub(crate) fn confirm_deletions(&mut self, now: ClockReading) {
        *self = Self { confirmation: Some(Confirmation { since: now, last: now }), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static ORIGIN: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_hours(1));

    fn at(minute: u64) -> ClockReading {
        ClockReading {
            monotonic: *ORIGIN + Duration::from_mins(minute),
            wall: Timestamp::from_second(i64::try_from(minute).unwrap() * 60).unwrap(),
        }
    }

    fn ask(window: &mut Window, target: usize, all: usize, minute: u64) -> BrakeDecision {
        window.check_target(&format!("t{target}"), BrakeLimit::default(), all, at(minute))
    }

    fn full(all: usize, limit: usize) -> Window {
        let mut window = Window::default();
        for target in 0..limit {
            assert_eq!(ask(&mut window, target, all, 0), BrakeDecision::NewlyCounted);
        }
        window
    }

    #[test]
    fn ten_targets_or_one_per_cent_and_not_one_more() {
        for (all, limit) in [(3, 10), (12, 10), (1_000, 10), (1_100, 11), (5_000, 50)] {
            let mut window = full(all, limit);
            assert_eq!(ask(&mut window, limit, all, 1), BrakeDecision::LimitReached { limit, all }, "{all}");
            assert_eq!(ask(&mut window, 0, all, 1), BrakeDecision::Allowed, "what it has begun it ends");
            assert_eq!(window.counted().len(), limit);
        }
    }

    #[test]
    fn what_is_ten_minutes_old_counts_no_longer() {
        let mut window = full(12, 10);
        assert_eq!(ask(&mut window, 11, 12, 9), BrakeDecision::LimitReached { limit: 10, all: 12 });
        assert_eq!(ask(&mut window, 11, 12, 10), BrakeDecision::NewlyCounted);
    }

    #[test]
    fn what_was_meant_goes_on_until_it_rests() {
        let mut window = full(100, 10);
        window.confirm_deletions(at(1));
        for target in 20..60 {
            assert_eq!(
                ask(&mut window, target, 100, 2 + u64::try_from(target).unwrap() / 5),
                BrakeDecision::Allowed
            );
        }
        assert_eq!(
            ask(&mut window, 70, 100, 24),
            BrakeDecision::NewlyCounted,
            "ten minutes after the last one it counts again"
        );
    }

    #[test]
    fn a_confirmation_ends_after_an_hour_of_steady_deletions() {
        let mut window = full(100, 10);
        window.confirm_deletions(at(0));
        for minute in (5..60).step_by(5) {
            assert_eq!(ask(&mut window, 20, 100, minute), BrakeDecision::Allowed, "{minute}");
        }
        assert_eq!(ask(&mut window, 20, 100, 60), BrakeDecision::NewlyCounted);
    }

    #[test]
    fn the_limit_follows_a_fleet_that_shrank() {
        let mut window = Window::default();
        assert_eq!(ask(&mut window, 0, 5_000, 0), BrakeDecision::NewlyCounted);
        for target in 1..=10 {
            assert_eq!(ask(&mut window, target, 100, 6), BrakeDecision::NewlyCounted);
        }
        assert_eq!(ask(&mut window, 11, 100, 11), BrakeDecision::LimitReached { limit: 10, all: 100 });
    }

    #[test]
    fn the_wall_clock_frees_no_window_and_fills_none() {
        for jump in [-3_600, 3_600] {
            let mut window = full(12, 10);
            let now = ClockReading { wall: Timestamp::from_second(3_600 + jump).unwrap(), ..at(1) };
            let verdict = window.check_target("t11", BrakeLimit::default(), 12, now);
            assert_eq!(verdict, BrakeDecision::LimitReached { limit: 10, all: 12 }, "{jump}");
        }
    }

    #[test]
    fn deletions_do_not_lower_their_own_limit() {
        let all_of_them = BrakeLimit { targets: 1, percent: 100 };
        let mut window = Window::default();
        for left in (1..=20).rev() {
            assert_eq!(
                window.check_target(&format!("t{left}"), all_of_them, left, at(0)),
                BrakeDecision::NewlyCounted,
                "{left}"
            );
        }
        assert_eq!(window.all(), 20);
        let mut window = full(5_000, 50);
        assert_eq!(ask(&mut window, 51, 4_000, 1), BrakeDecision::LimitReached { limit: 50, all: 5_000 });
    }

    fn recorded(window: &Window) -> BTreeMap<String, Timestamp> {
        window.counted().into_iter().map(|(target, wall)| (target.to_owned(), wall)).collect()
    }

    #[test]
    fn a_restart_forgets_nothing_and_keeps_nothing_old() {
        let before = full(12, 10);
        let restored = |minute| Window::from_record(recorded(&before), before.all(), at(minute));
        assert_eq!(ask(&mut restored(1), 11, 2, 1), BrakeDecision::LimitReached { limit: 10, all: 12 });
        assert_eq!(ask(&mut restored(9), 11, 12, 10), BrakeDecision::NewlyCounted);
        assert_eq!(ask(&mut restored(11), 11, 12, 11), BrakeDecision::NewlyCounted);
        // The clock was set back over the restart.
        let future = recorded(&before).into_keys().map(|target| (target, at(600).wall)).collect();
        let mut window = Window::from_record(future, 12, at(1));
        assert_eq!(ask(&mut window, 11, 12, 2), BrakeDecision::LimitReached { limit: 10, all: 12 });
        assert!(window.counted().values().all(|wall| *wall == at(1).wall), "not in the future any more");
    }

    #[test]
    fn a_lost_record_counts_as_full_while_deletions_are_pending() {
        let mut window = Window::without_record(at(0));
        for minute in [0, 9, 18] {
            assert_eq!(ask(&mut window, 0, 100, minute), BrakeDecision::RecordLost);
        }
        let mut confirmed = window.clone();
        confirmed.confirm_deletions(at(19));
        assert_eq!(ask(&mut confirmed, 0, 100, 20), BrakeDecision::Allowed);
        assert_eq!(
            ask(&mut window, 0, 100, 28),
            BrakeDecision::NewlyCounted,
            "none was pending for ten minutes"
        );
    }
}

//! Counts the targets on which something was deleted lately. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Time over which targets are counted, on the monotonic clock.
pub(crate) const WINDOW: Duration = Duration::from_mins(10);

/// On how many targets something may be deleted within ten minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BrakeLimit {
    /// So many always. Default: 10.
    pub targets: u32,
    /// So many per cent of all targets, where that is more. Default: 1.
    pub percent: u8,
}

impl Default for BrakeLimit {
    fn default() -> Self {
        Self { targets: 10, percent: 1 }
    }
}

impl BrakeLimit {
    fn of(self, all: usize) -> usize {
        let share = all.saturating_mul(usize::from(self.percent)) / 100;
        share.max(usize::try_from(self.targets).unwrap_or(usize::MAX))
    }
}

/// A moment on both clocks: the monotonic one decides, the other one is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) monotonic: Instant,
    pub(crate) wall: Timestamp,
}

impl ClockReading {
    /// The monotonic time of a recorded moment, if it is known and recent. A record from the future says that a clock
    /// was set; it counts as of now.
    fn of_record(self, wall: Timestamp) -> Option<Self> {
        let age = Duration::try_from(self.wall.duration_since(wall)).unwrap_or_default();
        // On a machine that started lately the monotonic clock does not reach as far back.
        let monotonic = self.monotonic.checked_sub(age).unwrap_or(self.monotonic);
        (age < WINDOW).then_some(Self { monotonic, wall })
    }

    fn is_recent(&self, now: Self) -> bool {
        now.monotonic.saturating_duration_since(self.monotonic) < WINDOW
    }
}

/// The targets on which something was deleted, and when that was first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Never longer than the limit: beyond it nothing is deleted.
    first: BTreeMap<String, ClockReading>,
    /// How many targets there were when the window began: deletions must not lower their own limit.
    all: usize,
    /// A person confirmed the deletions; the last deletion since then.
    meant: Option<ClockReading>,
    /// The record was lost: since this moment the window counts as full.
    lost: Option<ClockReading>,
}

/// Whether something may be deleted on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Yes; the target is counted already, or nothing is counted now.
    Go,
    /// Yes; it is counted from now on.
    Counted,
    /// No: it would be one target more than this many.
    Stop {
        /// Targets that may lose something within the window.
        limit: usize,
        /// Targets when the window began.
        all: usize,
    },
    /// No: the record of the window was lost, so it counts as full.
    Unknown,
}

impl Window {
    /// The window that a record holds: targets with the wall time of their first deletion, and how many targets there
    /// were.
    pub(crate) fn restored(recorded: BTreeMap<String, Timestamp>, all: usize, now: ClockReading) -> Self {
        let first = recorded.into_iter().filter_map(|(target, wall)| Some((target, now.of_record(wall)?)));
        Self { first: first.collect(), all, ..Self::default() }
    }

    /// The window of an operator that deleted before and whose record is lost.
    pub(crate) fn lost(now: ClockReading) -> Self {
        Self { lost: Some(now), ..Self::default() }
    }

    /// The targets counted, and since when by the wall clock.
    pub(crate) fn counted(&self) -> BTreeMap<&str, Timestamp> {
        self.first.iter().map(|(target, moment)| (target.as_str(), moment.wall)).collect()
    }

    /// How many targets there were when the window began.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Asks for one target, of `all`.
    pub(crate) fn ask(&mut self, target: &str, limit: BrakeLimit, all: usize, now: ClockReading) -> Verdict {
        let is_recent = |moment: &ClockReading| moment.is_recent(now);
        if self.meant.as_ref().is_some_and(is_recent) {
            self.meant = Some(now);
            return Verdict::Go;
        }
        self.meant = None;
        if self.lost.as_ref().is_some_and(is_recent) {
            // As long as deletions are pending, their number stays unknown.
            self.lost = Some(now);
            return Verdict::Unknown;
        }
        self.lost = None;
        self.first.retain(|_, moment| is_recent(moment));
        if self.first.is_empty() {
            self.all = 0;
        }
        self.all = self.all.max(all);
        if self.first.contains_key(target) {
            return Verdict::Go;
        }
        let limit = limit.of(self.all);
        if self.first.len() >= limit {
            return Verdict::Stop { limit, all: self.all };
        }
        self.first.insert(target.to_owned(), now);
        Verdict::Counted
    }

    /// A person confirmed the deletions: nothing is counted until they rest for the whole window.
    pub(crate) fn mean_it(&mut self, now: ClockReading) {
        *self = Self { meant: Some(now), ..Self::default() };
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

    fn ask(window: &mut Window, target: usize, all: usize, minute: u64) -> Verdict {
        window.ask(&format!("t{target}"), BrakeLimit::default(), all, at(minute))
    }

    fn full(all: usize, limit: usize) -> Window {
        let mut window = Window::default();
        for target in 0..limit {
            assert_eq!(ask(&mut window, target, all, 0), Verdict::Counted);
        }
        window
    }

    #[test]
    fn ten_targets_or_one_per_cent_and_not_one_more() {
        for (all, limit) in [(3, 10), (12, 10), (1_000, 10), (1_100, 11), (5_000, 50)] {
            let mut window = full(all, limit);
            assert_eq!(ask(&mut window, limit, all, 1), Verdict::Stop { limit, all }, "{all}");
            assert_eq!(ask(&mut window, 0, all, 1), Verdict::Go, "what it has begun it ends");
            assert_eq!(window.counted().len(), limit);
        }
    }

    #[test]
    fn what_is_ten_minutes_old_counts_no_longer() {
        let mut window = full(12, 10);
        assert_eq!(ask(&mut window, 11, 12, 9), Verdict::Stop { limit: 10, all: 12 });
        assert_eq!(ask(&mut window, 11, 12, 10), Verdict::Counted);
    }

    #[test]
    fn what_was_meant_goes_on_until_it_rests() {
        let mut window = full(100, 10);
        window.mean_it(at(1));
        for target in 20..60 {
            assert_eq!(ask(&mut window, target, 100, 2 + u64::try_from(target).unwrap() / 5), Verdict::Go);
        }
        assert_eq!(
            ask(&mut window, 70, 100, 24),
            Verdict::Counted,
            "ten minutes after the last one it counts again"
        );
    }

    #[test]
    fn the_wall_clock_frees_no_window_and_fills_none() {
        for jump in [-3_600, 3_600] {
            let mut window = full(12, 10);
            let now = ClockReading { wall: Timestamp::from_second(3_600 + jump).unwrap(), ..at(1) };
            let verdict = window.ask("t11", BrakeLimit::default(), 12, now);
            assert_eq!(verdict, Verdict::Stop { limit: 10, all: 12 }, "{jump}");
        }
    }

    #[test]
    fn deletions_do_not_lower_their_own_limit() {
        let all_of_them = BrakeLimit { targets: 1, percent: 100 };
        let mut window = Window::default();
        for left in (1..=20).rev() {
            assert_eq!(window.ask(&format!("t{left}"), all_of_them, left, at(0)), Verdict::Counted, "{left}");
        }
        assert_eq!(window.all(), 20);
        let mut window = full(5_000, 50);
        assert_eq!(ask(&mut window, 51, 4_000, 1), Verdict::Stop { limit: 50, all: 5_000 });
    }

    fn recorded(window: &Window) -> BTreeMap<String, Timestamp> {
        window.counted().into_iter().map(|(target, wall)| (target.to_owned(), wall)).collect()
    }

    #[test]
    fn a_restart_forgets_nothing_and_keeps_nothing_old() {
        let before = full(12, 10);
        let restored = |minute| Window::restored(recorded(&before), before.all(), at(minute));
        assert_eq!(ask(&mut restored(1), 11, 2, 1), Verdict::Stop { limit: 10, all: 12 });
        assert_eq!(ask(&mut restored(9), 11, 12, 10), Verdict::Counted);
        assert_eq!(ask(&mut restored(11), 11, 12, 11), Verdict::Counted);
        // The clock was set back over the restart.
        let future = recorded(&before).into_keys().map(|target| (target, at(600).wall)).collect();
        let mut window = Window::restored(future, 12, at(1));
        assert_eq!(ask(&mut window, 11, 12, 2), Verdict::Stop { limit: 10, all: 12 });
    }

    #[test]
    fn a_lost_record_counts_as_full_while_deletions_are_pending() {
        let mut window = Window::lost(at(0));
        for minute in [0, 9, 18] {
            assert_eq!(ask(&mut window, 0, 100, minute), Verdict::Unknown);
        }
        let mut confirmed = window.clone();
        confirmed.mean_it(at(19));
        assert_eq!(ask(&mut confirmed, 0, 100, 20), Verdict::Go);
        assert_eq!(ask(&mut window, 0, 100, 28), Verdict::Counted, "none was pending for ten minutes");
    }
}

//! How many targets lost something lately. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// Time over which targets are counted.
pub(crate) const WINDOW: SignedDuration = SignedDuration::from_mins(10);

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

/// The targets on which something was deleted, and when that was first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Never longer than the limit: beyond it nothing is deleted.
    first: BTreeMap<String, Timestamp>,
    /// A person said that what goes on is meant; the last deletion since then.
    meant: Option<Timestamp>,
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
    },
}

impl Window {
    /// What was counted before a restart.
    pub(crate) fn restored(first: BTreeMap<String, Timestamp>) -> Self {
        Self { first, meant: None }
    }

    /// The targets counted, and since when.
    pub(crate) fn counted(&self) -> &BTreeMap<String, Timestamp> {
        &self.first
    }

    /// Asks for one target, of `all`.
    pub(crate) fn ask(&mut self, target: &str, limit: BrakeLimit, all: usize, now: Timestamp) -> Verdict {
        let is_recent = |moment: &Timestamp| now.duration_since(*moment) < WINDOW;
        if self.meant.as_ref().is_some_and(is_recent) {
            self.meant = Some(now);
            return Verdict::Go;
        }
        self.meant = None;
        self.first.retain(|_, moment| is_recent(moment));
        if self.first.contains_key(target) {
            return Verdict::Go;
        }
        let limit = limit.of(all);
        if self.first.len() >= limit {
            return Verdict::Stop { limit };
        }
        self.first.insert(target.to_owned(), now);
        Verdict::Counted
    }

    /// A person said that what goes on is meant: nothing is counted until deletions rest for the whole window.
    pub(crate) fn mean_it(&mut self, now: Timestamp) {
        self.first.clear();
        self.meant = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn ask(window: &mut Window, target: usize, all: usize, minute: i64) -> Verdict {
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
            assert_eq!(ask(&mut window, limit, all, 1), Verdict::Stop { limit }, "{all}");
            assert_eq!(ask(&mut window, 0, all, 1), Verdict::Go, "what it has begun it ends");
            assert_eq!(window.counted().len(), limit);
        }
    }

    #[test]
    fn what_is_ten_minutes_old_counts_no_longer() {
        let mut window = full(12, 10);
        assert_eq!(ask(&mut window, 11, 12, 9), Verdict::Stop { limit: 10 });
        assert_eq!(ask(&mut window, 11, 12, 10), Verdict::Counted);
    }

    #[test]
    fn what_was_meant_goes_on_until_it_rests() {
        let mut window = full(100, 10);
        window.mean_it(at(1));
        for target in 20..60 {
            assert_eq!(ask(&mut window, target, 100, 2 + i64::try_from(target).unwrap() / 5), Verdict::Go);
        }
        assert_eq!(
            ask(&mut window, 70, 100, 24),
            Verdict::Counted,
            "ten minutes after the last one it counts again"
        );
    }

    #[test]
    fn a_clock_that_was_set_back_frees_nobody() {
        let mut window = full(12, 10);
        assert_eq!(ask(&mut window, 11, 12, -60), Verdict::Stop { limit: 10 });
    }

    #[test]
    fn a_restart_forgets_nothing() {
        let window = Window::restored(full(12, 10).counted().clone());
        assert_eq!(ask(&mut window.clone(), 11, 12, 1), Verdict::Stop { limit: 10 });
    }
}

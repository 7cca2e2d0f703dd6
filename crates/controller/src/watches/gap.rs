//! Gaps of a stream, and the delays before the next list. Pure.

use std::time::Duration;

use kyma_api::Backoff;

use crate::reconciler::backoff::JITTER_SHARE;

/// Delays before a stream that failed is opened again.
const RETRY_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_mins(1)).with_jitter(JITTER_SHARE);
/// Time after the creation of a stream in which retries stay fast: a kind whose CRD was just established is refused a
/// few times before it is served.
const NEW_STREAM_AGE: Duration = Duration::from_mins(1);
/// Delays of retries in that time. In most cases the kind is served within a tenth of a second, and no event reports
/// that.
const NEW_STREAM_RETRY_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_secs(2)).with_jitter(JITTER_SHARE);
/// Time for which a stream must follow its watch, so that earlier watches no longer count. A target whose watch ends right
/// after each list would otherwise be listed without growing delays. Short, since proxies end idle connections after half
/// a minute or more, and a change during a delay is seen late.
const STABLE_WATCH_AGE: Duration = Duration::from_secs(10);
/// Delays before a list repeats an event at which the listener panicked.
const REPEAT_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(5), Duration::from_hours(1)).with_jitter(JITTER_SHARE);

/// Reason that a stream starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// The API server no longer has the resourceVersion (410).
    Expired,
    /// The stream was silent for too long.
    Silence,
    /// A call failed.
    Failed,
    /// The kind is served, and the API server still fills its cache.
    Initializing,
    /// No failure: the stream is due for verification, or for the repetition of events.
    Due,
}

impl Gap {
    /// Returns the cause for metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Silence => "silence",
            Self::Failed | Self::Initializing => "failed",
            Self::Due => "verify",
        }
    }
}

/// Counts the gaps in a row, for the next delay.
#[derive(Debug, Default)]
pub(super) struct GapCount {
    /// Lists that failed since the last complete one.
    lists: u32,
    /// Watches, or their requests, that ended early since the last stable one.
    watches: u32,
    was_initializing: bool,
}

impl GapCount {
    /// Counts a gap and returns the gaps in a row. `followed` is the time for which the stream followed its watch; `None`
    /// if the list failed. The first `Initializing` starts a new count, since the time for which a kind was not served
    /// says nothing about the time that its cache needs.
    pub(super) fn after(&mut self, gap: Gap, followed: Option<Duration>) -> u32 {
        if gap == Gap::Initializing && !std::mem::replace(&mut self.was_initializing, true) {
            (self.lists, self.watches) = (0, 0);
        }
        let count = match followed {
            Some(age) => {
                self.lists = 0;
                self.reset_if_stable(age);
                &mut self.watches
            }
            None => &mut self.lists,
        };
        if gap != Gap::Due {
            *count = count.saturating_add(1);
        }
        self.lists.max(self.watches)
    }

    /// Counts a watch request of this age that the target ended early, and returns such requests in a row.
    pub(super) fn after_early_end(&mut self, age: Duration) -> u32 {
        self.reset_if_stable(age);
        self.watches = self.watches.saturating_add(1);
        self.watches
    }

    fn reset_if_stable(&mut self, age: Duration) {
        if age >= STABLE_WATCH_AGE {
            self.watches = 0;
        }
    }
}

/// Events since the last processed list at which the listener panicked.
#[derive(Debug, Default)]
pub(super) struct Panics {
    count: u32,
}

impl Panics {
    /// Records a list. Returns the time until it is repeated if the listener panicked.
    pub(super) fn after_list(&mut self, is_processed: bool, jitter: f64) -> Option<Duration> {
        if is_processed {
            *self = Self::default();
        }
        self.after_event(is_processed, jitter)
    }

    /// Records an event. Returns the time until a list repeats it if the listener panicked.
    pub(super) fn after_event(&mut self, is_processed: bool, jitter: f64) -> Option<Duration> {
        if is_processed {
            return None;
        }
        self.count = self.count.saturating_add(1);
        Some(REPEAT_BACKOFF.jittered_delay(self.count, jitter))
    }
}

/// Returns the pause of a stream of this age after this number of gaps in a row; `jitter` lies in 0..1.
pub(super) fn pause_after(gaps: u32, age: Duration, jitter: f64) -> Duration {
    let backoff = if age < NEW_STREAM_AGE { NEW_STREAM_RETRY_BACKOFF } else { RETRY_BACKOFF };
    backoff.jittered_delay(gaps, jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of the second, third and later attempts of a new stream, if each attempt fails immediately.
    fn tries(jitter: f64) -> impl Iterator<Item = Duration> {
        (1..).scan(Duration::ZERO, move |at, gaps| {
            *at += pause_after(gaps, *at, jitter);
            Some(*at)
        })
    }

    #[test]
    fn new_kind_is_noticed_within_a_delay_proportional_to_its_wait() {
        let moment = Duration::from_millis(150);
        for jitter in [0.0, 0.5, 1.0] {
            assert!(tries(jitter).take_while(|at| *at < moment).count() >= 3, "{jitter}");
            // Never much longer than it took to be served.
            let all: Vec<Duration> = tries(jitter).take(20).collect();
            assert!(all.windows(2).all(|pair| pair[1] <= pair[0] * 2 + Duration::from_millis(20)), "{all:?}");
        }
    }

    #[test]
    fn first_initializing_restarts_the_count_of_gaps_once() {
        let mut count = GapCount::default();
        let mut after = |gaps: &[Gap]| gaps.iter().map(|gap| count.after(*gap, None)).collect::<Vec<_>>();
        assert_eq!(after(&[Gap::Failed, Gap::Failed, Gap::Failed]), [1, 2, 3]);
        assert_eq!(after(&[Gap::Initializing, Gap::Initializing]), [1, 2]);
        assert_eq!(after(&[Gap::Failed, Gap::Initializing]), [3, 4], "a target that alternates between both");
    }

    #[test]
    fn watches_that_end_early_count_until_one_is_stable() {
        let (early, stable) = (Some(Duration::from_secs(1)), Some(STABLE_WATCH_AGE));
        let mut count = GapCount::default();
        for (gap, expected) in [(Gap::Expired, 1), (Gap::Failed, 2), (Gap::Silence, 3), (Gap::Expired, 4)] {
            assert_eq!(count.after(gap, early), expected, "{gap:?} right after a list");
        }
        assert_eq!(count.after(Gap::Failed, None), 4, "a list that fails once does not shorten the delay");
        assert_eq!(count.after(Gap::Due, stable), 0, "a verification is no gap");
        assert_eq!(count.after(Gap::Expired, stable), 1);
    }

    #[test]
    fn requests_that_end_early_are_repeated_after_growing_delays() {
        let mut ends = GapCount::default();
        let mut delay_after = |age: u64| {
            pause_after(ends.after_early_end(Duration::from_secs(age)), NEW_STREAM_AGE, 1.0).as_millis()
        };
        assert_eq!([0, 0, 9].map(&mut delay_after), [500, 1_000, 2_000]);
        assert_eq!([30, 30].map(&mut delay_after), [500, 500], "a proxy that ends idle connections");
    }

    #[test]
    fn a_complete_list_ends_the_count_of_failed_lists() {
        let mut count = GapCount::default();
        for expected in 1..=9 {
            assert_eq!(count.after(Gap::Failed, None), expected);
        }
        assert_eq!(count.after(Gap::Expired, Some(Duration::ZERO)), 1);
        assert_eq!(count.after(Gap::Expired, None), 1, "lists that expire count too");
        assert_eq!(count.after(Gap::Expired, None), 2);
    }

    #[test]
    fn delays_of_repetitions_grow_until_a_list_is_processed() {
        let mut panics = Panics::default();
        assert_eq!(panics.after_list(true, 1.0), None);
        assert_eq!(panics.after_event(false, 1.0), Some(Duration::from_secs(5)));
        assert_eq!(panics.after_event(true, 1.0), None, "the event before is still not processed");
        assert_eq!(panics.after_list(false, 1.0), Some(Duration::from_secs(10)));
        for _ in 0..20 {
            panics.after_list(false, 1.0);
        }
        assert_eq!(panics.after_list(false, 1.0), Some(Duration::from_hours(1)));
        assert_eq!(panics.after_list(true, 1.0), None);
        assert_eq!(panics.after_event(false, 1.0), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_kind_that_is_not_served_for_long_is_asked_for_seldom() {
        assert!(tries(0.0).take_while(|at| *at < NEW_STREAM_AGE).count() < 70);
        assert_eq!(pause_after(1, NEW_STREAM_AGE, 1.0), Duration::from_millis(500));
        assert_eq!(pause_after(u32::MAX, NEW_STREAM_AGE, 1.0), Duration::from_mins(1));
    }
}

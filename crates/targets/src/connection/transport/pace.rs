//! Rate at which the watches on a target are read: a token bucket that incoming bytes drain and that time and writes
//! refill. Pure.

use std::time::{Duration, Instant};

use crate::connection::limits::WatchPace;

/// Minimum cost of a line, in bytes: each wakes a subscriber, however short it is.
const LINE_COST_BYTES: f64 = 4096.0;

/// The bucket of one target's watches.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    limits: WatchPace,
    left: f64,
    seen: Instant,
}

impl Pace {
    pub(super) fn new(limits: WatchPace, now: Instant) -> Self {
        Self { left: as_f64(limits.burst), limits, seen: now }
    }

    /// Records incoming bytes. Returns the time for which nothing more is read.
    pub(super) fn took(&mut self, data: &[u8], now: Instant) -> Option<Duration> {
        let refill = now.saturating_duration_since(self.seen).as_secs_f64() * as_f64(self.limits.per_second);
        self.seen = now;
        let lines = data.split(|byte| *byte == b'\n').count() - 1;
        let cost = as_f64(data.len()).max(as_f64(lines) * LINE_COST_BYTES);
        self.left = (self.left + refill).min(as_f64(self.limits.burst)) - cost;
        let wait = -self.left / as_f64(self.limits.per_second.max(1));
        (self.left < 0.0).then(|| Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }

    /// Records a write, which watches report.
    pub(super) fn wrote(&mut self) {
        self.left = (self.left + as_f64(self.limits.per_write)).min(as_f64(self.limits.burst));
    }
}

fn as_f64(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WatchPace = WatchPace { burst: 100_000, per_second: 10_000, per_write: 20_000 };

    #[test]
    fn a_burst_passes_and_then_time_decides() {
        let now = Instant::now();
        let mut pace = Pace::new(LIMITS, now);
        assert_eq!(pace.took(&vec![b'x'; 100_000], now), None);
        assert_eq!(pace.took(&vec![b'x'; 20_000], now), Some(Duration::from_secs(2)));
        let later = now + Duration::from_secs(2);
        assert_eq!(pace.took(b"", later), None);
        assert_eq!(pace.took(&vec![b'x'; 10_000], later), Some(Duration::from_secs(1)));
    }

    #[test]
    fn short_lines_cost_more_than_their_bytes() {
        let now = Instant::now();
        let mut pace = Pace::new(LIMITS, now);
        assert_eq!(pace.took(&b"{}\n".repeat(24), now), None);
        assert!(pace.took(b"{}\n", now).is_some());
    }

    #[test]
    fn silence_saves_up_no_more_than_one_burst() {
        let now = Instant::now();
        let mut pace = Pace::new(LIMITS, now);
        let later = now + Duration::from_hours(1);
        assert_eq!(pace.took(&vec![b'x'; 100_000], later), None);
        assert!(pace.took(b"x", later).is_some());
    }

    #[test]
    fn what_is_written_may_be_told_at_once_up_to_a_burst() {
        let now = Instant::now();
        let mut pace = Pace::new(LIMITS, now);
        for _ in 0..10 {
            pace.wrote();
            assert_eq!(pace.took(&vec![b'x'; 20_000], now), None);
        }
        (0..10).for_each(|_| pace.wrote());
        assert_eq!(pace.took(&vec![b'x'; 100_000], now), None);
        assert!(pace.took(b"x", now).is_some());
    }
}

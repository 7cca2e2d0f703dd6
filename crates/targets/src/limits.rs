//! The bounds within which a target can cost an operator anything.

use std::time::Duration;

const MIB: usize = 1024 * 1024;

/// Deadlines and budgets for each target. The defaults are the ones documented for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Name resolution, TCP, proxy and TLS handshake together. Default 5 s.
    pub connect: Duration,
    /// One call, from its slot to the last byte of the answer; for a watch, to its headers. A call waits as long for
    /// its slot at most, and ends as [`Throttled`](crate::TargetError::Throttled) without one. Default 15 s.
    pub call: Duration,
    /// Silence after which a watch stream is given up. Apiservers send a bookmark about once a minute.
    /// Default 180 s.
    pub watch_idle: Duration,
    /// Bytes of one answer. Default 16 MiB.
    pub body: usize,
    /// Bytes that one answer may take in memory once it is read, by an estimate from above. Default 96 MiB.
    pub body_weight: usize,
    /// Bytes of one line of a watch. Default 4 MiB: an API server stores no object of that size.
    pub line: usize,
    /// Bytes that one line of a watch may take in memory once it is read, by an estimate from above. Default 32 MiB.
    pub line_weight: usize,
    /// How fast all watches together may tell.
    pub watch_pace: WatchPace,
    /// Calls in flight at once; 429 answers lower it for a while. Default 8.
    pub calls: usize,
    /// Watch streams open at once. Default 128.
    pub watches: usize,
    /// When a target counts as unhealthy and how it is probed.
    pub breaker: BreakerLimits,
}

/// How much of a target's watches is read in a time; a line counts as 4 KiB at least. The target has to wait with the
/// rest. What we write there is told back by its watches, several times where controllers act on it, so each write adds to
/// what may come: else the news of a large installation would queue up behind its own beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPace {
    /// Bytes at once after a silence. Default 8 MiB.
    pub burst: usize,
    /// Bytes in a second beyond that. Default 256 KiB.
    pub per_second: usize,
    /// Bytes beyond that for each write of ours that the target took, dry runs excepted. Default 64 KiB.
    pub per_write: usize,
}

/// When a target counts as unhealthy and how it is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Consecutive failures after which calls are refused without being tried. Default 3.
    pub failures: u32,
    /// Delay before the first probe; it doubles with each failed one. Default 15 s.
    pub probe_first: Duration,
    /// Longest delay between probes. Default 5 min.
    pub probe_longest: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(15),
            watch_idle: Duration::from_mins(3),
            body: 16 * MIB,
            body_weight: 96 * MIB,
            line: 4 * MIB,
            line_weight: 32 * MIB,
            watch_pace: WatchPace::default(),
            calls: 8,
            watches: 128,
            breaker: BreakerLimits::default(),
        }
    }
}

impl Default for WatchPace {
    fn default() -> Self {
        Self { burst: 8 * MIB, per_second: MIB / 4, per_write: MIB / 16 }
    }
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { failures: 3, probe_first: Duration::from_secs(15), probe_longest: Duration::from_mins(5) }
    }
}

//! Limits on the time, memory and calls that a target can cost an operator.

use std::time::Duration;

const MIB: usize = 1024 * 1024;

/// Deadlines and budgets for each target. Operators document the same defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Name resolution, TCP, proxy and TLS handshake together. Default 5 s.
    pub connect: Duration,
    /// Deadline of a call, from its slot to the last byte of the answer; for a watch, to its headers. A call waits at
    /// most as long for a slot, and fails with [`Throttled`](crate::TargetError::Throttled) without one. Default 15
    /// s.
    pub call: Duration,
    /// Silence after which a watch stream is closed. API servers send a bookmark about once a minute. Default 180 s.
    pub watch_idle: Duration,
    /// Maximum size of one answer in bytes. Default 16 MiB.
    pub body: usize,
    /// Maximum memory of one decoded answer in bytes, by an upper estimate. Default 96 MiB.
    pub body_weight: usize,
    /// Maximum size of one line of a watch in bytes. Default 4 MiB: an API server stores no object of that size.
    pub line: usize,
    /// Maximum memory of one decoded line of a watch in bytes, by an upper estimate. Default 32 MiB.
    pub line_weight: usize,
    /// Rate at which all watches together are read.
    pub watch_pace: WatchPace,
    /// Maximum calls in flight; answers with 429 lower it for a while. Default 8.
    pub calls: usize,
    /// Maximum open watch streams. Default 128.
    pub watches: usize,
    /// Limits of the circuit breaker.
    pub breaker: BreakerLimits,
}

/// Rate at which the watches of a target are read; a line counts as at least 4 KiB. The target has to wait with the
/// rest. Each write of the operator raises the allowance, since watches report it back, several times where
/// controllers react to it: otherwise the events of a large installation would pile up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPace {
    /// Burst in bytes, available after a silence. Default 8 MiB.
    pub burst: usize,
    /// Sustained rate in bytes per second. Default 256 KiB.
    pub per_second: usize,
    /// Further bytes for each write of the operator that the target accepted, dry runs excepted. Default 64 KiB.
    pub per_write: usize,
}

/// Limits of the circuit breaker of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Consecutive failures after which calls are refused without an attempt. Default 3.
    pub failures: u32,
    /// Delay before the first probe; it doubles with each failed one. Default 15 s.
    pub probe_first: Duration,
    /// Maximum delay between probes. Default 5 min.
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

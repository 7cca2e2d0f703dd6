//! Health of a stream: the time of its last sign of life, and its last failure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use kyma_api::Reason;
use parking_lot::Mutex;

use crate::failure::Failure;

/// Health of a stream.
#[derive(Debug)]
pub(super) struct Pulse {
    start: Instant,
    silence: Duration,
    /// Milliseconds after `start`, 0 while there is no complete list.
    last: AtomicU64,
    /// Failure of the last call, until a list is complete again.
    last_failure: Mutex<Option<Failure>>,
}

impl Pulse {
    pub(super) fn new(silence: Duration) -> Arc<Self> {
        let (last, last_failure) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { start: Instant::now(), silence, last, last_failure })
    }

    /// Returns the age of the stream.
    pub(super) fn age(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the maximum silence.
    pub(super) fn silence(&self) -> Duration {
        self.silence
    }

    /// Records a sign of life.
    pub(super) fn beat(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Records a complete list.
    pub(super) fn complete(&self) {
        *self.last_failure.lock() = None;
        self.beat();
    }

    /// Records a failed call.
    pub(super) fn fail(&self, why: Failure) {
        *self.last_failure.lock() = Some(why);
    }

    /// Records a restart of the stream; `failed`: because a call failed.
    pub(super) fn stop(&self, failed: bool) {
        self.last.store(0, Ordering::Relaxed);
        if !failed {
            *self.last_failure.lock() = None;
        }
    }

    /// Reports whether there is a complete list and a recent sign of life.
    pub(super) fn is_healthy(&self) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last > 0 && self.start.elapsed().saturating_sub(Duration::from_millis(last)) < self.silence
    }

    /// Reports whether the stream continues from a complete list; otherwise the next event is a list.
    pub(super) fn is_listed(&self) -> bool {
        self.last.load(Ordering::Relaxed) > 0
    }

    /// Returns the failure of the last call, if it failed.
    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.last_failure.lock().clone()
    }

    /// Reports whether a retry fails again until something on the target changes.
    pub(super) fn is_refused(&self) -> bool {
        let lasts =
            |why: &Failure| matches!(why.reason, Reason::TargetForbidden | Reason::TargetAnswerInvalid);
        self.last_failure.lock().as_ref().is_some_and(lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_stream_is_not_healthy_is_known_until_it_is() {
        let pulse = Pulse::new(Duration::from_mins(1));
        assert!(!pulse.is_healthy() && !pulse.is_refused());
        pulse.complete();
        assert!(pulse.is_healthy());
        pulse.fail(Failure::new(Reason::TargetForbidden, "watch Secret: no"));
        pulse.stop(true);
        assert!(!pulse.is_healthy() && pulse.is_refused());
        assert_eq!(pulse.last_failure().map(|why| why.message), Some("watch Secret: no".to_owned()));
        pulse.complete();
        assert!(pulse.is_healthy() && !pulse.is_refused());
        assert_eq!(pulse.last_failure(), None);
        pulse.fail(Failure::new(Reason::TargetServerError, "watch Secret: 500"));
        assert!(!pulse.is_refused(), "that may pass by itself");
        pulse.stop(false);
        assert_eq!(pulse.last_failure(), None, "silence is no failed call");
    }
}

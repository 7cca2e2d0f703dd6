//! Time to wait for the watches, and the failure to report if they deliver nothing. Pure.

use std::time::{Duration, Instant};

use kyma_api::{Backoff, ErrorClass, Reason};
use kyma_controller::Failure;
use kyma_object_set::GroupKind;

/// Time that the watches may take to deliver their lists before discovery is repeated, which also shows whether the
/// target answers.
pub(crate) const WATCH_SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses between such discoveries.
const REDISCOVERY_BACKOFF: Backoff = Backoff::new(WATCH_SYNC_TIMEOUT, Duration::from_mins(5));
/// Number of discoveries without effect before a failure is reported, if a stream reports a cause.
const DISCOVERIES_BEFORE_FAILURE: u32 = 2;
/// The same if no stream reports a cause: the stream may be slow, and the target busy.
const DISCOVERIES_BEFORE_UNEXPLAINED_FAILURE: u32 = 4;
/// Maximum number of kinds in the message.
const MAX_LISTED_KINDS: usize = 5;

/// A wait for the watches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchWait {
    /// Time of its beginning, or of the last discovery.
    since: Instant,
    /// Number of discoveries since the wait began.
    discoveries: u32,
}

/// A kind whose stream delivers nothing, and the cause, if a call failed.
pub(crate) type UnsyncedKind = (GroupKind, Option<Failure>);

impl WatchWait {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { since: now, discoveries: 0 }
    }

    /// Returns the wait after one more discovery.
    pub(crate) fn after_discovery(self, now: Instant) -> Self {
        Self { since: now, discoveries: self.discoveries.saturating_add(1) }
    }

    /// Returns the time until the next discovery; it doubles with each.
    pub(crate) fn remaining(self, now: Instant) -> Duration {
        let pause = REDISCOVERY_BACKOFF.delay(self.discoveries.saturating_add(1));
        pause.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// Reports whether a failure may be reported by now, if a stream reports a cause.
    pub(crate) fn is_reportable(self) -> bool {
        self.discoveries >= DISCOVERIES_BEFORE_FAILURE
    }

    /// Returns the failure to report for kinds whose streams deliver nothing, once that lasts. The first cause gives
    /// the reason.
    pub(crate) fn failure(self, unsynced: &[UnsyncedKind]) -> Option<Failure> {
        let explained = unsynced.iter().find_map(|(_, why)| why.as_ref());
        let reported_after = if explained.is_some() {
            DISCOVERIES_BEFORE_FAILURE
        } else {
            DISCOVERIES_BEFORE_UNEXPLAINED_FAILURE
        };
        if self.discoveries < reported_after || unsynced.is_empty() {
            return None;
        }
        let name = |(kind, why): &UnsyncedKind| match why {
            Some(why) => format!("{kind} ({})", why.message),
            None => format!("{kind} (no answer yet)"),
        };
        let mut names: Vec<String> = unsynced.iter().take(MAX_LISTED_KINDS).map(name).collect();
        if let Some(more) = unsynced.len().checked_sub(MAX_LISTED_KINDS).filter(|more| *more > 0) {
            names.push(format!("and {more} more"));
        }
        let reason = explained.map_or(Reason::TargetTimeout, |why| why.reason);
        let message =
            format!("nothing is known of objects whose kinds cannot be watched: {}", names.join(", "));
        // The target answers; only its streams deliver nothing.
        Some(Failure { class: ErrorClass::Blocked, ..Failure::new(reason, message) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsynced(why: Option<Reason>) -> Vec<UnsyncedKind> {
        let secret = (GroupKind::new("", "Secret"), why.map(|why| Failure::new(why, "watch Secret: no")));
        vec![(GroupKind::new("apps", "Deployment"), None), secret]
    }

    fn after(discoveries: u32) -> WatchWait {
        let now = Instant::now();
        (0..discoveries).fold(WatchWait::begin(now), |watch_wait, _| watch_wait.after_discovery(now))
    }

    #[test]
    fn rediscoveries_come_after_growing_pauses() {
        let pauses = [0, 1, 2, 3, 4, 5, 60].map(|discoveries| {
            let watch_wait = after(discoveries);
            watch_wait.remaining(watch_wait.since).as_secs()
        });
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        let watch_wait = after(0);
        assert_eq!(watch_wait.remaining(watch_wait.since + WATCH_SYNC_TIMEOUT), Duration::ZERO);
    }

    #[test]
    fn lasting_watch_wait_is_reported_with_kinds_and_first_reason() {
        let forbidden = unsynced(Some(Reason::TargetForbidden));
        assert_eq!(after(1).failure(&forbidden), None);
        let failure = after(2).failure(&forbidden).unwrap();
        assert_eq!((failure.reason, failure.class), (Reason::TargetForbidden, ErrorClass::Blocked));
        assert!(
            failure.message.ends_with(": Deployment.apps (no answer yet), Secret (watch Secret: no)"),
            "{failure}"
        );
        assert_eq!(after(3).failure(&unsynced(None)), None, "slow is not refused");
        let failure = after(4).failure(&unsynced(None)).unwrap();
        assert_eq!((failure.reason, failure.class), (Reason::TargetTimeout, ErrorClass::Blocked));
        assert_eq!(after(9).failure(&[]), None);
        let many: Vec<UnsyncedKind> = (0..7).flat_map(|_| unsynced(None)).collect();
        assert!(after(9).failure(&many).unwrap().message.ends_with(", and 9 more"));
    }
}

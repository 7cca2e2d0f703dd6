//! Time to wait for the watches, and the failure to report if they deliver nothing. Pure.

use std::time::{Duration, Instant};

use kyma_api::{ErrorClass, Reason};
use kyma_object_set::GroupKind;
use kyma_sdk::Failure;

/// Time that the watches may take to deliver their lists before discovery is repeated, which also shows whether the
/// target answers.
pub(crate) const LOOK: Duration = Duration::from_secs(10);
/// Maximum pause between two such discoveries.
const LONGEST: Duration = Duration::from_mins(5);
/// Discoveries in vain before a failure is reported, if a stream reports a cause.
const TOLD: u32 = 2;
/// Discoveries in vain before a failure is reported without a cause: the stream may be slow, and the target busy.
const TOLD_UNEXPLAINED: u32 = 4;
/// Maximum number of kinds in the message.
const NAMED: usize = 5;

/// A wait for the watches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchWait {
    /// Time of its beginning, or of the last discovery.
    since: Instant,
    /// Number of discoveries since the wait began.
    looks: u32,
}

/// A kind whose stream delivers nothing, and the cause, if a call failed.
pub(crate) type Unseen = (GroupKind, Option<Failure>);

impl WatchWait {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { since: now, looks: 0 }
    }

    /// Returns the wait after one more discovery.
    pub(crate) fn looked(self, now: Instant) -> Self {
        Self { since: now, looks: self.looks.saturating_add(1) }
    }

    /// Returns the time until the next discovery; it doubles with each.
    pub(crate) fn left(self, now: Instant) -> Duration {
        let pause = LOOK.saturating_mul(1 << self.looks.min(10)).min(LONGEST);
        pause.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// Reports whether a failure may be reported by now, if a stream reports a cause.
    pub(crate) fn is_long(self) -> bool {
        self.looks >= TOLD
    }

    /// Returns the failure to report for kinds whose streams deliver nothing, once that lasts. The first cause gives
    /// the reason.
    pub(crate) fn tell(self, unseen: &[Unseen]) -> Option<Failure> {
        let explained = unseen.iter().find_map(|(_, why)| why.as_ref());
        let told = if explained.is_some() { TOLD } else { TOLD_UNEXPLAINED };
        if self.looks < told || unseen.is_empty() {
            return None;
        }
        let name = |(kind, why): &Unseen| match why {
            Some(why) => format!("{kind} ({})", why.message),
            None => format!("{kind} (no answer yet)"),
        };
        let mut names: Vec<String> = unseen.iter().take(NAMED).map(name).collect();
        if let Some(more) = unseen.len().checked_sub(NAMED).filter(|more| *more > 0) {
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

    fn unseen(why: Option<Reason>) -> Vec<Unseen> {
        let secret = (GroupKind::new("", "Secret"), why.map(|why| Failure::new(why, "watch Secret: no")));
        vec![(GroupKind::new("apps", "Deployment"), None), secret]
    }

    fn after(looks: u32) -> WatchWait {
        let now = Instant::now();
        (0..looks).fold(WatchWait::begin(now), |looking, _| looking.looked(now))
    }

    #[test]
    fn looks_in_vain_come_after_pauses_that_grow() {
        let pauses = [0, 1, 2, 3, 4, 5, 60].map(|looks| {
            let looking = after(looks);
            looking.left(looking.since).as_secs()
        });
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
        let looking = after(0);
        assert_eq!(looking.left(looking.since + LOOK), Duration::ZERO);
    }

    #[test]
    fn what_lasts_is_told_with_its_kinds_and_the_reason_of_the_first_that_has_one() {
        let forbidden = unseen(Some(Reason::TargetForbidden));
        assert_eq!(after(1).tell(&forbidden), None);
        let told = after(2).tell(&forbidden).unwrap();
        assert_eq!((told.reason, told.class), (Reason::TargetForbidden, ErrorClass::Blocked));
        assert!(
            told.message.ends_with(": Deployment.apps (no answer yet), Secret (watch Secret: no)"),
            "{told}"
        );
        assert_eq!(after(3).tell(&unseen(None)), None, "slow is not refused");
        let told = after(4).tell(&unseen(None)).unwrap();
        assert_eq!((told.reason, told.class), (Reason::TargetTimeout, ErrorClass::Blocked));
        assert_eq!(after(9).tell(&[]), None);
        let many: Vec<Unseen> = (0..7).flat_map(|_| unseen(None)).collect();
        assert!(after(9).tell(&many).unwrap().message.ends_with(", and 9 more"));
    }
}

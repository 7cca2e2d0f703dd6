//! Kymas without a decision since the start of the operator: until all have one, the counts of ModuleConfigs are
//! incomplete. A decision is that ModuleConfigs count the Kyma, or that none is evaluated for it. Pure.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use kyma_controller::KymaKey;

/// Maximum time after the first list for which incomplete counts are not reported. A Kyma has no decision while its
/// target is unreachable.
const MAX_WAIT: Duration = Duration::from_mins(3);

/// Progress of the first decisions about all Kymas after the start of the operator.
#[derive(Debug, Default)]
pub(crate) enum InitialKymas {
    /// The first list is not complete.
    #[default]
    Unlisted,
    /// Kymas of the first list without a decision. The set only shrinks.
    Pending {
        /// Keys of these Kymas.
        kymas: HashSet<KymaKey>,
        /// Time from which the counts are reported although Kymas are pending.
        deadline: Instant,
    },
    /// Every Kyma of the first list has a decision.
    Decided,
}

impl InitialKymas {
    /// Records the first list; later lists have no effect. Returns true if the counts became complete.
    pub(crate) fn record_list(&mut self, kymas: impl IntoIterator<Item = KymaKey>, now: Instant) -> bool {
        if !matches!(self, Self::Unlisted) {
            return false;
        }
        let kymas = kymas.into_iter().collect();
        *self = Self::Pending { kymas, deadline: now + MAX_WAIT };
        self.complete()
    }

    /// Records the decision about a Kyma, or its deletion. Returns true if the counts became complete.
    pub(crate) fn record_decision(&mut self, kyma: &KymaKey) -> bool {
        let Self::Pending { kymas, .. } = self else { return false };
        kymas.remove(kyma) && self.complete()
    }

    /// Returns how long incomplete counts are not reported; `None` if the counts are complete or the time is over.
    pub(crate) fn remaining_wait(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Unlisted => Some(MAX_WAIT),
            Self::Pending { deadline, .. } => {
                deadline.checked_duration_since(now).filter(|wait| !wait.is_zero())
            }
            Self::Decided => None,
        }
    }

    /// Reports whether every Kyma of the first list has a decision.
    pub(crate) fn are_decided(&self) -> bool {
        matches!(self, Self::Decided)
    }

    fn complete(&mut self) -> bool {
        let is_complete = matches!(self, Self::Pending { kymas, .. } if kymas.is_empty());
        if is_complete {
            *self = Self::Decided;
        }
        is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One event, with the names of its Kymas.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        List(&'static [&'static str]),
        Decide(&'static str),
    }
    use Event::{Decide, List};

    fn key(name: &str) -> KymaKey {
        KymaKey::new("kcp-system", name)
    }

    #[test]
    fn counts_are_complete_once_all_listed_kymas_have_a_decision() {
        // Events with what each returns, and whether the counts are complete after them.
        let rows: [(&[(Event, bool)], bool); 7] = [
            (&[], false),
            (&[(List(&[]), true)], true),
            (&[(List(&["a", "b"]), false), (Decide("a"), false)], false),
            (&[(List(&["a", "b"]), false), (Decide("a"), false), (Decide("b"), true)], true),
            (&[(List(&["a"]), false), (Decide("new"), false)], false),
            (&[(Decide("a"), false), (List(&["a"]), false)], false),
            (
                &[(List(&["a"]), false), (Decide("a"), true), (Decide("a"), false), (List(&["b"]), false)],
                true,
            ),
        ];
        let now = Instant::now();
        for (events, is_complete) in rows {
            let mut initial = InitialKymas::default();
            for (event, completes) in events {
                let completed = match event {
                    List(names) => initial.record_list(names.iter().map(|name| key(name)), now),
                    Decide(name) => initial.record_decision(&key(name)),
                };
                assert_eq!(completed, *completes, "{event:?} of {events:?}");
            }
            assert_eq!(initial.remaining_wait(now).is_none(), is_complete, "{events:?}");
        }
    }

    #[test]
    fn pending_kymas_delay_counts_until_the_deadline_only() {
        let (mut initial, listed) = (InitialKymas::default(), Instant::now());
        initial.record_list([key("a")], listed);
        let after = |seconds| initial.remaining_wait(listed + Duration::from_secs(seconds));
        assert_eq!(after(0), Some(MAX_WAIT));
        assert_eq!(after(179), Some(Duration::from_secs(1)));
        assert_eq!((after(180), after(181)), (None, None));
        assert!(!initial.are_decided(), "the reported counts are incomplete");
        // A later list does not start the wait again.
        initial.record_list([key("a")], listed + MAX_WAIT);
        assert_eq!(initial.remaining_wait(listed + MAX_WAIT), None);
        assert!(initial.record_decision(&key("a")), "a late decision completes the counts");
        assert!(initial.are_decided());
    }
}

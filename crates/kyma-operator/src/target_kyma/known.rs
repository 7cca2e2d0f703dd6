//! Tracks the targets' Kymas by watch events and results of writes.

use std::collections::HashMap;

use kyma_sdk::KymaKey;

use super::TargetKyma;

/// State of a target's Kyma.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Remote {
    /// It does not exist.
    Absent,
    /// It exists.
    Present(Box<TargetKyma>),
}

/// The targets' Kymas, by Kyma on the hub.
#[derive(Debug, Default)]
pub(crate) struct Remotes(HashMap<KymaKey, Held>);

#[derive(Debug)]
struct Held {
    remote: Remote,
    /// resourceVersion up to which the watch has delivered all events.
    told: u64,
}

impl Remotes {
    /// Returns the state; `None` before the first list.
    pub(crate) fn get(&self, kyma: &KymaKey) -> Option<Remote> {
        self.0.get(kyma).map(|held| held.remote.clone())
    }

    /// Records the result of a list with this resourceVersion. A list is authoritative, even if a restored or
    /// malicious target has lower resourceVersions. Returns false if nothing changed.
    pub(crate) fn listed(&mut self, kyma: &KymaKey, seen: Option<TargetKyma>, told: u64) -> bool {
        let remote = seen.map_or(Remote::Absent, |seen| Remote::Present(Box::new(seen)));
        let before = self.0.insert(kyma.clone(), Held { remote: remote.clone(), told });
        before.is_none_or(|before| before.remote != remote)
    }

    /// Records a watch event. Returns false if nothing changed.
    pub(crate) fn saw(&mut self, kyma: &KymaKey, seen: TargetKyma) -> bool {
        let Some(held) = self.0.get_mut(kyma) else { return false };
        held.told = held.told.max(seen.resource_version);
        held.take(seen)
    }

    /// Records a DELETE event with the last state. Returns false if nothing changed.
    pub(crate) fn ended(&mut self, kyma: &KymaKey, last: &TargetKyma) -> bool {
        let Some(held) = self.0.get_mut(kyma) else { return false };
        held.told = held.told.max(last.resource_version);
        match &held.remote {
            Remote::Present(present) if present.uid == last.uid => {
                held.remote = Remote::Absent;
                true
            }
            _ => false,
        }
    }

    /// Records the result of a write. Later watch events take precedence: the Kyma may have been deleted before the
    /// response, without another event.
    pub(crate) fn wrote(&mut self, kyma: &KymaKey, seen: TargetKyma) {
        if let Some(held) = self.0.get_mut(kyma)
            && held.told < seen.resource_version
        {
            held.take(seen);
        }
    }

    /// Removes the state until the next list.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.0.remove(kyma);
    }
}

impl Held {
    fn take(&mut self, seen: TargetKyma) -> bool {
        if let Remote::Present(held) = &self.remote
            && held.uid == seen.uid
            && held.resource_version >= seen.resource_version
        {
            return false;
        }
        self.remote = Remote::Present(Box::new(seen));
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn target_kyma(uid: &str, version: u64) -> TargetKyma {
        let object = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "default", "uid": uid, "resourceVersion": version.to_string() },
        });
        TargetKyma::of(&from_value(object).unwrap()).unwrap()
    }

    fn listed(seen: Option<TargetKyma>, told: u64) -> (Remotes, KymaKey) {
        let (mut remotes, kyma) = (Remotes::default(), KymaKey::new("kcp-system", "sample"));
        assert!(remotes.listed(&kyma, seen, told));
        (remotes, kyma)
    }

    #[test]
    fn what_a_write_returned_is_no_news_when_the_watch_brings_it() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 1)), 1);
        remotes.wrote(&kyma, target_kyma("a", 2));
        assert!(!remotes.saw(&kyma, target_kyma("a", 2)));
        assert!(remotes.saw(&kyma, target_kyma("a", 3)));
    }

    #[test]
    fn an_answer_that_comes_after_the_end_brings_nothing_back() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 1)), 1);
        assert!(remotes.ended(&kyma, &target_kyma("a", 3)));
        remotes.wrote(&kyma, target_kyma("a", 2));
        assert_eq!(remotes.get(&kyma), Some(Remote::Absent), "a write to the one that is gone");
        remotes.wrote(&kyma, target_kyma("b", 4));
        assert!(!remotes.saw(&kyma, target_kyma("b", 4)), "the next one was made");
    }

    #[test]
    fn one_that_was_made_and_deleted_before_the_answer_came_is_gone() {
        let (mut remotes, kyma) = listed(None, 1);
        assert!(remotes.saw(&kyma, target_kyma("a", 2)));
        assert!(remotes.ended(&kyma, &target_kyma("a", 3)));
        remotes.wrote(&kyma, target_kyma("a", 2));
        assert_eq!(remotes.get(&kyma), Some(Remote::Absent));
        assert!(!remotes.listed(&kyma, None, 5));
        remotes.wrote(&kyma, target_kyma("b", 4));
        assert_eq!(remotes.get(&kyma), Some(Remote::Absent), "a list is later than an answer too");
    }

    #[test]
    fn what_comes_after_a_session_ended_is_left_to_the_next_list() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 1)), 1);
        remotes.forget(&kyma);
        remotes.wrote(&kyma, target_kyma("a", 2));
        assert_eq!(remotes.get(&kyma), None);
    }

    #[test]
    fn a_list_may_go_back_and_events_may_not() {
        let (mut remotes, kyma) = listed(Some(target_kyma("a", 5)), 5);
        assert!(!remotes.listed(&kyma, Some(target_kyma("a", 5)), 6));
        assert!(!remotes.saw(&kyma, target_kyma("a", 4)));
        assert!(remotes.listed(&kyma, Some(target_kyma("a", 4)), 4));
        remotes.wrote(&kyma, target_kyma("a", 5));
        assert!(!remotes.saw(&kyma, target_kyma("a", 5)), "versions count from the list on");
        assert!(!remotes.ended(&kyma, &target_kyma("b", 9)), "another's end");
    }
}

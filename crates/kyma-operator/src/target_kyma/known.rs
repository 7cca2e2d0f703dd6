//! What is known of the targets' Kymas, from watches and from what our own writes returned.

use std::collections::HashMap;

use super::TargetKyma;
use crate::key::KymaKey;

/// What is known of a target's Kyma.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Remote {
    /// It is not there.
    Absent {
        /// The uid of the one whose end was seen: what a write to it returns comes too late.
        gone: Option<String>,
    },
    /// It is there.
    Present(Box<TargetKyma>),
}

/// The targets' Kymas by those on the hub.
///
/// The answer to a write and the watch's event come by two connections, and either may be the first.
#[derive(Debug, Default)]
pub(crate) struct Remotes(HashMap<KymaKey, Remote>);

impl Remotes {
    /// None before the first list.
    pub(crate) fn get(&self, kyma: &KymaKey) -> Option<Remote> {
        self.0.get(kyma).cloned()
    }

    /// It was listed: it is so, even where its resourceVersion went back with a target that was restored, or that
    /// lied. False if that is no news.
    pub(crate) fn listed(&mut self, kyma: &KymaKey, seen: TargetKyma) -> bool {
        let seen = Remote::Present(Box::new(seen));
        self.0.insert(kyma.clone(), seen.clone()).is_none_or(|held| held != seen)
    }

    /// The watch shows it. False if that is no news.
    pub(crate) fn saw(&mut self, kyma: &KymaKey, seen: TargetKyma) -> bool {
        if let Some(Remote::Present(held)) = self.0.get(kyma)
            && held.uid == seen.uid
            && held.resource_version >= seen.resource_version
        {
            return false;
        }
        self.0.insert(kyma.clone(), Remote::Present(Box::new(seen)));
        true
    }

    /// A write to it returned it. Counts as long as it is held to be there: somebody may have deleted it before
    /// the answer came, and no second event would tell.
    pub(crate) fn wrote(&mut self, kyma: &KymaKey, seen: TargetKyma) {
        if let Some(Remote::Present(held)) = self.0.get(kyma)
            && held.uid == seen.uid
        {
            self.saw(kyma, seen);
        }
    }

    /// It was made. Counts as long as its end was not seen.
    pub(crate) fn made(&mut self, kyma: &KymaKey, seen: TargetKyma) {
        match self.0.get(kyma) {
            None => {}
            Some(Remote::Absent { gone }) if gone.as_ref() == Some(&seen.uid) => {}
            Some(Remote::Present(held)) if held.uid != seen.uid => {}
            Some(_) => drop(self.saw(kyma, seen)),
        }
    }

    /// The target has none, or no longer the one of this uid. False if that is no news.
    pub(crate) fn missed(&mut self, kyma: &KymaKey, uid: Option<&str>) -> bool {
        match self.0.get(kyma) {
            Some(Remote::Absent { .. }) => return false,
            Some(Remote::Present(held)) if uid.is_some_and(|uid| uid != held.uid) => return false,
            _ => {}
        }
        self.0.insert(kyma.clone(), Remote::Absent { gone: uid.map(str::to_owned) });
        true
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.0.remove(kyma);
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

    fn is_absent(remotes: &Remotes, kyma: &KymaKey) -> bool {
        matches!(remotes.get(kyma), Some(Remote::Absent { .. }))
    }

    #[test]
    fn what_a_write_returned_is_no_news_when_the_watch_brings_it() {
        let (mut remotes, kyma) = (Remotes::default(), KymaKey::new("kcp-system", "sample"));
        remotes.listed(&kyma, target_kyma("a", 1));
        remotes.wrote(&kyma, target_kyma("a", 2));
        assert!(!remotes.saw(&kyma, target_kyma("a", 2)));
        assert!(remotes.saw(&kyma, target_kyma("a", 3)));
    }

    #[test]
    fn an_answer_that_comes_after_the_end_brings_nothing_back() {
        let (mut remotes, kyma) = (Remotes::default(), KymaKey::new("kcp-system", "sample"));
        remotes.listed(&kyma, target_kyma("a", 1));
        assert!(remotes.missed(&kyma, Some("a")));
        remotes.wrote(&kyma, target_kyma("a", 2));
        assert!(is_absent(&remotes, &kyma), "a write to the one that is gone");

        remotes.made(&kyma, target_kyma("b", 4));
        assert!(!is_absent(&remotes, &kyma), "the next one");
        remotes.wrote(&kyma, target_kyma("a", 2));
        assert!(!remotes.saw(&kyma, target_kyma("b", 4)), "the one before says nothing of it");
    }

    #[test]
    fn one_that_was_made_and_deleted_before_the_answer_came_is_gone() {
        let (mut remotes, kyma) = (Remotes::default(), KymaKey::new("kcp-system", "sample"));
        assert!(remotes.missed(&kyma, None));
        assert!(remotes.saw(&kyma, target_kyma("a", 1)));
        assert!(remotes.missed(&kyma, Some("a")));
        remotes.made(&kyma, target_kyma("a", 1));
        assert!(is_absent(&remotes, &kyma));
    }

    #[test]
    fn answers_of_a_session_that_ended_are_left_to_the_next_list() {
        let (mut remotes, kyma) = (Remotes::default(), KymaKey::new("kcp-system", "sample"));
        remotes.listed(&kyma, target_kyma("a", 1));
        remotes.forget(&kyma);
        remotes.wrote(&kyma, target_kyma("a", 2));
        remotes.made(&kyma, target_kyma("b", 3));
        assert_eq!(remotes.get(&kyma), None);
    }

    #[test]
    fn a_list_may_go_back_and_events_may_not() {
        let (mut remotes, kyma) = (Remotes::default(), KymaKey::new("kcp-system", "sample"));
        assert!(remotes.listed(&kyma, target_kyma("a", 5)));
        assert!(!remotes.listed(&kyma, target_kyma("a", 5)));
        assert!(!remotes.saw(&kyma, target_kyma("a", 4)));
        assert!(remotes.listed(&kyma, target_kyma("a", 4)));
        assert!(!remotes.missed(&kyma, Some("b")), "another's end");
    }
}

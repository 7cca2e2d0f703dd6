//! Tracks which targets have the desired policies. Pure.

use std::collections::{BTreeMap, HashMap};

use kyma_sdk::KymaKey;

use super::policy::Id;

/// resourceVersions of policies and bindings.
pub(crate) type Versions = BTreeMap<Id, u64>;

/// Applied policies by Kyma, with the changes that watches reported since.
#[derive(Debug, Default)]
pub(crate) struct Policies(HashMap<KymaKey, Held>);

#[derive(Debug, Default)]
struct Held {
    brought: Option<Brought>,
    /// Policies and bindings that were applied or are being applied, with the resourceVersion of the last reported
    /// change.
    told: Versions,
}

#[derive(Debug)]
struct Brought {
    /// Fingerprint of all desired policies.
    print: String,
    versions: Versions,
}

impl Policies {
    /// Reports whether the target has the policies with this fingerprint.
    pub(crate) fn has(&self, kyma: &KymaKey, print: &str) -> bool {
        let brought = self.0.get(kyma).and_then(|held| held.brought.as_ref());
        brought.is_some_and(|brought| brought.print == print)
    }

    /// Records that these policies are about to be applied; later events about them count as changes.
    pub(crate) fn begin<'a>(&mut self, kyma: &KymaKey, wanted: impl Iterator<Item = &'a Id>) {
        let told = wanted.map(|id| (id.clone(), 0)).collect();
        self.0.insert(kyma.clone(), Held { brought: None, told });
    }

    /// Records that the target has the policies in these versions. Returns false if one of them changed meanwhile.
    pub(crate) fn brought(&mut self, kyma: &KymaKey, print: &str, versions: Versions) -> bool {
        // The session ended meanwhile.
        let Some(held) = self.0.get_mut(kyma) else { return true };
        let is_so = versions.iter().all(|(id, version)| held.told.get(id).is_none_or(|told| told <= version));
        held.brought = is_so.then(|| Brought { print: print.to_owned(), versions });
        is_so
    }

    /// Records a change or deletion of a policy on the target. Returns true if it differs from the applied version.
    pub(crate) fn changed(&mut self, kyma: &KymaKey, id: &Id, version: u64) -> bool {
        let Some(held) = self.0.get_mut(kyma) else { return false };
        // Ignore objects that the watch did not request.
        let Some(told) = held.told.get_mut(id) else { return false };
        *told = (*told).max(version);
        let is_other = |brought: &Brought| brought.versions.get(id).is_none_or(|ours| *ours < version);
        held.brought.take_if(|brought| is_other(brought)).is_some()
    }

    /// Records a complete list of one kind. Returns true if a policy differs from the applied version.
    pub(crate) fn listed(&mut self, kyma: &KymaKey, kind: &str, listed: &Versions) -> bool {
        let Some(held) = self.0.get_mut(kyma) else { return false };
        let mut of_kind = held.told.iter_mut().filter(|(id, _)| id.kind == kind);
        for (id, told) in &mut of_kind {
            *told = listed.get(id).copied().unwrap_or_default();
        }
        // A list is authoritative, even if a restored target has lower resourceVersions.
        let is_other = |brought: &Brought| {
            let mut of_kind = brought.versions.iter().filter(|(id, _)| id.kind == kind);
            of_kind.any(|(id, version)| listed.get(id) != Some(version))
        };
        held.brought.take_if(|brought| is_other(brought)).is_some()
    }

    /// Removes all records of a Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.0.remove(kyma);
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::POLICY;
    use super::*;

    fn id(name: &str) -> Id {
        Id { kind: POLICY, name: name.to_owned() }
    }

    fn versions(version: u64) -> Versions {
        Versions::from([(id("a"), version)])
    }

    fn begun() -> (KymaKey, Policies) {
        let (kyma, mut policies) = (KymaKey::new("kcp-system", "a"), Policies::default());
        policies.begin(&kyma, [id("a")].iter());
        (kyma, policies)
    }

    #[test]
    fn what_was_brought_stands_until_something_else_is_wanted_or_somebody_changes_it() {
        let (kyma, mut policies) = begun();
        assert!(!policies.has(&kyma, "p"));
        assert!(policies.brought(&kyma, "p", versions(10)));
        assert!(policies.has(&kyma, "p") && !policies.has(&kyma, "q"));
        assert!(!policies.changed(&kyma, &id("a"), 10), "our own write");
        assert!(!policies.changed(&kyma, &id("another"), 99), "nobody asked for it");
        assert!(policies.has(&kyma, "p"));
        assert!(policies.changed(&kyma, &id("a"), 11), "somebody's");
        assert!(!policies.has(&kyma, "p"));
    }

    #[test]
    fn what_is_told_while_it_is_brought_is_not_lost() {
        let (kyma, mut policies) = begun();
        policies.changed(&kyma, &id("a"), 11);
        assert!(!policies.brought(&kyma, "p", versions(10)));
        assert!(!policies.has(&kyma, "p"));
        assert!(policies.brought(&kyma, "p", versions(12)));
        assert!(policies.has(&kyma, "p"));
    }

    #[test]
    fn a_list_counts_whatever_its_version() {
        let (kyma, mut policies) = begun();
        for (listed, is_news) in [(versions(10), false), (versions(9), true), (Versions::new(), true)] {
            policies.brought(&kyma, "p", versions(10));
            assert_eq!(policies.listed(&kyma, POLICY, &listed), is_news, "{listed:?}");
            assert_eq!(policies.has(&kyma, "p"), !is_news);
        }
        assert!(policies.brought(&kyma, "p", versions(3)), "written again on the restored target");
    }

    #[test]
    fn a_session_that_ended_says_nothing() {
        let (kyma, mut policies) = begun();
        policies.forget(&kyma);
        assert!(policies.brought(&kyma, "p", versions(10)));
        assert!(!policies.has(&kyma, "p"));
    }
}

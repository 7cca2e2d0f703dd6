//! Tracks whether a target has the desired policies of a Kyma. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kyma_controller::{ResourceVersion, WriteThrough};

use super::policy::Id;

/// resourceVersions of policies and bindings.
pub(crate) type Versions = BTreeMap<Id, ResourceVersion>;

/// Maximum number of names of policies without a ModuleConfig that are kept for each Kyma.
const MAX_UNDESIRED_NAMES: usize = 1_000;

/// Applied policies of one Kyma.
#[derive(Debug, Default)]
pub(crate) struct TargetPolicies {
    /// Policies of the present session; `None` before the first apply.
    in_session: Option<SessionPolicies>,
    /// Names of policies that lists of the target contained and no present ModuleConfig makes. They outlive a session:
    /// the removal of the Kyma reads these policies although a list lacks them.
    undesired: BTreeSet<String>,
}

/// Policies that were applied in one session with the target.
#[derive(Debug, Default)]
struct SessionPolicies {
    /// `None` while they are being applied, and after one of them changed.
    applied: Option<AppliedPolicies>,
    /// Policies and bindings that were applied or are being applied, by kind: each kind has a watch.
    writes: HashMap<&'static str, WriteThrough<Id, ()>>,
}

/// The last apply.
#[derive(Debug)]
struct AppliedPolicies {
    /// Fingerprint of all desired policies; `None` if the target refused some or obsolete ones are left.
    fingerprint: Option<String>,
    /// Accepted policies and bindings.
    accepted: BTreeSet<Id>,
}

impl TargetPolicies {
    /// Reports whether the target has the policies with this fingerprint.
    pub(crate) fn are_applied(&self, fingerprint: &str) -> bool {
        let applied = self.in_session.as_ref().and_then(|policies| policies.applied.as_ref());
        applied.is_some_and(|applied| applied.fingerprint.as_deref() == Some(fingerprint))
    }

    /// Records that these policies are about to be applied; later events about them count as changes.
    pub(crate) fn begin_apply<'a>(&mut self, desired: impl Iterator<Item = &'a Id>) {
        let mut policies = SessionPolicies::default();
        for id in desired {
            policies.writes.entry(id.kind).or_default().track(id.clone());
        }
        self.in_session = Some(policies);
    }

    /// Records that the target has the policies in these versions, and the fingerprint of all desired ones if the
    /// apply was complete. Returns false if one of them changed meanwhile.
    pub(crate) fn record_applied(&mut self, fingerprint: Option<&str>, versions: Versions) -> bool {
        // The session ended meanwhile.
        let Some(policies) = &mut self.in_session else { return true };
        for (id, version) in &versions {
            policies.writes.entry(id.kind).or_default().record_write(id.clone(), *version, ());
        }
        let accepted: BTreeSet<Id> = versions.into_keys().collect();
        let is_unchanged = accepted.iter().all(|id| policies.is_unchanged(id));
        policies.applied =
            is_unchanged.then(|| AppliedPolicies { fingerprint: fingerprint.map(str::to_owned), accepted });
        is_unchanged
    }

    /// Records a change or deletion of a policy on the target. Returns true if it differs from the applied version.
    pub(crate) fn record_change(&mut self, id: &Id, version: ResourceVersion) -> bool {
        let Some(policies) = &mut self.in_session else { return false };
        // Ignore objects that the watch did not request.
        let writes = policies.writes.get_mut(id.kind).filter(|writes| writes.is_tracked(id));
        let Some(writes) = writes else { return false };
        writes.record_event(id, version);
        let is_unchanged = policies.is_unchanged(id);
        policies.applied.take_if(|_| !is_unchanged).is_some()
    }

    /// Records a complete list of one kind. Returns true if a policy differs from the applied version.
    pub(crate) fn record_list(&mut self, kind: &str, listed: &Versions) -> bool {
        let Some(policies) = &mut self.in_session else { return false };
        let Some(writes) = policies.writes.get_mut(kind) else { return false };
        writes.end_list_at(ResourceVersion::default(), |id| listed.get(id).copied());
        let differs = |applied: &AppliedPolicies| {
            let mut of_kind = applied.accepted.iter().filter(|id| id.kind == kind);
            of_kind.any(|id| writes.current(id).is_none())
        };
        policies.applied.take_if(|applied| differs(applied)).is_some()
    }

    /// Records names of policies on the target that no present ModuleConfig makes.
    pub(crate) fn record_undesired(&mut self, names: impl IntoIterator<Item = String>) {
        // The session ended meanwhile.
        if self.in_session.is_none() {
            return;
        }
        for name in names {
            if self.undesired.len() >= MAX_UNDESIRED_NAMES {
                return;
            }
            self.undesired.insert(name);
        }
    }

    /// Returns the recorded names of policies that no ModuleConfig made. Not all of them exist.
    pub(crate) fn undesired(&self) -> &BTreeSet<String> {
        &self.undesired
    }

    /// Removes the records of the session with the target.
    pub(crate) fn end_session(&mut self) {
        self.in_session = None;
    }
}

impl SessionPolicies {
    /// Reports whether the target has a policy or binding as it was written.
    fn is_unchanged(&self, id: &Id) -> bool {
        self.writes.get(id.kind).is_some_and(|writes| writes.current(id).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::POLICY;
    use super::*;

    fn id(name: &str) -> Id {
        Id { kind: POLICY, name: name.to_owned() }
    }

    fn at(version: u64) -> ResourceVersion {
        version.into()
    }

    fn versions(version: u64) -> Versions {
        Versions::from([(id("a"), at(version))])
    }

    fn begun() -> TargetPolicies {
        let mut policies = TargetPolicies::default();
        policies.begin_apply([id("a")].iter());
        policies
    }

    #[test]
    fn policies_are_applied_until_desired_or_live_ones_change() {
        let mut policies = begun();
        assert!(!policies.are_applied("p"));
        assert!(policies.record_applied(Some("p"), versions(10)));
        assert!(policies.are_applied("p") && !policies.are_applied("q"));
        assert!(!policies.record_change(&id("a"), at(10)), "the operator's write");
        assert!(!policies.record_change(&id("another"), at(99)), "an object that the watch did not request");
        assert!(policies.are_applied("p"));
        assert!(policies.record_change(&id("a"), at(11)), "another writer's change");
        assert!(!policies.are_applied("p"));
    }

    #[test]
    fn a_change_reported_during_the_apply_is_not_lost() {
        let mut policies = begun();
        policies.record_change(&id("a"), at(11));
        assert!(!policies.record_applied(Some("p"), versions(10)));
        assert!(!policies.are_applied("p"));
        assert!(policies.record_applied(Some("p"), versions(12)));
        assert!(policies.are_applied("p"));
    }

    #[test]
    fn changes_of_accepted_policies_are_noticed_after_a_refusal() {
        let mut policies = begun();
        policies.begin_apply([id("a"), id("refused")].iter());
        assert!(policies.record_applied(None, versions(10)));
        assert!(!policies.are_applied("p"), "the next pass tries again");
        assert!(!policies.record_list(POLICY, &versions(10)), "the accepted policy is unchanged");
        assert!(!policies.record_change(&id("a"), at(10)), "the operator's write");
        assert!(policies.record_change(&id("a"), at(11)), "another writer's change");
    }

    #[test]
    fn a_list_counts_even_with_lower_versions() {
        let mut policies = begun();
        for (listed, is_news) in [(versions(10), false), (versions(9), true), (Versions::new(), true)] {
            policies.record_applied(Some("p"), versions(10));
            assert_eq!(policies.record_list(POLICY, &listed), is_news, "{listed:?}");
            assert_eq!(policies.are_applied("p"), !is_news);
        }
        assert!(policies.record_applied(Some("p"), versions(3)), "written again on the restored target");
    }

    #[test]
    fn an_apply_of_an_ended_session_is_not_recorded() {
        let mut policies = begun();
        policies.end_session();
        assert!(policies.record_applied(Some("p"), versions(10)));
        assert!(!policies.are_applied("p"));
    }

    #[test]
    fn policy_names_without_config_outlive_session_within_a_bound() {
        let mut policies = begun();
        policies.record_undesired(["b".to_owned()]);
        policies.record_undesired([]);
        policies.end_session();
        policies.record_undesired(["late".to_owned()]);
        assert_eq!(policies.undesired(), &BTreeSet::from(["b".to_owned()]));
        policies.begin_apply([id("a")].iter());
        policies.record_undesired((0..=MAX_UNDESIRED_NAMES).map(|number| format!("{number}")));
        assert_eq!(policies.undesired().len(), MAX_UNDESIRED_NAMES);
    }
}

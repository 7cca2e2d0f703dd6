//! Cache of the operator's condition on each Kyma. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::Kyma;
use kyma_controller::{KymaKey, OwnWrite, ResourceVersion, WriteThrough};

use crate::report::own;

/// The last written or confirmed condition of each Kyma.
#[derive(Debug, Default)]
pub(crate) struct ConditionCache {
    conditions: WriteThrough<KymaKey, Condition>,
}

impl ConditionCache {
    /// Returns the condition in `kyma`, or the one that was written after it.
    pub(crate) fn latest(&self, kyma: &Kyma) -> Option<Condition> {
        let written = self.conditions.newer_than(&KymaKey::of(kyma), version_of(kyma));
        written.map(OwnWrite::value).or_else(|| own(kyma)).cloned()
    }

    /// Stores the result of a write until the watch has delivered it.
    pub(crate) fn record_write(&mut self, kyma: &Kyma, condition: Condition) {
        self.conditions.record_write(KymaKey::of(kyma), version_of(kyma), condition);
    }

    /// Records that the condition in `kyma` is up to date.
    pub(crate) fn record_unchanged(&mut self, kyma: &Kyma, condition: Condition) {
        if self.conditions.newer_than(&KymaKey::of(kyma), version_of(kyma)).is_none() {
            self.record_write(kyma, condition);
        }
    }

    /// Reports whether a Kyma from the watch has another condition than the recorded one: some backup tools remove
    /// it, and a pass may have read a state before the last write.
    pub(crate) fn differs_from(&self, kyma: &Kyma) -> bool {
        let differs = |write: &OwnWrite<Condition>| {
            let is_later = write.is_superseded() || write.version() < version_of(kyma);
            is_later && own(kyma) != Some(write.value())
        };
        self.conditions.last(&KymaKey::of(kyma)).is_some_and(differs)
    }

    /// Records the beginning of a list. Its Kymas are reported one by one, and recorded conditions are only compared
    /// with them from here on.
    pub(crate) fn begin_list(&mut self) {
        self.conditions.begin_list();
        self.conditions.end_list();
    }

    /// Removes a deleted Kyma.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) {
        self.conditions.forget(kyma);
    }
}

fn version_of(kyma: &Kyma) -> ResourceVersion {
    ResourceVersion::of(&kyma.metadata).unwrap_or_default()
}

#[cfg(test)]
impl ConditionCache {
    /// Reports whether no condition is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kyma(version: u64, reason: Option<&str>) -> Kyma {
        let condition = |reason| {
            json!({
                "type": "ModuleCatalog", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let conditions: Vec<_> = reason.map(condition).into_iter().collect();
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": version.to_string()},
            "spec": {"channel": "regular"}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn cache_with_write(version: u64, reason: &str) -> ConditionCache {
        let (mut cache, kyma) = (ConditionCache::default(), kyma(version, Some(reason)));
        cache.record_write(&kyma, own(&kyma).unwrap().clone());
        cache
    }

    fn reason(cache: &ConditionCache, kyma: &Kyma) -> Option<String> {
        cache.latest(kyma).map(|condition| condition.reason)
    }

    #[test]
    fn what_was_written_counts_until_the_watch_has_caught_up() {
        let cache = cache_with_write(5, "Ours");
        assert_eq!(reason(&cache, &kyma(4, Some("Before"))).as_deref(), Some("Ours"));
        assert_eq!(reason(&cache, &kyma(6, Some("After"))).as_deref(), Some("After"));
    }

    #[test]
    fn missing_or_changed_condition_is_noticed_once_it_is_newer() {
        let cache = cache_with_write(5, "Ours");
        assert!(!cache.differs_from(&kyma(4, Some("Before"))), "it is late");
        assert!(!cache.differs_from(&kyma(6, Some("Ours"))), "somebody wrote something else");
        assert!(cache.differs_from(&kyma(6, None)), "a backup tool stripped the status");
        assert!(cache.differs_from(&kyma(6, Some("Theirs"))));
    }

    #[test]
    fn what_a_late_list_hid_is_noticed_when_it_comes() {
        let mut cache = cache_with_write(5, "Failed");
        cache.begin_list();
        let late = kyma(4, Some("Synced"));
        assert_eq!(reason(&cache, &late).as_deref(), Some("Synced"));
        cache.record_unchanged(&late, own(&late).unwrap().clone());
        assert!(cache.differs_from(&kyma(5, Some("Failed"))), "what we wrote before the list");
    }
}

//! Counts the Kymas that each ModuleConfig applies to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kyma_api::{FleetCount, Reason};
use kyma_controller::KymaKey;

use super::EffectiveEntry;

/// Maximum number of Kymas that a count in the status names.
const MAX_NAMED_KYMAS_IN_STATUS: usize = 20;

/// Reasons why one target refuses resourceRules, by ModuleConfig.
pub(crate) type RuleRefusals = BTreeMap<String, Reason>;

/// Effect of one ModuleConfig on the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConfigCounts {
    /// Kymas that the ModuleConfig selects and that have its module.
    matching: BTreeSet<KymaKey>,
    /// Kymas whose entry the ModuleConfig refuses.
    refused: BTreeSet<KymaKey>,
    /// Kymas whose target refuses its resourceRules, with the reason.
    refusing_targets: BTreeMap<KymaKey, Reason>,
    /// Whether Kymas without a decision since the start of the operator are missing. Set only for a report.
    is_incomplete: bool,
}

impl ConfigCounts {
    /// Sets whether Kymas are missing in the counts.
    pub(crate) fn mark_incomplete(self, is_incomplete: bool) -> Self {
        Self { is_incomplete, ..self }
    }

    /// Reports whether Kymas are missing in the counts.
    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Returns the count of Kymas that the ModuleConfig applies to, for the status.
    pub(crate) fn matching(&self) -> FleetCount {
        count(&self.matching)
    }

    /// Returns the count of Kymas whose entry the ModuleConfig refuses, for the status.
    pub(crate) fn refused(&self) -> FleetCount {
        count(&self.refused)
    }

    /// Returns the Kymas whose target refuses its resourceRules, with the reason.
    pub(super) fn refusing_targets(&self) -> &BTreeMap<KymaKey, Reason> {
        &self.refusing_targets
    }
}

fn count(kymas: &BTreeSet<KymaKey>) -> FleetCount {
    FleetCount {
        count: i64::try_from(kymas.len()).unwrap_or(i64::MAX),
        names: kymas.iter().take(MAX_NAMED_KYMAS_IN_STATUS).map(|kyma| kyma.name.clone()).collect(),
    }
}

/// Counts of every ModuleConfig that applies to a Kyma.
#[derive(Debug, Default)]
pub(crate) struct CountsByConfig {
    of: BTreeMap<String, ConfigCounts>,
    kymas: HashMap<KymaKey, BTreeMap<String, bool>>,
    rule_refusals: HashMap<KymaKey, RuleRefusals>,
}

impl CountsByConfig {
    /// Replaces the ModuleConfigs that apply to a Kyma. Returns those whose counts changed.
    pub(crate) fn decided(&mut self, kyma: &KymaKey, governed: &[EffectiveEntry]) -> Vec<String> {
        let mut refuses = BTreeMap::new();
        // A ModuleConfig for all modules has an objection if it has one for any module.
        for (name, objects) in governed.iter().flat_map(|one| one.by.iter().cloned()) {
            *refuses.entry(name).or_default() |= objects;
        }
        self.set(kyma, refuses)
    }

    /// Replaces the reasons why a Kyma's target refuses resourceRules. Returns the ModuleConfigs whose reason
    /// changed.
    pub(crate) fn record_rule_refusals(&mut self, kyma: &KymaKey, now: RuleRefusals) -> Vec<String> {
        let before = self.rule_refusals.remove(kyma).unwrap_or_default();
        let changed = changed(&before, &now);
        for name in &changed {
            self.edit(name, |counts| {
                if let Some(reason) = now.get(name) {
                    counts.refusing_targets.insert(kyma.clone(), *reason);
                } else {
                    counts.refusing_targets.remove(kyma);
                }
            });
        }
        if !now.is_empty() {
            self.rule_refusals.insert(kyma.clone(), now);
        }
        changed
    }

    /// Removes a deleted Kyma. Returns the ModuleConfigs that counted or named it.
    pub(crate) fn forget(&mut self, kyma: &KymaKey) -> BTreeSet<String> {
        let named = self.record_rule_refusals(kyma, RuleRefusals::new());
        self.decided(kyma, &[]).into_iter().chain(named).collect()
    }

    /// Returns the counts of one ModuleConfig.
    pub(crate) fn of(&self, config: &str) -> ConfigCounts {
        self.of.get(config).cloned().unwrap_or_default()
    }

    fn set(&mut self, kyma: &KymaKey, now: BTreeMap<String, bool>) -> Vec<String> {
        let before = self.kymas.remove(kyma).unwrap_or_default();
        let changed = changed(&before, &now);
        for name in &changed {
            let refuses = now.get(name).copied();
            let put = |set: &mut BTreeSet<KymaKey>, is_in: bool| {
                if is_in {
                    set.insert(kyma.clone());
                } else {
                    set.remove(kyma);
                }
            };
            self.edit(name, |counts| {
                put(&mut counts.matching, refuses.is_some());
                put(&mut counts.refused, refuses == Some(true));
            });
        }
        if !now.is_empty() {
            self.kymas.insert(kyma.clone(), now);
        }
        changed
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut ConfigCounts)) {
        let counts = self.of.entry(name.to_owned()).or_default();
        edit(counts);
        if *counts == ConfigCounts::default() {
            self.of.remove(name);
        }
    }
}

/// Returns the names whose values differ.
fn changed<T: PartialEq>(before: &BTreeMap<String, T>, now: &BTreeMap<String, T>) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect()
}

#[cfg(test)]
impl CountsByConfig {
    /// Reports whether no Kyma is counted or named.
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.kymas.is_empty() && self.rule_refusals.is_empty()
    }
}

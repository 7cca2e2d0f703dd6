//! Which Kymas each ModuleConfig holds for, counted as they are decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kyma_api::FleetCount;
use kyma_sdk::KymaKey;

use super::Governed;

/// How many names a status shows.
const NAMES: usize = 20;

/// What one ModuleConfig means to the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Kymas that have its module and that it selects.
    matching: BTreeSet<KymaKey>,
    /// Those whose entry it objects to.
    refused: BTreeSet<KymaKey>,
}

impl Standing {
    /// Kymas that it holds for, as a status shows them.
    pub(crate) fn matching(&self) -> FleetCount {
        count(&self.matching)
    }

    /// Kymas whose entry it objects to, as a status shows them.
    pub(crate) fn refused(&self) -> FleetCount {
        count(&self.refused)
    }
}

fn count(kymas: &BTreeSet<KymaKey>) -> FleetCount {
    FleetCount {
        count: i64::try_from(kymas.len()).unwrap_or(i64::MAX),
        names: kymas.iter().take(NAMES).map(|kyma| kyma.name.clone()).collect(),
    }
}

/// The standing of every ModuleConfig that holds for a Kyma.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    of: BTreeMap<String, Standing>,
    kymas: HashMap<KymaKey, BTreeMap<String, bool>>,
}

impl Standings {
    /// A Kyma was decided, or is gone where nothing is left of it; replaces what was known. Gives the ModuleConfigs
    /// for which that is another standing.
    pub(crate) fn decided(&mut self, kyma: &KymaKey, governed: &[Governed]) -> Vec<String> {
        let mut refuses = BTreeMap::new();
        // A ModuleConfig for all modules has an objection if it has one for any module.
        for (name, objects) in governed.iter().flat_map(|one| one.by.iter().cloned()) {
            *refuses.entry(name).or_default() |= objects;
        }
        self.set(kyma, refuses)
    }

    /// The standing of one.
    pub(crate) fn of(&self, config: &str) -> Standing {
        self.of.get(config).cloned().unwrap_or_default()
    }

    fn set(&mut self, kyma: &KymaKey, now: BTreeMap<String, bool>) -> Vec<String> {
        let before = self.kymas.remove(kyma).unwrap_or_default();
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let changed: Vec<String> =
            names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect();
        for name in &changed {
            self.change(name, kyma, now.get(name).copied());
        }
        if !now.is_empty() {
            self.kymas.insert(kyma.clone(), now);
        }
        changed
    }

    fn change(&mut self, name: &str, kyma: &KymaKey, refuses: Option<bool>) {
        let standing = self.of.entry(name.to_owned()).or_default();
        let put = |set: &mut BTreeSet<KymaKey>, is_in: bool| {
            if is_in {
                set.insert(kyma.clone());
            } else {
                set.remove(kyma);
            }
        };
        put(&mut standing.matching, refuses.is_some());
        put(&mut standing.refused, refuses == Some(true));
        if *standing == Standing::default() {
            self.of.remove(name);
        }
    }
}

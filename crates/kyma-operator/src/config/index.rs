//! All ModuleConfigs, by module.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

use kyma_api::patterns::ALL_MODULES;

use super::Config;

/// Labels of a Kyma.
type Labels = BTreeMap<String, String>;

/// Every ModuleConfig, found by the module that it is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Configs {
    /// Counts changes, to tell whether a copy is out of date.
    revision: u64,
    by_name: BTreeMap<String, Arc<Config>>,
    by_module: BTreeMap<String, BTreeSet<String>>,
}

impl Configs {
    /// Takes in a new or changed one; gives the one before.
    pub(crate) fn apply(&mut self, config: Config) -> Option<Arc<Config>> {
        self.revision += 1;
        let before = self.delete(&config.name);
        self.by_module.entry(config.module.clone()).or_default().insert(config.name.clone());
        self.by_name.insert(config.name.clone(), Arc::new(config));
        before
    }

    /// Takes one out.
    pub(crate) fn delete(&mut self, name: &str) -> Option<Arc<Config>> {
        let gone = self.by_name.remove(name)?;
        self.revision += 1;
        if let Some(names) = self.by_module.get_mut(&gone.module) {
            names.remove(name);
            if names.is_empty() {
                self.by_module.remove(&gone.module);
            }
        }
        Some(gone)
    }

    /// The number of changes so far.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether any has rules, whose evaluation takes processor time.
    pub(crate) fn have_rules(&self) -> bool {
        self.by_name.values().any(|config| !config.rules.is_empty())
    }

    /// One of them.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Config>> {
        self.by_name.get(name)
    }

    /// Names of all: a relist deletes those that it does not list.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.by_name.keys().cloned().collect()
    }

    /// Those that hold for a module of a Kyma with these labels, the one that wins last.
    pub(crate) fn holding(&self, module: &str, labels: &Labels) -> Vec<&Config> {
        let names = [ALL_MODULES, module].into_iter().filter_map(|of| self.by_module.get(of)).flatten();
        let mut found: Vec<&Config> = names
            .filter_map(|name| self.by_name.get(name))
            .map(AsRef::as_ref)
            .filter(|config| config.holds_for(labels))
            .collect();
        found.sort_by(|a, b| {
            let rank = |config: &Config| (config.priority, !config.is_for_all());
            rank(a).cmp(&rank(b)).then_with(|| b.name.cmp(&a.name))
        });
        found
    }
}

impl Config {
    /// Whether it holds for every module.
    pub(crate) fn is_for_all(&self) -> bool {
        self.module == ALL_MODULES
    }

    /// Whether it holds for a Kyma with these labels. A selector that makes no sense selects nothing.
    pub(crate) fn holds_for(&self, labels: &Labels) -> bool {
        let matches = |selector: &LabelSelector| {
            Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
        };
        self.selector.as_ref().is_none_or(matches)
    }
}

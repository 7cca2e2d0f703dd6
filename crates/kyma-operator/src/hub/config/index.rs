//! Index of all ModuleConfigs by module.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use kyma_api::names;

use kyma_api::patterns::ALL_MODULES;

use super::Config;

/// Labels of a Kyma.
type Labels = BTreeMap<String, String>;

/// All ModuleConfigs, indexed by module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Configs {
    /// Number of changes, to detect stale copies.
    revision: u64,
    by_name: BTreeMap<String, Arc<Config>>,
    by_module: BTreeMap<String, BTreeSet<String>>,
    /// ModuleConfigs that disappeared without an accepted deletion and stay in force.
    missing: BTreeSet<String>,
    /// Name and uid of ModuleConfigs whose deletion was accepted.
    deleted: VecDeque<(String, String)>,
    /// Name and uid of recorded ModuleConfigs whose deletion was checked since the last list and is not proven.
    unexplained: BTreeSet<(String, String)>,
    /// Whether the last list contained any ModuleConfig.
    has_listed: bool,
}

/// Maximum number of accepted deletions that are remembered; older ones are looked up again.
const MAX_DELETED: usize = 1_000;

impl Configs {
    /// Adds or replaces a ModuleConfig and returns the previous one.
    pub(crate) fn apply(&mut self, config: Config) -> Option<Arc<Config>> {
        self.revision += 1;
        self.missing.remove(&config.name);
        let before = self.remove_config(&config.name);
        self.by_module.entry(config.module.clone()).or_default().insert(config.name.clone());
        self.by_name.insert(config.name.clone(), Arc::new(config));
        before
    }

    /// Removes a ModuleConfig whose deletion is accepted.
    pub(crate) fn delete(&mut self, name: &str) -> Option<Arc<Config>> {
        self.missing.remove(name);
        let gone = self.remove_config(name)?;
        self.accept(name, gone.uid());
        Some(gone)
    }

    /// Records the accepted deletion of a recorded ModuleConfig.
    pub(crate) fn accept(&mut self, name: &str, uid: &str) {
        self.unexplained.remove(&(name.to_owned(), uid.to_owned()));
        if self.deleted.len() >= MAX_DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back((name.to_owned(), uid.to_owned()));
    }

    /// Reports whether the deletion of a ModuleConfig was accepted; without a uid, of any with this name.
    pub(crate) fn is_deleted(&self, name: &str, uid: Option<&str>) -> bool {
        self.deleted.iter().any(|(one, its)| one == name && uid.is_none_or(|uid| uid == its))
    }

    /// Reports whether the deletion of a ModuleConfig with this value of the label was accepted.
    pub(crate) fn is_label_deleted(&self, label: &str) -> bool {
        self.deleted.iter().any(|(name, _)| names::label_value(name) == label)
    }

    /// Marks a ModuleConfig as missing: it disappeared without proof of a deletion request.
    pub(crate) fn mark_missing(&mut self, name: &str) {
        if self.by_name.contains_key(name) && self.missing.insert(name.to_owned()) {
            self.revision += 1;
        }
    }

    /// Reports whether the ModuleConfig is missing and stays in force.
    pub(crate) fn is_missing(&self, name: &str) -> bool {
        self.missing.contains(name)
    }

    /// Records a complete list and clears the unproven deletions. Returns true if there were any, so that Kymas that
    /// record them are checked again.
    pub(crate) fn listed(&mut self, has_any: bool) -> bool {
        self.has_listed = has_any;
        !std::mem::take(&mut self.unexplained).is_empty()
    }

    /// Reports whether the last list contained any ModuleConfig.
    pub(crate) fn has_listed(&self) -> bool {
        self.has_listed
    }

    /// Records that the hub does not prove the deletion of a recorded ModuleConfig. Returns false if that was
    /// recorded before.
    pub(crate) fn leave_unexplained(&mut self, name: &str, uid: &str) -> bool {
        self.unexplained.insert((name.to_owned(), uid.to_owned()))
    }

    /// Reports whether the deletion was checked since the last list and is not proven.
    pub(crate) fn is_unexplained(&self, name: &str, uid: &str) -> bool {
        self.unexplained.contains(&(name.to_owned(), uid.to_owned()))
    }

    fn remove_config(&mut self, name: &str) -> Option<Arc<Config>> {
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

    /// Returns the number of changes.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether any ModuleConfig has rules, whose evaluation takes processor time.
    pub(crate) fn have_rules(&self) -> bool {
        self.by_name.values().any(|config| !config.rules.is_empty())
    }

    /// Returns the ModuleConfig with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Config>> {
        self.by_name.get(name)
    }

    /// Returns the names of all ModuleConfigs. A relist deletes those that it does not contain.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.by_name.keys().cloned().collect()
    }

    /// Returns the ModuleConfigs with resourceRules that apply to a Kyma with these labels, whatever modules it has.
    pub(crate) fn with_resource_rules<'a>(
        &'a self,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a Config> + 'a {
        let all = self.by_name.values().map(AsRef::<Config>::as_ref);
        all.filter(move |config| !config.resource_rules.is_empty() && config.selects(labels))
    }

    /// Returns the ModuleConfigs that apply to a module of a Kyma with these labels, in ascending precedence.
    pub(crate) fn matching(&self, module: &str, labels: &Labels) -> Vec<&Config> {
        let names = [ALL_MODULES, module].into_iter().filter_map(|of| self.by_module.get(of)).flatten();
        let mut found: Vec<&Config> = names
            .filter_map(|name| self.by_name.get(name))
            .map(AsRef::as_ref)
            .filter(|config| config.selects(labels))
            .collect();
        found.sort_by(|a, b| {
            let rank = |config: &Config| (config.priority, !config.is_for_all());
            rank(a).cmp(&rank(b)).then_with(|| b.name.cmp(&a.name))
        });
        found
    }
}

impl Config {
    /// Returns whether the ModuleConfig applies to every module.
    pub(crate) fn is_for_all(&self) -> bool {
        self.module == ALL_MODULES
    }

    /// Reports whether it applies to a Kyma with these labels. An invalid selector selects nothing.
    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        let matches = |selector: &LabelSelector| {
            Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
        };
        self.selector.as_ref().is_none_or(matches)
    }
}

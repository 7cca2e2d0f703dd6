//! What the owner of the fleet decides about modules: every `ModuleConfig` of the hub's namespace, and what they
//! make of a user's entry. Pure.
//!
//! Several may hold for one module of one Kyma. The one of higher `priority` wins, among equals the one whose name
//! sorts first; rules of all of them have to hold. One that cannot be used (a rule that is no CEL) freezes what it
//! holds for, rather than having no effect.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kyma_api::{ConfigOverrides, ModuleConfig, ModuleOverride, ResourceRule, values};
use serde_json::{Map, Value, json};

mod govern;
mod index;
mod recorded;
mod report;
mod rule;
mod standing;

pub(crate) use govern::{EffectiveEntry, govern, govern_all};
pub(crate) use index::Configs;
pub(crate) use recorded::{
    ConfigRecords, ConfigUids, is_unreadable_record, keep_under_missing, missing_config_reason, record,
    recorded, recorded_of_kyma,
};
pub(crate) use report::next as next_status;
use rule::Rule;
use standing::Standing;
pub(crate) use standing::{RuleRefusals, Standings};

/// One `ModuleConfig`, ready to be used.
#[derive(Debug)]
pub(crate) struct Config {
    /// The object's name.
    pub(crate) name: String,
    /// The object's uid and generation.
    revision: (Option<String>, Option<i64>),
    /// When the object was created.
    pub(crate) created: Option<Timestamp>,
    /// Whether the garbage collector may delete it: it has ownerReferences, and no annotation confirms a deletion.
    pub(crate) is_dependent: bool,
    /// The module.
    pub(crate) module: String,
    /// The greater one wins.
    pub(crate) priority: i32,
    /// Which Kymas; none: all.
    selector: Option<LabelSelector>,
    /// Values that win over the user's.
    values: Map<String, Value>,
    /// What the entry has to keep.
    rules: Vec<Rule>,
    /// What the module's own objects on targets have to keep.
    pub(crate) resource_rules: Vec<ResourceRule>,
    /// What replaces fields of the entry.
    entry: ModuleOverride,
    /// What is laid over the component's spec.
    component: Map<String, Value>,
    /// Why it cannot be used.
    invalid: Option<String>,
}

impl Config {
    /// What it replaces, as key paths: fields of the entry, `values.…` and `component.…`.
    pub(crate) fn replaces(&self) -> Vec<String> {
        let entry = json!(self.entry);
        let entry = entry.as_object().map(values::paths).unwrap_or_default();
        let under = |name: &'static str, map| {
            values::paths(map).into_iter().map(move |path| format!("{name}.{path}"))
        };
        let values = under("values", &self.values);
        entry.into_iter().chain(values).chain(under("component", &self.component)).collect()
    }

    /// How many rules it has.
    pub(crate) fn rules(&self) -> usize {
        self.rules.len()
    }

    /// The object's uid.
    pub(crate) fn uid(&self) -> &str {
        self.revision.0.as_deref().unwrap_or_default()
    }

    /// Whether it is the same state of the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (&self.name, &self.revision) == (&other.name, &other.revision)
    }
}

impl From<ModuleConfig> for Config {
    fn from(object: ModuleConfig) -> Self {
        let is_dependent = kyma_sdk::may_be_garbage(&object.metadata);
        let spec = object.spec;
        let ConfigOverrides { module: entry, component } = spec.overrides.unwrap_or_default();
        let entry = entry.unwrap_or_default();
        let compiled: Vec<_> = spec.rules.into_iter().flatten().map(Rule::compile).collect();
        let invalid = compiled
            .iter()
            .enumerate()
            .find_map(|(at, rule)| Some(format!("spec.rules[{at}] {}", rule.as_ref().err()?)))
            .or_else(|| contradiction(&entry));
        Self {
            name: object.metadata.name.unwrap_or_default(),
            revision: (object.metadata.uid, object.metadata.generation),
            created: object.metadata.creation_timestamp.map(|time| time.0),
            is_dependent,
            module: spec.module,
            priority: spec.priority.unwrap_or_default(),
            selector: spec.selector,
            values: spec.values.unwrap_or_default(),
            resource_rules: spec.resource_rules.unwrap_or_default(),
            rules: compiled.into_iter().filter_map(Result::ok).collect(),
            entry,
            component: component.unwrap_or_default(),
            invalid,
        }
    }
}

fn contradiction(entry: &ModuleOverride) -> Option<String> {
    let both = entry.channel.is_some() && entry.version.is_some();
    both.then(|| "spec.overrides.module names both a channel and a version: remove one of them".to_owned())
}

#[cfg(test)]
mod tests;

//! ModuleConfigs of the hub's namespace and their effect on a user's entry. Pure.
//!
//! Several ModuleConfigs may apply to one module of a Kyma. The highest `priority` wins, then the name that sorts
//! first; the rules of all ModuleConfigs apply. An invalid ModuleConfig (a rule that is not valid CEL) keeps its modules
//! unchanged, rather than having no effect.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kyma_api::{ConfigOverrides, ModuleConfig, ModuleOverride, ResourceRule, values};
use serde_json::{Map, Value, json};

mod counts;
mod govern;
mod index;
mod initial_kymas;
mod records;
mod report;
mod rule;

use counts::ConfigCounts;
pub(crate) use counts::{CountsByConfig, RuleRefusals};
pub(crate) use govern::{EffectiveEntry, govern, govern_all};
pub(crate) use index::Configs;
pub(crate) use initial_kymas::InitialKymas;
pub(crate) use records::{
    ConfigRecords, ConfigUids, is_unreadable_record, keep_under_missing, missing_config_problem, read_record,
    record_annotation, records_of_kyma,
};
pub(crate) use report::next as next_status;
use rule::Rule;

/// A parsed ModuleConfig.
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
    /// Name of the module.
    pub(crate) module: String,
    /// Precedence over other ModuleConfigs: the greater value wins.
    pub(crate) priority: i32,
    /// Kymas that it applies to; `None` selects all.
    selector: Option<LabelSelector>,
    /// Values that win over the user's.
    values: Map<String, Value>,
    /// Rules for the user's entry.
    rules: Vec<Rule>,
    /// Rules for the module's objects on targets.
    pub(crate) resource_rules: Vec<ResourceRule>,
    /// Fields that replace those of the entry.
    entry: ModuleOverride,
    /// Fields that are merged over the component's spec.
    component: Map<String, Value>,
    /// Reason why it is invalid.
    invalid: Option<String>,
}

impl Config {
    /// Returns the key paths that it sets: fields of the entry, `values.…` and `component.…`.
    pub(crate) fn replaces(&self) -> Vec<String> {
        let entry = json!(self.entry);
        let entry = entry.as_object().map(values::paths).unwrap_or_default();
        let under = |name: &'static str, map| {
            values::paths(map).into_iter().map(move |path| format!("{name}.{path}"))
        };
        let values = under("values", &self.values);
        entry.into_iter().chain(values).chain(under("component", &self.component)).collect()
    }

    /// Returns the number of rules for the user's entry.
    pub(crate) fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Returns the object's uid.
    pub(crate) fn uid(&self) -> &str {
        self.revision.0.as_deref().unwrap_or_default()
    }

    /// Reports whether both are the same revision of the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (&self.name, &self.revision) == (&other.name, &other.revision)
    }
}

impl From<ModuleConfig> for Config {
    fn from(object: ModuleConfig) -> Self {
        let is_dependent = kyma_controller::may_be_garbage(&object.metadata);
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

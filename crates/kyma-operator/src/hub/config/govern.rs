//! Applies ModuleConfigs to the entries of users.

use std::collections::BTreeMap;

use kyma_api::{ModuleOverride, Reason, values};
use serde_json::{Map, Value, json};

use super::{Config, Configs, missing_config_problem};
use crate::decision::resolve::ModuleProblem;
use crate::decision::selection::{CentralOverrides, ModuleEntry, Selection};
use crate::plan::lay_over_component;

/// Maximum number of steps of all rules for one Kyma: half a second of processor time. The remaining rules count as
/// broken.
const MAX_STEPS_OF_A_KYMA: u64 = 10_000_000;

/// A user's entry after ModuleConfigs were applied.
#[derive(Debug, Clone)]
pub(crate) struct EffectiveEntry {
    /// The entry, with what was decided for it.
    pub(crate) entry: ModuleEntry,
    /// Names of the ModuleConfigs that apply to it in ascending precedence, and whether each refuses the entry.
    pub(crate) by: Vec<(String, bool)>,
    /// The reason why the entry is not applied.
    pub(crate) objection: Option<ModuleProblem>,
}

/// Returns all entries in force in a Kyma with these labels.
pub(crate) fn govern_all(
    configs: &Configs,
    labels: &BTreeMap<String, String>,
    selection: &Selection,
) -> Vec<EffectiveEntry> {
    let mut steps = MAX_STEPS_OF_A_KYMA;
    let govern = |entry| govern_within(configs, labels, &selection.channel, entry, &mut steps);
    selection.entries.iter().map(govern).collect()
}

/// Returns the entry in force in a Kyma with these labels and this channel.
pub(crate) fn govern(
    configs: &Configs,
    labels: &BTreeMap<String, String>,
    channel: &str,
    entry: &ModuleEntry,
) -> EffectiveEntry {
    govern_within(configs, labels, channel, entry, &mut MAX_STEPS_OF_A_KYMA.clone())
}

fn govern_within(
    configs: &Configs,
    labels: &BTreeMap<String, String>,
    channel: &str,
    entry: &ModuleEntry,
    steps: &mut u64,
) -> EffectiveEntry {
    let holding = configs.matching(&entry.name, labels);
    let mut entry = entry.clone();
    for config in &holding {
        replace(&mut entry, &config.entry);
    }
    entry.central = central(&holding);
    let input = (!holding.is_empty() && entry.invalid.is_none()).then(|| rule_input(&entry, channel));
    let objections: Vec<(&str, Option<ModuleProblem>)> = holding
        .iter()
        .map(|config| {
            let missing = configs.is_missing(&config.name).then(|| missing_config_problem(&config.name));
            let objection = missing.or_else(|| object(config, input.as_ref()?, steps));
            (config.name.as_str(), objection)
        })
        .collect();
    let by = objections.iter().map(|(name, objection)| ((*name).to_owned(), objection.is_some())).collect();
    // Report the objection of the ModuleConfig with the highest precedence.
    let objection = objections.into_iter().rev().find_map(|(_, objection)| objection);
    EffectiveEntry { entry, by, objection }
}

impl Configs {
    /// Returns the overrides for a module without an entry.
    pub(crate) fn central(&self, labels: &BTreeMap<String, String>, module: &str) -> CentralOverrides {
        central(&self.matching(module, labels))
    }
}

fn central(holding: &[&Config]) -> CentralOverrides {
    let mut central = CentralOverrides::default();
    for config in holding {
        values::lay_over(&mut central.values, &config.values);
        lay_over_component(&mut central.component, &config.component);
        if !config.is_for_all() {
            lay_over_component(&mut central.own_kind, &config.component);
        }
        central.configs.insert(config.name.clone(), config.uid().to_owned());
    }
    central
}

/// Sets channel or version, which exclude each other, and the other overrides.
fn replace(entry: &mut ModuleEntry, by: &ModuleOverride) {
    if by.channel.is_some() || by.version.is_some() {
        (entry.channel, entry.version) = (by.channel.clone(), by.version.clone());
    }
    if let Some(managed) = by.managed {
        entry.managed = managed;
    }
    if let Some(policy) = by.custom_resource_policy {
        entry.policy = policy;
    }
    if let Some(upgrade) = &by.upgrade {
        entry.upgrade = upgrade.clone();
    }
}

/// Returns the entry as CEL rules see it.
fn rule_input(entry: &ModuleEntry, channel: &str) -> Value {
    let mut merged = entry.values.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    values::lay_over(&mut merged, &entry.central.values);
    let mut input = Map::from_iter([
        ("name".to_owned(), json!(entry.name)),
        ("managed".to_owned(), json!(entry.managed)),
        ("customResourcePolicy".to_owned(), json!(entry.policy)),
        ("upgrade".to_owned(), json!(entry.upgrade)),
        ("values".to_owned(), Value::Object(merged)),
    ]);
    match &entry.version {
        Some(version) => input.insert("version".to_owned(), json!(version)),
        None => input.insert("channel".to_owned(), json!(entry.channel.as_deref().unwrap_or(channel))),
    };
    Value::Object(input)
}

fn object(config: &Config, input: &Value, steps: &mut u64) -> Option<ModuleProblem> {
    let name = &config.name;
    if let Some(why) = &config.invalid {
        let message = format!(
            "ModuleConfig {name} of this fleet is invalid, and nothing is changed until it is corrected: {why}"
        );
        return Some(ModuleProblem::error(Reason::ModuleConfigInvalid, message));
    }
    let broken: Vec<String> = config.rules.iter().filter_map(|rule| rule.objection(input, steps)).collect();
    let first = broken.first()?;
    let more = match broken.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let message = format!("{first}{more}; required by ModuleConfig {name} of this fleet");
    Some(ModuleProblem::error(Reason::RuleViolated, message))
}

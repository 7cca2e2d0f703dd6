//! Computes the status of a ModuleConfig. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kyma_api::condition::{self, DesiredCondition, Status, types};
use kyma_api::{ModuleConfigStatus, Reason};

use super::{Config, ConfigCounts};

/// Maximum number of Kymas that the message about `resourceRules` names.
const MAX_NAMED_KYMAS: usize = 10;
/// Conditions of this operator.
const OWN: [&str; 2] = [types::READY, types::RESOURCE_RULES];

/// Returns the next status; `None` if it equals the current one.
pub(crate) fn next(
    config: &Config,
    counts: &ConfigCounts,
    held: Option<&ModuleConfigStatus>,
    now: Timestamp,
) -> Option<ModuleConfigStatus> {
    let held = held.cloned().unwrap_or_default();
    let mut conditions: Vec<Condition> = held.conditions.clone().unwrap_or_default();
    conditions.retain(|condition| OWN.contains(&condition.type_.as_str()));
    let generation = config.revision.1;
    let (status, reason, message) = match &config.invalid {
        None => (Status::True, Reason::Ready, "the ModuleConfig is in force"),
        Some(why) => (Status::False, Reason::ModuleConfigInvalid, why.as_str()),
    };
    let desired =
        DesiredCondition { type_: types::READY, status, reason, message, observed_generation: generation };
    // API objects store whole seconds.
    let now = Time(now.round(jiff::Unit::Second).unwrap_or(now));
    let mut changed = condition::set(&mut conditions, &desired, &now);
    changed |= if config.resource_rules.is_empty() {
        condition::remove(&mut conditions, types::RESOURCE_RULES)
    } else {
        let (status, reason, message) = resource_rules(counts);
        let (type_, message) = (types::RESOURCE_RULES, message.as_str());
        let desired = DesiredCondition { type_, status, reason, message, observed_generation: generation };
        condition::set(&mut conditions, &desired, &now)
    };
    let next = ModuleConfigStatus {
        conditions: Some(conditions),
        observed_generation: generation,
        matching: Some(counts.matching()),
        refused: Some(counts.refused()),
    };
    let is_held = !changed
        && (held.observed_generation, &held.matching, &held.refused)
            == (next.observed_generation, &next.matching, &next.refused);
    (!is_held).then_some(next)
}

/// Returns the condition `ResourceRules`: whether targets refuse the rules, and the first Kymas whose targets do. All
/// causes have the same reason, so that it does not depend on the order of Kymas.
fn resource_rules(counts: &ConfigCounts) -> (Status, Reason, String) {
    let refusing = counts.refusing_targets();
    if refusing.is_empty() {
        return (Status::True, Reason::Ready, "no target refuses the rules on modules' objects".to_owned());
    }
    let named = refusing.iter().take(MAX_NAMED_KYMAS);
    let named: Vec<String> = named.map(|(kyma, reason)| format!("{} ({reason})", kyma.name)).collect();
    let more = match refusing.len() - named.len() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    let message = format!(
        "targets refuse the rules on modules' objects, {} in all: {}{more}; condition {} of each Kyma says why",
        refusing.len(),
        named.join(", "),
        types::RESOURCE_RULES
    );
    (Status::False, Reason::ApplyRefused, message)
}

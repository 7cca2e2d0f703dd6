//! Computes the status of a ModuleConfig. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as metav1, Time};
use kyma_api::condition::{self, Condition, Status, types};
use kyma_api::{ModuleConfigStatus, Reason};

use super::{Config, ConfigCounts};

/// Maximum number of Kymas that the message about `resourceRules` names.
const MAX_NAMED_KYMAS: usize = 10;
/// Addition to messages while counts are incomplete.
const INCOMPLETE_COUNTS_MESSAGE: &str = "; the counts lack Kymas that could not be evaluated since the operator started, such as \
                          those whose targets do not answer";
/// Conditions of this operator.
const OWN_CONDITION_TYPES: [&str; 2] = [types::READY, types::RESOURCE_RULES_APPLIED];

/// Returns the next status; `None` if it equals the current one. Without `counts` the status keeps the current ones.
pub(crate) fn next(
    config: &Config,
    counts: Option<&ConfigCounts>,
    current: Option<&ModuleConfigStatus>,
    now: Timestamp,
) -> Option<ModuleConfigStatus> {
    let current = current.cloned().unwrap_or_default();
    let mut conditions: Vec<metav1::Condition> = current.conditions.clone().unwrap_or_default();
    conditions.retain(|stored| OWN_CONDITION_TYPES.contains(&condition::current_type(&stored.type_)));
    let mut changed = condition::rename_stored(&mut conditions);
    let generation = config.revision.1;
    // Without counts the status keeps its previous counts, which may be incomplete.
    let was_incomplete =
        || conditions.iter().any(|condition| condition.message.ends_with(INCOMPLETE_COUNTS_MESSAGE));
    let is_incomplete = counts.map_or_else(was_incomplete, ConfigCounts::is_incomplete);
    let missing_kymas = if is_incomplete { INCOMPLETE_COUNTS_MESSAGE } else { "" };
    let ready = match &config.invalid {
        None => Condition::new(types::READY, Status::True, Reason::Ready)
            .with_message(format!("the ModuleConfig is in force{missing_kymas}")),
        Some(why) => {
            Condition::new(types::READY, Status::False, Reason::ModuleConfigInvalid).with_message(why)
        }
    };
    // API objects store whole seconds.
    let now = Time(now.round(jiff::Unit::Second).unwrap_or(now));
    changed |= condition::set(&mut conditions, &ready, generation, &now);
    if config.resource_rules.is_empty() {
        changed |= condition::remove(&mut conditions, types::RESOURCE_RULES_APPLIED);
    } else if let Some(counts) = counts {
        let mut applied = resource_rules(counts);
        applied.message.push_str(missing_kymas);
        changed |= condition::set(&mut conditions, &applied, generation, &now);
    }
    let (matching, refused) = match counts {
        Some(counts) => (Some(counts.matching()), Some(counts.refused())),
        None => (current.matching.clone(), current.refused.clone()),
    };
    let next = ModuleConfigStatus {
        conditions: Some(conditions),
        observed_generation: generation,
        matching,
        refused,
    };
    let is_equal = !changed
        && (current.observed_generation, &current.matching, &current.refused)
            == (next.observed_generation, &next.matching, &next.refused);
    (!is_equal).then_some(next)
}

/// Returns the condition `ResourceRulesApplied`: whether targets refuse the rules, and the first Kymas whose targets
/// do. All causes have the same reason, so that it does not depend on the order of Kymas.
fn resource_rules(counts: &ConfigCounts) -> Condition {
    let refusing = counts.refusing_targets();
    if refusing.is_empty() {
        return Condition::new(types::RESOURCE_RULES_APPLIED, Status::True, Reason::Ready)
            .with_message("no target refuses the rules on modules' objects");
    }
    let named = refusing.iter().take(MAX_NAMED_KYMAS);
    let named: Vec<String> = named.map(|(kyma, reason)| format!("{} ({reason})", kyma.name)).collect();
    let more = match refusing.len() - named.len() {
        0 => String::new(),
        count => format!(", and {count} more"),
    };
    let message = format!(
        "targets refuse the rules on modules' objects, {} in all: {}{more}; condition {} of each Kyma has the cause",
        refusing.len(),
        named.join(", "),
        types::RESOURCE_RULES_APPLIED
    );
    Condition::new(types::RESOURCE_RULES_APPLIED, Status::False, Reason::ApplyRefused).with_message(message)
}

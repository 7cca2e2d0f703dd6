//! The status of a ModuleConfig. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kyma_api::condition::{self, Status, Wanted, types};
use kyma_api::{ModuleConfigStatus, Reason};

use super::{Config, Standing};

/// The status that follows; none if it is the one that stands.
pub(crate) fn next(
    config: &Config,
    standing: &Standing,
    held: Option<&ModuleConfigStatus>,
    now: Timestamp,
) -> Option<ModuleConfigStatus> {
    let held = held.cloned().unwrap_or_default();
    let mut conditions: Vec<Condition> = held.conditions.clone().unwrap_or_default();
    conditions.retain(|condition| condition.type_ == types::READY);
    let generation = config.revision.1;
    let (status, reason, message) = match &config.invalid {
        None => (Status::True, Reason::Ready, "the ModuleConfig is in force"),
        Some(why) => (Status::False, Reason::ModuleConfigInvalid, why.as_str()),
    };
    let wanted = Wanted { type_: types::READY, status, reason, message, observed_generation: generation };
    // Objects hold whole seconds.
    let now = Time(now.round(jiff::Unit::Second).unwrap_or(now));
    let changed = condition::set(&mut conditions, &wanted, &now);
    let next = ModuleConfigStatus {
        conditions: Some(conditions),
        observed_generation: generation,
        matching: Some(standing.matching()),
        refused: Some(standing.refused()),
    };
    let is_held = !changed
        && (held.observed_generation, &held.matching, &held.refused)
            == (next.observed_generation, &next.matching, &next.refused);
    (!is_held).then_some(next)
}

//! Computes the status of a Kyma from decisions and their results. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kyma_api::condition::{self, DesiredCondition, Status, types};
use kyma_api::{
    KymaStatus, LastOperation, MandatoryModule, ModuleStatus, Reason, Selection, State, TargetIdentity,
};

mod module;
mod optional_condition;
pub(crate) mod windows;
mod write;

pub(crate) use module::{Line, Outcome, line, lines_before, next_change};
pub(crate) use optional_condition::OptionalCondition;
pub(crate) use write::{initial, write, write_skipped};

/// Conditions that kyma-operator owns; all others are kept.
const OWN_CONDITION_TYPES: [&str; 9] = [
    types::READY,
    types::MODULES,
    types::CRDS_SYNC,
    types::TARGET_REACHABLE,
    types::MAINTENANCE_WINDOW,
    types::SKR_IMAGE_PULL_SECRET_SYNC,
    types::RESOURCE_RULES_APPLIED,
    types::DEPRECATED_RESOURCE_RULES,
    ACCESS_MISSING,
];
/// Condition of a Kyma that is being deleted: live reads show no access Secret since its transition time.
pub(crate) const ACCESS_MISSING: &str = "AccessMissing";

/// Inputs of the status.
#[derive(Debug)]
pub(crate) struct StatusInputs<'a> {
    /// The previous status.
    pub(crate) before: &'a KymaStatus,
    /// Generation of the Kyma.
    pub(crate) generation: Option<i64>,
    /// Current time, for conditions that change.
    pub(crate) now: Timestamp,
    /// The channel in force.
    pub(crate) channel: Option<String>,
    /// The lines of the modules.
    pub(crate) lines: Vec<Line>,
    /// Names of the modules in the hub's spec, as the Kyma's initial set; empty if the spec is the user's own.
    pub(crate) initial: BTreeSet<&'a str>,
    /// A problem of the whole Kyma.
    pub(crate) problem: Option<KymaProblem>,
    /// The target; `None` if it is the hub.
    pub(crate) target: Option<TargetIdentity>,
    /// Whether the target is reached through a session; false if it is the hub.
    pub(crate) is_remote: bool,
    /// Whether live reads show no access Secret.
    pub(crate) access_missing: bool,
    /// The user's choice, stored in the status.
    pub(crate) choice: Option<Selection>,
    /// Mandatory modules on the target; `None` if unknown.
    pub(crate) mandatory: Option<Vec<MandatoryModule>>,
    /// The condition about maintenance windows.
    pub(crate) windows: Option<OptionalCondition>,
    /// The condition about the image-pull Secret; `None` without one.
    pub(crate) pull_secret: Option<OptionalCondition>,
    /// The condition about the rules of ModuleConfigs on modules' objects; `None` without rules.
    pub(crate) resource_rules: Option<OptionalCondition>,
    /// Fields in use that this version does not implement.
    pub(crate) unsupported: Vec<String>,
    /// Whether the Kyma is being deleted.
    pub(crate) deleting: bool,
}

/// A problem of the whole Kyma.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KymaProblem {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// Resulting state of the Kyma.
    pub(crate) state: State,
    /// Whether the target cannot be reached or is the wrong cluster.
    pub(crate) about_target: bool,
}

/// Computes the status. Keeps transition times where nothing changed.
pub(crate) fn status(facts: &StatusInputs<'_>) -> KymaStatus {
    let state = state_of(facts);
    let operation = operation(facts, state);
    let modules: Vec<ModuleStatus> = facts.lines.iter().map(|line| module_status(facts, line)).collect();
    KymaStatus {
        state: Some(state),
        active_channel: facts.channel.clone().or_else(|| facts.before.active_channel.clone()),
        modules_ready: Some(modules_ready(&modules)),
        conditions: Some(conditions(facts, state)),
        last_operation: Some(last_operation(facts, operation)),
        modules: Some(modules),
        target: facts.target.clone().or_else(|| facts.before.target.clone()),
        selection: facts.choice.clone().or_else(|| facts.before.selection.clone()),
        mandatory_modules: match &facts.mandatory {
            Some(known) => Some(known.clone()).filter(|known| !known.is_empty()),
            None => facts.before.mandatory_modules.clone(),
        },
    }
}

/// Returns the number of modules that are Ready or unmanaged, and of all modules.
fn modules_ready(modules: &[ModuleStatus]) -> String {
    let is_ready = |module: &&ModuleStatus| matches!(module.state, State::Ready | State::Unmanaged);
    format!("{}/{}", modules.iter().filter(is_ready).count(), modules.len())
}

/// Returns the line with its reason and transition time.
fn module_status(facts: &StatusInputs<'_>, line: &Line) -> ModuleStatus {
    let status = &line.status;
    let reason = Some(line.reason.as_str().to_owned());
    let is_same = |before: &&ModuleStatus| {
        (before.state, &before.reason, &before.version, &before.channel)
            == (status.state, &reason, &status.version, &status.channel)
    };
    let before = facts.before.modules.iter().flatten().find(|before| before.name == status.name);
    let since = before.filter(is_same).and_then(|before| before.last_transition_time.clone());
    ModuleStatus {
        last_transition_time: since.or_else(|| Some(time(facts.now))),
        default: facts.initial.contains(status.name.as_str()),
        reason,
        ..status.clone()
    }
}

/// Returns the status of a Kyma that is not reconciled: only Ready changes, to Unknown.
fn skipped_status(
    before: &KymaStatus,
    generation: Option<i64>,
    (reason, message): (Reason, &str),
    now: Timestamp,
) -> KymaStatus {
    let mut own = current_conditions(before);
    let desired = DesiredCondition {
        type_: types::READY,
        status: Status::Unknown,
        reason,
        message,
        observed_generation: generation,
    };
    condition::set(&mut own, &desired, &time(now));
    KymaStatus { conditions: Some(own), ..before.clone() }
}

/// Returns the operator's conditions as stored.
fn own_conditions(status: &KymaStatus) -> Vec<Condition> {
    let all = status.conditions.iter().flatten();
    all.filter(|condition| OWN_CONDITION_TYPES.contains(&condition.type_.as_str())).cloned().collect()
}

/// Returns the operator's conditions. The stored one of the former type `ResourceRules` has its present type.
fn current_conditions(status: &KymaStatus) -> Vec<Condition> {
    let mut own = own_conditions(status);
    condition::rename(&mut own, types::DEPRECATED_RESOURCE_RULES, types::RESOURCE_RULES_APPLIED);
    own
}

/// Returns Deleting for a Kyma that is being deleted, or else the worst state: Error, then Warning, then Processing,
/// then Ready, as in KLM.
fn state_of(facts: &StatusInputs<'_>) -> State {
    if facts.deleting {
        return State::Deleting;
    }
    let modules = facts.lines.iter().map(weight);
    let problem = facts.problem.as_ref().map(|problem| problem.state);
    let missing = missing(facts).map(|_| State::Warning);
    let catalogue = unsynced_catalogue(facts).map(|_| State::Processing);
    let all: Vec<State> = modules.chain(problem).chain(missing).chain(catalogue).collect();
    let has = |state| all.contains(&state);
    if has(State::Error) {
        State::Error
    } else if has(State::Warning) {
        State::Warning
    } else if has(State::Processing) {
        State::Processing
    } else {
        State::Ready
    }
}

/// Returns the state that a line contributes to the Kyma's: a removal counts as Processing.
fn weight(line: &Line) -> State {
    match line.status.state {
        State::Deleting | State::Unset => State::Processing,
        state => state,
    }
}

/// Returns the text of the last operation, in KLM's words where it has some: tools show them.
fn operation(facts: &StatusInputs<'_>, state: State) -> String {
    match (&facts.problem, state) {
        (Some(problem), _) => problem.message.clone(),
        (None, State::Ready) => "kyma is ready".to_owned(),
        (None, State::Deleting) => "waiting for modules to be deleted".to_owned(),
        (None, State::Warning) if facts.lines.iter().all(Line::is_settled) => {
            missing(facts).map(|condition| condition.message.clone()).unwrap_or_default()
        }
        (None, State::Processing) if facts.lines.iter().all(Line::is_settled) => {
            "waiting for the module catalogue on the target".to_owned()
        }
        (None, _) => "waiting for all modules to become ready".to_owned(),
    }
}

fn last_operation(facts: &StatusInputs<'_>, operation: String) -> LastOperation {
    match &facts.before.last_operation {
        Some(before) if before.operation == operation => before.clone(),
        _ => LastOperation { operation, last_update_time: Some(time(facts.now)) },
    }
}

/// API objects store whole seconds.
fn time(now: Timestamp) -> Time {
    Time(now.round(jiff::Unit::Second).unwrap_or(now))
}

fn conditions(facts: &StatusInputs<'_>, state: State) -> Vec<Condition> {
    let mut own = current_conditions(facts.before);
    let mut set = |type_: &str, status: Status, reason: Reason, message: &str| {
        let desired =
            DesiredCondition { type_, status, reason, message, observed_generation: facts.generation };
        condition::set(&mut own, &desired, &time(facts.now));
    };
    let (ready, reason, message) = ready(facts, state);
    set(types::READY, ready, reason, &message);
    let waiting = facts.lines.iter().any(|line| !line.is_settled());
    if waiting {
        set(types::MODULES, Status::False, Reason::Progressing, "not all modules are in ready state");
    } else {
        set(types::MODULES, Status::True, Reason::Ready, "all modules are in ready state");
    }
    match facts.problem.as_ref().filter(|problem| problem.about_target) {
        Some(problem) => set(types::TARGET_REACHABLE, Status::False, problem.reason, &problem.message),
        None if facts.is_remote => {
            set(types::TARGET_REACHABLE, Status::True, Reason::Ready, "the target answers");
            set(types::CRDS_SYNC, Status::True, Reason::Ready, "CRDs are synchronized to the SKR");
        }
        None => {}
    }
    if facts.access_missing {
        set(ACCESS_MISSING, Status::True, Reason::AwaitingAccess, "the access Secret does not exist");
    } else {
        condition::remove(&mut own, ACCESS_MISSING);
    }
    let is_fine = !facts.problem.as_ref().is_some_and(|problem| problem.about_target);
    if is_fine && !facts.is_remote && !facts.deleting {
        // The hub as target needs no access Secret.
        condition::remove(&mut own, types::TARGET_REACHABLE);
    }
    let optional = [
        (types::MAINTENANCE_WINDOW, &facts.windows),
        (types::SKR_IMAGE_PULL_SECRET_SYNC, &facts.pull_secret),
        (types::RESOURCE_RULES_APPLIED, &facts.resource_rules),
    ];
    for (type_, condition) in optional {
        match condition {
            Some(condition) => condition.put(&mut own, facts),
            // Nothing is decided while the target is unreachable, so the condition stays.
            None if facts.problem.as_ref().is_some_and(|problem| problem.about_target) => {}
            None => drop(condition::remove(&mut own, type_)),
        }
    }
    own
}

/// Returns the Ready condition with reason and message of the worst problem.
fn ready(facts: &StatusInputs<'_>, state: State) -> (Status, Reason, String) {
    if let Some(problem) = &facts.problem {
        let status = if facts.deleting { Status::False } else { status_for(problem.state) };
        return (status, problem.reason, problem.message.clone());
    }
    if facts.deleting {
        return (Status::False, Reason::Deleting, "the Kyma is being deleted".to_owned());
    }
    let worst = facts.lines.iter().filter(|line| weight(line) == state).find(|line| !line.is_settled());
    match (worst, missing(facts)) {
        (Some(line), _) => {
            let message = line.status.message.as_deref().unwrap_or_default();
            (status_for(state), line.reason, format!("module {}: {message}", line.status.name))
        }
        (None, Some(condition)) => (Status::False, condition.reason, condition.message.clone()),
        (None, None) if !facts.unsupported.is_empty() => {
            let message = format!("these fields have no effect yet: {}", facts.unsupported.join(", "));
            (Status::True, Reason::NotYetSupported, message)
        }
        (None, None) => match unsynced_catalogue(facts) {
            Some(message) => {
                let message = format!("the target does not have the module catalogue yet: {message}");
                (Status::False, Reason::Progressing, message)
            }
            None => (status_for(state), Reason::Ready, "kyma is ready".to_owned()),
        },
    }
}

/// Returns release-meta-syncer's report on a catalogue that is missing on the target. Without the condition no
/// catalogue is expected: the syncer may not run.
fn unsynced_catalogue<'a>(facts: &'a StatusInputs<'_>) -> Option<&'a str> {
    let conditions = facts.before.conditions.as_deref().filter(|_| facts.is_remote)?;
    let found = condition::get(conditions, types::MODULE_CATALOG)?;
    (found.status == "False").then_some(found.message.as_str())
}

/// Returns the condition about a missing image-pull Secret or missing policies.
fn missing<'a>(facts: &'a StatusInputs<'_>) -> Option<&'a OptionalCondition> {
    let prerequisites = facts.pull_secret.iter().chain(&facts.resource_rules);
    prerequisites.into_iter().find(|condition| condition.status == Status::False)
}

fn status_for(state: State) -> Status {
    if state == State::Ready { Status::True } else { Status::False }
}

/// Returns the time until the first of these moments, at least 100 ms.
pub(crate) fn earliest(moments: impl Iterator<Item = Timestamp>, now: Timestamp) -> Option<SignedDuration> {
    moments.min().map(|moment| moment.duration_since(now).max(SignedDuration::from_millis(100)))
}

#[cfg(test)]
mod tests;

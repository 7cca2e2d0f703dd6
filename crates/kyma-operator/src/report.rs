//! Computes the status of a Kyma from decisions and their results. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as metav1, Time};
use kyma_api::condition::{self, Condition, Status, types};
use kyma_api::{
    KymaStatus, LastOperation, MandatoryModule, ModuleStatus, Reason, Selection, State, TargetIdentity,
};

pub(crate) mod events;
mod module;
pub(crate) mod prerequisites;
pub(crate) mod windows;
mod write;

pub(crate) use module::{Line, Outcome, line, lines_before, next_change};
pub(crate) use write::{initial, write, write_skipped};

/// Conditions that kyma-operator owns; all others are kept.
const OWN_CONDITION_TYPES: [&str; 8] = [
    types::READY,
    types::MODULES,
    types::CRDS_SYNC,
    types::TARGET_REACHABLE,
    types::MAINTENANCE_WINDOW,
    types::SKR_IMAGE_PULL_SECRET_SYNC,
    types::RESOURCE_RULES_APPLIED,
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
    pub(crate) windows: Option<Condition>,
    /// The condition about the image-pull Secret; `None` without one.
    pub(crate) pull_secret: Option<Condition>,
    /// The condition about the rules of ModuleConfigs on modules' objects; `None` without rules.
    pub(crate) resource_rules: Option<Condition>,
    /// Fields in use that this version does not implement.
    pub(crate) unsupported: Vec<String>,
    /// Whether the Kyma is being deleted.
    pub(crate) deleting: bool,
}

impl<'a> StatusInputs<'a> {
    /// Returns the inputs of a status with the modules and the target of the previous one, and without a problem.
    pub(crate) fn unchanged(
        before: &'a KymaStatus,
        generation: Option<i64>,
        initial: BTreeSet<&'a str>,
        now: Timestamp,
    ) -> Self {
        Self {
            before,
            generation,
            now,
            channel: None,
            lines: lines_before(before),
            initial,
            problem: None,
            target: None,
            is_remote: false,
            access_missing: false,
            choice: None,
            mandatory: None,
            windows: None,
            pull_secret: None,
            resource_rules: None,
            unsupported: Vec::new(),
            deleting: false,
        }
    }
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
pub(crate) fn status(inputs: &StatusInputs<'_>) -> KymaStatus {
    let state = state_of(inputs);
    let operation = operation(inputs, state);
    let modules: Vec<ModuleStatus> = inputs.lines.iter().map(|line| module_status(inputs, line)).collect();
    KymaStatus {
        state: Some(state),
        active_channel: inputs.channel.clone().or_else(|| inputs.before.active_channel.clone()),
        modules_ready: Some(modules_ready(&modules)),
        conditions: Some(conditions(inputs, state)),
        last_operation: Some(last_operation(inputs, operation)),
        modules: Some(modules),
        target: inputs.target.clone().or_else(|| inputs.before.target.clone()),
        selection: inputs.choice.clone().or_else(|| inputs.before.selection.clone()),
        mandatory_modules: match &inputs.mandatory {
            Some(known) => Some(known.clone()).filter(|known| !known.is_empty()),
            None => inputs.before.mandatory_modules.clone(),
        },
    }
}

/// Returns the number of modules that are Ready or unmanaged, and of all modules.
fn modules_ready(modules: &[ModuleStatus]) -> String {
    let is_ready = |module: &&ModuleStatus| matches!(module.state, State::Ready | State::Unmanaged);
    format!("{}/{}", modules.iter().filter(is_ready).count(), modules.len())
}

/// Returns the line with its reason and transition time.
fn module_status(inputs: &StatusInputs<'_>, line: &Line) -> ModuleStatus {
    let status = &line.status;
    let reason = Some(line.reason.as_str().to_owned());
    let is_same = |before: &&ModuleStatus| {
        (before.state, &before.reason, &before.version, &before.channel)
            == (status.state, &reason, &status.version, &status.channel)
    };
    let before = inputs.before.modules.iter().flatten().find(|before| before.name == status.name);
    let since = before.filter(is_same).and_then(|before| before.last_transition_time.clone());
    ModuleStatus {
        last_transition_time: since.or_else(|| Some(time(inputs.now))),
        default: inputs.initial.contains(status.name.as_str()),
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
    let skipped = Condition::new(types::READY, Status::Unknown, reason).with_message(message);
    condition::set(&mut own, &skipped, generation, &time(now));
    KymaStatus { conditions: Some(own), ..before.clone() }
}

/// Returns the operator's conditions as stored, also those of former types.
fn own_conditions(status: &KymaStatus) -> Vec<metav1::Condition> {
    let is_own =
        |stored: &&metav1::Condition| OWN_CONDITION_TYPES.contains(&condition::current_type(&stored.type_));
    status.conditions.iter().flatten().filter(is_own).cloned().collect()
}

/// Returns the operator's conditions with their current types and reasons.
fn current_conditions(status: &KymaStatus) -> Vec<metav1::Condition> {
    let mut own = own_conditions(status);
    condition::rename_stored(&mut own);
    own
}

/// Returns Deleting for a Kyma that is being deleted, or else the worst state: Error, then Warning, then Processing,
/// then Ready, as in KLM.
fn state_of(inputs: &StatusInputs<'_>) -> State {
    if inputs.deleting {
        return State::Deleting;
    }
    let modules = inputs.lines.iter().map(weight);
    let problem = inputs.problem.as_ref().map(|problem| problem.state);
    let missing = missing(inputs).map(|_| State::Warning);
    let catalogue = unsynced_catalogue(inputs).map(|_| State::Processing);
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
fn operation(inputs: &StatusInputs<'_>, state: State) -> String {
    match (&inputs.problem, state) {
        (Some(problem), _) => problem.message.clone(),
        (None, State::Ready) => "kyma is ready".to_owned(),
        (None, State::Deleting) => "waiting for modules to be deleted".to_owned(),
        (None, State::Warning) if inputs.lines.iter().all(Line::is_settled) => {
            missing(inputs).map(|condition| condition.message.clone()).unwrap_or_default()
        }
        (None, State::Processing) if inputs.lines.iter().all(Line::is_settled) => {
            "waiting for the module catalogue on the target".to_owned()
        }
        (None, _) => "waiting for all modules to become ready".to_owned(),
    }
}

fn last_operation(inputs: &StatusInputs<'_>, operation: String) -> LastOperation {
    match &inputs.before.last_operation {
        Some(before) if before.operation == operation => before.clone(),
        _ => LastOperation { operation, last_update_time: Some(time(inputs.now)) },
    }
}

/// API objects store whole seconds.
fn time(now: Timestamp) -> Time {
    Time(now.round(jiff::Unit::Second).unwrap_or(now))
}

fn conditions(inputs: &StatusInputs<'_>, state: State) -> Vec<metav1::Condition> {
    let mut own = current_conditions(inputs.before);
    let now = time(inputs.now);
    let mut set = |desired: &Condition| {
        condition::set(&mut own, desired, inputs.generation, &now);
    };
    set(&ready(inputs, state));
    set(&modules(inputs));
    match inputs.problem.as_ref().filter(|problem| problem.about_target) {
        Some(problem) => {
            let unreachable = Condition::new(types::TARGET_REACHABLE, Status::False, problem.reason);
            set(&unreachable.with_message(&problem.message));
        }
        None if inputs.is_remote => {
            let reachable = Condition::new(types::TARGET_REACHABLE, Status::True, Reason::Ready);
            set(&reachable.with_message("the target answers"));
            let synced = Condition::new(types::CRDS_SYNC, Status::True, Reason::Ready);
            set(&synced.with_message("CRDs are synchronized to the SKR"));
        }
        None => {}
    }
    if inputs.access_missing {
        let missing = Condition::new(ACCESS_MISSING, Status::True, Reason::AwaitingAccess);
        set(&missing.with_message("the access Secret does not exist"));
    } else {
        condition::remove(&mut own, ACCESS_MISSING);
    }
    let is_fine = !inputs.problem.as_ref().is_some_and(|problem| problem.about_target);
    if is_fine && !inputs.is_remote && !inputs.deleting {
        // The hub as target needs no access Secret.
        condition::remove(&mut own, types::TARGET_REACHABLE);
    }
    let optional = [
        (types::MAINTENANCE_WINDOW, &inputs.windows),
        (types::SKR_IMAGE_PULL_SECRET_SYNC, &inputs.pull_secret),
        (types::RESOURCE_RULES_APPLIED, &inputs.resource_rules),
    ];
    for (type_, condition) in optional {
        match condition {
            Some(condition) => drop(condition::set(&mut own, condition, inputs.generation, &now)),
            // Nothing is decided while the target is unreachable, so the condition stays.
            None if inputs.problem.as_ref().is_some_and(|problem| problem.about_target) => {}
            None => drop(condition::remove(&mut own, type_)),
        }
    }
    own
}

fn modules(inputs: &StatusInputs<'_>) -> Condition {
    if inputs.lines.iter().all(Line::is_settled) {
        Condition::new(types::MODULES, Status::True, Reason::Ready)
            .with_message("all modules are in ready state")
    } else {
        Condition::new(types::MODULES, Status::False, Reason::Progressing)
            .with_message("not all modules are in ready state")
    }
}

/// Returns the Ready condition with reason and message of the worst problem.
fn ready(inputs: &StatusInputs<'_>, state: State) -> Condition {
    let ready = |status, reason| Condition::new(types::READY, status, reason);
    if let Some(problem) = &inputs.problem {
        let status = if inputs.deleting { Status::False } else { status_for(problem.state) };
        return ready(status, problem.reason).with_message(&problem.message);
    }
    if inputs.deleting {
        return ready(Status::False, Reason::Deleting).with_message("the Kyma is being deleted");
    }
    let worst = inputs.lines.iter().filter(|line| weight(line) == state).find(|line| !line.is_settled());
    match (worst, missing(inputs)) {
        (Some(line), _) => {
            let message = line.status.message.as_deref().unwrap_or_default();
            let message = format!("module {}: {message}", line.status.name);
            ready(status_for(state), line.reason).with_message(message)
        }
        (None, Some(condition)) => ready(Status::False, condition.reason).with_message(&condition.message),
        (None, None) if !inputs.unsupported.is_empty() => {
            let message = format!("these fields have no effect yet: {}", inputs.unsupported.join(", "));
            ready(Status::True, Reason::NotYetSupported).with_message(message)
        }
        (None, None) => match unsynced_catalogue(inputs) {
            Some(message) => {
                let message = format!("the target does not have the module catalogue yet: {message}");
                ready(Status::False, Reason::Progressing).with_message(message)
            }
            None => ready(status_for(state), Reason::Ready).with_message("kyma is ready"),
        },
    }
}

/// Returns release-meta-syncer's report on a catalogue that is missing on the target. Without the condition no
/// catalogue is expected: the syncer may not run.
fn unsynced_catalogue<'a>(inputs: &'a StatusInputs<'_>) -> Option<&'a str> {
    let conditions = inputs.before.conditions.as_deref().filter(|_| inputs.is_remote)?;
    let found = condition::get(conditions, types::MODULE_CATALOG)?;
    (found.status == "False").then_some(found.message.as_str())
}

/// Returns the condition about a missing image-pull Secret or missing policies.
fn missing<'a>(inputs: &'a StatusInputs<'_>) -> Option<&'a Condition> {
    let prerequisites = inputs.pull_secret.iter().chain(&inputs.resource_rules);
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

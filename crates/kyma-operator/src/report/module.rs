//! A line of `status.modules`.

use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use kyma_api::{
    DeletionPolicy, KymaStatus, ModuleStatus, ModuleTemplate, PartialMeta, PendingUpgrade, ReadyView, Reason,
    ResourcePolicy, State, TrackedObject, UpgradeMode,
};
use kyma_controller::Failure;

use crate::decision::deletion::{IgnorePolicy, stays_on_target};
use crate::decision::resolve::{Decision, Install, ModuleProblem, ResolvedModule, UpgradeWait};
use crate::hub::component::ComponentView;
use crate::plan::{values_without_effect, withheld};

/// A module's status and the reason of its state.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) status: ModuleStatus,
    pub(crate) reason: Reason,
}

impl Line {
    /// Reports whether the module has no problem and no work in progress.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.status.state, State::Ready | State::Unmanaged)
    }
}

/// Message for a module to be removed whose component was deleted without a request.
const COMPONENT_DELETED_MESSAGE: &str =
    "its component was deleted without a deletion request; a new component removes the module";

/// Returns the lines of the previous status, kept while nothing new is known.
pub(crate) fn lines_before(before: &KymaStatus) -> Vec<Line> {
    let reason = |status: &ModuleStatus| status.reason.as_deref().and_then(Reason::from_word);
    let line = |status: &ModuleStatus| Line {
        status: status.clone(),
        reason: reason(status).unwrap_or(Reason::Progressing),
    };
    before.modules.iter().flatten().map(line).collect()
}

/// A decision and its result.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    /// The decision.
    pub(crate) resolved: &'a ResolvedModule,
    /// The component after the plan was carried out.
    pub(crate) view: Option<&'a ComponentView>,
    /// The problem that prevents the write.
    pub(crate) blocked: Option<&'a ModuleProblem>,
    /// The failure of the write.
    pub(crate) failure: Option<&'a Failure>,
    /// Whether its component had no finalizer any more when the deletion request was written.
    pub(crate) missed: bool,
    /// Policy for the removal of modules with `customResourcePolicy: Ignore`.
    pub(crate) ignore: IgnorePolicy,
    /// The module's previous line.
    pub(crate) before: Option<&'a ModuleStatus>,
    /// Current time.
    pub(crate) now: Timestamp,
    /// Time after which a component without a reconciler is reported.
    pub(crate) deadline: SignedDuration,
}

/// Returns the line of a module; `None` after its removal, and for mandatory modules that are installed or removed as
/// decided.
pub(crate) fn line(outcome: &Outcome<'_>) -> Option<Line> {
    let name = outcome.resolved.module.clone();
    let line = match &outcome.resolved.decision {
        Decision::Install(install) | Decision::FinishRemoval(install, _) if install.mandatory => return None,
        Decision::Install(install) => installing(outcome, install, None),
        Decision::KeepVersion(install, problem) => held_back(outcome, install, problem),
        Decision::Await(install, wait) => awaiting(outcome, install.as_ref(), wait),
        Decision::Keep(problem) => kept(outcome, problem),
        Decision::Remove { problem, .. } => removing(outcome, problem.as_ref())?,
        Decision::UpgradeDuringRemoval(_) => removing(outcome, None)?,
        Decision::FinishRemoval(..) => finishing(outcome)?,
        Decision::Unmanage => unmanaged(outcome),
        Decision::Refuse(problem) => refused(outcome, problem),
    };
    let module_configs = outcome.resolved.configs.clone();
    let default_resource_created = default_resource_created(outcome);
    let status = ModuleStatus { name, module_configs, default_resource_created, ..line.status };
    Some(Line { status, ..line })
}

/// Reports whether the module's default CR was created and must not be created again. A removal deletes it.
fn default_resource_created(outcome: &Outcome<'_>) -> bool {
    let before = outcome.before.is_some_and(|before| before.default_resource_created);
    match outcome.view {
        Some(view) if view.deletion_policy == DeletionPolicy::Delete => false,
        Some(view) => view.default_resource_created || before,
        None => before,
    }
}

/// Returns when the line may change without an event: the decision's time, or when a component without a reconciler
/// becomes [`Reason::NoReconciler`].
pub(crate) fn next_change(outcome: &Outcome<'_>) -> Option<Timestamp> {
    outcome.resolved.until.into_iter().chain(unobserved_until(outcome)).min()
}

fn unobserved_until(outcome: &Outcome<'_>) -> Option<Timestamp> {
    let view = outcome.view.filter(|view| !view.is_observed())?;
    let deadline = view.applied_at?.checked_add(outcome.deadline).ok()?;
    (deadline > outcome.now).then_some(deadline)
}

fn installing(outcome: &Outcome<'_>, install: &Install, held_back: Option<&ModuleProblem>) -> Line {
    let (state, reason, message) = progress(outcome);
    let (state, reason, message) = match held_back {
        Some(problem) if state != State::Error => (problem.state, problem.reason, problem.message.clone()),
        _ => (state, reason, message),
    };
    let message = [
        message.as_str(),
        withheld(install).unwrap_or_default(),
        values_without_effect(install).unwrap_or_default(),
    ]
    .into_iter()
    .filter(|part| !part.is_empty())
    .collect::<Vec<_>>()
    .join("; ");
    let paused = outcome.view.filter(|view| view.pause_condition().is_some());
    let running = paused.and_then(|view| view.running.clone());
    let has_default = outcome.view.is_none_or(|view| view.resource_policy == ResourcePolicy::CreateAndDelete);
    // The reconciler reports only an existing default CR.
    let resource = outcome.view.filter(|_| has_default).and_then(|view| view.default_resource.clone());
    Line {
        status: ModuleStatus {
            ocm_component_name: install.release.ocm_component.clone(),
            fqdn: install.release.ocm_component.clone(),
            channel: install.channel.clone(),
            version: running.or_else(|| Some(install.version.clone())),
            message: Some(message).filter(|message| !message.is_empty()),
            state,
            manifest: component_of(outcome),
            resource,
            template: Some(tracked_template(install)),
            ..ModuleStatus::default()
        },
        reason,
    }
}

/// Returns the line of a module that keeps its version. A pending approval stays in the line during a Pause.
fn held_back(outcome: &Outcome<'_>, install: &Install, problem: &ModuleProblem) -> Line {
    let line = installing(outcome, install, Some(problem));
    let goes_on = problem.reason == Reason::Paused && install.entry.upgrade.mode == UpgradeMode::Manual;
    let pending_upgrade =
        outcome.before.filter(|_| goes_on).and_then(|before| before.pending_upgrade.clone());
    Line { status: ModuleStatus { pending_upgrade, ..line.status }, ..line }
}

/// Returns the line of the running version, with a message about the upgrade.
fn awaiting(outcome: &Outcome<'_>, install: Option<&Install>, wait: &UpgradeWait) -> Line {
    let gone = "the ModuleTemplate of the installed version no longer exists";
    let line = match install {
        Some(install) => installing(outcome, install, None),
        None => kept(outcome, &ModuleProblem::warning(Reason::ModuleTemplateMissing, gone)),
    };
    let message = line.status.message.into_iter().chain([wait.to_string()]).collect::<Vec<_>>().join("; ");
    let (maintenance, pending_upgrade) = match wait {
        UpgradeWait::Window { .. } => (true, None),
        UpgradeWait::Approval { version, since, .. } => {
            (false, Some(PendingUpgrade { version: version.clone(), since: super::time(*since) }))
        }
    };
    let status = ModuleStatus { maintenance, pending_upgrade, message: Some(message), ..line.status };
    Line { status, ..line }
}

/// Returns the component's state, or the reason why no component exists yet.
fn progress(outcome: &Outcome<'_>) -> (State, Reason, String) {
    if let Some(failure) = outcome.failure {
        let state =
            if failure.class == kyma_api::ErrorClass::Transient { State::Processing } else { State::Error };
        return (state, failure.reason, failure.message.clone());
    }
    if let Some(blocked) = outcome.blocked {
        return (blocked.state, blocked.reason, blocked.message.clone());
    }
    let Some(view) = outcome.view else {
        return (State::Processing, Reason::Progressing, "the component is being created".to_owned());
    };
    if !view.is_observed() {
        return unobserved(outcome, view);
    }
    let state = view.state.unwrap_or(State::Processing);
    if let Some(ready) = view.pause_condition().filter(|_| !matches!(state, State::Error | State::Deleting)) {
        return paused_progress(view, ready);
    }
    let message = view.ready.as_ref().map(|ready| ready.message.clone()).unwrap_or_default();
    let reported = view.ready.as_ref().and_then(|ready| Reason::from_word(&ready.reason));
    match state {
        State::Ready => (state, Reason::Ready, String::new()),
        State::Error => (state, reported.unwrap_or(Reason::ComponentFailed), message),
        _ => (state, reported.unwrap_or(Reason::Progressing), message),
    }
}

/// Returns Warning while a Pause or `suspend` halts the component's reconciler: the change waits for a user to end
/// that, as for a paused Kyma.
fn paused_progress(view: &ComponentView, ready: &ReadyView) -> (State, Reason, String) {
    let desired = view.desired_version.as_deref().unwrap_or_default();
    let waits = if view.running.as_deref() == Some(desired) {
        "a change of the module waits".to_owned()
    } else {
        format!("version {desired} waits")
    };
    let parts = [waits, ready.message.clone()];
    let message = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    (State::Warning, Reason::from_word(&ready.reason).unwrap_or(Reason::Progressing), message)
}

fn unobserved(outcome: &Outcome<'_>, view: &ComponentView) -> (State, Reason, String) {
    let late = view.applied_at.is_some_and(|applied| outcome.now.duration_since(applied) >= outcome.deadline);
    if late {
        let message = format!("no reconciler has observed component {} ({})", view.name, view.kind);
        return (State::Error, Reason::NoReconciler, message);
    }
    (State::Processing, Reason::Progressing, "the component's reconciler has not observed it yet".to_owned())
}

/// Returns the line of an unchanged component: the previous line with the problem.
fn kept(outcome: &Outcome<'_>, problem: &ModuleProblem) -> Line {
    let before = outcome.before.cloned().unwrap_or_default();
    Line {
        status: ModuleStatus {
            version: outcome.view.and_then(|view| view.desired_version.clone()).or(before.version),
            channel: outcome.view.and_then(|view| view.channel.clone()).or(before.channel),
            state: problem.state,
            message: Some(problem.message.clone()),
            manifest: component_of(outcome),
            ..before
        },
        reason: problem.reason,
    }
}

fn removing(outcome: &Outcome<'_>, problem: Option<&ModuleProblem>) -> Option<Line> {
    let Some(view) = outcome.view else {
        let missed = outcome
            .missed
            .then(|| kept(outcome, &ModuleProblem::warning(Reason::Deleting, COMPONENT_DELETED_MESSAGE)));
        return missed.or_else(|| problem.map(|problem| refused(outcome, problem)));
    };
    let before = outcome.before.cloned().unwrap_or_default();
    let reported = view.removal_message();
    let blocked = outcome.blocked.map(|problem| (problem.reason, problem.message.clone()));
    let held = outcome.failure.map(|failure| (failure.reason, failure.message.clone())).or(blocked);
    let (reason, message) = match held {
        Some((reason, message)) => (reason, Some(message)),
        None => (Reason::Deleting, reported),
    };
    let is_requested = view.deletion_policy == DeletionPolicy::Delete
        || view.terminating && stays_on_target(view, outcome.ignore);
    Some(Line {
        status: ModuleStatus {
            version: view.desired_version.clone(),
            channel: view.channel.clone(),
            // Only a requested removal is Deleting: see [`crate::decision::missing_components`].
            state: if is_requested { State::Deleting } else { State::Warning },
            message,
            manifest: Some(tracked_component(view)),
            resource: None,
            ..before
        },
        reason,
    })
}

/// Returns the line of a module whose component is missing: unchanged until a component with a deletion request exists.
fn finishing(outcome: &Outcome<'_>) -> Option<Line> {
    let held = outcome.failure.map(|failure| (failure.reason, failure.message.clone()));
    match held.or_else(|| outcome.blocked.map(|problem| (problem.reason, problem.message.clone()))) {
        Some((reason, message)) => Some(kept(outcome, &ModuleProblem::warning(reason, message))),
        None => removing(outcome, None),
    }
}

/// Returns the component; a deleted one is still named as the one that installed the module.
fn component_of(outcome: &Outcome<'_>) -> Option<TrackedObject> {
    let before = installed_before(outcome).and_then(|before| before.manifest.clone());
    outcome.view.map(tracked_component).or(before)
}

/// Returns the previous line if the module had a component and was not removed on request.
fn installed_before<'a>(outcome: &Outcome<'a>) -> Option<&'a ModuleStatus> {
    outcome.before.filter(|before| before.manifest.is_some() && before.state != State::Deleting)
}

fn unmanaged(outcome: &Outcome<'_>) -> Line {
    let before = outcome.before.cloned().unwrap_or_default();
    Line {
        status: ModuleStatus {
            ocm_component_name: before.ocm_component_name,
            fqdn: before.fqdn,
            version: outcome.view.and_then(|view| view.desired_version.clone()).or(before.version),
            channel: outcome.view.and_then(|view| view.channel.clone()).or(before.channel),
            state: State::Unmanaged,
            ..ModuleStatus::default()
        },
        reason: Reason::Unmanaged,
    }
}

fn refused(outcome: &Outcome<'_>, problem: &ModuleProblem) -> Line {
    Line {
        status: ModuleStatus {
            channel: outcome.resolved.subscription.channel.clone(),
            version: installed_before(outcome).and_then(|before| before.version.clone()),
            state: problem.state,
            message: Some(problem.message.clone()),
            manifest: component_of(outcome),
            ..ModuleStatus::default()
        },
        reason: problem.reason,
    }
}

fn tracked_component(view: &ComponentView) -> TrackedObject {
    TrackedObject {
        api_version: Some(view.kind.api_version.clone()),
        kind: Some(view.kind.kind.clone()),
        metadata: Some(PartialMeta {
            name: Some(view.name.clone()),
            namespace: Some(view.namespace.clone()),
            generation: None,
        }),
    }
}

fn tracked_template(install: &Install) -> TrackedObject {
    TrackedObject {
        api_version: Some(ModuleTemplate::api_version(&()).into_owned()),
        kind: Some(ModuleTemplate::kind(&()).into_owned()),
        metadata: Some(PartialMeta {
            name: Some(install.template.name.clone()),
            namespace: Some(install.template.namespace.clone()),
            generation: install.template.generation,
        }),
    }
}

#[cfg(test)]
mod tests;

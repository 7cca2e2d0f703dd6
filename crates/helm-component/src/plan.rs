//! Decides on the next step of a component from the observed state alone. Pure.
//!
//! [`next`] is asked again after every step, with the step's outcome in [`Observed`]; it ends with a [`StopReason`].
//! The failure of a step is part of [`Observed`] if it decides on further steps; any other failure ends the pass. So
//! no step that failed is tried twice in a pass.

use std::collections::BTreeSet;
use std::time::Duration;

use kyma_api::Reason;
use kyma_controller::{Failure, longest_delay};

use crate::actions::history::due::{self as history, ApplyResult};
use crate::actions::hooks::due::{self as hooks, HookStep, Phase};
use crate::actions::rollback::due as rollback;

pub(crate) mod observed;
pub(crate) mod step;

pub use crate::actions::history::due::HistoryDue;
pub use crate::actions::hooks::due::HooksDue;
pub use crate::actions::rollback::state::{ObservedRollback, RollbackAction, RollbackState};
pub use observed::{
    Content, DefaultResource, DriftMode, ExistingInstallation, ObjectState, Observed, Operation,
};
pub use step::{Step, StopReason};

/// Returns the next step.
pub fn next(seen: &Observed) -> Step {
    match seen.operation {
        Operation::Remove => remove(seen),
        Operation::Install => match &seen.refusal {
            Some(fault) => Step::Stop(StopReason::Failed(fault.clone())),
            // Otherwise objects that the content no longer has would be forgotten.
            None if seen.unread => Step::Sweep,
            None => install_or_roll_back(seen),
        },
    }
}

fn install_or_roll_back(seen: &Observed) -> Step {
    let step = install(seen);
    if let Some(action) = rollback::due(seen, &step) {
        return Step::Rollback(action);
    }
    if step == Step::Stop(StopReason::Ready) { ready(seen) } else { step }
}

/// Returns the step once the target is as desired.
fn ready(seen: &Observed) -> Step {
    if seen.awaits_news() {
        // Health from before the apply says nothing about the applied objects.
        Step::Stop(StopReason::Progressing(seen.unreported()))
    } else if seen.tests_due {
        Step::Test
    } else {
        Step::Stop(rollback::stop_reason(seen.rollback))
    }
}

fn install(seen: &Observed) -> Step {
    if seen.content == Content::Stale {
        return Step::Load;
    }
    // Applied objects may have changed meanwhile. A first installation need not wait for watches, unless the hub may
    // have lost the record of an earlier one.
    if !seen.watching {
        return Step::Watch;
    }
    let may_be_there = !seen.inventory.is_empty() || seen.versioned;
    if !seen.watched && may_be_there && !seen.applied {
        return wait_for_watches(seen);
    }
    if let Some(newer) = &seen.newer {
        return Step::Stop(StopReason::NewerVersion(newer.clone()));
    }
    let due =
        seen.objects.iter().any(|object| object.served && seen.needs_apply(object)) || seen.hooks.release;
    // For content without objects, only the apply notes that it is installed.
    let due = due || seen.unsent && seen.objects.is_empty();
    if due && !seen.applied {
        return match seen.content {
            Content::Loaded => bring(seen),
            Content::Recorded | Content::Stale => Step::Load,
        };
    }
    if let Some(fault) = fault(seen) {
        return refused(seen, fault);
    }
    prune(seen).or_else(|| hooks_after(seen)).or_else(|| record(seen)).unwrap_or_else(|| settle(seen))
}

/// Records a refused release as failed.
fn refused(seen: &Observed, fault: Failure) -> Step {
    let step = history::due(&seen.history, ApplyResult::Refused);
    step.unwrap_or(Step::Stop(StopReason::Failed(fault)))
}

/// Records the release once it is applied.
fn record(seen: &Observed) -> Option<Step> {
    if !seen.is_complete() {
        return None;
    }
    let is_loaded = seen.content == Content::Loaded;
    history::due(&seen.history, ApplyResult::Complete { is_loaded })
}

/// Returns the failure of a component with refused objects: the first one. Failures that can be resolved sooner or by
/// themselves are retried all the same, each after its own pauses.
fn fault(seen: &Observed) -> Option<Failure> {
    let mut faults = seen.objects.iter().filter_map(|object| object.fault.as_ref());
    let first = faults.next()?;
    let own = longest_delay(first);
    let sooner: Vec<(Duration, &Failure)> = faults
        .filter_map(|fault| Some((longest_delay(fault)?, fault)))
        .filter(|(delay, _)| own.is_none_or(|own| *delay < own))
        .collect();
    let named = sooner.iter().filter(|(_, fault)| fault.retry_after.is_some());
    let named = named.map(|(delay, _)| *delay).min();
    let pauses = sooner.iter().filter(|(_, fault)| fault.retry_after.is_none());
    let pauses = pauses.min_by_key(|(delay, _)| *delay).map(|(_, fault)| fault.reason);
    let first = named.into_iter().fold(first.clone(), Failure::no_later_than);
    Some(pauses.into_iter().fold(first, Failure::beside))
}

/// Returns the step that applies loaded content, unless it would replace a newer installation by a user.
fn bring(seen: &Observed) -> Step {
    match &seen.existing_installation {
        ExistingInstallation::Unread => Step::ReadExistingInstallation,
        ExistingInstallation::Newer(version) => Step::Stop(StopReason::NewerInstallation(version.clone())),
        ExistingInstallation::UnknownVersion(object) => {
            Step::Stop(StopReason::UnknownInstallation(object.clone()))
        }
        ExistingInstallation::None if seen.helm_release_unread => Step::FindHelmRelease,
        ExistingInstallation::None if seen.namespace_ready => hooks_before(seen).unwrap_or(Step::Apply),
        ExistingInstallation::None => Step::Namespace,
    }
}

/// Returns the step for hooks before the apply.
fn hooks_before(seen: &Observed) -> Option<Step> {
    let crds_due = seen.objects.iter().any(|object| object.identity.is_crd() && seen.needs_apply(object));
    let phase = Phase::BeforeApply { crds_due, fault: fault(seen) };
    hooks::due(&seen.hooks, phase).map(|step| hook_step(seen, step))
}

/// Returns the step for hooks after the apply.
fn hooks_after(seen: &Observed) -> Option<Step> {
    let all_sent = seen.objects.iter().filter(|object| object.served).all(|object| seen.is_sent(object));
    let phase = Phase::AfterApply { all_sent, is_loaded: seen.content == Content::Loaded };
    hooks::due(&seen.hooks, phase).map(|step| hook_step(seen, step))
}

/// Returns the step of the pass for a step of hooks.
fn hook_step(seen: &Observed, step: HookStep) -> Step {
    match step {
        HookStep::ApplyCrds => Step::ApplyCrds,
        HookStep::Refuse(fault) => refused(seen, fault),
        HookStep::Load => Step::Load,
        HookStep::Run(event) => Step::Hooks(event),
        // Health is reported during the wait too, so the causes that hold up objects are read first.
        HookStep::Stop(StopReason::Hook(_)) if seen.watched && seen.causes_due => Step::ReadCauses,
        HookStep::Stop(stop_reason) => Step::Stop(stop_reason),
    }
}

/// Returns the step that waits for the lists of the watches, which come as events. A kind that is no longer served
/// has none.
fn wait_for_watches(seen: &Observed) -> Step {
    match &seen.sync_failure {
        _ if seen.sync_timed_out => Step::Rediscover,
        Some(why) => Step::Stop(StopReason::SyncFailed(why.clone())),
        None => Step::Stop(StopReason::WaitingForSync),
    }
}

/// Returns the step that deletes surplus objects, once all desired ones exist: until then they do the work of their
/// replacements.
fn prune(seen: &Observed) -> Option<Step> {
    let surplus = seen.surplus();
    if surplus.is_empty() || !seen.is_complete() {
        return None;
    }
    if !seen.watched {
        return Some(wait_for_watches(seen));
    }
    if seen.content == Content::Recorded {
        return Some(Step::Load);
    }
    match &seen.pruned {
        Some(Err(fault)) => Some(Step::Stop(StopReason::Failed(fault.clone()))),
        // Remaining objects wait for their finalizers; their watch requeues the component.
        Some(Ok(())) => None,
        None => Some(Step::Prune(surplus)),
    }
}

/// Returns the step after a complete apply: the default custom resource, then health.
fn settle(seen: &Observed) -> Step {
    if seen.default_resource == DefaultResource::Due {
        return Step::DefaultResource;
    }
    let own = seen.groups_of_own_crds();
    let missing: BTreeSet<String> = seen
        .objects
        .iter()
        .filter(|object| !own.contains(&*object.identity.group))
        .filter_map(ObjectState::lacks)
        .collect();
    if !missing.is_empty() {
        return Step::Stop(StopReason::MissingKinds(missing.into_iter().collect()));
    }
    if !seen.watched {
        return wait_for_watches(seen);
    }
    if seen.default_unconfirmed {
        return Step::ConfirmDefaultResource;
    }
    if seen.unjudged {
        return Step::Judge;
    }
    if let Some(manager) = &seen.stray_manager {
        return Step::Stop(StopReason::StrayManager(manager.clone()));
    }
    if seen.causes_due {
        return Step::ReadCauses;
    }
    let failed = seen.failing();
    if !failed.is_empty() {
        return Step::Stop(StopReason::Unhealthy(failed));
    }
    let flapping = seen.flapping();
    if !flapping.is_empty() {
        return Step::Stop(StopReason::DriftFlapping(flapping));
    }
    let mut waiting = seen.unready();
    if !waiting.is_empty() && seen.deadline.has_passed() {
        return Step::Stop(StopReason::HealthTimeout(waiting));
    }
    for object in seen.objects.iter().filter(|object| !seen.is_sent(object)) {
        let why = object.waiting.as_deref().unwrap_or("its kind is not served yet");
        waiting.push(format!("{} ({why})", object.identity));
    }
    if seen.default_resource == DefaultResource::Unserved {
        waiting.push("the kind of the default custom resource".to_owned());
    }
    waiting.dedup();
    Step::Stop(if waiting.is_empty() { StopReason::Ready } else { StopReason::Progressing(waiting) })
}

fn remove(seen: &Observed) -> Step {
    // Without an inventory that can be read, only the owner label shows which objects to remove.
    if seen.unread || (seen.inventory.is_empty() && !seen.swept) {
        return Step::Sweep;
    }
    if !seen.watching {
        return Step::Watch;
    }
    if !seen.watched && seen.removal.is_none() {
        return wait_for_watches(seen);
    }
    if seen.newer.is_some() && !seen.swept {
        return Step::Sweep;
    }
    match &seen.removal {
        None => Step::Remove,
        Some(Err(fault)) => {
            let blocked = fault.reason == Reason::DeletionBlocked;
            let repair = blocked.then(|| repair(seen)).flatten();
            repair.unwrap_or_else(|| Step::Stop(StopReason::Failed(fault.clone())))
        }
        Some(Ok(left)) if left.is_empty() => Step::Stop(StopReason::Removed),
        Some(Ok(left)) => Step::Stop(StopReason::Removing(left.clone())),
    }
}

/// Returns the step that repairs a component whose removal is blocked by users' objects: existing objects keep
/// working, and another version is applied. New objects of the same version are not created.
fn repair(seen: &Observed) -> Option<Step> {
    if seen.changes && seen.content == Content::Stale && !seen.applied && seen.refusal.is_none() {
        return Some(Step::Load);
    }
    let due = seen.objects.iter().any(|object| object.served && seen.needs_apply(object));
    if !due || seen.applied || seen.refusal.is_some() {
        return None;
    }
    match seen.content {
        Content::Recorded => Some(Step::Load),
        Content::Loaded if seen.namespace_ready => Some(Step::Apply),
        Content::Loaded => Some(Step::Namespace),
        Content::Stale => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;

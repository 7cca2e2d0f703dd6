//! Builds the report of a reconcile from its result, and changes nothing that the next reconcile uses.

use std::time::{Duration, Instant};

use kyma_api::condition::Condition;
use kyma_api::{ErrorClass, FreeForm, Reason, State};
use kyma_controller::{Failure, Wait};
use kyma_sdk::{Progress, Removal};

use crate::actions::rollback::{self, RollbackReport};
use crate::actions::test;
use crate::deadline::Deadline;
use crate::observe::{self, MissingKinds};
use crate::pass::Pass;
use crate::plan::{Content, Observed, StopReason};
use crate::watch_wait::WATCH_SYNC_TIMEOUT;

mod conditions;
mod fields;
pub(crate) mod words;

use conditions::{applied, dependencies, healthy, rendered};
use fields::{fields, version};
use words::{
    flapping_message, list, missing_message, newer_installation_message, newer_message, stray_message,
    unknown_installation_message, with_left,
};

/// Interval at which API groups that do not answer are asked again: API servers retry them once a minute, and no
/// event shows that one answers again.
const SILENT_GROUP_DISCOVERY_INTERVAL: Duration = Duration::from_mins(1);

/// Result of one reconcile.
#[derive(Debug, Clone)]
pub(crate) struct ReconcileResult {
    /// Result of the plan.
    pub stop_reason: StopReason,
    /// State to report.
    pub summary: StatusSummary,
}

/// Result of a reconcile, ready to be written to the status.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusSummary {
    conditions: Vec<Condition>,
    fields: FreeForm,
    version: Option<String>,
    /// Time until the next discovery, if kinds are awaited and the target's kinds changed recently.
    rediscovery: Option<std::time::Duration>,
    /// Time until the next discovery, while the watches deliver nothing.
    watch_wait: Option<std::time::Duration>,
    /// Whether unchanged content was reported Ready before.
    was_ready: bool,
    /// Time limit for objects to become ready, or to be deleted.
    deadline: Deadline,
    /// Objects that are no longer owned and stay on the target, with reasons.
    left: Vec<String>,
    /// Time until the next correction of objects that another manager changes repeatedly.
    truce: Option<std::time::Duration>,
    /// Remaining time of the hook that the component waits for.
    hook: Option<std::time::Duration>,
    /// Time until an object has been failed for long enough, or until the causes that hold objects up are read.
    health: Option<std::time::Duration>,
    /// Time until the next check for a newer version of the chart.
    check: Option<std::time::Duration>,
    /// Time until API groups that do not answer are asked again.
    silent: Option<std::time::Duration>,
    /// The release that failed and its rollback target, during a rollback.
    rollback: Option<RollbackReport>,
    /// Time until a retry that no event triggers, even if everything is as desired.
    again: Option<std::time::Duration>,
    /// Whether the render failed and a new kind on the target may resolve it.
    renders_with_kinds: bool,
}

impl StatusSummary {
    /// Adds the summary to the report.
    fn added_to(self, mut progress: Progress) -> Progress {
        for due in [self.check, self.silent].into_iter().flatten() {
            progress = progress.again_within(due);
        }
        if let Some(due) = self.health {
            progress = no_later(progress, due);
        }
        progress.version = self.version;
        progress.status = self.fields;
        progress.conditions.extend(self.conditions);
        progress
    }

    /// Collects the result of a pass. `inventory`: the fields of the status with the inventory.
    pub(crate) fn of(
        pass: &Pass<'_>,
        seen: &Observed,
        stop_reason: &StopReason,
        missing: &MissingKinds,
        inventory: FreeForm,
    ) -> Self {
        let silent = observe::awaits_groups(pass) || missing.has_silent();
        let is_there = is_there(seen, stop_reason);
        let mut conditions = vec![
            rendered(pass, seen, stop_reason),
            applied(seen, stop_reason),
            dependencies(missing),
            healthy(seen, stop_reason),
        ];
        conditions.extend(rollback::available(pass));
        conditions.extend(test::condition(pass));
        Self {
            conditions,
            fields: fields(pass, seen, is_there, inventory),
            version: version(pass).filter(|_| is_there),
            rediscovery: pass
                .shared
                .target_cache
                .pause_before_discovery(&pass.context.target)
                .filter(|_| pass.state.kinds_awaited),
            watch_wait: pass.state.watch_wait.map(|watch_wait| watch_wait.remaining(Instant::now())),
            deadline: seen.deadline,
            left: seen.left.clone(),
            truce: truce(pass),
            hook: pass.done.hooks.left,
            health: health_due(pass, seen),
            check: pass.state.next_check.map(|next| next.saturating_duration_since(Instant::now())),
            silent: silent.then_some(SILENT_GROUP_DISCOVERY_INTERVAL),
            was_ready: seen.content == Content::Recorded && observe::was_ready(pass),
            rollback: RollbackReport::of(pass, seen),
            again: rollback::retry_delay(pass).into_iter().chain(test::retry_pause(pass)).min(),
            renders_with_kinds: pass.state.render_awaits_kinds,
        }
    }
}

/// Reports whether the requested content was completely sent, so that its version is the one on the target.
fn is_there(seen: &Observed, stop_reason: &StopReason) -> bool {
    seen.content != Content::Stale
        && seen.objects.iter().all(|object| object.fault.is_none() && !object.changed)
        && !matches!(
            stop_reason,
            StopReason::WaitingForSync | StopReason::SyncFailed(_) | StopReason::NewerVersion(_)
        )
}

/// Returns the time until health, or the cause of a delay, may change without an event.
fn health_due(pass: &Pass<'_>, seen: &Observed) -> Option<std::time::Duration> {
    let waits = seen.watched && !seen.unready().is_empty();
    let cause_read = observe::health::next_cause_read(pass).filter(|_| waits);
    seen.fails_in.into_iter().chain(cause_read.filter(|left| !left.is_zero())).min()
}

/// Requeues after this time, unless an earlier requeue is planned.
fn no_later(progress: Progress, due: std::time::Duration) -> Progress {
    match (&progress.failure, progress.wait) {
        // The class of other failures determines their retry.
        (Some(failure), _) if failure.class != ErrorClass::Blocked => progress,
        (Some(failure), _) => Progress { failure: Some(failure.clone().no_later_than(due)), ..progress },
        (None, Wait::Timer(planned) | Wait::Answer(planned)) if planned <= due => progress,
        (None, _) => progress.again_after(due),
    }
}

/// Returns the time until the first object that another writer keeps changing may be corrected again.
fn truce(pass: &Pass<'_>) -> Option<std::time::Duration> {
    let now = jiff::Timestamp::now().as_second();
    let limit = pass.shared.flap_limit;
    let again = pass.state.flaps.values().filter_map(|flaps| flaps.allowed_again(now, limit)).min()?;
    u64::try_from(again - now).ok().map(std::time::Duration::from_secs)
}

impl ReconcileResult {
    /// Returns the report of an installation.
    pub(crate) fn progress(self) -> Progress {
        if let (StopReason::WaitingForSync, Some(previous)) =
            (&self.stop_reason, self.summary.rollback.as_ref().and_then(RollbackReport::previous))
        {
            return previous;
        }
        // After a restart, the previous report stays until the watches show another state.
        if self.stop_reason == StopReason::WaitingForSync && self.summary.was_ready {
            let delay = self.summary.watch_wait.unwrap_or(WATCH_SYNC_TIMEOUT);
            return Progress { version: None, wait: Wait::Answer(delay), ..Progress::ready("") };
        }
        let is_rolled_back = self.stop_reason == StopReason::RolledBack;
        let mut progress = self.summary.progress_at(self.stop_reason);
        if let Some(rollback) = self.summary.rollback.as_ref().filter(|_| !is_rolled_back) {
            progress = rollback.add_to(progress);
        }
        self.summary.added_to(progress)
    }

    /// Returns the report of a removal.
    pub(crate) fn removal(self) -> Result<Removal, Failure> {
        match self.stop_reason {
            StopReason::Removed => Ok(Removal::Done),
            // Remaining and repaired objects are reported with it.
            StopReason::Failed(failure) if failure.class == ErrorClass::Blocked => {
                let (status, version) = (self.summary.fields, self.summary.version);
                Ok(Removal::Waiting(Progress { status, version, ..Progress::stopped(failure) }))
            }
            StopReason::Failed(failure) => Err(failure),
            StopReason::Removing(ref names) if self.summary.deadline.has_passed() => {
                let late = with_left(self.summary.late("gone", names), &self.summary.left);
                let failure = Failure::new(Reason::DeletionTimeout, late);
                let status = self.summary.fields;
                Ok(Removal::Waiting(Progress { status, ..Progress::stopped(failure) }))
            }
            StopReason::Removing(ref names) => {
                let waiting = format!("waiting until these are deleted: {}", list(names));
                let waiting = Removal::waiting(with_left(waiting, &self.summary.left));
                Ok(match waiting {
                    Removal::Waiting(progress) => {
                        let progress = self.summary.in_time(progress);
                        Removal::Waiting(Progress { status: self.summary.fields, ..progress })
                    }
                    Removal::Done => Removal::Done,
                })
            }
            _ => Ok(Removal::Waiting(self.progress())),
        }
    }
}

impl StatusSummary {
    /// Returns the progress for the result of a pass.
    fn progress_at(&self, stop_reason: StopReason) -> Progress {
        let sync_pause = self.watch_wait.unwrap_or(WATCH_SYNC_TIMEOUT);
        let delay = self.rediscovery.into_iter().chain(self.again).min();
        match stop_reason {
            // Kinds of the content's own CRDs that discovery lacks are not watched, so the pass is repeated.
            StopReason::Ready => {
                let soon = delay.into_iter().chain(self.hook).min();
                soon.map_or_else(|| Progress::ready(""), |soon| Progress::ready("").again_after(soon))
            }
            StopReason::RolledBack => {
                let delays = [self.hook, self.again];
                Progress::stopped(RollbackReport::rolled_back(self.rollback.as_ref(), delays))
            }
            StopReason::WaitingForSync => {
                Progress::working("waiting for the first observation of the target").again_after(sync_pause)
            }
            StopReason::SyncFailed(failure) => Progress::stopped(failure.retry_after(sync_pause)),
            StopReason::Progressing(names) => {
                let working = Progress::working(format!("waiting for {}", list(&names)));
                match delay {
                    Some(delay) => working.again_after(delay),
                    None => self.in_time(working),
                }
            }
            StopReason::Hook(name) => self.in_time(Progress::working(format!("waiting for {name}"))),
            StopReason::StrayManager(name) => stopped(Reason::SpecInvalid, stray_message(&name)),
            StopReason::NewerVersion(version) => stopped(Reason::DowngradeRefused, newer_message(&version)),
            StopReason::NewerInstallation(version) => {
                stopped(Reason::DowngradeRefused, newer_installation_message(&version))
            }
            StopReason::UnknownInstallation(object) => {
                stopped(Reason::VersionUnknown, unknown_installation_message(&object))
            }
            StopReason::Unhealthy(names) => {
                let failure = Failure::new(Reason::Unhealthy, list(&names));
                Progress { state: State::Error, ..Progress::stopped(failure) }
            }
            StopReason::HealthTimeout(names) => {
                let failure = Failure::new(Reason::HealthTimeout, self.late("ready", &names));
                Progress { state: State::Error, ..Progress::stopped(failure) }
            }
            StopReason::DriftFlapping(names) => {
                let failure = Failure::new(Reason::DriftFlapping, flapping_message(&names));
                let again = self.truce;
                Progress::stopped(again.map_or(failure.clone(), |again| failure.retry_after(again)))
            }
            StopReason::MissingKinds(kinds) => {
                let failure = Failure::new(Reason::DependencyMissing, missing_message(&kinds));
                Progress::stopped(delay.map_or(failure.clone(), |delay| failure.retry_after(delay)))
            }
            StopReason::Failed(failure) => {
                // A target serves a kind only some time after its CRD was created.
                let delay = delay.filter(|_| self.renders_with_kinds);
                Progress::stopped(delay.map_or(failure.clone(), |delay| failure.retry_after(delay)))
            }
            StopReason::Removing(names) => {
                Progress::working(format!("waiting until these are deleted: {}", list(&names)))
            }
            StopReason::Removed => Progress::working("everything is removed"),
        }
    }

    /// Requeues when the time limit is reached.
    fn in_time(&self, progress: Progress) -> Progress {
        match self.deadline.remaining().into_iter().chain(self.hook).min() {
            Some(left) => progress.again_after(left),
            None => progress,
        }
    }

    fn late(&self, what: &str, names: &[String]) -> String {
        format!("not {what} within {} s: {}", self.deadline.limit.unwrap_or_default(), list(names))
    }
}

fn stopped(reason: Reason, message: String) -> Progress {
    Progress::stopped(Failure::new(reason, message))
}

#[cfg(test)]
mod tests;

//! From how a pass ended to what is reported.

use std::collections::BTreeSet;
use std::time::Instant;

use kyma_api::condition::{Status, types};
use kyma_api::{Digests, ErrorClass, FreeForm, HookPolicy, Reason, State, TakenOver};
use kyma_sdk::{Failure, Progress, Removal, Wait};
use serde_json::json;

use crate::content::Inputs;
use crate::hooks::{Event, Hook};
use crate::memory::Recorded;
use crate::observe::{self, LOOK};
use crate::pass::Pass;
use crate::patience::Patience;
use crate::plan::{Content, DefaultResource, DriftMode, Observed, Order, Rest};

mod way_back;
mod words;

use way_back::Back;
use words::{
    as_found_message, fought_message, list, missing_message, newer_message, newer_predecessor_message,
    stray_message, untold_predecessor_message, with_left,
};

/// Objects that are named which differ from the content.
const DIFFERING: usize = 20;
/// When a health that may be of before the apply is looked at again.
const SOON: std::time::Duration = std::time::Duration::from_secs(1);

/// How one pass ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// Why it ended.
    pub rest: Rest,
    /// What was found on the way.
    pub finding: Finding,
}

/// One condition of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Aspect {
    type_: &'static str,
    status: Status,
    reason: Reason,
    message: String,
}

/// What a pass found out, ready to be reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Finding {
    aspects: Vec<Aspect>,
    fields: FreeForm,
    version: Option<String>,
    /// When another look is due, where kinds are awaited and the target's changed a moment ago.
    look: Option<std::time::Duration>,
    /// Whether unchanged content was reported Ready before.
    was_ready: bool,
    /// How long the objects may take to work, or to go.
    patience: Patience,
    /// What was given up and stays on the target, with reasons.
    left: Vec<String>,
    /// When objects that somebody fights for are tried again.
    truce: Option<std::time::Duration>,
    /// How long the hook that is waited for may take from now on.
    hook: Option<std::time::Duration>,
    /// When an object has failed for long enough, or takes so long that it is worth a look why.
    health: Option<std::time::Duration>,
    /// When a newer version of the chart is looked for.
    check: Option<std::time::Duration>,
    /// What failed, and what takes its place again.
    back: Option<Back>,
    /// When what cannot be told by an event is looked at again, though all is as wished.
    again: Option<std::time::Duration>,
    /// Whether what does not work may be what was there before the apply.
    is_old: bool,
}

impl Finding {
    /// The report with all that was found.
    fn added_to(self, mut progress: Progress) -> Progress {
        if let Some(check) = self.check {
            progress = progress.again_within(check);
        }
        if let Some(due) = self.health {
            progress = no_later(progress, due);
        }
        progress.version = self.version;
        progress.status = self.fields;
        for Aspect { type_, status, reason, message } in self.aspects {
            progress = progress.step(type_, status, reason, message);
        }
        progress
    }

    /// Sums a pass up and notes whether something is still to come.
    pub(crate) fn of(pass: &mut Pass<'_>, seen: &Observed, rest: &Rest) -> Self {
        let missing = missing(pass, seen);
        pass.session.recorded.pending = !missing.is_empty() || !pass.done.waiting.is_empty();
        let lag = observe::kinds_lag(pass);
        let unserved = seen.default_resource == DefaultResource::Unserved;
        pass.session.kinds_awaited = lag || unserved || pass.session.recorded.pending;
        if let Ok(inputs) = &pass.inputs {
            pass.session.recorded.overridden = inputs.overridden().to_vec();
        }
        let is_there = is_there(seen, rest);
        let mut aspects =
            vec![rendered(pass, seen, rest), applied(seen, rest), dependencies(&missing), healthy(seen)];
        aspects.extend(way_back::kept(pass));
        aspects.extend(way_back::tested(pass));
        Self {
            aspects,
            fields: fields(pass, seen, is_there),
            version: version(pass).filter(|_| is_there),
            look: pass.shared.sights.next_look(&pass.context.target).filter(|_| pass.session.kinds_awaited),
            patience: seen.patience,
            left: seen.left.clone(),
            truce: truce(pass),
            hook: pass.done.hook_left,
            health: health_due(pass, seen),
            check: pass.session.next_check.map(|next| next.saturating_duration_since(Instant::now())),
            was_ready: seen.content == Content::Recorded && was_ready(pass),
            back: Back::of(pass, seen),
            again: way_back::again(pass, seen),
            is_old: !seen.fails_as_it_is(),
        }
    }
}

/// The version that is wished, or gone back to: of the module, or of the chart where there is no module.
fn version(pass: &Pass<'_>) -> Option<String> {
    let kept = || observe::rollback::taken(pass).map(|kept| kept.version.clone());
    let wished = || pass.inputs.as_ref().ok().and_then(Inputs::chart_version).map(str::to_owned);
    observe::rollback::module_version(pass).or_else(kept).or_else(wished)
}

/// Whether what the spec asks for was sent as a whole, so that its version is the one on the target.
fn is_there(seen: &Observed, rest: &Rest) -> bool {
    seen.content != Content::Stale
        && seen.pieces.iter().all(|piece| piece.fault.is_none() && !piece.changed)
        && !matches!(rest, Rest::Looking | Rest::Newer(_))
}

/// Time until something becomes of what objects say, though none says anything new.
fn health_due(pass: &Pass<'_>, seen: &Observed) -> Option<std::time::Duration> {
    let waits = seen.watched && !seen.unready().is_empty();
    let explained = observe::health::explained_in(pass).filter(|_| waits);
    seen.fails_in.into_iter().chain(explained.filter(|left| !left.is_zero())).min()
}

/// Comes back after this time, if nothing brings it back before.
fn no_later(progress: Progress, due: std::time::Duration) -> Progress {
    match (&progress.failure, progress.wait) {
        // The class of others says when they are tried again.
        (Some(failure), _) if failure.class != ErrorClass::Blocked => progress,
        (Some(failure), _) => {
            let due = failure.retry_after.map_or(due, |planned| planned.min(due));
            let failure = Some(failure.clone().retry_after(due));
            Progress { failure, ..progress }
        }
        (None, Wait::Timer(planned) | Wait::Answer(planned)) if planned <= due => progress,
        (None, _) => progress.again_after(due),
    }
}

/// Time until the first of the objects that somebody fights for may be put right again.
fn truce(pass: &Pass<'_>) -> Option<std::time::Duration> {
    let now = jiff::Timestamp::now().as_second();
    let limit = pass.shared.flap_limit;
    let again = pass.session.flaps.values().filter_map(|flaps| flaps.allowed_again(now, limit)).min()?;
    u64::try_from(again - now).ok().map(std::time::Duration::from_secs)
}

fn was_ready(pass: &Pass<'_>) -> bool {
    let status = pass.context.resource.status.as_ref();
    status.is_some_and(|status| {
        status.state == Some(State::Ready)
            && kyma_api::condition::is_true(status.conditions.as_deref().unwrap_or_default(), types::READY)
    })
}

impl Ended {
    /// The report of an installation.
    pub(crate) fn progress(self) -> Progress {
        if let (Rest::Looking, Some(told)) = (&self.rest, self.finding.back.as_ref().and_then(Back::stands)) {
            return told;
        }
        // After a restart what was reported stands until something else is seen.
        if self.rest == Rest::Looking && self.finding.was_ready {
            return Progress { version: None, ..Progress::ready("") }.again_after(LOOK);
        }
        let is_back = self.rest == Rest::RolledBack;
        let mut progress = self.finding.rest(self.rest);
        if let Some(back) = self.finding.back.as_ref().filter(|_| !is_back) {
            progress = back.tell(progress);
        }
        self.finding.added_to(progress)
    }

    /// The report of a removal.
    pub(crate) fn removal(self) -> Result<Removal, Failure> {
        match self.rest {
            Rest::Removed => Ok(Removal::Done),
            // What is left, or was put right meanwhile, is reported with it.
            Rest::Failed(failure) if failure.class == ErrorClass::Blocked => {
                let (status, version) = (self.finding.fields, self.finding.version);
                Ok(Removal::Waiting(Progress { status, version, ..Progress::stopped(failure) }))
            }
            Rest::Failed(failure) => Err(failure),
            Rest::Removing(ref names) if self.finding.patience.is_over() => {
                let late = with_left(self.finding.late("gone", names), &self.finding.left);
                let failure = Failure::new(Reason::DeletionTimeout, late);
                let status = self.finding.fields;
                Ok(Removal::Waiting(Progress { status, ..Progress::stopped(failure) }))
            }
            Rest::Removing(ref names) => {
                let waiting = format!("waiting until these are gone: {}", list(names));
                let waiting = Removal::waiting(with_left(waiting, &self.finding.left));
                Ok(match waiting {
                    Removal::Waiting(progress) => {
                        let progress = self.finding.in_time(progress);
                        Removal::Waiting(Progress { status: self.finding.fields, ..progress })
                    }
                    Removal::Done => Removal::Done,
                })
            }
            _ => Ok(Removal::Waiting(self.progress())),
        }
    }
}

impl Finding {
    /// How far a pass got that ended so.
    fn rest(&self, rest: Rest) -> Progress {
        let look = self.look.into_iter().chain(self.again).min();
        match rest {
            // Kinds of the content's own CRDs that the target does not show yet are not watched either.
            Rest::Ready => {
                let soon = look.into_iter().chain(self.hook).min();
                soon.map_or_else(|| Progress::ready(""), |soon| Progress::ready("").again_after(soon))
            }
            Rest::RolledBack => Progress::stopped(self.is_back()),
            Rest::Looking => Progress::working("waiting for the first look at the target").again_after(LOOK),
            Rest::Progressing(names) => {
                let working = Progress::working(format!("waiting for {}", list(&names)));
                match look {
                    Some(look) => working.again_after(look),
                    None => self.in_time(working),
                }
            }
            Rest::Hook(name) => self.in_time(Progress::working(format!("waiting for {name}"))),
            Rest::StrayManager(name) => {
                Progress::stopped(Failure::new(Reason::SpecInvalid, stray_message(&name)))
            }
            Rest::Newer(version) => {
                Progress::stopped(Failure::new(Reason::DowngradeRefused, newer_message(&version)))
            }
            Rest::NewerPredecessor(version) => {
                let failure = Failure::new(Reason::DowngradeRefused, newer_predecessor_message(&version));
                Progress::stopped(failure)
            }
            Rest::UntoldPredecessor(object) => {
                let failure = Failure::new(Reason::VersionUnknown, untold_predecessor_message(&object));
                Progress::stopped(failure)
            }
            Rest::Unhealthy(names) => {
                let failure = Failure::new(Reason::Unhealthy, list(&names));
                // The watch may have no more to tell.
                let failure = if self.is_old { failure.retry_after(SOON) } else { failure };
                Progress { state: State::Error, ..Progress::stopped(failure) }
            }
            Rest::Overdue(names) => {
                let failure = Failure::new(Reason::HealthTimeout, self.late("ready", &names));
                Progress { state: State::Error, ..Progress::stopped(failure) }
            }
            Rest::Fought(names) => {
                let failure = Failure::new(Reason::DriftFlapping, fought_message(&names));
                let again = self.truce;
                Progress::stopped(again.map_or(failure.clone(), |again| failure.retry_after(again)))
            }
            Rest::MissingKinds(kinds) => {
                let failure = Failure::new(Reason::DependencyMissing, missing_message(&kinds));
                Progress::stopped(look.map_or(failure.clone(), |look| failure.retry_after(look)))
            }
            Rest::Failed(failure) => Progress::stopped(failure),
            Rest::Removing(names) => {
                Progress::working(format!("waiting until these are gone: {}", list(&names)))
            }
            Rest::Removed => Progress::working("everything is removed"),
        }
    }

    /// Comes back at the moment from which it takes too long.
    fn in_time(&self, progress: Progress) -> Progress {
        match self.patience.left().into_iter().chain(self.hook).min() {
            Some(left) => progress.again_after(left),
            None => progress,
        }
    }

    fn late(&self, what: &str, names: &[String]) -> String {
        format!("not {what} within {} s: {}", self.patience.limit.unwrap_or_default(), list(names))
    }
}

fn aspect(type_: &'static str, status: Status, reason: Reason, message: impl Into<String>) -> Aspect {
    Aspect { type_, status, reason, message: message.into() }
}

fn rendered(pass: &Pass<'_>, seen: &Observed, rest: &Rest) -> Aspect {
    if let (Content::Stale, Rest::Failed(failure)) = (seen.content, rest) {
        return aspect(types::RENDERED, Status::False, failure.reason, &failure.message);
    }
    let Some(loaded) = &pass.session.loaded else {
        let said = pass.context.resource.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut said =
            said.filter(|condition| condition.type_ == types::RENDERED && condition.status == "True");
        let said = said.next();
        let skipped = said.is_some_and(|condition| condition.reason == Reason::HooksSkipped.as_str());
        let message = said.map(|condition| condition.message.clone()).unwrap_or_default();
        return aspect(types::RENDERED, Status::True, rendered_reason(skipped), message);
    };
    let mut notes = vec![];
    let skipped = skipped_hooks(pass.context.resource.spec.hooks, &loaded.prepared.hooks);
    if !skipped.is_empty() {
        notes.push(format!("the chart has hooks that are not run: {}", list(&skipped)));
    }
    if loaded.uses_lookup {
        notes.push("the chart calls `lookup`, which finds nothing here".to_owned());
    }
    if let Some(why) = &loaded.unfrozen {
        notes.push(format!("the chart has values by chance, and its render is not kept: {why}"));
    }
    if !loaded.prepared.warnings.is_empty() {
        notes.push(list(&loaded.prepared.warnings));
    }
    let reason = rendered_reason(!skipped.is_empty());
    aspect(types::RENDERED, Status::True, reason, notes.join("; "))
}

fn rendered_reason(skips_hooks: bool) -> Reason {
    if skips_hooks { Reason::HooksSkipped } else { Reason::Succeeded }
}

/// The moments whose hooks do not run. Tests run whenever somebody asks.
fn skipped_hooks(policy: HookPolicy, hooks: &[Hook]) -> Vec<String> {
    let events: BTreeSet<Event> = hooks.iter().flat_map(Hook::events).collect();
    let skipped = events.into_iter().filter(|event| policy == HookPolicy::Skip && *event != Event::Test);
    skipped.map(|event| event.to_string()).collect()
}

fn applied(seen: &Observed, rest: &Rest) -> Aspect {
    let faults: Vec<&Failure> = seen.pieces.iter().filter_map(|piece| piece.fault.as_ref()).collect();
    if let Some(first) = faults.first() {
        let messages: Vec<String> = faults.iter().map(|fault| fault.message.clone()).collect();
        return aspect(types::APPLIED, Status::False, first.reason, list(&messages));
    }
    if seen.content == Content::Stale {
        let (reason, message) = match rest {
            Rest::Failed(failure) => (failure.reason, failure.message.clone()),
            _ => (Reason::Progressing, String::new()),
        };
        return aspect(types::APPLIED, Status::False, reason, message);
    }
    let waiting: Vec<String> = seen
        .pieces
        .iter()
        .filter(|piece| !seen.inventory.was_sent(&piece.identity))
        .map(|piece| piece.identity.to_string())
        .collect();
    if !waiting.is_empty() {
        return aspect(
            types::APPLIED,
            Status::False,
            Reason::Progressing,
            format!("waiting: {}", list(&waiting)),
        );
    }
    if let Rest::Failed(failure) = rest {
        return aspect(types::APPLIED, Status::False, failure.reason, &failure.message);
    }
    let fought = seen.fought();
    if !fought.is_empty() {
        return aspect(types::APPLIED, Status::False, Reason::DriftFlapping, fought_message(&fought));
    }
    let drifted = observe::drifted(seen);
    let drifted = (seen.drift == DriftMode::Warn && !drifted.is_empty())
        .then(|| format!("changed by others and left so: {}", list(&drifted)));
    let taken = seen.as_found.as_deref().map(as_found_message);
    let message: Vec<String> = taken.into_iter().chain(drifted).chain(seen.unrecorded.clone()).collect();
    aspect(types::APPLIED, Status::True, Reason::Succeeded, with_left(message.join("; "), &seen.left))
}

fn missing(pass: &Pass<'_>, seen: &Observed) -> Vec<String> {
    let unserved =
        seen.pieces.iter().filter(|piece| !piece.served && !seen.inventory.contains(&piece.identity));
    let mut missing: Vec<String> = unserved.map(|piece| piece.identity.group_kind().to_string()).collect();
    for dependency in pass.context.resource.spec.depends_on.iter().flatten() {
        let Some(api) = &dependency.api else { continue };
        let kind = kyma_object_set::GroupKind::new(&api.group, &api.kind);
        let versions = pass.kinds.versions(&kind);
        let fits = |version: &String| versions.iter().any(|mapping| mapping.resource.version == *version);
        if versions.is_empty() || api.version.as_ref().is_some_and(|version| !fits(version)) {
            missing.push(kind.to_string());
        }
    }
    missing.sort();
    missing.dedup();
    missing
}

fn dependencies(missing: &[String]) -> Aspect {
    if missing.is_empty() {
        return aspect(types::DEPENDENCIES_READY, Status::True, Reason::Succeeded, "");
    }
    aspect(types::DEPENDENCIES_READY, Status::False, Reason::DependencyMissing, missing_message(missing))
}

/// Health is of what is on the target: what could not be applied is told by the condition Applied.
fn healthy(seen: &Observed) -> Aspect {
    let failed = seen.failing();
    if !failed.is_empty() {
        return aspect(types::HEALTHY, Status::False, Reason::Unhealthy, list(&failed));
    }
    if !seen.watched || seen.content == Content::Stale {
        return aspect(types::HEALTHY, Status::Unknown, Reason::Progressing, "");
    }
    if let Some(manager) = &seen.stray_manager {
        return aspect(types::HEALTHY, Status::Unknown, Reason::SpecInvalid, stray_message(manager));
    }
    let waiting = seen.unready();
    if !waiting.is_empty() {
        let late = seen.patience.is_over();
        let reason = if late { Reason::HealthTimeout } else { Reason::Progressing };
        return aspect(types::HEALTHY, Status::False, reason, list(&waiting));
    }
    let absent = seen.unapplied();
    if !absent.is_empty() {
        let message = format!("not applied yet: {}", list(&absent));
        return aspect(types::HEALTHY, Status::Unknown, Reason::Progressing, message);
    }
    aspect(types::HEALTHY, Status::True, Reason::Succeeded, "")
}

/// What the installed objects were made from. Which of them the content does not have any more is told by that alone: as
/// long as such are left, the next process has to load it again.
fn digests(recorded: &Digests, is_of_content: bool, seen: &Observed) -> Digests {
    let is_pruned = matches!(seen.pruned, Some(Ok(())));
    let is_left = is_of_content && seen.order == Order::Install && !is_pruned && !seen.surplus().is_empty();
    Digests { inputs: recorded.inputs.clone().filter(|_| !is_left), ..recorded.clone() }
}

fn fields(pass: &mut Pass<'_>, seen: &Observed, complete: bool) -> FreeForm {
    let record = pass.session.recorded.report(pass.context.resource.status.as_ref());
    let recorded = &pass.session.recorded;
    let overridden = (!recorded.overridden.is_empty()).then_some(&recorded.overridden);
    let is_of_content = pass.session.loaded.as_ref().is_some_and(|loaded| recorded.is(loaded));
    let fields = json!({
        "digests": digests(&recorded.digests, is_of_content, seen),
        "resource": recorded.resource,
        "resolved": recorded.resolved,
        "hooks": recorded.hooks,
        "takenOver": taken_over(recorded),
        "history": recorded.history.as_ref().filter(|_| is_recorded(pass)),
        "kept": recorded.kept,
        "rollback": recorded.rollback,
        "tests": recorded.tests,
        "lastHandledTestAt": recorded.tested,
        "overridden": overridden.map(|paths| paths.iter().take(100).collect::<Vec<_>>()),
    });
    let serde_json::Value::Object(mut fields) = fields else { return FreeForm::new() };
    fields.extend(record);
    // Only what was sent counts as attempted, and only until all of it is there.
    if complete || pass.done.applied {
        fields.insert("attemptedVersion".to_owned(), json!(version(pass).filter(|_| !complete)));
    }
    fields
}

/// Whether somebody wants releases to be recorded as Helm does.
fn is_recorded(pass: &Pass<'_>) -> bool {
    let release = pass.context.resource.spec.release.as_ref();
    release.is_some_and(|release| release.history.is_some())
}

/// From whom it was taken over, with the objects that differ.
fn taken_over(recorded: &Recorded) -> Option<TakenOver> {
    let taken = recorded.taken_over.clone()?;
    let differing = recorded.inventory.left_as_is().count();
    let names: Vec<String> =
        recorded.inventory.left_as_is().take(DIFFERING).map(ToString::to_string).collect();
    Some(TakenOver {
        differing: i32::try_from(differing).ok().filter(|count| *count > 0),
        objects: (!names.is_empty()).then_some(names),
        ..taken
    })
}

#[cfg(test)]
mod tests;

//! Conditions of a component, each from the observed state.

use std::collections::BTreeSet;

use kyma_api::Reason;
use kyma_api::condition::{Condition, Status, types};
use kyma_controller::Failure;

use super::words::{
    as_found_message, flapping_message, list, missing_message, silent_message, stray_message, with_left,
};
use crate::actions::hooks;
use crate::effects;
use crate::observe::{self, MissingKinds};
use crate::pass::Pass;
use crate::plan::{Content, DriftMode, Observed, StopReason};

pub(super) fn rendered(pass: &Pass<'_>, seen: &Observed, stop_reason: &StopReason) -> Condition {
    if let (Content::Stale, StopReason::Failed(failure)) = (seen.content, stop_reason) {
        return Condition::new(types::RENDERED, Status::False, failure.reason).with_message(&failure.message);
    }
    let Some(loaded) = &pass.state.loaded else {
        let said = pass.context.resource.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut said =
            said.filter(|condition| condition.type_ == types::RENDERED && condition.status == "True");
        let said = said.next();
        let skipped = said.is_some_and(|condition| condition.reason == Reason::HooksSkipped.as_str());
        let message = said.map(|condition| condition.message.clone()).unwrap_or_default();
        let message = effects::with_note(&message, &pass.context.resource.spec);
        return Condition::new(types::RENDERED, Status::True, hooks::rendered_reason(skipped))
            .with_message(message);
    };
    let skipped = hooks::skipped_note(pass.context.resource.spec.hooks, &loaded.prepared.hooks);
    let reason = hooks::rendered_reason(skipped.is_some());
    let mut notes: Vec<String> = skipped.into_iter().collect();
    if loaded.uses_lookup {
        notes.push("the chart calls `lookup`, which always returns nothing here".to_owned());
    }
    if let Some(why) = &loaded.store_failure {
        notes.push(format!("the render of the chart is not deterministic, and it is not stored: {why}"));
    }
    if !loaded.prepared.warnings.is_empty() {
        notes.push(list(&loaded.prepared.warnings));
    }
    notes.extend(effects::note(&pass.context.resource.spec));
    Condition::new(types::RENDERED, Status::True, reason).with_message(notes.join("; "))
}

pub(super) fn applied(seen: &Observed, stop_reason: &StopReason) -> Condition {
    let faults: Vec<&Failure> = seen.objects.iter().filter_map(|object| object.fault.as_ref()).collect();
    if let Some(first) = faults.first() {
        let messages: Vec<String> = faults.iter().map(|fault| fault.message.clone()).collect();
        return Condition::new(types::APPLIED, Status::False, first.reason).with_message(list(&messages));
    }
    if seen.content == Content::Stale {
        let (reason, message) = match stop_reason {
            StopReason::Failed(failure) => (failure.reason, failure.message.clone()),
            _ => (Reason::Progressing, String::new()),
        };
        return Condition::new(types::APPLIED, Status::False, reason).with_message(message);
    }
    let waiting: Vec<String> = seen
        .objects
        .iter()
        .filter(|object| !seen.inventory.was_sent(&object.identity))
        .map(|object| object.identity.to_string())
        .collect();
    if !waiting.is_empty() {
        return Condition::new(types::APPLIED, Status::False, Reason::Progressing)
            .with_message(format!("waiting: {}", list(&waiting)));
    }
    if let StopReason::Failed(failure) = stop_reason {
        return Condition::new(types::APPLIED, Status::False, failure.reason).with_message(&failure.message);
    }
    let flapping = seen.flapping();
    if !flapping.is_empty() {
        return Condition::new(types::APPLIED, Status::False, Reason::DriftFlapping)
            .with_message(flapping_message(&flapping));
    }
    let drifted = observe::drifted(seen);
    let drifted = (seen.drift == DriftMode::Warn && !drifted.is_empty())
        .then(|| format!("changed by others and not corrected: {}", list(&drifted)));
    let taken = seen.as_found.as_deref().map(as_found_message);
    let message: Vec<String> = taken.into_iter().chain(drifted).chain(seen.unrecorded.clone()).collect();
    Condition::new(types::APPLIED, Status::True, Reason::Succeeded)
        .with_message(with_left(message.join("; "), &seen.left))
}

pub(super) fn dependencies(missing: &MissingKinds) -> Condition {
    let reason = match (missing.kinds.is_empty(), missing.silent.is_empty()) {
        (true, true) => {
            return Condition::new(types::DEPENDENCIES_READY, Status::True, Reason::Succeeded);
        }
        (true, false) => Reason::DiscoveryFailed,
        (false, _) => Reason::DependencyMissing,
    };
    let told = |names: &BTreeSet<String>, message: fn(&[String]) -> String| {
        let names: Vec<String> = names.iter().cloned().collect();
        (!names.is_empty()).then(|| message(&names))
    };
    let told = [told(&missing.kinds, missing_message), told(&missing.silent, silent_message)];
    let message = told.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Condition::new(types::DEPENDENCIES_READY, Status::False, reason).with_message(message)
}

/// Returns the condition of health. It covers objects on the target; the condition Applied reports objects that could
/// not be applied.
pub(super) fn healthy(seen: &Observed, stop_reason: &StopReason) -> Condition {
    let failed = seen.failing();
    if !failed.is_empty() {
        return Condition::new(types::HEALTHY, Status::False, Reason::Unhealthy).with_message(list(&failed));
    }
    if let StopReason::SyncFailed(failure) = stop_reason {
        return Condition::new(types::HEALTHY, Status::Unknown, failure.reason)
            .with_message(&failure.message);
    }
    if !seen.watched || seen.content == Content::Stale {
        return Condition::new(types::HEALTHY, Status::Unknown, Reason::Progressing);
    }
    if let Some(manager) = &seen.stray_manager {
        return Condition::new(types::HEALTHY, Status::Unknown, Reason::SpecInvalid)
            .with_message(stray_message(manager));
    }
    let waiting = seen.unready();
    if !waiting.is_empty() {
        let late = seen.deadline.has_passed();
        let reason = if late { Reason::HealthTimeout } else { Reason::Progressing };
        return Condition::new(types::HEALTHY, Status::False, reason).with_message(list(&waiting));
    }
    if seen.awaits_news() {
        let message = format!("not observed since they were applied: {}", list(&seen.unreported()));
        return Condition::new(types::HEALTHY, Status::Unknown, Reason::Progressing).with_message(message);
    }
    let absent = seen.unapplied();
    if !absent.is_empty() {
        let message = format!("not applied yet: {}", list(&absent));
        return Condition::new(types::HEALTHY, Status::Unknown, Reason::Progressing).with_message(message);
    }
    Condition::new(types::HEALTHY, Status::True, Reason::Succeeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_api_group_is_not_reported_as_an_unserved_kind() {
        let told = |kinds: &[&str], silent: &[&str]| {
            let set = |names: &[&str]| -> BTreeSet<String> {
                names.iter().map(|name| (*name).to_owned()).collect()
            };
            let condition = dependencies(&MissingKinds { kinds: set(kinds), silent: set(silent) });
            (condition.status, condition.reason, condition.message)
        };
        let silent = "API groups that do not answer: metrics.k8s.io";
        let missing = "the target does not serve Lamp.example.org";
        assert_eq!(told(&[], &[]), (Status::True, Reason::Succeeded, String::new()));
        let only_silent = (Status::False, Reason::DiscoveryFailed, silent.to_owned());
        assert_eq!(told(&[], &["metrics.k8s.io"]), only_silent);
        let both = (Status::False, Reason::DependencyMissing, format!("{missing}; {silent}"));
        assert_eq!(told(&["Lamp.example.org"], &["metrics.k8s.io"]), both);
    }
}

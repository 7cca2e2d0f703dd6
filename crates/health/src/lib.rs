//! Health of a Kubernetes object, by the rules of kstatus, with deviations where those are known to mislead. Pure.

use jiff::Timestamp;
use serde_json::Value;

mod health;
mod kinds;
mod pod_failure;
mod view;

pub use health::{Health, HealthStatus};
pub use pod_failure::{creates_pods, pod_failure_reason, replica_failure};

use view::View;

/// Returns the health of an object at a time.
///
/// ```
/// use jiff::Timestamp;
/// use kyma_health::{HealthStatus, assess};
///
/// let new = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 1}});
/// assert_eq!(assess(&new, Timestamp::UNIX_EPOCH).status, HealthStatus::InProgress);
/// ```
pub fn assess(object: &Value, now: Timestamp) -> Health {
    let view = View::of(object);
    if let Some(health) = assess_progress(object) {
        return health;
    }
    if let Some(condition) = view.condition("Reconciling").filter(|condition| condition.is_true()) {
        return Health::in_progress(condition.summary());
    }
    if let Some(condition) = view.condition("Stalled").filter(|condition| condition.is_true()) {
        return Health::failed(condition.summary());
    }
    if let Some(health) = kinds::assess(view, now) {
        return health;
    }
    match view.condition("Ready") {
        Some(condition) if !condition.is_true() => Health::in_progress(condition.summary()),
        _ => Health::current(),
    }
}

/// Returns the health of an object of any kind that is being deleted, or whose generation no controller observed yet;
/// `None` for any other object.
pub fn assess_progress(object: &Value) -> Option<Health> {
    let view = View::of(object);
    if view.deleting() { Some(kinds::terminating(view)) } else { unobserved(view) }
}

fn unobserved(view: View<'_>) -> Option<Health> {
    let (wanted, seen) = (view.generation()?, view.status_int("observedGeneration")?);
    let stale = || {
        Health::in_progress(format!("generation {wanted} is not observed yet; the observed one is {seen}"))
    };
    (wanted != seen).then(stale)
}

/// Reports whether an object is finished and Kubernetes deletes it by itself: a Job that succeeded and has a
/// `ttlSecondsAfterFinished`. Its absence is no drift.
pub fn is_finished(object: &Value) -> bool {
    let view = View::of(object);
    view.group_kind() == ("batch", "Job")
        && view.condition("Complete").is_some_and(view::Condition::is_true)
        && view.int("/spec/ttlSecondsAfterFinished").is_some()
}

/// Returns the health of several objects: failed if one is failed, otherwise unknown if one is unknown, otherwise in
/// progress if one is. An object that is being deleted counts as in progress.
pub fn aggregate<'a>(all: impl IntoIterator<Item = &'a Health>) -> HealthStatus {
    let weight = |health: &Health| match health.status {
        HealthStatus::Terminating => HealthStatus::InProgress,
        status => status,
    };
    all.into_iter().map(weight).max().unwrap_or(HealthStatus::Current)
}

/// Reports whether the health of a kind needs watches of whole objects. For other kinds metadata is enough, and health
/// is read when it is needed.
pub fn needs_whole_object(group: &str, kind: &str) -> bool {
    matches!((group, kind), ("apps", "Deployment" | "StatefulSet" | "DaemonSet") | ("batch", "Job"))
}

#[cfg(test)]
mod tests;

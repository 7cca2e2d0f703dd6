//! Health of a Kubernetes object, by the rules of kstatus, with deviations where those are known to mislead. Pure.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

mod kinds;
mod pod_failure;
mod view;

pub use pod_failure::{creates_pods, pod_failure_reason, replica_failure};

use view::View;

/// Health status of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthStatus {
    /// The object works, as far as its status shows.
    Current,
    /// Its rollout or creation is in progress.
    InProgress,
    /// The object is being deleted.
    Terminating,
    /// Its health is unknown.
    Unknown,
    /// Its status reports a failure; it may still recover.
    Failed,
}

impl HealthStatus {
    /// The word used in messages and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Terminating => "Terminating",
            Self::Unknown => "Unknown",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The health of one object. The message consists of numbers and words of the API (condition types and reasons),
/// never of free text of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Health status.
    pub status: HealthStatus,
    /// Reason of the status; may be empty.
    pub message: String,
    /// Time from which it counts as failed without any change of the object; `None`: at once if it is failed,
    /// otherwise never.
    pub failed_from: Option<Timestamp>,
    /// `StorageClass` of a claim that no Pod uses yet. If the class binds on the first Pod, the claim is healthy.
    pub storage_class: Option<String>,
}

impl Health {
    /// Returns a health of this status. The message must not contain free text of the target.
    pub fn new(status: HealthStatus, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), failed_from: None, storage_class: None }
    }

    fn current() -> Self {
        Self::new(HealthStatus::Current, "")
    }

    fn note(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Current, message)
    }

    fn in_progress(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::InProgress, message)
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Failed, message)
    }

    /// Reports whether the object works.
    pub fn is_current(&self) -> bool {
        self.status == HealthStatus::Current
    }
}

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
        return Health::in_progress(condition.words());
    }
    if let Some(condition) = view.condition("Stalled").filter(|condition| condition.is_true()) {
        return Health::failed(condition.words());
    }
    if let Some(health) = kinds::assess(view, now) {
        return health;
    }
    match view.condition("Ready") {
        Some(condition) if !condition.is_true() => Health::in_progress(condition.words()),
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
    let stale = || Health::in_progress(format!("generation {wanted} is not observed yet, {seen} is"));
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

//! Health of one object: a status with its reason.

use std::fmt;

use jiff::Timestamp;

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

    pub(crate) fn current() -> Self {
        Self::new(HealthStatus::Current, "")
    }

    pub(crate) fn current_with_message(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Current, message)
    }

    pub(crate) fn in_progress(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::InProgress, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(HealthStatus::Failed, message)
    }

    /// Reports whether the object works.
    pub fn is_current(&self) -> bool {
        self.status == HealthStatus::Current
    }
}

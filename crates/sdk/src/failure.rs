//! Why a reconcile did not get through, and what that means for the next one.

use std::time::Duration;

use kyma_api::{ErrorClass, Reason};
use kyma_targets::{TargetError, classify};

/// What a reconcile ends with when it cannot go on: a stable reason, its class and a message for people.
///
/// The message is shown in conditions, events and logs: key paths, names and reasons only, never values or the
/// content of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Failure {
    /// Stable word for condition, event and metric.
    pub reason: Reason,
    /// How to go on.
    pub class: ErrorClass,
    /// For people: what happened, and what to do.
    pub message: String,
    /// When trying again makes sense at the earliest; `None`: the class decides.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of the class that its reason has (Transient where it has none).
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            class: reason.class().unwrap_or(ErrorClass::Transient),
            message: message.into(),
            retry_after: None,
        }
    }

    /// Whether it says nothing about a target: a call to the hub failed, or the operator itself.
    pub fn is_about_hub(&self) -> bool {
        matches!(
            self.reason,
            Reason::HubUnavailable
                | Reason::HubForbidden
                | Reason::HubRefused
                | Reason::ApplyConflict
                | Reason::DeadlineExceeded
                | Reason::Internal
        )
    }

    /// Not before `delay` from now: a server said so, or something happens at a known moment.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// What a failed call to the hub means. The hub is trusted, so its own words are kept.
    pub fn hub(action: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::new(Reason::HubUnavailable, format!("{action}: {error}"));
        };
        let (reason, retry) = match status.code {
            403 => (Reason::HubForbidden, None),
            409 => (Reason::ApplyConflict, None),
            400 | 422 => (Reason::HubRefused, None),
            _ => (Reason::HubUnavailable, status.details.as_ref().map(|details| details.retry_after_seconds)),
        };
        let failure = Self::new(reason, format!("{action}: {}", status.message));
        match retry.filter(|seconds| *seconds > 0) {
            Some(seconds) => failure.retry_after(Duration::from_secs(u64::from(seconds))),
            None => failure,
        }
    }

    /// What a failed call to a target means. Nothing that the target wrote is kept but known reasons and paths.
    pub fn target(action: &str, error: &kube::Error) -> Self {
        let mut failure = Self::from(classify(error));
        failure.message = format!("{action}: {}", failure.message);
        failure
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let failure = Self::new(error.reason(), error.to_string());
        match error {
            TargetError::Suspended { retry_in: delay, .. } | TargetError::Throttled(delay) => {
                failure.retry_after(delay)
            }
            _ => failure,
        }
    }
}

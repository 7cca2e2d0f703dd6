//! Failures of a reconcile, and when it is retried.

pub(crate) mod cause;

use std::collections::BTreeSet;
use std::time::Duration;

use kube::core::Status;
use kyma_api::{ErrorClass, Reason, Refusal};
use kyma_targets::{TargetError, Verdict, classify};

use cause::{UNPARSED_REASON, describe_cause};

/// Failure of a reconcile: a stable reason, its class and a message for users.
///
/// The message is shown in conditions, events and logs: key paths, names and reasons only, never values or the
/// content of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Failure {
    /// Stable reason for condition, event and metric.
    pub reason: Reason,
    /// Class, which decides on retries.
    pub class: ErrorClass,
    /// Message for users: what is wrong, and what to do.
    pub message: String,
    /// Minimum delay of a retry; `None`: the class decides.
    pub retry_after: Option<Duration>,
    /// Maximum delay of a retry; `None`: the class alone decides.
    pub at_latest: Option<Duration>,
    /// Reason of a second failure in the same reconcile, which is retried at the earlier time of both. Boxed, so that
    /// results stay small.
    pub beside: Option<Box<Reason>>,
}

impl Failure {
    /// Returns a failure of its reason's class (Transient if the reason has none).
    ///
    /// ```
    /// use kyma_api::{ErrorClass, Reason};
    /// use kyma_controller::Failure;
    ///
    /// let failure = Failure::new(Reason::ValuesInvalid, "spec.values.replicas is no number");
    /// assert_eq!(failure.class, ErrorClass::Invalid);
    /// ```
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            class: reason.class().unwrap_or(ErrorClass::Transient),
            message: message.into(),
            retry_after: None,
            at_latest: None,
            beside: None,
        }
    }

    /// Reports whether the failure concerns the hub or the operator itself, not a target.
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

    /// Sets the earliest retry to `delay` from now, for example if a server sent Retry-After.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Limits the retry to at most `delay` from now; the class may make it sooner. The shortest limit counts.
    pub fn no_later_than(mut self, delay: Duration) -> Self {
        self.at_latest = Some(self.at_latest.map_or(delay, |earlier| earlier.min(delay)));
        self
    }

    /// Adds the reason of a second failure. The reconcile is retried at the earlier time of both.
    pub fn beside(mut self, reason: Reason) -> Self {
        self.beside = Some(Box::new(reason));
        self
    }

    /// Returns the failure of a call to the hub. The hub is trusted, so its message is kept, unless it may quote
    /// values of an object.
    pub fn hub(action: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::new(Reason::HubUnavailable, format!("{action}: {}", describe_cause(error)));
        };
        if status.reason == UNPARSED_REASON {
            return Self::new(Reason::HubUnavailable, format!("{action}: {}", describe_cause(error)));
        }
        if matches!(Refusal::of(status), Refusal::Denied(_)) {
            let denied = Self::new(Reason::HubRefused, format!("{action}: {}", describe_cause(error)));
            return denied.no_later_than(DENIAL_RETRY_DELAY);
        }
        if is_refusal(status) {
            return Self::new(Reason::HubRefused, format!("{action}: {}", refusal(status)));
        }
        let (reason, retry) = match status.code {
            403 => (Reason::HubForbidden, None),
            409 => (Reason::ApplyConflict, None),
            _ => (Reason::HubUnavailable, status.details.as_ref().map(|details| details.retry_after_seconds)),
        };
        let failure = Self::new(reason, format!("{action}: {}", describe_cause(error)));
        match retry.filter(|seconds| *seconds > 0) {
            Some(seconds) => failure.retry_after(Duration::from_secs(u64::from(seconds))),
            None => failure,
        }
    }

    /// Returns the failure of a call to a target. Keeps only known reasons and field paths from the target's answer.
    pub fn target(action: &str, error: &kube::Error) -> Self {
        let mut failure = Self::from(classify(error));
        failure.message = format!("{action}: {}", failure.message);
        failure
    }
}

/// Delay before a call is repeated that a policy or webhook of the hub denied: no event tells that it changed.
const DENIAL_RETRY_DELAY: Duration = Duration::from_mins(1);
/// API servers report an apply with a wrong type as 500 with this text.
const TYPE_ERROR_TEXT: &str = "failed to create typed patch object";

fn is_refusal(status: &Status) -> bool {
    matches!(status.code, 400 | 422) || status.message.contains(TYPE_ERROR_TEXT)
}

/// Returns why an object is refused: reasons and field paths, without values.
fn refusal(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    // Sorted, since answers about custom resources have no stable order.
    let causes: BTreeSet<String> =
        causes.map(|cause| format!("{} at {}", cause.reason, cause.field)).collect();
    if !causes.is_empty() {
        return causes.into_iter().collect::<Vec<_>>().join(", ");
    }
    let unknown = status.message.split("unknown field \"").skip(1).filter_map(|rest| rest.split('"').next());
    let unknown: Vec<String> = unknown.map(|field| format!("unknown field {field}")).collect();
    if !unknown.is_empty() {
        return unknown.join(", ");
    }
    let mut words = status.message.split_whitespace();
    let field = words.find_map(|word| word.strip_prefix('.')?.strip_suffix(':'));
    field.map_or_else(|| "it is not valid".to_owned(), |field| format!("{field} has a wrong type"))
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

/// Returns the failure for a verdict that forbids writes.
pub fn verdict_failure(verdict: &Verdict) -> Failure {
    TargetError::Refused(Box::new(verdict.clone())).into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn failure_for(code: u16, message: &str, causes: &Value) -> Failure {
        let status = json!({"code": code, "message": message, "details": {"causes": causes}});
        let status = serde_json::from_value(status).unwrap();
        Failure::hub("apply it", &kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn what_the_hub_refuses_is_told_by_field_and_never_by_value() {
        let invalid =
            "Greeting.demo \"a\" is invalid: spec.text: Invalid value: \"hush\": spec.text in body is bad";
        let cause = json!([{"reason": "FieldValueInvalid", "message": "Invalid value: \"hush\"", "field": "spec.text"}]);
        let unknown = ".spec.hidden: unknown field \"spec.x\", unknown field \"spec.y\"";
        let mistyped = "failed to create typed patch object (n/a; x/v1, Kind=X): errors:\n  .spec.text: expected string, got &value.listUnstructured{Value: hush}";
        let rows = [
            (422, invalid, &cause, "apply it: FieldValueInvalid at spec.text"),
            (400, unknown, &json!([]), "apply it: unknown field spec.x, unknown field spec.y"),
            (500, mistyped, &json!([]), "apply it: spec.text has a wrong type"),
            (400, "cannot decode \"hush\"", &json!([]), "apply it: it is not valid"),
        ];
        for (code, message, causes, expected) in rows {
            let failure = failure_for(code, message, causes);
            assert_eq!((failure.reason, failure.message.as_str()), (Reason::HubRefused, expected));
        }
    }

    #[test]
    fn fields_that_the_hub_refuses_are_told_in_one_order() {
        let cause = |field: &str| json!({"reason": "FieldValueInvalid", "message": "", "field": field});
        let (a, b) = (cause("spec.a"), cause("spec.b"));
        for causes in [json!([a, b]), json!([b, a])] {
            let expected = "apply it: FieldValueInvalid at spec.a, FieldValueInvalid at spec.b";
            assert_eq!(failure_for(422, "", &causes).message, expected);
        }
    }

    #[test]
    fn a_proxy_in_front_of_the_hub_refuses_nothing_for_good() {
        for code in [400, 403, 404, 409, 422, 502] {
            let status = Status::failure("<html>no</html>", UNPARSED_REASON).with_code(code);
            let failure = Failure::hub("apply it", &kube::Error::Api(status.boxed()));
            assert_eq!(failure.reason, Reason::HubUnavailable, "{code}");
            assert_eq!(failure.message, format!("apply it: a proxy answers {code}, and not the API server"));
        }
    }

    #[test]
    fn the_hubs_other_words_are_kept() {
        let none = json!([]);
        assert_eq!(failure_for(403, "no rights", &none).message, "apply it: no rights");
        assert_eq!(failure_for(500, "etcd is gone", &none).reason, Reason::HubUnavailable);
        let denied = "kymas \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on Fridays";
        for code in [403, 422] {
            let failure = failure_for(code, denied, &json!([{"message": denied}]));
            assert_eq!(failure.reason, Reason::HubRefused);
            assert!(failure.message.ends_with("not on Fridays"));
            assert_eq!(crate::reconciler::backoff::longest_delay(&failure), Some(DENIAL_RETRY_DELAY));
        }
    }
}

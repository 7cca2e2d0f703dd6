//! Why a reconcile did not get through, and what that means for the next one.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::core::Status;
use kyma_api::{ErrorClass, Reason};
use kyma_targets::{TargetError, classify};

use crate::describe_cause;

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
    /// When it is tried again at the latest; `None`: the class alone decides.
    pub at_latest: Option<Duration>,
    /// What failed beside it: it is tried again when that would be, where that is sooner. Boxed, so that results stay
    /// small.
    pub beside: Option<Box<Reason>>,
}

impl Failure {
    /// A failure of the class that its reason has (Transient where it has none).
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

    /// Not later than `delay` from now, sooner where its class says so: something else is due then. The shortest counts.
    pub fn no_later_than(mut self, delay: Duration) -> Self {
        self.at_latest = Some(self.at_latest.map_or(delay, |earlier| earlier.min(delay)));
        self
    }

    /// As soon as something that failed for this reason beside it would be tried again, where that is sooner.
    pub fn beside(mut self, reason: Reason) -> Self {
        self.beside = Some(Box::new(reason));
        self
    }

    /// What a failed call to the hub means. The hub is trusted, so its own words are kept, unless they may quote
    /// what stands in an object.
    pub fn hub(action: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::new(Reason::HubUnavailable, format!("{action}: {}", describe_cause(error)));
        };
        if is_refusal(status) {
            return Self::new(Reason::HubRefused, format!("{action}: {}", refusal(status)));
        }
        let (reason, retry) = match status.code {
            403 => (Reason::HubForbidden, None),
            409 => (Reason::ApplyConflict, None),
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

/// An apply of a wrong type is reported by apiservers as their own fault.
const MISTYPED: &str = "failed to create typed patch object";
/// What a policy or webhook of the hub's admins says is theirs to choose.
const POLICIES: [&str; 2] = ["ValidatingAdmissionPolicy '", "admission webhook \""];

fn is_refusal(status: &Status) -> bool {
    matches!(status.code, 400 | 422) || status.message.contains(MISTYPED)
}

/// Why an object is refused, without the values in it: reasons and paths of fields.
fn refusal(status: &Status) -> String {
    if POLICIES.iter().any(|policy| status.message.contains(policy)) {
        return status.message.clone();
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    // Sorted: of custom resources each answer names them in another order.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(code: u16, message: &str, causes: &Value) -> Failure {
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
            let failure = told(code, message, causes);
            assert_eq!((failure.reason, failure.message.as_str()), (Reason::HubRefused, expected));
        }
    }

    #[test]
    fn fields_that_the_hub_refuses_are_told_in_one_order() {
        let cause = |field: &str| json!({"reason": "FieldValueInvalid", "message": "", "field": field});
        let (a, b) = (cause("spec.a"), cause("spec.b"));
        for causes in [json!([a, b]), json!([b, a])] {
            let expected = "apply it: FieldValueInvalid at spec.a, FieldValueInvalid at spec.b";
            assert_eq!(told(422, "", &causes).message, expected);
        }
    }

    #[test]
    fn the_hubs_other_words_are_kept() {
        let none = json!([]);
        assert_eq!(told(403, "no rights", &none).message, "apply it: no rights");
        assert_eq!(told(500, "etcd is gone", &none).reason, Reason::HubUnavailable);
        let denied = "kymas \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on Fridays";
        assert!(told(422, denied, &json!([{"message": denied}])).message.ends_with("not on Fridays"));
    }
}

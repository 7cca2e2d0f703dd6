//! Failures of calls to the target.

use std::time::Duration;

use kyma_controller::Failure;
use kyma_object_set::CallError;

/// Time that a kind may take from established to served, and the pause before a retry that will soon succeed.
pub(crate) const SERVED_DELAY: Duration = Duration::from_millis(200);

/// Converts a failed call to a failure for conditions.
pub(crate) fn failure(error: &CallError) -> Failure {
    match error.of_target() {
        Some(cause) => Failure::target(&error.attempt(), cause),
        None => Failure::new(error.reason(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kyma_api::Reason;
    use kyma_object_set::{Action, Identity};
    use kyma_targets::TargetError;

    use super::*;

    fn failed(error: kube::Error) -> Failure {
        let object = Identity::new("", "ConfigMap", Some("here"), "c");
        failure(&CallError::new(Action::Apply, Some(&object), error))
    }

    fn answer(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status { code, ..Status::failure(message, "") }.boxed())
    }

    #[test]
    fn call_without_answer_has_the_reason_of_the_target_client() {
        let silent = || kube::Error::Service(Box::new(TargetError::Deadline(Duration::from_secs(15))));
        assert_eq!(failed(silent()).reason, Reason::TargetTimeout);
        assert!(failed(silent()).message.starts_with("applying ConfigMap here/c: "), "{}", failed(silent()));
        let held = TargetError::Suspended {
            retry_in: Duration::from_secs(9),
            cause: Box::new(TargetError::Deadline(Duration::from_secs(15))),
        };
        let held = failed(kube::Error::Service(Box::new(held)));
        assert_eq!((held.reason, held.retry_after), (Reason::TargetTimeout, Some(Duration::from_secs(9))));
        assert_eq!(failed(answer(503, "")).reason, Reason::TargetServerError);
        assert_eq!(failed(answer(429, "")).reason, Reason::TargetThrottled);
    }

    #[test]
    fn the_reason_of_an_api_error_determines_that_of_the_failure() {
        let webhook = failed(answer(500, r#"failed calling webhook "v.example.io": no endpoints"#));
        assert_eq!(webhook.reason, Reason::WebhookFailed);
        assert_eq!(failed(answer(403, "exceeded quota: q")).reason, Reason::QuotaExceeded);
    }
}

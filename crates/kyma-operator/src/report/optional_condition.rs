//! A condition that exists only while it has something to report.

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as metav1;
use kyma_api::Reason;
use kyma_api::condition::{self, Condition, Status, types};
use kyma_sdk::Failure;

use super::{StatusInputs, time};

/// A condition of this operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionalCondition {
    pub(crate) type_: &'static str,
    pub(crate) status: Status,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl OptionalCondition {
    /// Adds it to the conditions.
    pub(super) fn put(&self, conditions: &mut Vec<metav1::Condition>, inputs: &StatusInputs<'_>) {
        let desired = Condition::new(self.type_, self.status, self.reason).with_message(&self.message);
        condition::set(conditions, &desired, inputs.generation, &time(inputs.now));
    }

    /// Returns the condition about the image-pull Secret on the target.
    pub(crate) fn of_pull_secret(result: &Result<(), Failure>) -> Self {
        Self::of(types::SKR_IMAGE_PULL_SECRET_SYNC, result, "skr image pull secret is synchronized")
    }

    /// Returns the condition about the rules of ModuleConfigs on modules' objects.
    pub(crate) fn of_resource_rules(result: &Result<(), Failure>) -> Self {
        Self::of(types::RESOURCE_RULES_APPLIED, result, "the rules on modules' objects are in force")
    }

    fn of(type_: &'static str, result: &Result<(), Failure>, success: &str) -> Self {
        let (status, reason, message) = match result {
            Ok(()) => (Status::True, Reason::Ready, success),
            Err(failure) => (Status::False, failure.reason, failure.message.as_str()),
        };
        Self { type_, status, reason, message: message.to_owned() }
    }
}

//! The conditions about the image-pull Secret and the policies of a target. Pure.

use kyma_api::Reason;
use kyma_api::condition::{Condition, Status, types};
use kyma_controller::Failure;

/// Returns the condition about the image-pull Secret on the target.
pub(crate) fn pull_secret(result: &Result<(), Failure>) -> Condition {
    condition(types::SKR_IMAGE_PULL_SECRET_SYNC, result, "skr image pull secret is synchronized")
}

/// Returns the condition about the rules of ModuleConfigs on modules' objects.
pub(crate) fn resource_rules(result: &Result<(), Failure>) -> Condition {
    condition(types::RESOURCE_RULES_APPLIED, result, "the rules on modules' objects are in force")
}

fn condition(type_: &'static str, result: &Result<(), Failure>, success: &str) -> Condition {
    match result {
        Ok(()) => Condition::new(type_, Status::True, Reason::Ready).with_message(success),
        Err(failure) => Condition::new(type_, Status::False, failure.reason).with_message(&failure.message),
    }
}

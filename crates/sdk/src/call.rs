//! Answers that are no failure, and deletes that mean one object.

use kube::api::{DeleteParams, Preconditions};

/// Parameters of a delete that means the object of this uid and no other.
pub fn delete_of_uid(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams::background().preconditions(preconditions)
}

/// What is gone need not be removed.
///
/// # Errors
/// Everything but 404.
pub fn gone_is_fine(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    }
}

/// Whether somebody wrote between a look and a write; the next look tells.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

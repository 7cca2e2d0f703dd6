//! Waits until an API server applies changed rights.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::wait::until;

/// Deadline until an API server applies a role or binding.
const DEADLINE: Duration = Duration::from_mins(1);

/// Waits until the API server allows a user the attributes, or denies them with `is_allowed: false`. It learns of roles
/// and bindings through watches, some time after it stored them. The client needs the right to ask.
///
/// # Errors
/// The answer is not the expected one within a minute, or the API server refuses the question.
pub async fn until_access(
    client: &Client,
    user: &str,
    attributes: ResourceAttributes,
    is_allowed: bool,
) -> Result<()> {
    let what = format!("{user} is allowed {attributes:?}: {is_allowed}");
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let question = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    until(&what, DEADLINE, || async {
        let answer = reviews.create(&PostParams::default(), &question).await?;
        Ok(answer.status.filter(|status| status.allowed == is_allowed).map(drop))
    })
    .await
}

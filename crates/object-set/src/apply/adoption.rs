//! Adoption of objects that exist and that this owner has not applied before.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kyma_api::labels::HOOK_OF;

use super::context::DesiredObject;
use super::options::{AdoptionPolicy, ApplyOptions, ForeignObjectPolicy};
use super::outcome::Refusal;
use crate::ownership::{self, Guard, OWNER_LABEL};

mod claim;
mod content;
pub(super) mod system;
pub(super) mod take_over;

pub use claim::claim;
pub(super) use content::LiveContent;
use system::System;

/// Checks that an existing object may be adopted. An object or hook of this owner passes.
///
/// # Errors
/// If it may not be adopted.
pub(super) fn check_adoptable(
    desired: &DesiredObject<'_>,
    metadata: &ObjectMeta,
    guard: Option<Guard>,
) -> Result<(), Refusal> {
    let DesiredObject { target, options, .. } = desired;
    let us = options.ownership.owner.as_str();
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let owner = label(OWNER_LABEL);
    if owner == Some(us) {
        return Ok(());
    }
    if guard == Some(Guard::UnlessCreated) {
        return Err(Refusal::Protected { object: target.identity.clone() });
    }
    let refused = match options.adopt {
        AdoptionPolicy::Always => false,
        AdoptionPolicy::Unowned => owner.is_some_and(|owner| {
            !ownership::is_dead(owner, metadata, options.ownership, options.owner_is_live)
        }),
        // A hook of this owner may become an ordinary object.
        AdoptionPolicy::Never => owner.is_some() || label(HOOK_OF) != Some(us),
    };
    if refused {
        let owner = owner.unwrap_or("another owner").to_owned();
        return Err(Refusal::OwnedByOther { object: target.identity.clone(), owner });
    }
    Ok(())
}

/// Returns the system that applied an object, if such objects are only reported
/// (`ForeignObjectPolicy::Report`) and this one lacks this owner's label.
pub(super) fn foreign_system(metadata: &ObjectMeta, options: &ApplyOptions<'_>) -> Option<System> {
    let owner = metadata.labels.as_ref().and_then(|labels| labels.get(OWNER_LABEL));
    let is_reported =
        options.foreign == ForeignObjectPolicy::Report && owner != Some(&options.ownership.owner);
    is_reported.then(|| System::of(metadata, options.take_over)).flatten()
}

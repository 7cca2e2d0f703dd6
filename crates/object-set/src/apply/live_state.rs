//! State of an object on the target before its apply.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::context::DesiredObject;
use super::options::Observations;
use crate::error::CallError;
use crate::managed_fields::drift::{self, Drift, ObservedObject};
use crate::ownership::OWNER_LABEL;

/// Live state at the identity of a desired object.
pub(super) enum LiveState {
    /// Owned and unchanged: nothing to send if the desired state is also unchanged.
    Unchanged(ObservedObject),
    /// Owned, but changed by another manager.
    Changed(ObservedObject),
    /// No object.
    Absent,
    /// Presumably no object; it was not read.
    PresumedAbsent,
    /// An object that is not in the inventory, or no longer owned.
    NotOwned(Box<ObjectMeta>),
    /// The object is being deleted.
    Deleting,
}

impl LiveState {
    /// Returns the live state: from the watch if that is proof, otherwise from the target.
    pub(super) async fn of(
        desired: &DesiredObject<'_>,
        observed: &dyn Observations,
    ) -> Result<Self, CallError> {
        // An object that was only recorded still carries the marks of its previous system.
        let recorded = desired.recorded.filter(|entry| entry.was_sent());
        let us = desired.options.ownership.owner.as_str();
        if let (Some(recorded), Some(observed)) = (recorded, observed.get(desired.target.identity)) {
            match drift::compare(recorded, Some(&observed), us) {
                Drift::Unchanged => return Ok(Self::Unchanged(observed)),
                Drift::Changed => return Ok(Self::Changed(observed)),
                Drift::Deleting => return Ok(Self::Deleting),
                Drift::Gone | Drift::Recreated | Drift::Taken => {}
            }
        }
        Self::read(desired).await
    }

    /// Reads the live state from the target.
    pub(super) async fn read(desired: &DesiredObject<'_>) -> Result<Self, CallError> {
        let recorded = desired.recorded.filter(|entry| entry.was_sent());
        let ownership = desired.options.ownership;
        let Some(found) = desired.target.metadata().await? else {
            return Ok(Self::Absent);
        };
        if found.deletion_timestamp.is_some() {
            return Ok(Self::Deleting);
        }
        let Some(recorded) = recorded else { return Ok(Self::NotOwned(Box::new(found))) };
        let observed = ObservedObject::from_metadata(&found, &ownership.manager, OWNER_LABEL);
        Ok(match drift::compare(recorded, Some(&observed), &ownership.owner) {
            Drift::Unchanged => Self::Unchanged(observed),
            Drift::Changed => Self::Changed(observed),
            _ => Self::NotOwned(Box::new(found)),
        })
    }
}

//! Writes an object with its desired state, and settles the ownership of its fields before and after.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::adoption::take_over::take_over;
use super::context::DesiredObject;
use super::desired_state::DesiredState;
use super::outcome::{Outcome, Refusal};
use super::server_side_apply::ServerSideApply;
use super::target_object::{MAX_MANAGED_FIELDS_TRIES, Precondition};
use crate::error::{CallError, Failure};
use crate::inventory::Entry;
use crate::managed_fields::drift::ObservedObject;
use crate::managed_fields::entries::applied_entry;
use crate::managed_fields::field_set;
use crate::managed_fields::ignored_fields::split;

/// Writes one object with its desired state.
pub(super) struct ObjectWriter<'a> {
    pub(super) desired: DesiredObject<'a>,
}

/// Result of sending the desired state.
pub(super) struct SentObject {
    metadata: ObjectMeta,
    /// Reason for which it lacks the desired state, although it was sent.
    unsettled: Option<Refusal>,
}

impl SentObject {
    /// Returns the outcome and the inventory entry of the object. `is_new`: whether it did not exist before.
    pub(super) fn into_outcome(
        self,
        desired: &DesiredObject<'_>,
        hash: String,
        created: bool,
        is_new: bool,
    ) -> (Outcome, Option<Entry>) {
        // Without the desired hash, the next run sends an unsettled object again.
        let hash = if self.unsettled.is_some() { String::new() } else { hash };
        let entry = desired.entry(&self.metadata, hash, created);
        let outcome = match self.unsettled {
            Some(refusal) => Outcome::Refused(refusal),
            None => Outcome::Applied { created: is_new, resource_version: self.metadata.resource_version },
        };
        (outcome, Some(entry))
    }
}

impl ObjectWriter<'_> {
    /// Moves ownership of ignored fields first, so that an apply without them does not remove them from the live
    /// object.
    pub(super) async fn move_ignored_fields(
        &self,
        state: &mut DesiredState<'_>,
        observed: Option<&ObservedObject>,
    ) -> Result<(), Refusal> {
        let DesiredObject { target, options, .. } = self.desired;
        let scaled = observed.is_some_and(|observed| observed.unscaled.is_some());
        if state.fields.is_empty() && !state.has_replicas() && !scaled {
            return Ok(());
        }
        // Reads the live object, since the watch may not show a scaling yet. If the object is gone, the apply shows
        // that.
        let Some(found) = target.metadata().await? else { return Ok(()) };
        let (metadata, _) = self.settle_ownership(state, found).await?;
        if let Some(taken) = field_set::scaled(&metadata, &options.ownership.manager)
            && !options.ignored_fields.overwrites_scale(target.identity)
        {
            field_set::remove_leaves(&taken, state.object.body_mut());
        }
        Ok(())
    }

    /// Sends an object and then settles the ownership of its fields. An adopted object may have had no manager.
    pub(super) async fn send(
        &self,
        state: &DesiredState<'_>,
        precondition: Precondition<'_>,
        is_adopted: bool,
    ) -> Result<SentObject, CallError> {
        let object = if matches!(precondition, Precondition::Uid(_)) { &state.object } else { state.whole() };
        let metadata = ServerSideApply::of(&self.desired).send(object, precondition).await?;
        match self.settle_sent(state, metadata.clone(), is_adopted).await {
            Ok(metadata) => Ok(SentObject { metadata, unsettled: None }),
            Err(refusal) => Ok(SentObject { metadata, unsettled: Some(refusal) }),
        }
    }

    /// Sends the object again if fields that the set may lack moved to the operator's field manager after the first
    /// apply.
    async fn settle_sent(
        &self,
        state: &DesiredState<'_>,
        metadata: ObjectMeta,
        is_adopted: bool,
    ) -> Result<ObjectMeta, Refusal> {
        // The first apply to an object without managedFields makes an entry for all of its fields.
        let behind = if is_adopted { take_over(&self.desired, &metadata).await? } else { None };
        let taken = behind.is_some();
        let (metadata, returned) = self.settle_ownership(state, behind.unwrap_or(metadata)).await?;
        if !(taken || returned) {
            return Ok(metadata);
        }
        let precondition = Precondition::of(metadata.uid.as_deref());
        Ok(ServerSideApply::of(&self.desired).send(&state.object, precondition).await?)
    }

    /// Moves the ownership of ignored fields to the manager of ignored fields, and that of fields that are no longer
    /// ignored back. Returns whether any moved back.
    async fn settle_ownership(
        &self,
        state: &DesiredState<'_>,
        mut metadata: ObjectMeta,
    ) -> Result<(ObjectMeta, bool), Refusal> {
        let target = self.desired.target;
        let manager = self.desired.options.ownership.manager.as_str();
        let ignored_manager = self.desired.options.ownership.ignored_fields_manager();
        if state.fields.is_empty() && applied_entry(&metadata, &ignored_manager).is_none() {
            return Ok((metadata, false));
        }
        let whole = Value::Object(state.whole().body().clone());
        let mut tries = 0;
        loop {
            let split =
                split(&metadata, &whole, &state.fields, manager, &ignored_manager).map_err(|part| {
                    Refusal::PartOfWhole { object: target.identity.clone(), part: Box::new(part) }
                })?;
            let Some(split) = split else { return Ok((metadata, false)) };
            let error = match target.patch_managed_fields(manager, split.patch).await {
                Ok(moved) => return Ok((moved, split.returns)),
                Err(error) => error,
            };
            tries += 1;
            if error.failure != Failure::Conflict || tries == MAX_MANAGED_FIELDS_TRIES {
                return Err(error.into());
            }
            let Some(found) = target.metadata().await? else {
                return Err(error.into());
            };
            metadata = found;
        }
    }
}

//! Desired state of an object: complete for its creation, without ignored fields for later applies.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::outcome::Refusal;
use super::send::Precondition;
use super::{DesiredObject, Run};
use crate::cluster::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::managed_fields::drift::ObservedObject;
use crate::managed_fields::entries::applied_entry;
use crate::managed_fields::field_set;
use crate::managed_fields::ignored_fields::{Field, IgnoredFields, leave_out, split};
use crate::object::{Object, hash_value};
use crate::ownership::Ownership;

/// Maximum number of tries to move field ownership while controllers write to a new object.
pub(super) const MAX_MANAGED_FIELDS_TRIES: usize = 5;

/// Desired state of one object.
pub(super) struct DesiredState<'a> {
    /// The form for an existing object.
    pub(super) object: Object,
    /// Hash that the inventory records.
    pub(super) hash: String,
    /// The form for its creation, if that has more fields.
    whole: Option<Object>,
    /// Fields that others may change.
    fields: Vec<&'a Field>,
}

/// Result of sending the desired state.
pub(super) struct SentObject {
    pub(super) metadata: ObjectMeta,
    /// Reason for which it lacks the desired state, although it was sent.
    pub(super) unsettled: Option<Refusal>,
}

impl<'a> DesiredState<'a> {
    pub(super) fn of(mut object: Object, ignored_fields: &'a IgnoredFields) -> Self {
        let fields = ignored_fields.fields_of(&object);
        let whole = (!fields.is_empty()).then(|| object.clone());
        let left_out = leave_out(&mut object, &fields);
        let mut hash = object.intent_hash();
        if !left_out.is_empty() {
            // The fields left out are part of the hash: otherwise an ignored field that leaves the set, or is no
            // longer ignored, would change nothing.
            hash = hash_value(&json!([hash, left_out]));
        }
        Self { object, hash, whole, fields }
    }

    /// Returns the form for its creation.
    pub(super) fn whole(&self) -> &Object {
        self.whole.as_ref().unwrap_or(&self.object)
    }

    /// Returns the form for its creation.
    pub(super) fn into_whole(self) -> Object {
        self.whole.unwrap_or(self.object)
    }

    pub(super) fn set_annotation(&mut self, key: &str, value: &str) {
        for object in [Some(&mut self.object), self.whole.as_mut()].into_iter().flatten() {
            object.set_annotation(key, value);
        }
    }

    /// Reports whether it sets replicas, which others may own by scaling.
    fn has_replicas(&self) -> bool {
        self.object.body().get("spec").and_then(|spec| spec.get("replicas")).is_some()
    }
}

impl Run<'_> {
    /// Moves ownership of ignored fields first, so that an apply without them does not remove them from the live
    /// object.
    pub(super) async fn move_ignored_fields(
        &self,
        state: &mut DesiredState<'_>,
        desired: &DesiredObject,
        mapping: &Mapping,
        observed: Option<&ObservedObject>,
    ) -> Result<(), Refusal> {
        let scaled = observed.is_some_and(|observed| observed.unscaled.is_some());
        if state.fields.is_empty() && !state.has_replicas() && !scaled {
            return Ok(());
        }
        // Reads the live object, since the watch may not show a scaling yet. If the object is gone, the apply shows
        // that.
        let Some(found) = self.cluster.metadata(mapping, &desired.identity).await? else { return Ok(()) };
        let (metadata, _) = self.settle_ownership(state, desired, mapping, found.metadata).await?;
        let manager = &self.options.ownership.manager;
        if let Some(taken) = field_set::scaled(&metadata, manager)
            && !self.options.ignored_fields.overwrites_scale(&desired.identity)
        {
            field_set::remove_leaves(&taken, state.object.body_mut());
        }
        Ok(())
    }

    /// Sends an object and then settles the ownership of its fields. An adopted object may have had no manager.
    pub(super) async fn send_and_settle(
        &self,
        state: &DesiredState<'_>,
        desired: &DesiredObject,
        mapping: &Mapping,
        precondition: Precondition<'_>,
        is_adopted: bool,
    ) -> Result<SentObject, CallError> {
        let object = if matches!(precondition, Precondition::Uid(_)) { &state.object } else { state.whole() };
        let metadata = self.send(object, &desired.identity, mapping, precondition).await?;
        match self.settle_sent(state, desired, mapping, metadata.clone(), is_adopted).await {
            Ok(metadata) => Ok(SentObject { metadata, unsettled: None }),
            Err(refusal) => Ok(SentObject { metadata, unsettled: Some(refusal) }),
        }
    }

    /// Sends the object again if fields that the set may lack moved to the operator's field manager after the first
    /// apply.
    async fn settle_sent(
        &self,
        state: &DesiredState<'_>,
        desired: &DesiredObject,
        mapping: &Mapping,
        metadata: ObjectMeta,
        is_adopted: bool,
    ) -> Result<ObjectMeta, Refusal> {
        // The first apply to an object without managedFields makes an entry for all of its fields.
        let behind = if is_adopted { self.take_over(desired, mapping, &metadata).await? } else { None };
        let taken = behind.is_some();
        let (metadata, returned) =
            self.settle_ownership(state, desired, mapping, behind.unwrap_or(metadata)).await?;
        if !(taken || returned) {
            return Ok(metadata);
        }
        let precondition = Precondition::of(metadata.uid.as_deref());
        Ok(self.send(&state.object, &desired.identity, mapping, precondition).await?)
    }

    /// Moves the ownership of ignored fields to the manager of ignored fields, and that of fields that are no longer
    /// ignored back. Returns whether any moved back.
    pub(super) async fn settle_ownership(
        &self,
        state: &DesiredState<'_>,
        desired: &DesiredObject,
        mapping: &Mapping,
        mut metadata: ObjectMeta,
    ) -> Result<(ObjectMeta, bool), Refusal> {
        let Ownership { manager, .. } = self.options.ownership;
        let ignored_manager = self.options.ownership.ignored_fields_manager();
        if state.fields.is_empty() && applied_entry(&metadata, &ignored_manager).is_none() {
            return Ok((metadata, false));
        }
        let whole = Value::Object(state.whole().body().clone());
        let api = mapping.api(&self.cluster.client, desired.identity.namespace.as_deref());
        let params = PatchParams { field_manager: Some(manager.clone()), ..PatchParams::default() };
        let mut tries = 0;
        loop {
            let split =
                split(&metadata, &whole, &state.fields, manager, &ignored_manager).map_err(|part| {
                    Refusal::PartOfWhole { object: desired.identity.clone(), part: Box::new(part) }
                })?;
            let Some(split) = split else { return Ok((metadata, false)) };
            let moved =
                api.patch_metadata(&desired.identity.name, &params, &Patch::<Value>::Json(split.patch)).await;
            let error = match moved {
                Ok(moved) => return Ok((moved.metadata, split.returns)),
                Err(error) => take_over_error(CallError::new(Action::Patch, Some(&desired.identity), error)),
            };
            tries += 1;
            if error.failure != Failure::Conflict || tries == MAX_MANAGED_FIELDS_TRIES {
                return Err(error.into());
            }
            let Some(found) = self.cluster.metadata(mapping, &desired.identity).await? else {
                return Err(error.into());
            };
            metadata = found.metadata;
        }
    }
}

/// Turns the refusal of a patch into a conflict: the patch tests the resourceVersion, so another writer came first.
pub(super) fn take_over_error(mut error: CallError) -> CallError {
    if matches!(error.failure, Failure::Refused(_)) {
        error.failure = Failure::Conflict;
    }
    error
}

#[cfg(test)]
mod tests {
    use kyma_api::DriftIgnore;

    use super::*;

    #[test]
    fn only_an_object_with_ignored_fields_is_copied() {
        let spec = json!({"replicas": 2, "paused": false});
        let value =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec});
        let object = Object::from_value(value).unwrap();
        let none = IgnoredFields::default();
        let state = DesiredState::of(object.clone(), &none);
        assert!(std::ptr::eq(state.object.body(), object.body()));
        assert!(std::ptr::eq(state.whole().body(), object.body()));

        let rules: Vec<DriftIgnore> =
            serde_json::from_value(json!([{ "paths": ["/spec/replicas"] }])).unwrap();
        let ignored_fields = IgnoredFields::parse(&rules).unwrap();
        let state = DesiredState::of(object.clone(), &ignored_fields);
        assert_eq!(state.object.body()["spec"], json!({"paused": false}));
        assert!(std::ptr::eq(state.into_whole().body(), object.body()));
    }
}

//! Desired state of an object: complete for its creation, without ignored fields for later applies. Pure.

use serde_json::json;

use crate::managed_fields::ignored_fields::{Field, IgnoredFields, leave_out};
use crate::object::{Object, hash_value};

/// Desired state of one object.
pub(super) struct DesiredState<'a> {
    /// The form for an existing object.
    pub(super) object: Object,
    /// Hash that the inventory records.
    pub(super) hash: String,
    /// The form for its creation, if that has more fields.
    whole: Option<Object>,
    /// Fields that others may change.
    pub(super) fields: Vec<&'a Field>,
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
    pub(super) fn has_replicas(&self) -> bool {
        self.object.body().get("spec").and_then(|spec| spec.get("replicas")).is_some()
    }
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

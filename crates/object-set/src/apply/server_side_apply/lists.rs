//! Restores lists with duplicate keys, which server-side apply refuses, by a JSON patch after the apply.

use std::collections::HashSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, PatchParams, PostParams};
use serde_json::Value;

use crate::apply::adoption::take_over::move_fields;
use crate::apply::target_object::{MAX_MANAGED_FIELDS_TRIES, Precondition, TargetObject, may_have_changed};
use crate::error::{Action, CallError, Failure};
use crate::normalise::keyed_lists::{ListAsWritten, PathSegment};
use crate::object::{Identity, Object};
use crate::ownership::Ownership;

/// Reports whether the API server refuses changes of the containers: lists cannot be restored after the apply.
pub(super) fn has_fixed_template(identity: &Identity) -> bool {
    identity.is("batch", "Job") || identity.is("", "Pod")
}

/// Restoration of the lists of one object.
pub(super) struct ListRestoration<'a> {
    pub(super) lists: &'a [ListAsWritten],
    pub(super) target: TargetObject<'a>,
    pub(super) ownership: &'a Ownership,
}

impl ListRestoration<'_> {
    /// Ensures that an object with a fixed template has its lists as written, so that an apply leaves them out: creates
    /// it, or compares the existing one. The created fields stay with the manager of creations. Returns the uid; `None`
    /// if the existing object has other lists, or if the metadata has a value of a wrong type, which an apply reports.
    pub(super) async fn ensure(
        &self,
        object: &Object,
        precondition: Precondition<'_>,
    ) -> Result<Option<String>, CallError> {
        if let Precondition::Uid(uid) = precondition {
            let live = self.target.read().await?;
            let is_as_written = live.is_some_and(|(_, live)| has_lists(&live, self.lists));
            return Ok(is_as_written.then(|| uid.to_owned()));
        }
        let Ok(new) = serde_json::from_value::<DynamicObject>(Value::Object(object.body().clone())) else {
            return Ok(None);
        };
        let manager = self.ownership.creator();
        let params = PostParams { field_manager: Some(manager), ..PostParams::default() };
        let created = self.target.api().create(&params, &new).await;
        // An apply would fail in the same ways as this creation.
        let failed = |error| with_duplicate_keys(self.target.error(Action::Apply, error), self.lists);
        created.map(|created| created.metadata.uid).map_err(failed)
    }

    /// Restores the original lists of an object that was just applied, and moves their fields to the operator's manager.
    ///
    /// # Errors
    /// If the API server refuses a list, which the error then names; or [`Failure::Conflict`] if the object is replaced,
    /// or changes during each of ten tries.
    pub(super) async fn restore(&self, uid: Option<&str>) -> Result<ObjectMeta, CallError> {
        let TargetObject { identity, .. } = self.target;
        let api = self.target.api();
        let manager = self.ownership.lists_manager();
        let failed = |error| self.target.error(Action::Patch, error);
        let mut is_restored = false;
        let mut refused: Option<(Option<String>, CallError)> = None;
        // Controllers write to a new or changed object several times, and each write can come before either patch.
        for _ in 0..2 * MAX_MANAGED_FIELDS_TRIES {
            let found = api.get(&identity.name).await.map_err(failed)?;
            if found.metadata.uid.as_deref() != uid {
                break;
            }
            if let Some((version, error)) = refused.take()
                && version == found.metadata.resource_version
            {
                return Err(with_duplicate_keys(error, self.lists));
            }
            let patch = match restoration(&found, self.lists).filter(|_| !is_restored) {
                Some(patch) => Some((patch, manager.clone())),
                // A process that ended between the two patches may have left fields of the other manager.
                None => move_fields(&found.metadata, &[manager.as_str()], &self.ownership.manager)
                    .map(|patch| (patch, self.ownership.manager.clone())),
            };
            let Some((patch, field_manager)) = patch else { return Ok(found.metadata) };
            let params = PatchParams { field_manager: Some(field_manager), ..PatchParams::default() };
            let patched =
                api.patch_metadata(&identity.name, &params, &kube::api::Patch::<Value>::Json(patch)).await;
            match patched.map_err(failed) {
                Ok(_) => is_restored = true,
                Err(error) if may_have_changed(&error) => {
                    refused = Some((found.metadata.resource_version, error));
                }
                Err(error) => return Err(with_duplicate_keys(error, self.lists)),
            }
        }
        Err(failed(conflict(identity)))
    }
}

/// Adds the duplicate keys to a refusal, before the paths of the answer.
fn with_duplicate_keys(mut error: CallError, lists: &[ListAsWritten]) -> CallError {
    if let Failure::Refused(paths) = &mut error.failure {
        paths.splice(0..0, lists.iter().map(|list| list.text.clone()));
    }
    error
}

fn conflict(identity: &Identity) -> kube::Error {
    let text = format!("{identity} changed in the meantime");
    let status = kube::core::Status::failure(&text, kube::core::response::reason::CONFLICT).with_code(409);
    kube::Error::Api(status.boxed())
}

/// Returns the patch that restores lists of a live object, with items of other managers at their end; `None` if they are
/// equal already. The patch fails if the object was replaced or one of these lists changed since `live` was read. Writes
/// of other fields do not count: controllers write to a new object several times.
fn restoration(live: &DynamicObject, lists: &[ListAsWritten]) -> Option<Patch> {
    let uid = live.metadata.uid.clone().map_or(Value::Null, Value::String);
    let mut operations = vec![test(PointerBuf::from_tokens(["metadata", "uid"]), uid)];
    for list in lists {
        let Some((path, found)) = locate(&live.data, &list.segments) else { continue };
        let desired = with_additions(list, found);
        if !is_same(&desired, found) {
            operations.extend(name_tests(&path, &list.segments));
            operations.push(test(path.clone(), Value::Array(found.to_vec())));
            operations.push(PatchOperation::Replace(ReplaceOperation { path, value: Value::Array(desired) }));
        }
    }
    (operations.len() > 1).then_some(Patch(operations))
}

fn test(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path, value })
}

/// Returns tests that the indexes in `path` belong to the items that `segments` name.
fn name_tests(path: &PointerBuf, segments: &[PathSegment]) -> Vec<PatchOperation> {
    let mut tests = Vec::new();
    let mut item = PointerBuf::root();
    for (token, segment) in path.tokens().zip(segments) {
        item.push_back(token);
        if let PathSegment::Item(name) = segment {
            let mut field = item.clone();
            field.push_back("name");
            tests.push(test(field, name.clone().into()));
        }
    }
    tests
}

/// Reports whether a live object has all lists as written, beside items of other managers at any place.
fn has_lists(live: &Value, lists: &[ListAsWritten]) -> bool {
    lists.iter().all(|list| {
        let Some((_, found)) = locate(live, &list.segments) else { return false };
        let keys = own_keys(list);
        let own: Vec<Value> =
            found.iter().filter(|item| keys.contains(&key_of(list, item))).cloned().collect();
        is_same(&list.items, &own)
    })
}

/// Removes a list from a desired object.
pub(super) fn leave_out(body: &mut Value, list: &ListAsWritten) {
    let Some((PathSegment::Field(field), parents)) = list.segments.split_last() else { return };
    let mut parent = Some(body);
    for segment in parents {
        parent = parent.and_then(|value| match segment {
            PathSegment::Field(name) => value.get_mut(*name),
            PathSegment::Item(name) => {
                let has_name = |item: &Value| item.get("name").and_then(Value::as_str) == Some(name.as_str());
                value.as_array_mut()?.iter_mut().find(|item| has_name(item))
            }
        });
    }
    if let Some(Value::Object(parent)) = parent {
        parent.remove(*field);
    }
}

fn locate<'a>(live: &'a Value, segments: &[PathSegment]) -> Option<(PointerBuf, &'a [Value])> {
    let (mut at, mut pointer) = (live, PointerBuf::root());
    for segment in segments {
        match segment {
            PathSegment::Field(name) => {
                at = at.get(*name)?;
                pointer.push_back(*name);
            }
            PathSegment::Item(name) => {
                let has_name = |item: &Value| item.get("name").and_then(Value::as_str) == Some(name);
                let index = at.as_array()?.iter().position(has_name)?;
                at = at.get(index)?;
                pointer.push_back(index.to_string());
            }
        }
    }
    Some((pointer, at.as_array()?))
}

fn with_additions(list: &ListAsWritten, live: &[Value]) -> Vec<Value> {
    let own = own_keys(list);
    let additions = live.iter().filter(|item| !own.contains(&key_of(list, item)));
    list.items.iter().chain(additions).cloned().collect()
}

/// Returns the keys of the desired items: a set, since a target may report any number of items.
fn own_keys(list: &ListAsWritten) -> HashSet<Vec<Option<&Value>>> {
    list.items.iter().map(|item| key_of(list, item)).collect()
}

fn key_of<'a>(list: &ListAsWritten, item: &'a Value) -> Vec<Option<&'a Value>> {
    list.keys.iter().map(|key| item.get(*key)).collect()
}

/// Reports whether the live items equal the desired ones, apart from defaults.
fn is_same(desired: &[Value], live: &[Value]) -> bool {
    desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| is_within(desired, live))
}

fn is_within(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let is_in = |(field, value): (&String, &Value)| match live.get(field) {
                Some(live) => is_within(value, live),
                None => is_zero_value(value),
            };
            desired.iter().all(is_in)
        }
        (desired, live) => desired == live,
    }
}

/// Reports whether an API server omits a field with this value (Go's `omitempty`).
fn is_zero_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> ListAsWritten {
        ListAsWritten {
            segments: vec![
                PathSegment::Field("spec"),
                PathSegment::Field("containers"),
                PathSegment::Item("c".into()),
                PathSegment::Field("env"),
            ],
            keys: &["name"],
            items: vec![json!({"name": "A", "value": "a"}), json!({"name": "A", "value": "b-$(A)"})],
            text: "spec.containers[0].env has name=A more than once".into(),
        }
    }

    #[test]
    fn a_list_is_left_out_of_its_container_only() {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        let mut body = pod(json!([{"name": "b", "env": [1]}, {"name": "c", "image": "x", "env": [2]}]));
        leave_out(&mut body, &list());
        assert_eq!(body, pod(json!([{"name": "b", "env": [1]}, {"name": "c", "image": "x"}])));
        let other = pod(json!([{"name": "b", "env": [1]}]));
        let mut body = other.clone();
        leave_out(&mut body, &list());
        assert_eq!(body, other);
    }

    #[test]
    fn an_object_without_the_list_does_not_have_it_as_written() {
        let pod = |container: Value| json!({"spec": {"containers": [container]}});
        let has = |container: Value| has_lists(&pod(container), &[list()]);
        assert!(has(json!({"name": "c", "env": list().items})));
        let injected = |at: usize| {
            let mut env = list().items;
            env.insert(at, json!({"name": "B", "value": "of a webhook"}));
            json!({"name": "c", "env": env})
        };
        assert!(has(injected(0)) && has(injected(2)));
        assert!(!has(json!({"name": "c", "env": [{"name": "A", "value": "b-$(A)"}]})));
        assert!(!has(json!({"name": "c"})) && !has(json!({"name": "b", "env": list().items})));
    }

    #[test]
    fn restored_lists_keep_items_of_other_managers() {
        let list = list();
        let live = |env: &Value| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {"containers": [{"name": "sidecar"}, {"name": "c", "env": env}]}}))
            .unwrap()
        };
        let injected = json!({"name": "I", "value": "i"});
        let present = json!([{"name": "A", "value": "b-$(A)"}, injected]);
        let patch = restoration(&live(&present), std::slice::from_ref(&list)).unwrap();
        let written = json!([{"name": "A", "value": "a"}, {"name": "A", "value": "b-$(A)"}, injected]);
        assert_eq!(
            json!(patch),
            json!([{"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/spec/containers/1/name", "value": "c"},
                {"op": "test", "path": "/spec/containers/1/env", "value": present},
                {"op": "replace", "path": "/spec/containers/1/env", "value": written}])
        );
        assert!(restoration(&live(&written), &[list]).is_none());
    }
}

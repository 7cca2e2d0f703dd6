//! Lists that hold a key twice: server-side apply refuses them, so they are restored by a patch after it.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PatchParams;
use serde_json::Value;

use super::Run;
use super::take_over::move_fields;
use super::wish::TRIES;
use crate::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::normalise::keyed_lists::{ListAsWritten, Step};
use crate::object::Identity;

impl Run<'_> {
    /// Makes lists of an object that was just applied as their author wrote them, and the operator's.
    ///
    /// # Errors
    /// The API server refuses a list, which the error names then; or the object changes during each of five tries.
    pub(super) async fn restore_lists(
        &self,
        lists: &[ListAsWritten],
        identity: &Identity,
        mapping: &Mapping,
        uid: Option<&str>,
    ) -> Result<ObjectMeta, CallError> {
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let manager = self.options.ownership.lists_manager();
        let failed = |error| CallError::new(Action::Patch, Some(identity), error);
        let (mut tries, mut is_restored) = (0, false);
        loop {
            tries += 1;
            if tries > 2 * TRIES {
                return Err(failed(conflict(identity)));
            }
            let found = api.get(&identity.name).await.map_err(failed)?;
            if found.metadata.uid.as_deref() != uid {
                return Err(failed(conflict(identity)));
            }
            let metadata = found.metadata.clone();
            let live = serde_json::to_value(found).unwrap_or_default();
            let patch = match restoration(&live, lists).filter(|_| !is_restored) {
                Some(patch) => Some((patch, manager.clone())),
                // What a process that ended in between left to do.
                None => move_fields(&metadata, &[manager.as_str()], &self.options.ownership.manager)
                    .map(|patch| (patch, self.options.ownership.manager.clone())),
            };
            let Some((patch, field_manager)) = patch else { return Ok(metadata) };
            let params = PatchParams { field_manager: Some(field_manager), ..PatchParams::default() };
            let patched =
                api.patch_metadata(&identity.name, &params, &kube::api::Patch::<Value>::Json(patch)).await;
            match patched.map_err(failed) {
                Ok(_) => is_restored = true,
                Err(error) if is_changed_meanwhile(&error) && tries < TRIES => {}
                Err(error) => return Err(naming(error, lists)),
            }
        }
    }
}

/// The refusal with the entries that are there twice; the answer's own paths follow.
fn naming(mut error: CallError, lists: &[ListAsWritten]) -> CallError {
    if let Failure::Refused(paths) = &mut error.failure {
        paths.splice(0..0, lists.iter().map(|list| list.text.clone()));
    }
    error
}

fn conflict(identity: &Identity) -> kube::Error {
    let text = format!("{identity} changed meanwhile");
    let status = kube::core::Status::failure(&text, kube::core::response::reason::CONFLICT).with_code(409);
    kube::Error::Api(status.boxed())
}

/// A patch whose test fails is refused without any path.
fn is_changed_meanwhile(error: &CallError) -> bool {
    match &error.failure {
        Failure::Conflict => true,
        Failure::Refused(paths) => paths.is_empty(),
        _ => false,
    }
}

/// The patch that makes lists of a live object as they were written, with what others added behind; `None` where they are
/// so already. It fails when the object changed since `live` was read.
fn restoration(live: &Value, lists: &[ListAsWritten]) -> Option<Patch> {
    let version = live.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
    let path = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    let mut operations = vec![PatchOperation::Test(TestOperation { path, value: version })];
    for list in lists {
        let Some((pointer, found)) = locate(live, &list.steps) else { continue };
        let wanted = with_additions(list, found);
        if !is_same(&wanted, found) {
            let replacement = ReplaceOperation { path: pointer, value: Value::Array(wanted) };
            operations.push(PatchOperation::Replace(replacement));
        }
    }
    (operations.len() > 1).then_some(Patch(operations))
}

fn locate<'a>(live: &'a Value, steps: &[Step]) -> Option<(PointerBuf, &'a [Value])> {
    let (mut at, mut pointer) = (live, PointerBuf::root());
    for step in steps {
        match step {
            Step::Field(name) => {
                at = at.get(*name)?;
                pointer.push_back(*name);
            }
            Step::Named(name) => {
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
    let key = |item: &Value| -> Vec<Option<Value>> {
        list.keys.iter().map(|key| item.get(*key).cloned()).collect()
    };
    let own: Vec<_> = list.items.iter().map(key).collect();
    let additions = live.iter().filter(|item| !own.contains(&key(item)));
    list.items.iter().chain(additions).cloned().collect()
}

/// Whether the live items are the wanted ones, apart from defaults.
fn is_same(wanted: &[Value], live: &[Value]) -> bool {
    wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| is_within(wanted, live))
}

fn is_within(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            let is_in = |(field, value): (&String, &Value)| match live.get(field) {
                Some(live) => is_within(value, live),
                None => says_nothing(value),
            };
            wanted.iter().all(is_in)
        }
        (wanted, live) => wanted == live,
    }
}

/// Whether an API server leaves out a field of this value.
fn says_nothing(value: &Value) -> bool {
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

    #[test]
    fn a_list_becomes_as_written_with_what_others_added() {
        let list = ListAsWritten {
            steps: vec![
                Step::Field("spec"),
                Step::Field("containers"),
                Step::Named("c".into()),
                Step::Field("env"),
            ],
            keys: &["name"],
            items: vec![json!({"name": "A", "value": "a"}), json!({"name": "A", "value": "b-$(A)"})],
            text: "spec.containers[0].env has name=A more than once".into(),
        };
        let live = |env: &Value| {
            json!({"metadata": {"resourceVersion": "7"},
                "spec": {"containers": [{"name": "sidecar"}, {"name": "c", "env": env}]}})
        };
        let injected = json!({"name": "I", "value": "i"});
        let found = live(&json!([{"name": "A", "value": "b-$(A)"}, injected]));
        let patch = serde_json::to_value(restoration(&found, std::slice::from_ref(&list)).unwrap()).unwrap();
        let written = json!([{"name": "A", "value": "a"}, {"name": "A", "value": "b-$(A)"}, injected]);
        assert_eq!(
            patch,
            json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "replace", "path": "/spec/containers/1/env", "value": written}])
        );
        assert!(restoration(&live(&written), &[list]).is_none());
    }
}

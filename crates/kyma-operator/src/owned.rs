//! Fields of an object that kyma-operator owns by its `managedFields`: those that its server-side apply last set and
//! no other manager took. The fingerprint tells whether another apply would change anything.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Returns when `manager` last changed the object by an apply.
pub(crate) fn applied_at(meta: &ObjectMeta, manager: &str) -> Option<Timestamp> {
    let entries = meta.managed_fields.as_ref()?.iter();
    entries.filter(|entry| is_ours(entry, manager, "")).filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
}

/// Returns the fingerprint of the fields that `manager` owns; `None` if it owns nothing.
pub(crate) fn fingerprint(object: &DynamicObject, manager: &str) -> Option<String> {
    let mut live = object.data.clone();
    live.as_object_mut()?.insert("metadata".to_owned(), serde_json::to_value(&object.metadata).ok()?);
    Some(hash(&project(&live, fields(&object.metadata, manager, "")?)))
}

/// Returns the fingerprint of the status fields that `manager` owns; `None` if it owns nothing.
pub(crate) fn status_fingerprint(object: &DynamicObject, manager: &str) -> Option<String> {
    let status = fields(&object.metadata, manager, "status")?.get("f:status")?;
    Some(hash(&project(object.data.get("status")?, status)))
}

/// Returns the fingerprint of a status to apply; equal to that of the object after the apply.
pub(crate) fn fingerprint_of_status(status: &Value) -> String {
    hash(status)
}

fn fields<'a>(meta: &'a ObjectMeta, manager: &str, subresource: &str) -> Option<&'a Value> {
    let entries = meta.managed_fields.as_ref()?;
    let entry = entries.iter().find(|entry| is_ours(entry, manager, subresource))?;
    Some(&entry.fields_v1.as_ref()?.0)
}

/// Returns the fingerprint of an apply's body; equal to that of the object after the apply.
pub(crate) fn fingerprint_of_apply(body: &Value) -> String {
    let mut body = body.clone();
    if let Some(object) = body.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
        object.remove("status");
    }
    if let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["name", "namespace", "uid", "resourceVersion"] {
            meta.remove(name);
        }
    }
    hash(&body)
}

fn is_ours(
    entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry,
    manager: &str,
    subresource: &str,
) -> bool {
    entry.manager.as_deref() == Some(manager)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default() == subresource
}

/// Returns the part of `value` that the field set selects. A leaf selects everything below it.
fn project(value: &Value, fields: &Value) -> Value {
    let Some(fields) = fields.as_object() else {
        return value.clone();
    };
    if fields.keys().all(|key| key == ".") {
        return value.clone();
    }
    match value {
        Value::Object(object) => {
            let mut part = Map::new();
            for (key, below) in fields {
                let Some(name) = key.strip_prefix("f:") else {
                    continue;
                };
                if let Some(value) = object.get(name) {
                    part.insert(name.to_owned(), project(value, below));
                }
            }
            Value::Object(part)
        }
        Value::Array(items) => {
            Value::Array(items.iter().filter_map(|item| project_item(item, fields)).collect())
        }
        other => other.clone(),
    }
}

/// Returns an item of a list, selected by keys (`k:`) or, in a set, by value (`v:`).
fn project_item(item: &Value, fields: &Map<String, Value>) -> Option<Value> {
    fields.iter().find_map(|(key, below)| {
        if let Some(keys) = key.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
            return keys
                .iter()
                .all(|(name, value)| item.get(name) == Some(value))
                .then(|| project(item, below));
        }
        let value: Value = serde_json::from_str(key.strip_prefix("v:")?).ok()?;
        (*item == value).then(|| item.clone())
    })
}

fn hash(value: &Value) -> String {
    let mut text = String::new();
    canonical(value, &mut text);
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// Writes JSON with sorted keys, so that the order of the map does not matter.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(object) => {
            let sorted: std::collections::BTreeMap<&String, &Value> = object.iter().collect();
            text.push('{');
            for (key, value) in sorted {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

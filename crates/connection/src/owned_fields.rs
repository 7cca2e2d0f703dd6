//! Fields of an object that a field manager owns by its `managedFields`: those that its server-side apply last set and
//! no other manager took. The fingerprint shows whether another apply would change anything. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Maximum number of comparisons of the items of one list with the keys in `managedFields`.
const MAX_COMPARISONS: usize = 1_000_000;

/// Returns when `manager` last changed the object by an apply.
pub fn applied_at(meta: &ObjectMeta, manager: &str) -> Option<Timestamp> {
    let entries = meta.managed_fields.as_ref()?.iter();
    entries.filter(|entry| is_ours(entry, manager, "")).filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
}

/// Returns the fingerprint of the fields that `manager` owns; `None` if it owns nothing.
pub fn fingerprint(object: &DynamicObject, manager: &str) -> Option<String> {
    let mut live = object.data.clone();
    live.as_object_mut()?.insert("metadata".to_owned(), serde_json::to_value(&object.metadata).ok()?);
    Some(hash(&project(&live, fields(&object.metadata, manager, "")?)))
}

/// Returns the fingerprint of the status fields that `manager` owns; `None` if it owns nothing.
pub fn status_fingerprint(object: &DynamicObject, manager: &str) -> Option<String> {
    let status = fields(&object.metadata, manager, "status")?.get("f:status")?;
    Some(hash(&project(object.data.get("status")?, status)))
}

/// Returns the fingerprint of a status to apply; equal to that of the object after the apply.
pub fn fingerprint_of_status(status: &Value) -> String {
    hash(status)
}

fn fields<'a>(meta: &'a ObjectMeta, manager: &str, subresource: &str) -> Option<&'a Value> {
    let entries = meta.managed_fields.as_ref()?;
    let entry = entries.iter().find(|entry| is_ours(entry, manager, subresource))?;
    Some(&entry.fields_v1.as_ref()?.0)
}

/// Returns the fingerprint of an apply's body; equal to that of the object after the apply.
pub fn fingerprint_of_apply(body: &Value) -> String {
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
        // A target may report any number of items and keys. The whole list gives another fingerprint.
        Value::Array(items) if items.len().saturating_mul(fields.len()) > MAX_COMPARISONS => value.clone(),
        Value::Array(items) => {
            let selectors: Vec<ItemSelector<'_>> = fields.iter().filter_map(ItemSelector::of).collect();
            Value::Array(items.iter().filter_map(|item| project_item(item, &selectors)).collect())
        }
        other => other.clone(),
    }
}

/// Selects an item of a list.
enum ItemSelector<'a> {
    /// `k:`: by the item's keys, with the fields below it.
    Keys(Map<String, Value>, &'a Value),
    /// `v:`: by its value, in a set.
    Whole(Value),
}

impl<'a> ItemSelector<'a> {
    fn of((key, below): (&'a String, &'a Value)) -> Option<Self> {
        if let Some(keys) = key.strip_prefix("k:") {
            return Some(Self::Keys(serde_json::from_str(keys).ok()?, below));
        }
        Some(Self::Whole(serde_json::from_str(key.strip_prefix("v:")?).ok()?))
    }
}

/// Returns the part of a list item that the first matching selector selects.
fn project_item(item: &Value, selectors: &[ItemSelector<'_>]) -> Option<Value> {
    selectors.iter().find_map(|selector| match selector {
        ItemSelector::Keys(keys, below) => {
            let is_selected = keys.iter().all(|(name, value)| item.get(name) == Some(value));
            is_selected.then(|| project(item, below))
        }
        ItemSelector::Whole(value) => (item == value).then(|| item.clone()),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn list_items_are_selected_by_keys_and_by_value() {
        let value = json!([{"name": "a", "x": 1, "y": 2}, {"name": "b", "x": 3}, "c", "d"]);
        let fields = json!({"k:{\"name\":\"a\"}": {"f:name": {}, "f:x": {}}, "v:\"d\"": {}, "v:broken": {}});
        assert_eq!(project(&value, &fields), json!([{"name": "a", "x": 1}, "d"]));
    }

    #[test]
    fn long_list_of_a_hostile_target_is_not_compared_with_all_keys() {
        let projected = |count: usize| {
            let items: Vec<Value> = (0..count).map(Value::from).collect();
            let keys = (count..2 * count).map(|at| (format!("v:{at}"), json!({})));
            project(&Value::from(items), &Value::Object(keys.collect()))
        };
        assert_eq!(projected(1_000), json!([]));
        assert_eq!(projected(1_001).as_array().map(Vec::len), Some(1_001));
    }
}

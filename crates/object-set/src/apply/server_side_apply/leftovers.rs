//! Fields that a server-side apply cannot remove from the live object, and for which the API server refuses it: defaults
//! beside another member of the same union, and maps whose last entry is removed. Pure.

use std::collections::BTreeSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, ReplaceOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use crate::managed_fields::entries::{applied_entry, fields_of_others};
use crate::managed_fields::field_set::{MAX_COMPARISONS, is_leaf};

mod nulls;
mod storage_request;

pub(super) use nulls::without_nulls;
pub(super) use storage_request::without_storage_request;

/// Maximum number of refused paths whose defaults are removed: for each of them lists of the target are searched.
const MAX_CLEARED_PATHS: usize = 50;

/// The owned fields at one path of the live object.
#[derive(Clone, Copy)]
struct Owners<'a> {
    /// Fields of the operator's apply.
    own: Option<&'a Value>,
    /// Fields of all other managers.
    others: Option<&'a Value>,
}

impl<'a> Owners<'a> {
    fn at(self, key: &str) -> Self {
        let below = |fields: Option<&'a Value>| fields.and_then(|fields| fields.get(key));
        Self { own: below(self.own), others: below(self.others) }
    }

    /// Reports whether the desired items of a list can be looked up in the live list and its keys.
    fn can_look_up(self, desired: usize, live: usize) -> bool {
        let keys: usize =
            [self.own, self.others].into_iter().flatten().filter_map(Value::as_object).map(Map::len).sum();
        desired.saturating_mul(keys + live) <= MAX_COMPARISONS
    }

    /// Returns the `k:{…}` key of a list item, by the keys of the owned items of its list.
    fn key_of(self, item: &Value) -> Option<String> {
        let all = [self.own, self.others].into_iter().flatten().filter_map(Value::as_object);
        let mut keys = all.flat_map(Map::keys).filter(|key| key.starts_with("k:"));
        keys.find(|key| is_of_key(item, key)).cloned()
    }
}

/// Returns whether a list item has the key fields of `k:{…}`.
fn is_of_key(item: &Value, key: &str) -> bool {
    let fields =
        key.strip_prefix("k:").and_then(|json| serde_json::from_str::<Map<String, Value>>(json).ok());
    fields.is_some_and(|fields| fields.iter().all(|(name, value)| item.get(name) == Some(value)))
}

/// A step of a path in an API server's answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    Field(String),
    Item,
}

/// Parses `spec.volumes[0].emptyDir`; `None` for other forms, and for metadata and status.
fn tokens(path: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    for part in path.split('.') {
        let (name, mut items) = part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
        if name.is_empty() {
            return None;
        }
        found.push(Token::Field(name.to_owned()));
        while !items.is_empty() {
            let (index, rest) = items.split_once(']')?;
            index.parse::<usize>().ok()?;
            found.push(Token::Item);
            items = rest.strip_prefix('[').unwrap_or(rest);
        }
    }
    let is_content =
        |token: &Token| !matches!(token, Token::Field(name) if name == "metadata" || name == "status");
    found.first().is_some_and(is_content).then_some(found)
}

/// Returns the desired object with null for every sibling of the refused fields that no manager owns and that is not
/// desired, so that the API server sets the defaults of the desired fields. `None` if there is no such field.
pub(super) fn without_defaults(
    desired: &Value,
    live: &Value,
    metadata: &ObjectMeta,
    manager: &str,
    refused: &[String],
) -> Option<Value> {
    let own =
        applied_entry(metadata, manager).and_then(|entry| entry.fields_v1.as_ref()).map(|fields| &fields.0);
    let others = fields_of_others(metadata, manager);
    let owners = Owners { own, others: Some(&others) };
    let mut corrected = desired.clone();
    let mut changed = false;
    let paths: BTreeSet<Vec<Token>> = refused.iter().filter_map(|path| tokens(path)).collect();
    for path in paths.iter().take(MAX_CLEARED_PATHS) {
        changed |= clear(&mut corrected, live, owners, path, true);
    }
    changed.then_some(corrected)
}

/// Sets fields to null in the parent of the last step, and in the value of the last step. Handles every item of a list,
/// since the index in an answer is that of the merged list, which is not known here.
fn clear(desired: &mut Value, live: &Value, owners: Owners<'_>, path: &[Token], is_root: bool) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let mut changed = path.len() <= 1 && !is_root && clear_fields(desired, live, owners);
            if let Some((Token::Field(name), rest)) = path.split_first()
                && let (Some(desired), Some(live)) = (desired.get_mut(name), live.get(name))
            {
                changed |= clear(desired, live, owners.at(&format!("f:{name}")), rest, false);
            }
            changed
        }
        (Value::Array(desired), Value::Array(live)) if owners.can_look_up(desired.len(), live.len()) => {
            let Some((Token::Item, rest)) = path.split_first() else { return false };
            let mut changed = false;
            for item in desired {
                let Some(key) = owners.key_of(item) else { continue };
                let Some(live) = live.iter().find(|live| is_of_key(live, &key)) else { continue };
                changed |= clear(item, live, owners.at(&key), rest, false);
            }
            changed
        }
        _ => false,
    }
}

fn clear_fields(desired: &mut Map<String, Value>, live: &Map<String, Value>, owners: Owners<'_>) -> bool {
    let is_default =
        |name: &String| !desired.contains_key(name) && owners.at(&format!("f:{name}")).others.is_none();
    let defaults: Vec<String> = live.keys().filter(|name| is_default(name)).cloned().collect();
    desired.extend(defaults.iter().map(|name| (name.clone(), Value::Null)));
    !defaults.is_empty()
}

/// Returns the changes that empty the maps and lists that are desired empty and still have entries of the operator. An
/// apply would make some of them null.
pub(super) fn emptied(
    desired: &Value,
    live: &Value,
    metadata: &ObjectMeta,
    manager: &str,
) -> Vec<PatchOperation> {
    let own =
        applied_entry(metadata, manager).and_then(|entry| entry.fields_v1.as_ref()).map(|fields| &fields.0);
    let others = fields_of_others(metadata, manager);
    let mut found = Vec::new();
    let mut path = PointerBuf::root();
    find_emptied(desired, live, Owners { own, others: Some(&others) }, &mut path, &mut found);
    found
}

fn find_emptied(
    desired: &Value,
    live: &Value,
    owners: Owners<'_>,
    path: &mut PointerBuf,
    found: &mut Vec<PatchOperation>,
) {
    let loses_entries = owners.own.is_some_and(|own| !is_leaf(own));
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) if desired.is_empty() => {
            let is_kept = |name: &String| owners.at(&format!("f:{name}")).others.is_some();
            let kept: Map<String, Value> = live
                .iter()
                .filter(|(name, _)| is_kept(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            if loses_entries && kept.len() < live.len() {
                found.push(replacement(path, Value::Object(kept)));
            }
        }
        (Value::Array(desired), Value::Array(live))
            if desired.is_empty() && loses_entries && !live.is_empty() && owners.others.is_none() =>
        {
            found.push(replacement(path, Value::Array(Vec::new())));
        }
        (Value::Object(desired), Value::Object(live)) => {
            for (name, desired) in desired {
                let Some(live) = live.get(name) else { continue };
                path.push_back(name.as_str());
                find_emptied(desired, live, owners.at(&format!("f:{name}")), path, found);
                path.pop_back();
            }
        }
        (Value::Array(desired), Value::Array(live)) if owners.can_look_up(desired.len(), live.len()) => {
            for item in desired {
                let Some(key) = owners.key_of(item) else { continue };
                let Some(index) = live.iter().position(|live| is_of_key(live, &key)) else { continue };
                path.push_back(index.to_string());
                find_emptied(item, &live[index], owners.at(&key), path, found);
                path.pop_back();
            }
        }
        _ => {}
    }
}

fn replacement(path: &PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path: path.clone(), value })
}

/// Returns whether any map or list in a value is empty.
pub(super) fn has_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty() || map.values().any(has_empty),
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(entries: &[(&str, &str, Value)]) -> ObjectMeta {
        let entry = |(manager, operation, fields): &(&str, &str, Value)| {
            json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": fields})
        };
        serde_json::from_value(json!({"managedFields": entries.iter().map(entry).collect::<Vec<_>>()}))
            .unwrap()
    }

    #[test]
    fn defaults_of_another_union_member_become_null() {
        let fields = json!({"f:spec": {"f:strategy": {"f:type": {}}, "f:volumes": {
            "k:{\"name\":\"v\"}": {".": {}, "f:name": {}}}}});
        let metadata =
            metadata(&[("us", "Apply", fields), ("them", "Update", json!({"f:spec": {"f:mine": {}}}))]);
        let live = json!({"spec": {"mine": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "volumes": [{"name": "w", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}});
        let desired = json!({"spec": {"strategy": {"type": "Recreate"}, "volumes": [{"name": "v", "configMap": {"name": "c"}}]}});
        let corrected = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            without_defaults(&desired, &live, &metadata, "us", &paths)
        };
        let mut expected = desired.clone();
        expected["spec"]["strategy"]["rollingUpdate"] = Value::Null;
        assert_eq!(corrected(&["spec.strategy.rollingUpdate"]), Some(expected));
        let mut expected = desired.clone();
        expected["spec"]["volumes"][0]["emptyDir"] = Value::Null;
        assert_eq!(
            corrected(&["spec.volumes[0].configMap"]),
            Some(expected),
            "the index is that of another list"
        );
        assert_eq!(corrected(&["metadata.name", "spec.mine[x]", ""]), None);
        let by_parent = corrected(&["spec.strategy"]).unwrap();
        assert_eq!(by_parent["spec"].get("mine"), None, "another manager's");
        assert_eq!(by_parent["spec"]["strategy"]["rollingUpdate"], Value::Null);
    }

    #[test]
    fn paths_of_a_hostile_target_are_limited() {
        let maps = |count: usize, map: &Value| -> Value {
            (0..count).map(|at| (format!("m{at}"), map.clone())).collect()
        };
        let cleared = |count: usize, refused: &[String]| {
            let (desired, live) = (maps(count, &json!({"x": 1})), maps(count, &json!({"x": 1, "d": 2})));
            let (desired, live) = (json!({"spec": desired}), json!({"spec": live}));
            let corrected = without_defaults(&desired, &live, &ObjectMeta::default(), "us", refused).unwrap();
            let maps = corrected["spec"].as_object().unwrap().values();
            maps.filter(|map| map.as_object().is_some_and(|map| map.contains_key("d"))).count()
        };
        let paths = |count: usize| -> Vec<String> { (0..count).map(|at| format!("spec.m{at}.x")).collect() };
        assert_eq!(cleared(10, &paths(10)), 10);
        assert_eq!(cleared(MAX_CLEARED_PATHS + 1, &paths(MAX_CLEARED_PATHS + 1)), MAX_CLEARED_PATHS);
    }

    #[test]
    fn emptied_maps_keep_fields_of_other_managers() {
        let own = json!({"f:spec": {"f:auto": {"f:heal": {}, "f:prune": {}}, "f:free": {}, "f:list": {"k:{\"name\":\"a\"}": {}}}});
        let live =
            json!({"spec": {"auto": {"heal": true, "theirs": 1}, "free": {"x": 1}, "list": [{"name": "a"}]}});
        let desired = json!({"spec": {"auto": {}, "free": {}, "list": []}});
        let theirs = json!({"f:spec": {"f:auto": {"f:theirs": {}}}});
        let metadata = metadata(&[("us", "Apply", own), ("them", "Update", theirs)]);
        let operations = serde_json::to_value(emptied(&desired, &live, &metadata, "us")).unwrap();
        assert_eq!(
            operations,
            json!([{"op": "replace", "path": "/spec/auto", "value": {"theirs": 1}},
                {"op": "replace", "path": "/spec/list", "value": []}])
        );
        assert!(has_empty(&desired) && !has_empty(&live));
    }

    #[test]
    fn long_list_of_a_hostile_target_is_not_looked_up() {
        let emptied_of = |count: usize| {
            let items = |map: &Value| -> Value {
                (0..count).map(|at| json!({"name": at.to_string(), "map": map})).collect()
            };
            let key = |at: usize| (format!("k:{{\"name\":\"{at}\"}}"), json!({"f:map": {"f:a": {}}}));
            let keys: Map<String, Value> = (0..count).map(key).collect();
            let metadata = metadata(&[("us", "Apply", json!({"f:list": keys}))]);
            let (desired, live) = (items(&json!({})), items(&json!({"a": 1})));
            emptied(&json!({"list": desired}), &json!({"list": live}), &metadata, "us").len()
        };
        assert_eq!((emptied_of(10), emptied_of(1_000)), (10, 0));
    }
}

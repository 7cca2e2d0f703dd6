//! Live values that an apply keeps. In a repair: random values of a set (generated passwords, certificates). In the
//! first apply after an adoption: annotations of Deployments.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use crate::managed_fields::entries::applied_entry;
use crate::managed_fields::field_set::MAX_COMPARISONS;
use crate::object::Object;

/// Returns the desired object with the live values of all fields that `manager` still owns, which no other manager
/// changed. Other fields have their desired values.
pub(super) fn values(desired: &Map<String, Value>, live: &Value, manager: &str) -> Map<String, Value> {
    let metadata = live.get("metadata").cloned().unwrap_or_default();
    // Unreadable metadata counts as without owned fields.
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap_or_default();
    let mut kept = Value::Object(desired.clone());
    if let Some(fields) = applied_entry(&metadata, manager).and_then(|entry| entry.fields_v1.as_ref()) {
        keep(&mut kept, live, &fields.0);
    }
    match kept {
        Value::Object(kept) => kept,
        _ => desired.clone(),
    }
}

/// Reduces the desired annotations to those that the live object has, with their live values: a change of annotations
/// gives a Deployment a new generation, like a rollout. The next change applies the desired annotations.
pub(super) fn annotations(desired: &mut Object, live: &ObjectMeta) {
    let annotations =
        desired.body_mut().get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else { return };
    let held = live.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| held.contains_key(name));
    for (name, value) in annotations.iter_mut() {
        if let Some(held) = held.get(name) {
            *value = held.as_str().into();
        }
    }
}

/// Walks the fields of a managedFields entry: `f:name` is a field, `k:{...}` an item of a list by its keys.
fn keep(desired: &mut Value, live: &Value, fields: &Value) {
    let items = live.as_array().map_or(0, Vec::len);
    // Items of a longer list are not looked up, and get their desired values.
    let fields = fields.as_object().filter(|fields| fields.len().saturating_mul(items) <= MAX_COMPARISONS);
    for (key, inner) in fields.into_iter().flatten() {
        let place = match key.split_once(':') {
            Some(("f", name)) => desired.get_mut(name).zip(live.get(name)),
            Some(("k", keys)) => item_mut(desired, keys).zip(item(live, keys)),
            // `.` is the field itself, `v:` an item of a set: its value is its name.
            _ => None,
        };
        let Some((desired, live)) = place else { continue };
        if inner.as_object().is_none_or(Map::is_empty) {
            desired.clone_from(live);
        } else {
            keep(desired, live, inner);
        }
    }
}

fn item<'a>(list: &'a Value, keys: &str) -> Option<&'a Value> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    list.as_array()?.iter().find(|item| has(item, &keys))
}

fn item_mut<'a>(list: &'a mut Value, keys: &str) -> Option<&'a mut Value> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    list.as_array_mut()?.iter_mut().find(|item| has(item, &keys))
}

fn has(item: &Value, keys: &Map<String, Value>) -> bool {
    keys.iter().all(|(key, value)| item.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(fields: &Value, body: &Value) -> Value {
        let mut live = body.clone();
        live["metadata"] = json!({"name": "a", "managedFields": [
            {"manager": "us", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields},
            {"manager": "them", "operation": "Update", "fieldsV1": {"f:data": {"f:level": {}}}},
        ]});
        live
    }

    fn kept(desired: &Value, live: &Value) -> Value {
        Value::Object(values(desired.as_object().unwrap(), live, "us"))
    }

    #[test]
    fn owned_live_values_are_kept_and_others_are_as_desired() {
        let live = live(
            &json!({"f:data": {".": {}, "f:password": {}, "f:gone": {}}}),
            &json!({"data": {"password": "old", "level": "edited", "theirs": "x"}}),
        );
        let desired = json!({"data": {"password": "new", "level": "low", "added": "y"}});
        assert_eq!(kept(&desired, &live), json!({"data": {"password": "old", "level": "low", "added": "y"}}));
    }

    #[test]
    fn items_of_lists_are_found_by_their_keys() {
        let key = r#"k:{"name":"main"}"#;
        let fields = json!({"f:spec": {"f:containers": {key: {".": {}, "f:name": {}, "f:image": {}}}}});
        let live = live(
            &fields,
            &json!({"spec": {"containers": [{"name": "sidecar"}, {"name": "main", "image": "old", "tty": true}]}}),
        );
        let desired = json!({"spec": {"containers": [{"name": "main", "image": "new", "tty": false}]}});
        assert_eq!(
            kept(&desired, &live),
            json!({"spec": {"containers": [{"name": "main", "image": "old", "tty": false}]}})
        );
    }

    #[test]
    fn annotations_stay_as_they_are_on_the_target() {
        let desired = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
            "name": "d", "labels": {"new": ""}, "annotations": {"same": "a", "other": "ours", "new": ""},
        }});
        let mut object = Object::from_value(desired).unwrap();
        let live = json!({"annotations": {"same": "a", "other": "theirs", "only-there": ""}});
        annotations(&mut object, &serde_json::from_value(live).unwrap());
        let metadata = &object.body()["metadata"];
        assert_eq!(metadata["annotations"], json!({"same": "a", "other": "theirs"}));
        assert_eq!(metadata["labels"], json!({"new": ""}));
        annotations(&mut object, &ObjectMeta::default());
        assert_eq!(object.body()["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn without_readable_own_fields_the_desired_state_stays() {
        let desired = json!({"data": {"password": "new"}});
        let nobodys = json!({"metadata": {"name": "a"}, "data": {"password": "old"}});
        let odd =
            live(&json!({"f:data": {"k:no json": {}, "f:password": "x"}, "odd": 1}), &json!({"data": 7}));
        for live in [nobodys, odd, json!(null)] {
            assert_eq!(kept(&desired, &live), desired);
        }
    }

    #[test]
    fn long_list_of_a_hostile_target_is_not_searched() {
        let kept_of = |count: usize| {
            let items =
                |x: u8| (0..count).map(|at| json!({"name": at.to_string(), "x": x})).collect::<Value>();
            let key = |at: usize| (format!("k:{{\"name\":\"{at}\"}}"), json!({"f:x": {}}));
            let keys: Map<String, Value> = (0..count).map(key).collect();
            let live = live(&json!({"f:list": keys}), &json!({"list": items(1)}));
            kept(&json!({"list": items(2)}), &live)["list"][0]["x"].clone()
        };
        assert_eq!((kept_of(10), kept_of(501)), (json!(1), json!(2)));
    }
}

//! Sets of fields, as in entries of `managedFields` (`fieldsV1`): `f:name` is a field, `k:{...}` an item of a list by
//! its keys, `v:...` an item of a set by its value, `.` the field itself. A field without entries below it is owned
//! as a whole.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

/// The subresource through which autoscalers and `kubectl scale` write.
const SCALE_SUBRESOURCE: &str = "scale";

/// Maximum number of comparisons of the items of one list with the keys in a set of fields. A target may report any
/// number of both.
pub(crate) const MAX_COMPARISONS: usize = 250_000;

/// Adds the fields of another set.
pub(crate) fn union(into: &mut Value, other: &Value) {
    if let (Value::Object(into), Value::Object(other)) = (into, other) {
        for (key, value) in other {
            union(into.entry(key.clone()).or_insert_with(empty), value);
        }
    }
}

/// Returns a set without fields.
pub(crate) fn empty() -> Value {
    Value::Object(Map::new())
}

/// Reports whether a field has no entries below it.
pub(crate) fn is_leaf(fields: &Value) -> bool {
    fields.as_object().is_none_or(Map::is_empty)
}

/// Removes the fields at a path from the set and returns them with their path.
pub(crate) fn take(fields: &mut Value, path: &[String]) -> Value {
    let Some((first, rest)) = path.split_first() else { return std::mem::replace(fields, empty()) };
    let Value::Object(map) = fields else { return empty() };
    let taken = if rest.is_empty() {
        map.remove(first)
    } else {
        let below = map.get_mut(first).map(|below| take(below, rest)).filter(|below| !is_leaf(below));
        // Without entries below it, the field would count as owned as a whole.
        if below.is_some() && map.get(first).is_some_and(is_leaf) {
            map.remove(first);
        }
        below
    };
    let mut found = Map::new();
    found.extend(taken.map(|below| (first.clone(), below)));
    Value::Object(found)
}

/// Returns the fields that other managers than `manager` own through the scale subresource.
pub(crate) fn scaled(metadata: &ObjectMeta, manager: &str) -> Option<Value> {
    let entries = metadata.managed_fields.iter().flatten();
    let theirs = entries.filter(|entry| {
        entry.subresource.as_deref() == Some(SCALE_SUBRESOURCE) && entry.manager.as_deref() != Some(manager)
    });
    let mut fields = empty();
    theirs.filter_map(|entry| entry.fields_v1.as_ref()).for_each(|theirs| union(&mut fields, &theirs.0));
    if let Value::Object(fields) = &mut fields {
        fields.remove("f:status");
    }
    (!is_leaf(&fields)).then_some(fields)
}

/// Removes the fields that are owned as a whole from a map, as far as they lead through maps only, and maps that become
/// empty, which an apply would own as a whole. Returns whether it removed any.
///
/// Builds no list of paths: a target may report many fields below a long name.
pub(crate) fn remove_leaves(fields: &Value, from: &mut Map<String, Value>) -> bool {
    let mut has_removed = false;
    for (key, below) in fields.as_object().into_iter().flatten() {
        let Some(name) = key.strip_prefix("f:") else { continue };
        if is_leaf(below) {
            has_removed |= from.remove(name).is_some();
        } else if let Some(Value::Object(inner)) = from.get_mut(name)
            && remove_leaves(below, inner)
        {
            has_removed = true;
            if inner.is_empty() {
                from.remove(name);
            }
        }
    }
    has_removed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn taking_fields_leaves_no_empty_parents() {
        let mut fields =
            json!({"f:spec": {"f:replicas": {}}, "f:data": {".": {}, "f:a": {}, "f:b": {"f:c": {}}}});
        assert_eq!(
            take(&mut fields, &path(&["f:spec", "f:replicas"])),
            json!({"f:spec": {"f:replicas": {}}})
        );
        assert_eq!(take(&mut fields, &path(&["f:data", "f:b"])), json!({"f:data": {"f:b": {"f:c": {}}}}));
        assert_eq!(fields, json!({"f:data": {".": {}, "f:a": {}}}));
        assert_eq!(take(&mut fields, &path(&["f:data", "f:z", "f:y"])), json!({}));
        assert_eq!(take(&mut fields, &path(&["f:x"])), json!({}));
        assert_eq!(fields, json!({"f:data": {".": {}, "f:a": {}}}));
    }

    #[test]
    fn scaled_fields_are_those_written_through_the_subresource() {
        let entry = |manager: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields});
        let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": [
            entry("autoscaler", "scale", json!({"f:spec": {"f:replicas": {}}})),
            entry("us", "scale", json!({"f:spec": {"f:size": {}}})),
            entry("kubelet", "status", json!({"f:status": {"f:replicas": {}}})),
        ]}))
        .unwrap();
        let found = scaled(&metadata, "us").unwrap();
        assert_eq!(found, json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(scaled(&ObjectMeta::default(), "us"), None);
    }

    #[test]
    fn leaves_are_removed_with_the_maps_that_become_empty() {
        let removed = |fields: Value, mut from: Value| {
            let has_removed = remove_leaves(&fields, from.as_object_mut().unwrap());
            (has_removed, from)
        };
        let fields = json!({"f:spec": {".": {}, "f:replicas": {}}});
        let body = json!({"kind": "A", "spec": {"replicas": 1}});
        assert_eq!(removed(fields.clone(), body), (true, json!({"kind": "A"})));
        let body = json!({"spec": {"replicas": 1, "paused": true}});
        assert_eq!(removed(fields.clone(), body), (true, json!({"spec": {"paused": true}})));
        for kept in [json!({"spec": {}}), json!({"spec": [1]}), json!({"spec": 1}), json!({})] {
            assert_eq!(removed(fields.clone(), kept.clone()), (false, kept));
        }
        // Names of fields are no indices of lists.
        let list = json!({"spec": [1, 2]});
        assert_eq!(removed(json!({"f:spec": {"f:0": {}}}), list.clone()), (false, list));
        // As paths, these fields would take 8 GB.
        let many: Map<String, Value> = (0..40_000).map(|at| (format!("f:{at}"), json!({}))).collect();
        let hostile = Map::from_iter([(format!("f:{}", "x".repeat(200_000)), Value::Object(many))]);
        let body = json!({"spec": {"replicas": 1}});
        assert_eq!(removed(Value::Object(hostile), body.clone()), (false, body));
    }
}

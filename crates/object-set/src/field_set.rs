//! Sets of fields, as in entries of `managedFields` (`fieldsV1`): `f:name` is a field, `k:{...}` an item of a list by
//! its keys, `v:...` an item of a set by its value, `.` the field itself. A field without entries below it is owned
//! as a whole.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

/// The subresource through which autoscalers and `kubectl scale` write.
const SCALE: &str = "scale";

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
        entry.subresource.as_deref() == Some(SCALE) && entry.manager.as_deref() != Some(manager)
    });
    let mut fields = empty();
    theirs.filter_map(|entry| entry.fields_v1.as_ref()).for_each(|theirs| union(&mut fields, &theirs.0));
    if let Value::Object(fields) = &mut fields {
        fields.remove("f:status");
    }
    (!is_leaf(&fields)).then_some(fields)
}

/// Returns the paths of all fields that are owned as a whole, as far as they lead through maps only.
pub(crate) fn leaves(fields: &Value) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (key, below) in fields.as_object().into_iter().flatten() {
        let Some(name) = key.strip_prefix("f:") else { continue };
        if is_leaf(below) {
            found.push(vec![name.to_owned()]);
        }
        found.extend(leaves(below).into_iter().map(|mut path| {
            path.insert(0, name.to_owned());
            path
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn what_is_taken_leaves_nothing_that_would_count_as_owned_whole() {
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
    fn scaled_is_what_others_wrote_through_the_subresource() {
        let entry = |manager: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields});
        let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": [
            entry("autoscaler", "scale", json!({"f:spec": {"f:replicas": {}}})),
            entry("us", "scale", json!({"f:spec": {"f:size": {}}})),
            entry("kubelet", "status", json!({"f:status": {"f:replicas": {}}})),
        ]}))
        .unwrap();
        let found = scaled(&metadata, "us").unwrap();
        assert_eq!(found, json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(leaves(&found), [path(&["spec", "replicas"])]);
        assert_eq!(scaled(&ObjectMeta::default(), "us"), None);
    }
}

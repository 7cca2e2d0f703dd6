//! List items that a set drops and of which other managers own fields, for example a CA: an apply leaves an incomplete
//! item, for which the API server refuses the object. Pure.

use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use super::fields_of_others;
use crate::drift::applied_entry;
use crate::field_set::{MAX_COMPARISONS, is_leaf, take};
use crate::managed_fields;

/// Path in a set of fields.
type FieldPath = Vec<String>;

/// Returns the patch by which other managers lose the fields of items that the operator applied and that are not desired
/// any more, in lists that the API server refuses; `None` if there are none. The next apply removes such items. The patch
/// changes no content, and fails if the object changed since `metadata` was read.
pub(in super::super) fn without_dropped_items(
    desired: &Value,
    metadata: &ObjectMeta,
    manager: &str,
    refused: &[String],
) -> Option<Patch> {
    let own = applied_entry(metadata, manager)?;
    let mut dropped = Vec::new();
    find(desired, &own.fields_v1.as_ref()?.0, &mut FieldPath::new(), &mut dropped);
    let others = fields_of_others(metadata, manager);
    dropped.retain(|path| is_refused(path, refused) && has(&others, path));
    if dropped.is_empty() {
        return None;
    }
    let mut kept = Vec::new();
    for entry in metadata.managed_fields.iter().flatten() {
        let mut left = entry.clone();
        if entry != own
            && let Some(fields) = &mut left.fields_v1
        {
            for path in &dropped {
                take(&mut fields.0, path);
            }
            if is_leaf(&fields.0) {
                continue;
            }
        }
        kept.push(left);
    }
    Some(managed_fields::replace(metadata, &kept))
}

/// Adds the paths of items in a set of applied fields that are not desired.
fn find(desired: &Value, own: &Value, path: &mut FieldPath, found: &mut Vec<FieldPath>) {
    let Some(fields) = own.as_object() else { return };
    let items = desired.as_array().map_or(&[][..], Vec::as_slice);
    if fields.len().saturating_mul(items.len()) > MAX_COMPARISONS {
        return;
    }
    for (key, below) in fields {
        path.push(key.clone());
        if let Some(name) = key.strip_prefix("f:") {
            find(desired.get(name).unwrap_or(&Value::Null), below, path, found);
        } else if let Some(keys) = keys_of(key) {
            match items.iter().find(|item| may_be(item, &keys)) {
                Some(item) => find(item, below, path, found),
                None if below.get(".").is_some() => found.push(path.clone()),
                None => {}
            }
        }
        path.pop();
    }
}

/// Returns the key fields of `k:{…}`.
fn keys_of(key: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(key.strip_prefix("k:")?).ok()
}

/// Returns whether an item may have these key fields: it may lack some that have a default.
fn may_be(item: &Value, keys: &Map<String, Value>) -> bool {
    keys.iter().all(|(name, value)| item.get(name).is_none_or(|found| found == value))
}

/// Returns whether the API server refuses an item of the list to which the path leads.
fn is_refused(path: &[String], refused: &[String]) -> bool {
    let names: Vec<&str> = path.iter().map_while(|key| key.strip_prefix("f:")).collect();
    let list = format!("{}[", names.join("."));
    refused.iter().any(|field| field.starts_with(&list))
}

fn has(fields: &Value, path: &[String]) -> bool {
    path.iter().try_fold(fields, |fields, key| fields.get(key)).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_refused_items_that_the_set_drops_are_released() {
        let entry = |manager: &str, fields: Value| {
            json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": fields})
        };
        let own =
            |name: &str| (format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}, "f:x": {}}));
        let theirs = |name: &str| (format!("k:{{\"name\":\"{name}\"}}"), json!({"f:ca": {}}));
        let fields =
            |items: Vec<(String, Value)>| json!({"f:list": items.into_iter().collect::<Map<_, _>>()});
        let metadata: ObjectMeta = serde_json::from_value(json!({"resourceVersion": "7", "managedFields": [
            entry("us", fields(vec![own("a"), own("b"), own("c")])),
            entry("them", fields(vec![theirs("a"), theirs("b"), theirs("d")])),
            entry("others", fields(vec![theirs("b")])),
        ]}))
        .unwrap();
        let desired = json!({"list": [{"name": "a", "x": 1}]});
        let patch = |refused: &str| {
            let patch = without_dropped_items(&desired, &metadata, "us", &[refused.to_owned()]);
            serde_json::to_value(patch).unwrap()
        };
        let expected = [
            entry("us", fields(vec![own("a"), own("b"), own("c")])),
            entry("them", fields(vec![theirs("a"), theirs("d")])),
        ];
        assert_eq!(patch("list[1].x")[1]["value"], json!(expected));
        assert_eq!(patch("list[1].x")[0]["value"], "7");
        assert_eq!(patch("other[1].x"), Value::Null);
        let all = json!({"list": [{"name": "a"}, {"name": "b"}, {}]});
        assert!(without_dropped_items(&all, &metadata, "us", &["list[1].x".to_owned()]).is_none());
    }
}

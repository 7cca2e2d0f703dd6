//! Names the fields of an object that cannot be read, without their values: the decoder's own words quote them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Deepest field that is named.
const MAX_DEPTH: usize = 4;
/// Fields that are named at most.
const MAX_FIELDS: usize = 5;
/// Longest path in a message, in characters.
const MAX_PATH_CHARACTERS: usize = 200;

/// Returns the paths of the fields that prevent `value` from being read as `T`, for messages: `spec.module.version`.
/// Contains key names, never values.
pub fn unreadable_fields<T: DeserializeOwned>(value: &Value) -> String {
    let mut found = vec![];
    collect::<T>(&[], value, &mut found);
    match found.as_slice() {
        [] => "a field is missing or has a wrong type".to_owned(),
        fields => format!("of a wrong type: {}", fields.join(", ")),
    }
}

/// Adds the paths below `path` at which `value` alone cannot be read.
fn collect<T: DeserializeOwned>(path: &[&str], value: &Value, found: &mut Vec<String>) {
    let Value::Object(fields) = value else {
        found.extend((!path.is_empty()).then(|| named(path)));
        return;
    };
    let before = found.len();
    if path.len() < MAX_DEPTH {
        for (key, value) in fields {
            // An object may have many fields below a long name.
            if found.len() == MAX_FIELDS {
                return;
            }
            let path: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
            if is_wrong::<T>(&path, value) {
                collect::<T>(&path, value, found);
            }
        }
    }
    if found.len() == before && !path.is_empty() {
        found.push(named(path));
    }
}

/// Returns a path for a message.
fn named(path: &[&str]) -> String {
    path.join(".").chars().take(MAX_PATH_CHARACTERS).collect()
}

/// Reports whether an object with only this field cannot be read because of the field's type.
fn is_wrong<T: DeserializeOwned>(path: &[&str], value: &Value) -> bool {
    let alone = path
        .iter()
        .rev()
        .fold(value.clone(), |inner, key| Value::Object(Map::from_iter([((*key).to_owned(), inner)])));
    // The text of the error is only compared: it may contain values of the object.
    serde_json::from_value::<T>(alone).is_err_and(|error| !error.to_string().starts_with("missing field"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_fields_are_named_without_their_values() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"password": 5}, "finalizers": "hunter2"},
            "data": "hunter2", "immutable": true,
        });
        let named = unreadable_fields::<ConfigMap>(&object);
        assert_eq!(named, "of a wrong type: data, metadata.finalizers, metadata.labels.password");
        let named = unreadable_fields::<ConfigMap>(&json!("hunter2"));
        assert_eq!(named, "a field is missing or has a wrong type");
    }

    #[test]
    fn names_of_many_wrong_fields_take_little_memory() {
        let wrong: Map<String, Value> = (0..40_000).map(|at| (format!("a{at}"), json!(1))).collect();
        let labels = Map::from_iter([("x".repeat(200_000), Value::Object(wrong))]);
        let named = unreadable_fields::<ConfigMap>(&json!({"metadata": {"labels": labels}}));
        assert_eq!(named.matches("metadata.labels.x").count(), MAX_FIELDS);
        assert!(named.len() < (MAX_FIELDS + 1) * MAX_PATH_CHARACTERS, "{}", named.len());
    }
}

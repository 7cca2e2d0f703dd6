//! Merges the values of a chart from their layers: module < valuesFrom < user < central overrides.

use std::collections::BTreeSet;

use kyma_api::values::lay_over;
use serde_json::{Map, Value};

mod path;
mod provenance;

pub use path::{PathError, is_taken, set_path};
pub use provenance::{Layer, Origin, origins};

/// Maximum size of the merged values as JSON, in bytes.
pub const MAX_VALUES_BYTES: usize = 4 << 20;

/// The merged values, and the user's values that central overrides replaced.
#[derive(Clone, Default, PartialEq)]
pub struct MergedValues {
    /// Values with which the chart is rendered.
    pub values: Map<String, Value>,
    /// Key paths (`a.b.c`) at which an override replaced a different value of the user, sorted.
    pub replaced: Vec<String>,
}

impl std::fmt::Debug for MergedValues {
    // Values are never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergedValues").field("replaced", &self.replaced).finish_non_exhaustive()
    }
}

/// Merges the layers as Helm merges several `-f` files.
pub fn merge(
    module: Option<&Map<String, Value>>,
    from: &Map<String, Value>,
    user: Option<&Map<String, Value>>,
    overrides: Option<&Map<String, Value>>,
) -> MergedValues {
    let mut values = module.cloned().unwrap_or_default();
    for layer in [from].into_iter().chain(user).chain(overrides) {
        lay_over(&mut values, layer);
    }
    let mut replaced = BTreeSet::new();
    if let (Some(user), Some(overrides)) = (user, overrides) {
        find_replaced(user, overrides, "", &mut replaced);
    }
    MergedValues { values, replaced: replaced.into_iter().collect() }
}

fn find_replaced(
    user: &Map<String, Value>,
    overrides: &Map<String, Value>,
    path: &str,
    found: &mut BTreeSet<String>,
) {
    for (key, above) in overrides {
        let Some(below) = user.get(key) else { continue };
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match (below, above) {
            (Value::Object(below), Value::Object(above)) => find_replaced(below, above, &path, found),
            (below, above) if below != above => {
                found.insert(path);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other} is no map"),
        }
    }

    #[test]
    fn later_layers_win_key_by_key() {
        let merged = merge(
            Some(&map(json!({"a": {"x": 1, "y": 1, "from": 1}, "list": [1, 2]}))),
            &map(json!({"a": {"x": 3, "from": 2}})),
            Some(&map(json!({"a": {"x": 2}, "list": [3]}))),
            Some(&map(json!({"a": {"z": 3}}))),
        );
        assert_eq!(
            Value::Object(merged.values),
            json!({"a": {"x": 2, "y": 1, "z": 3, "from": 2}, "list": [3]})
        );
        assert!(merged.replaced.is_empty());
    }

    #[test]
    fn an_override_names_the_key_paths_it_takes_from_the_user() {
        let merged = merge(
            None,
            &map(json!({"b": 1, "from": 1})),
            Some(&map(json!({"a": {"x": 2, "same": 1}, "b": {"c": 1}, "own": true}))),
            Some(&map(json!({"a": {"x": 9, "same": 1}, "b": null, "from": 2}))),
        );
        assert_eq!(merged.replaced, ["a.x", "b"]);
        assert_eq!(
            Value::Object(merged.values),
            json!({"a": {"x": 9, "same": 1}, "b": null, "from": 2, "own": true})
        );
    }
}

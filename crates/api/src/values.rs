//! Layers of Helm values and of other free-form maps.

use serde_json::{Map, Value};

/// Merges `top` over `base` as Helm merges several `-f` files: maps by key, lists and scalars as a whole. `null` is
/// kept, since Helm then drops the chart's default.
pub fn lay_over(base: &mut Map<String, Value>, top: &Map<String, Value>) {
    for (key, value) in top {
        match (base.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => lay_over(below, above),
            (_, value) => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Returns the key paths (`a.b.c`) of all values that are no maps, sorted; never the values.
pub fn paths(map: &Map<String, Value>) -> Vec<String> {
    let below = |(key, value): (&String, &Value)| match value {
        Value::Object(inner) if !inner.is_empty() => {
            paths(inner).into_iter().map(|path| format!("{key}.{path}")).collect()
        }
        _ => vec![key.clone()],
    };
    let mut found: Vec<String> = map.iter().flat_map(below).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn key_paths_name_the_set_fields() {
        let map = json!({"b": {"x": [1, {"y": 2}], "a": {}}, "a": null});
        assert_eq!(paths(map.as_object().unwrap_or(&Map::new())), ["a", "b.a", "b.x"]);
    }

    #[test]
    fn maps_merge_and_everything_else_is_replaced() {
        let mut base = json!({"a": {"x": 1, "y": 1}, "list": [1, 2], "gone": {"b": 1}});
        let top = json!({"a": {"x": 2, "z": 3}, "list": [3], "gone": null, "new": true});
        let (Some(below), Some(above)) = (base.as_object_mut(), top.as_object()) else { unreachable!() };
        lay_over(below, above);
        assert_eq!(base, json!({"a": {"x": 2, "y": 1, "z": 3}, "list": [3], "gone": null, "new": true}));
    }
}

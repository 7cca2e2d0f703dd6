//! Null fields for which the API server refuses a custom resource. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// Returns the desired object without those refused fields that are null in it; `None` if there is none.
pub(in super::super) fn without_nulls(desired: &Value, refused: &[String]) -> Option<Value> {
    let refused: BTreeSet<String> = refused.iter().map(|path| without_indexes(path)).collect();
    let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
    let mut corrected = desired.clone();
    remove_nulls(&mut corrected, &refused).then_some(corrected)
}

/// Removes null fields with these paths, which begin at the value. Paths are compared and not parsed, since keys of maps
/// may contain dots, and without indexes, since those in an answer are of the merged lists. No path is built for each
/// field: an object may have many fields below a long name.
fn remove_nulls(value: &mut Value, refused: &[&str]) -> bool {
    if refused.is_empty() {
        return false;
    }
    match value {
        Value::Object(map) => {
            let before = map.len();
            map.retain(|name, value| !(value.is_null() && refused.contains(&name.as_str())));
            let mut is_changed = map.len() < before;
            for (name, value) in map.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
                is_changed |= remove_nulls(value, &below(refused, name));
            }
            is_changed
        }
        Value::Array(items) => {
            let refused = below(refused, "[]");
            let mut is_changed = false;
            for item in items {
                is_changed |= remove_nulls(item, &refused);
            }
            is_changed
        }
        _ => false,
    }
}

/// Returns the rest of each path that leads through this step.
fn below<'a>(paths: &[&'a str], step: &str) -> Vec<&'a str> {
    let rests = paths.iter().filter_map(|path| path.strip_prefix(step));
    let inner = |rest: &'a str| rest.strip_prefix('.').or_else(|| rest.starts_with('[').then_some(rest));
    rests.filter_map(inner).collect()
}

/// Returns `spec.a[].b` for `spec.a[3].b`.
fn without_indexes(path: &str) -> String {
    let mut parts = path.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push('[');
        text.push_str(match part.split_once(']') {
            Some((index, _)) if index.parse::<usize>().is_ok() => &part[index.len()..],
            _ => part,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refused_nulls_are_left_out() {
        let desired = json!({"spec": {"a": null, "b": [{"c": null}], "d": null}});
        let refused = ["spec.a".to_owned(), "spec.b[0].c".to_owned(), "spec.x".to_owned()];
        assert_eq!(without_nulls(&desired, &refused), Some(json!({"spec": {"b": [{}], "d": null}})));
        assert_eq!(without_nulls(&desired, &["spec.b".to_owned()]), None);
    }

    #[test]
    fn refused_nulls_are_found_under_dotted_keys_and_other_indexes() {
        let desired = json!({"spec": {
            "env": {"log": {"level": null}, "log.level": null, "x.io/mode": null, "kept": null},
            "grid": [[{"x": null, "y": null}]],
            "routes": [{"name": "a", "filter": null}, {"name": "b", "to": [{"port": null, "host": null}]}, null],
        }});
        let refused = [
            "spec.env.log.level",
            "spec.env.x.io/mode",
            "spec.routes[4].filter",
            "spec.routes[0].to[7].port",
            "spec.grid[1][0].y",
        ];
        let refused = refused.map(ToOwned::to_owned);
        let expected = json!({"spec": {
            "env": {"log": {}, "kept": null},
            "grid": [[{"x": null}]],
            "routes": [{"name": "a"}, {"name": "b", "to": [{"host": null}]}, null],
        }});
        assert_eq!(without_nulls(&desired, &refused), Some(expected));
    }
}

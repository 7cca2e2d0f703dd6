//! Origin of each value of a component. Pure.

use kyma_api::values::lay_over;
use kyma_api::{HelmComponentSpec, ValuesFrom, ValuesFromKind};
use serde::Serialize;
use serde_json::{Map, Value};

use super::from::{FromError, Source, lay, told};
use crate::reader::Reader;

/// One value of the chart and the layer that set it.
#[derive(Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// Key path in the syntax of `targetPath`: `a.b`, with `\\` before a dot that belongs to a key. A list is one
    /// value.
    pub path: String,
    /// The value.
    pub value: Value,
    /// The layer that it comes from: `module`, `user`, `override`, or the object of `valuesFrom`, as `Secret token`.
    pub from: String,
    /// Whether it comes from a Secret, or is a list with items that may come from one, so that it must not be shown
    /// to everyone.
    pub is_secret: bool,
    /// Layers whose value it replaced, lowest first.
    pub replaced: Vec<String>,
}

impl std::fmt::Debug for Origin {
    // Values are never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, from, replaced, .. } = self;
        f.debug_struct("Origin")
            .field("path", path)
            .field("from", from)
            .field("replaced", replaced)
            .finish_non_exhaustive()
    }
}

/// One layer: its own values, and the result of merging them over the lower layers.
struct Layer {
    name: String,
    is_secret: bool,
    alone: Map<String, Value>,
    merged: Map<String, Value>,
}

/// Returns every value that a component passes to its chart, by key path. `found` has the object of each entry of
/// `valuesFrom` on the hub.
pub(crate) fn origins(
    spec: &HelmComponentSpec,
    found: &[Option<Source>],
    reader: &Reader,
) -> Result<Vec<Origin>, FromError> {
    let layers = layers(spec, found, reader)?;
    let merged = layers.last().map(|layer| layer.merged.clone()).unwrap_or_default();
    let mut leaves = Vec::new();
    collect(&merged, &mut vec![], &mut leaves);
    Ok(leaves.into_iter().map(|(keys, value)| origin(&layers, &keys, value)).collect())
}

fn layers(
    spec: &HelmComponentSpec,
    found: &[Option<Source>],
    reader: &Reader,
) -> Result<Vec<Layer>, FromError> {
    let module = spec.values.clone().unwrap_or_default();
    let plain = |name: &str, alone: &Map<String, Value>, below: &Map<String, Value>| {
        let mut merged = below.clone();
        lay_over(&mut merged, alone);
        Layer { name: name.to_owned(), is_secret: false, alone: alone.clone(), merged }
    };
    let mut layers = vec![plain("module", &module, &Map::new())];
    let mut from = Map::new();
    for (entry, found) in spec.values_from.iter().flatten().zip(found) {
        let alone = lay(&mut from, entry, found.as_ref(), reader)?;
        let is_secret = entry.kind == ValuesFromKind::Secret;
        layers.push(Layer { is_secret, alone, ..plain(&named(entry), &from, &module) });
    }
    for (name, values) in [("user", &spec.user_values), ("override", &spec.overrides)] {
        let below = layers.last().map(|layer| layer.merged.clone()).unwrap_or_default();
        layers.extend(values.iter().map(|values| plain(name, values, &below)));
    }
    Ok(layers)
}

fn named(entry: &ValuesFrom) -> String {
    let key = entry.key.as_deref().map(|key| format!(", key {key}")).unwrap_or_default();
    format!("{}{key}", told(entry))
}

/// Collects all values except maps with content, with their keys.
fn collect(map: &Map<String, Value>, keys: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, Value)>) {
    for (key, value) in map {
        keys.push(key.clone());
        match value {
            Value::Object(inner) if !inner.is_empty() => collect(inner, keys, leaves),
            _ => leaves.push((keys.clone(), value.clone())),
        }
        keys.pop();
    }
}

fn origin(layers: &[Layer], keys: &[String], value: Value) -> Origin {
    let said_by = |number: usize, layer: &Layer| {
        let before = number.checked_sub(1).and_then(|below| at(&layers[below].merged, keys));
        at(&layer.alone, keys).is_some() || at(&layer.merged, keys) != before
    };
    let said: Vec<&Layer> = layers
        .iter()
        .enumerate()
        .filter(|(number, layer)| said_by(*number, layer))
        .map(|(_, layer)| layer)
        .collect();
    let (last, replaced) = said.split_last().map_or((None, &[][..]), |(last, before)| (Some(*last), before));
    // Each layer may have set items of a list.
    let is_secret = last.is_some_and(|layer| layer.is_secret)
        || value.is_array() && said.iter().any(|layer| layer.is_secret);
    Origin {
        path: keys.iter().map(|key| key.replace('.', "\\.")).collect::<Vec<_>>().join("."),
        value,
        from: last.map(|layer| layer.name.clone()).unwrap_or_default(),
        is_secret,
        replaced: replaced.iter().map(|layer| layer.name.clone()).collect(),
    }
}

/// Returns the value at these keys.
fn at<'a>(map: &'a Map<String, Value>, keys: &[String]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    let value = map.get(first)?;
    if rest.is_empty() { Some(value) } else { at(value.as_object()?, rest) }
}

#[cfg(test)]
mod tests {
    use kyma_api::labels;
    use serde_json::json;

    use super::*;

    fn traced(spec: &Value, found: &[Option<Source>]) -> Vec<(String, Value, String, Vec<String>)> {
        let mut whole = json!({"source": {}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let found = origins(&serde_json::from_value(whole).unwrap(), found, &Reader::Standalone).unwrap();
        found.into_iter().map(|one| (one.path, one.value, one.from, one.replaced)).collect()
    }

    fn line(path: &str, value: Value, from: &str, replaced: &[&str]) -> (String, Value, String, Vec<String>) {
        (path.to_owned(), value, from.to_owned(), replaced.iter().map(|one| (*one).to_owned()).collect())
    }

    #[test]
    fn each_value_has_the_layer_that_said_it_last() {
        let base = json!({"data": {"values.yaml": "a: {x: 2, w: 2}\nlist: [1, 2]\nempty: {}"}});
        let found = [Some(Source::ConfigMap(Box::new(serde_json::from_value(base).unwrap())))];
        let spec = json!({
            "values": {"a": {"x": 1, "own": 1}, "list": [0], "d.o": 1, "gone": {"k": 1}},
            "valuesFrom": [{"kind": "ConfigMap", "name": "base"}],
            "userValues": {"a": {"x": 3}, "gone": "now a text"},
            "overrides": {"a": {"x": 3}},
        });
        let base = "ConfigMap base";
        assert_eq!(
            traced(&spec, &found),
            [
                line("a.own", json!(1), "module", &[]),
                line("a.w", json!(2), base, &[]),
                line("a.x", json!(3), "override", &["module", base, "user"]),
                line("d\\.o", json!(1), "module", &[]),
                line("empty", json!({}), base, &[]),
                line("gone", json!("now a text"), "user", &["module"]),
                line("list", json!([1, 2]), base, &["module"]),
            ]
        );
    }

    #[test]
    fn an_item_set_by_its_path_is_of_the_entry_that_set_it() {
        let object = |values: &str| {
            let body = json!({"data": {"values.yaml": values}});
            Some(Source::ConfigMap(Box::new(serde_json::from_value(body).unwrap())))
        };
        let spec = json!({"valuesFrom": [
            {"kind": "ConfigMap", "name": "base"},
            {"kind": "ConfigMap", "name": "item", "targetPath": "list[1]"},
        ]});
        let traced = traced(&spec, &[object("list: [1, 2]"), object("two")]);
        assert_eq!(traced, [line("list", json!([1, "two"]), "ConfigMap item", &["ConfigMap base"])]);
    }

    #[test]
    fn a_list_of_which_an_item_is_of_a_secret_is_hidden_whoever_set_another_one() {
        let config = json!({"data": {"values.yaml": "shown"}});
        let config = Source::ConfigMap(Box::new(serde_json::from_value(config).unwrap()));
        let metadata = json!({"labels": {labels::COPY_TO_TARGETS: "true"}});
        let hush = json!({"metadata": metadata, "data": {"values.yaml": "aHVzaA=="}});
        let secret = Source::Secret(Box::new(serde_json::from_value(hush).unwrap()));
        let spec = json!({"source": {}, "valuesFrom": [
            {"kind": "Secret", "name": "s", "targetPath": "env[0].value"},
            {"kind": "ConfigMap", "name": "c", "targetPath": "env[1].value"},
            {"kind": "ConfigMap", "name": "c", "targetPath": "plain"},
        ]});
        let found = [Some(secret), Some(config.clone()), Some(config)];
        let found = origins(&serde_json::from_value(spec).unwrap(), &found, &Reader::Standalone).unwrap();
        let hidden: Vec<(&str, bool)> = found.iter().map(|one| (&*one.path, one.is_secret)).collect();
        assert_eq!(hidden, [("env", true), ("plain", false)]);
    }
}

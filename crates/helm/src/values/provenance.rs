//! Origin of each value of a chart.

use kyma_api::values::lay_over;
use serde::Serialize;
use serde_json::{Map, Value};

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
pub struct Layer {
    /// Name of the layer in [`Origin`].
    pub name: String,
    /// Whether its values must not be shown to everyone.
    pub is_secret: bool,
    /// Its own values.
    pub alone: Map<String, Value>,
    /// The values of this and all lower layers.
    pub merged: Map<String, Value>,
}

impl Layer {
    /// Returns the layer of these values, which are not secret, over the merged values of the layer below.
    pub fn new(name: &str, alone: &Map<String, Value>, below: &Map<String, Value>) -> Self {
        let mut merged = below.clone();
        lay_over(&mut merged, alone);
        Self { name: name.to_owned(), is_secret: false, alone: alone.clone(), merged }
    }
}

/// Returns every value of the highest layer, by key path. `layers` begins with the lowest one.
pub fn origins(layers: &[Layer]) -> Vec<Origin> {
    let merged = layers.last().map(|layer| layer.merged.clone()).unwrap_or_default();
    let mut leaves = Vec::new();
    collect(&merged, &mut vec![], &mut leaves);
    leaves.into_iter().map(|(keys, value)| origin(layers, &keys, value)).collect()
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
    use serde_json::json;

    use super::*;

    #[test]
    fn value_names_its_layer_and_the_layers_that_it_replaced() {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let module = Layer::new("module", &map(json!({"a": 1, "b": {"c.d": 1}})), &Map::new());
        let secret =
            Layer { is_secret: true, ..Layer::new("Secret s", &map(json!({"a": 2})), &module.merged) };
        let found = origins(&[module, secret]);
        let shown: Vec<_> = found.iter().map(|one| (&*one.path, &*one.from, one.is_secret)).collect();
        assert_eq!(shown, [("a", "Secret s", true), ("b.c\\.d", "module", false)]);
        assert_eq!((&found[0].value, &*found[0].replaced), (&json!(2), &["module".to_owned()][..]));
        assert!(found[1].replaced.is_empty());
    }
}

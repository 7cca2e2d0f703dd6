//! Layers from which the values of a component are merged. Pure.

use kyma_api::{HelmComponentSpec, ValuesFrom, ValuesFromKind};
use kyma_helm::values::Layer;
use serde_json::Map;

use super::from::{FromError, Source, lay, told};
use crate::reader::Reader;

/// Returns the layers of a component, the lowest first: `module`, one for each entry of `valuesFrom`, `user`, `override`.
/// `found` has the object of each entry on the hub.
pub(crate) fn layers(
    spec: &HelmComponentSpec,
    found: &[Option<Source>],
    reader: &Reader,
) -> Result<Vec<Layer>, FromError> {
    let module = spec.values.clone().unwrap_or_default();
    let mut layers = vec![Layer::new("module", &module, &Map::new())];
    let mut from = Map::new();
    for (entry, found) in spec.values_from.iter().flatten().zip(found) {
        let alone = lay(&mut from, entry, found.as_ref(), reader)?;
        let is_secret = entry.kind == ValuesFromKind::Secret;
        layers.push(Layer { is_secret, alone, ..Layer::new(&named(entry), &from, &module) });
    }
    for (name, values) in [("user", &spec.user_values), ("override", &spec.overrides)] {
        let below = layers.last().map(|layer| layer.merged.clone()).unwrap_or_default();
        layers.extend(values.iter().map(|values| Layer::new(name, values, &below)));
    }
    Ok(layers)
}

fn named(entry: &ValuesFrom) -> String {
    let key = entry.key.as_deref().map(|key| format!(", key {key}")).unwrap_or_default();
    format!("{}{key}", told(entry))
}

#[cfg(test)]
mod tests {
    use kyma_api::labels;
    use kyma_helm::values::origins;
    use serde_json::{Value, json};

    use super::*;

    fn traced(spec: &Value, found: &[Option<Source>]) -> Vec<(String, Value, String, Vec<String>)> {
        let mut whole = json!({"source": {}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let layers = layers(&serde_json::from_value(whole).unwrap(), found, &Reader::Standalone).unwrap();
        let found = origins(&layers);
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
    fn list_with_item_from_secret_is_hidden_whatever_set_the_others() {
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
        let layers = layers(&serde_json::from_value(spec).unwrap(), &found, &Reader::Standalone).unwrap();
        let found = origins(&layers);
        let hidden: Vec<(&str, bool)> = found.iter().map(|one| (&*one.path, one.is_secret)).collect();
        assert_eq!(hidden, [("env", true), ("plain", false)]);
    }
}

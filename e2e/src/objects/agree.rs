//! Makes generated objects satisfy the CEL rules of the schemas and the requirements of embedded objects.

use regex::Regex;
use serde_json::{Map, Value, json};

use super::generator::ObjectGenerator;

/// Kinds of embedded objects, some with a meaning for operators.
const EMBEDDED_KINDS: [(&str, &str); 5] = [
    ("v1", "ConfigMap"),
    ("apps/v1", "Deployment"),
    ("operator.kyma-project.io/v1alpha1", "Sample"),
    ("component.kyma-project.io/v1alpha1", "HelmComponent"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
];
/// The rule of a dependency.
const DEPENDENCY_RULE: &str =
    "(has(self.api) ? 1 : 0) + (has(self.module) ? 1 : 0) + (has(self.component) ? 1 : 0) == 1";
/// Namespaces of embedded objects.
const EMBEDDED_NAMESPACES: [&str; 3] = ["default", "kyma-system", "kube-system"];

impl ObjectGenerator {
    /// Makes generated fields satisfy the rules.
    pub(super) fn agree(&mut self, schema: &Value, entries: &mut Map<String, Value>, depth: usize) {
        for rule in rules(schema) {
            self.keep(rule, &mut Fields { schema, entries, depth });
        }
        if schema["x-kubernetes-embedded-resource"] == true {
            self.embed(entries);
        }
    }

    /// Makes fields satisfy a known rule.
    fn keep(&mut self, rule: &str, fields: &mut Fields<'_>) -> bool {
        match rule {
            DEPENDENCY_RULE => self.exactly_one(&["api", "module", "component"], fields),
            "!has(self.ready) || !has(self.api)" => {
                if fields.entries.contains_key("api") {
                    fields.drop(&["ready"]);
                }
            }
            "[has(self.ocm), has(self.chart), has(self.manifests)].exists_one(set, set)" => {
                self.exactly_one(&["ocm", "chart", "manifests"], fields);
            }
            "has(self.mandatory) != (has(self.channels) || has(self.versions))" => {
                if self.rng.bool() {
                    fields.drop(&["channels", "versions"]);
                    self.at_least_one(&["mandatory"], fields);
                } else {
                    fields.drop(&["mandatory"]);
                    self.at_least_one(&["channels", "versions"], fields);
                }
            }
            "self.url.startsWith('oci://') != has(self.name)" => {
                if fields.are_of_oci() {
                    fields.drop(&["name"]);
                } else {
                    self.at_least_one(&["name"], fields);
                }
            }
            "has(self.version) || has(self.digest)" => self.at_least_one(&["version", "digest"], fields),
            "has(self.keysSecretRef) || has(self.identities) || has(self.keyringSecretRef)" => {
                self.at_least_one(&["keysSecretRef", "identities", "keyringSecretRef"], fields);
            }
            "!self.url.startsWith('oci://') || has(self.version) || has(self.digest)" => {
                if fields.are_of_oci() {
                    self.at_least_one(&["version", "digest"], fields);
                }
            }
            "self.module != '*' || !has(self.resourceRules)" => {
                if fields.entries.get("module").is_some_and(|module| module == "*") {
                    fields.drop(&["resourceRules"]);
                }
            }
            "self.module != '*' || !has(self.overrides) || !has(self.overrides.module) || \
             !has(self.overrides.module.version)" => {
                if fields.entries.get("module").is_some_and(|module| module == "*") {
                    fields.drop(&["overrides"]);
                }
            }
            "!self.group.endsWith('k8s.io')" => {
                fields.replace("group", |text| text.ends_with("k8s.io"), "keda.sh");
            }
            "self.group != 'operator.kyma-project.io' || self.resource != 'kymas'" => {
                fields.replace("resource", |text| text == "kymas", "serverlesses");
            }
            _ => return keep_keys(rule, fields),
        }
        true
    }

    fn exactly_one(&mut self, names: &[&str], fields: &mut Fields<'_>) {
        self.at_least_one(names, fields);
        let present: Vec<&str> =
            names.iter().copied().filter(|name| fields.entries.contains_key(*name)).collect();
        let kept = *self.one_of(&present);
        fields.entries.retain(|name, _| name == kept || !names.contains(&name.as_str()));
    }

    fn at_least_one(&mut self, names: &[&str], fields: &mut Fields<'_>) {
        if !names.iter().any(|name| fields.entries.contains_key(*name)) {
            let name = *self.one_of(names);
            let value = self.value(&fields.schema["properties"][name], fields.depth + 1);
            fields.entries.insert(name.to_owned(), value);
        }
    }

    fn embed(&mut self, entries: &mut Map<String, Value>) {
        let (api_version, kind) = *self.one_of(&EMBEDDED_KINDS);
        let mut metadata = json!({"name": *self.one_of(&["default", "sample", "a.b-c.example.com"])});
        if self.rng.bool() {
            metadata["namespace"] = json!(*self.one_of(&EMBEDDED_NAMESPACES));
        }
        entries.insert("apiVersion".to_owned(), json!(api_version));
        entries.insert("kind".to_owned(), json!(kind));
        entries.insert("metadata".to_owned(), metadata);
    }
}

/// Satisfies a rule of a map's keys: all match a pattern, or none does.
fn keep_keys(rule: &str, fields: &mut Fields<'_>) -> bool {
    let condition = rule.strip_prefix("self.all(key, ").and_then(|rest| rest.strip_suffix("'))"));
    let Some((negation, pattern)) = condition.and_then(|rest| rest.split_once("key.matches('")) else {
        return false;
    };
    let Ok(pattern) = Regex::new(pattern) else { return false };
    fields.entries.retain(|key, _| pattern.is_match(key) == negation.is_empty());
    matches!(negation, "" | "!")
}

/// The fields of one object.
struct Fields<'a> {
    schema: &'a Value,
    entries: &'a mut Map<String, Value>,
    depth: usize,
}

impl Fields<'_> {
    fn drop(&mut self, names: &[&str]) {
        self.entries.retain(|name, _| !names.contains(&name.as_str()));
    }

    fn replace(&mut self, name: &str, is_refused: impl Fn(&str) -> bool, by: &str) {
        if let Some(value) = self.entries.get_mut(name).filter(|value| value.as_str().is_some_and(is_refused))
        {
            *value = json!(by);
        }
    }

    fn are_of_oci(&self) -> bool {
        self.entries.get("url").and_then(Value::as_str).is_some_and(|url| url.starts_with("oci://"))
    }
}

/// Returns the rules of a schema, without those of nested schemas.
fn rules(schema: &Value) -> impl Iterator<Item = &str> {
    let all = schema["x-kubernetes-validations"].as_array();
    all.into_iter().flatten().filter_map(|validation| validation["rule"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{generator, kinds};

    /// Returns all nested schemas.
    fn within(schema: &Value) -> Vec<Value> {
        let below = match schema {
            Value::Object(fields) => fields.values().flat_map(within).collect(),
            Value::Array(items) => items.iter().flat_map(within).collect(),
            _ => Vec::new(),
        };
        [vec![schema.clone()], below].concat()
    }

    /// An unknown rule would have most objects of its kind refused.
    #[test]
    fn every_rule_of_the_crds_is_known() {
        let mut generator = ObjectGenerator::new(1);
        let mut known = 0;
        for schema in kinds().unwrap().iter().flat_map(|kind| within(&kind.spec)) {
            for rule in rules(&schema) {
                let mut entries = Map::new();
                let mut fields = Fields { schema: &schema, entries: &mut entries, depth: 0 };
                assert!(generator.keep(rule, &mut fields), "{rule} is unknown");
                known += 1;
            }
        }
        assert!(known > 5, "{known}");
    }

    #[test]
    fn exclusive_fields_are_generated_together_only_if_careless() {
        let field = json!({"type": "boolean"});
        let schema = json!({
            "type": "object", "properties": {"ocm": field, "chart": field, "manifests": field},
            "x-kubernetes-validations": [{"rule": "[has(self.ocm), has(self.chart), has(self.manifests)].exists_one(set, set)"}],
        });
        let mut generator = ObjectGenerator::new(1);
        let mut drawn = |fields| generator.map(&schema, 0, fields).as_object().map(Map::len).unwrap();
        for fields in [generator::Fields::Some, generator::Fields::Required, generator::Fields::All] {
            assert!((0..100).all(|_| drawn(fields) == 1), "{fields:?}");
        }
        assert!((0..100).any(|_| drawn(generator::Fields::Careless) != 1));
    }

    #[test]
    fn an_embedded_object_has_kind_and_name() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
        let drawn = ObjectGenerator::new(1).value(&schema, 0);
        assert!(
            ["/apiVersion", "/kind", "/metadata/name"].iter().all(|field| drawn.pointer(field).is_some()),
            "{drawn}"
        );
    }
}

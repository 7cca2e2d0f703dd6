//! Converts `valuesFrom`. If the component would get other values than Flux, a finding is added and the component is
//! created suspended. Pure.

use kyma_api::{ValuesFrom, ValuesFromKind, labels};
use serde_json::Value;

use super::content::Content;
use super::facts::{Facts, Kind, ReducedObject, Ref, is_set, list, text};
use super::finding::{Finding, Severity};

/// Default key, also in Flux.
const DEFAULT_VALUES_KEY: &str = "values.yaml";

/// The values of a release of `namespace` for a component in namespace `hub`.
pub(super) struct ValuesReferences<'a> {
    pub(super) spec: &'a Value,
    pub(super) namespace: &'a str,
    pub(super) hub: &'a str,
}

/// One entry of `valuesFrom`.
struct Entry<'a> {
    one: &'a Value,
    /// Path of the entry in findings.
    place: String,
    /// The object that Flux reads.
    original: Ref,
    /// The object that the component reads.
    copy: Ref,
    key: &'a str,
    is_optional: bool,
}

/// State of one value.
#[derive(Clone, Copy)]
enum ValueState<'a> {
    /// Not in the files, or without read permission.
    Unknown,
    Missing,
    There(&'a Content),
}

impl<'a> ValuesReferences<'a> {
    fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let (namespace, hub) = (self.namespace, self.hub);
        list(self.spec, "/valuesFrom").enumerate().map(move |(number, one)| {
            let name = text(one, "/name").unwrap_or_default();
            let kind = if text(one, "/kind") == Some(Kind::Secret.as_str()) {
                Kind::Secret
            } else {
                Kind::ConfigMap
            };
            Entry {
                one,
                place: format!("spec.valuesFrom[{number}]"),
                original: Ref::new(kind, namespace, name),
                copy: Ref::new(kind, hub, name),
                key: text(one, "/valuesKey").unwrap_or(DEFAULT_VALUES_KEY),
                is_optional: is_set(one, "/optional"),
            }
        })
    }

    /// Returns the objects that Flux reads.
    pub(super) fn originals(&self) -> impl Iterator<Item = Ref> {
        self.entries().map(|entry| entry.original)
    }

    /// Returns the objects that the component reads.
    pub(super) fn copies(&self) -> impl Iterator<Item = Ref> {
        self.entries().map(|entry| entry.copy)
    }

    /// Converts the entries.
    pub(super) fn values_from(&self, facts: &Facts, findings: &mut Vec<Finding>) -> Vec<ValuesFrom> {
        let made = |entry: Entry<'_>| {
            findings.extend(entry.copying(facts));
            let kind = if entry.original.kind == Kind::Secret {
                let (name, label) = (&entry.copy.name, labels::COPY_TO_TARGETS);
                let says = format!("kubectl label secret {name} -n {} {label}=true", self.hub);
                findings.push(Finding::new(&entry.place, Severity::ActionRequired, says));
                ValuesFromKind::Secret
            } else {
                ValuesFromKind::ConfigMap
            };
            let target_path = text(entry.one, "/targetPath");
            if let Some(path) = target_path {
                findings.extend(entry.typed(facts));
                findings.extend(entry.set_twice(path, &self.spec["values"]));
            }
            ValuesFrom {
                kind,
                name: entry.copy.name,
                key: text(entry.one, "/valuesKey").map(str::to_owned),
                target_path: target_path.map(str::to_owned),
                optional: entry.is_optional.then_some(true),
            }
        };
        self.entries().map(made).collect()
    }
}

impl Entry<'_> {
    fn seen<'b>(&self, of: &Ref, facts: &'b Facts) -> ValueState<'b> {
        match facts.get(of) {
            Some(None) => ValueState::Missing,
            Some(Some(ReducedObject::Data { contents, .. })) => match contents.get(self.key) {
                None => ValueState::Missing,
                Some(Some(content)) => ValueState::There(content),
                Some(None) => ValueState::Unknown,
            },
            None | Some(Some(ReducedObject::Source(_))) => ValueState::Unknown,
        }
    }

    /// Returns a finding if the object has to be copied. Without a copy the component waits, unless the entry is
    /// optional.
    fn copying(&self, facts: &Facts) -> Option<Finding> {
        let (original, copy) = (&self.original, &self.copy);
        if original == copy {
            return None;
        }
        let told = |severity, says: &str| {
            let to_copy = format!("copy {} to namespace {}{says}", original.says(), copy.namespace);
            Some(Finding::new(&self.place, severity, to_copy))
        };
        match (self.seen(original, facts), self.seen(copy, facts)) {
            (ValueState::There(original), ValueState::There(copy)) if original == copy => None,
            (ValueState::Missing, ValueState::Missing) if self.is_optional => None,
            (_, ValueState::There(_)) => told(Severity::Suspended, ": the existing object may differ"),
            _ if self.is_optional => {
                told(Severity::Suspended, " first: it is optional, and without it the values would differ")
            }
            _ => told(Severity::ActionRequired, ""),
        }
    }

    /// Returns a finding if Helm's `--set`, which Flux uses, would change the text's type. A component sets the text
    /// unchanged.
    fn typed(&self, facts: &Facts) -> Option<Finding> {
        if is_set(self.one, "/literal") {
            return None;
        }
        let says = match self.seen(&self.original, facts) {
            ValueState::There(content) if content.is_text => return None,
            ValueState::Missing if self.is_optional => return None,
            ValueState::There(_) => {
                "Flux converts this text, for instance to a number, true or a list; it is a string here: \
                 write the value into `values`"
            }
            ValueState::Missing | ValueState::Unknown => {
                "the content cannot be read, and is a string here; Flux converts text that looks like a \
                 number, true or a list: check it"
            }
        };
        Some(Finding::new(format!("{}.targetPath", self.place), Severity::Suspended, says))
    }

    /// Returns a finding if `values` set the same path: Flux's documentation and its behaviour differ on which wins.
    /// A list or text above the path counts too.
    fn set_twice(&self, path: &str, values: &Value) -> Option<Finding> {
        let is_taken = kyma_helm::values::is_taken(values.as_object()?, path);
        let says = "is set in `values` too: remove it from one of them";
        is_taken.then(|| Finding::new(format!("{}.targetPath", self.place), Severity::Suspended, says))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(objects: &[(&str, Value)]) -> Facts {
        let one = |(namespace, data): &(&str, Value)| {
            let object = json!({"kind": "ConfigMap", "data": data});
            let known = data.is_object().then(|| ReducedObject::of(Kind::ConfigMap, object));
            (Ref::new(Kind::ConfigMap, namespace, "c"), known)
        };
        objects.iter().map(one).collect()
    }

    fn weights(entry: &Value, hub: &str, facts: &Facts) -> Vec<Severity> {
        let mut entry = entry.clone();
        entry["kind"] = json!("ConfigMap");
        entry["name"] = json!("c");
        let spec = json!({"valuesFrom": [entry], "values": {"taken": 1}});
        let mut findings = vec![];
        let referring = ValuesReferences { spec: &spec, namespace: "apps", hub };
        assert_eq!(referring.values_from(facts, &mut findings).len(), 1);
        findings.into_iter().map(|one| one.severity).collect()
    }

    #[test]
    fn a_missing_optional_copy_suspends() {
        let (yaml, other, none) =
            (json!({"values.yaml": "a: 1"}), json!({"values.yaml": "a: 2"}), Value::Null);
        let (required, optional) = (json!({}), json!({"optional": true}));
        let of = |entry: &Value, original: &Value, copy: &Value| {
            weights(entry, "hub", &known(&[("apps", original.clone()), ("hub", copy.clone())]))
        };
        assert_eq!(of(&optional, &yaml, &none), [Severity::Suspended]);
        assert_eq!(of(&required, &yaml, &none), [Severity::ActionRequired], "the component waits for it");
        assert_eq!(of(&required, &yaml, &json!({"key": "other"})), [Severity::ActionRequired]);
        for entry in [&required, &optional] {
            assert_eq!(of(entry, &yaml, &yaml), []);
            assert_eq!(of(entry, &yaml, &other), [Severity::Suspended], "the copy is of something else");
            assert_eq!(of(entry, &none, &yaml), [Severity::Suspended]);
        }
        assert_eq!(of(&optional, &none, &none), [], "neither has it");
        assert_eq!(weights(&optional, "hub", &Facts::new()), [Severity::Suspended]);
        assert_eq!(weights(&required, "hub", &Facts::new()), [Severity::ActionRequired]);
        assert_eq!(weights(&optional, "apps", &Facts::new()), []);
    }

    #[test]
    fn a_path_that_values_set_too_suspends() {
        let spec = json!({"valuesFrom": [{"kind": "ConfigMap", "name": "c"}]});
        let referring = ValuesReferences { spec: &spec, namespace: "apps", hub: "apps" };
        let entry = referring.entries().next().unwrap();
        let is_told = |values: &Value| entry.set_twice("a.b", values).is_some();
        assert!(is_told(&json!({"a": {"b": 1}})) && is_told(&json!({"a": 1})));
        assert!(!is_told(&json!({"a": {}})) && !is_told(&Value::Null));
    }

    #[test]
    fn a_value_that_flux_parses_as_no_string_suspends() {
        let at = json!({"valuesKey": "v", "targetPath": "a.b"});
        let of = |entry: &Value, data: Value| weights(entry, "apps", &known(&[("apps", data)]));
        assert_eq!(of(&at, json!({"v": "hush"})), []);
        assert_eq!(of(&at, json!({"v": "false"})), [Severity::Suspended]);
        assert_eq!(of(&at, json!({"other": "x"})), [Severity::Suspended]);
        assert_eq!(weights(&at, "apps", &Facts::new()), [Severity::Suspended]);
        let literal = json!({"valuesKey": "v", "targetPath": "a.b", "literal": true});
        assert_eq!(of(&literal, json!({"v": "false"})), []);
        let optional = json!({"valuesKey": "v", "targetPath": "a.b", "optional": true});
        assert_eq!(of(&optional, json!({})), []);
        assert_eq!(
            of(&json!({"valuesKey": "v", "targetPath": "taken"}), json!({"v": "x"})),
            [Severity::Suspended]
        );
    }
}

//! Shared schemas that Rust types cannot express.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use schemars::transform::transform_subschemas;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::schema::patterns;

/// Lets each optional field below a spec or status keep its own description. For a field of an enum type, kube would
/// replace it by that of the type: `OptionalEnum` in kube-core moves the first schema of `anyOf` over the field's.
pub(crate) fn keep_field_descriptions(schema: &mut Schema) {
    transform_subschemas(&mut keep_field_descriptions, schema);
    let Some(field) = schema.as_object_mut().filter(|field| field.contains_key("description")) else {
        return;
    };
    let any_of = field.get_mut("anyOf").and_then(Value::as_array_mut);
    if let Some([Value::Object(of_type), null]) = any_of.map(Vec::as_mut_slice)
        && null.get("type").is_some_and(|name| name == "null")
    {
        of_type.remove("description");
    }
}

/// An object with free-form content. Atomic: managedFields name the whole, not every key.
pub(crate) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-map-type": "atomic",
    })
}

/// A whole Kubernetes object inside another: the apiserver requires apiVersion and kind and validates its metadata.
pub(crate) fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-map-type": "atomic",
    })
}

/// Labels that are added to objects. Atomic, as [`free_form`].
pub(crate) fn added_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": patterns::LABEL_VALUE },
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": added_keys(),
    })
}

/// Annotations that are added to objects. Atomic, as [`free_form`].
pub(crate) fn added_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": { "type": "string", "maxLength": 4096 },
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": added_keys(),
    })
}

/// No schema can limit the length of keys; API servers still accept the cost of these rules.
fn added_keys() -> Value {
    json!([
        {
            "rule": format!("self.all(key, key.matches('{}'))", patterns::METADATA_KEY),
            "message": "keys must be a name of at most 63 characters, optionally after a domain and a slash",
        },
        {
            "rule": format!("self.all(key, !key.matches('{}'))", patterns::RESERVED_METADATA_KEY),
            "message": "keys of the domain kyma-project.io and the key helm.sh/hook are reserved",
        },
    ])
}

/// A Kubernetes label selector.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that must be present with exactly these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "description": "Further requirements; all must hold.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "One requirement on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The label.", "type": "string" },
                        "operator": {
                            "description": "In, NotIn, Exists or DoesNotExist.",
                            "type": "string",
                        },
                        "values": {
                            "description": "Values for In and NotIn; empty for Exists and DoesNotExist.",
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
        },
    })
}

/// Conditions with several writers: one per type, each with its own owner.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = conditions_of_one(generator);
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
    schema
}

/// Conditions that one operator writes as a whole, with the limits of `metav1.Condition`, which k8s-openapi's schema
/// lacks. As in Flux, `managedFields` do not name every field of each, which costs an API server a quarter of its
/// work to write a status (ADR 33).
pub(crate) fn conditions_of_one(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "One condition of the object.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "Time of the last change of status.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "Details for people, with the necessary action. May be empty.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "observedGeneration": {
                    "description": "Generation that the condition is about; outdated if lower than the object's.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "reason": {
                    "description": "Stable reason in one word. The project's reasons have a page in the runbook.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {
                    "description": "True, False or Unknown.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "type": {
                    "description": "Type of the condition.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
        },
    })
}

/// A time that an operator writes.
pub(crate) fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A time that a user writes: a date with a time, or a date.
pub(crate) fn date_or_date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "anyOf": [{ "format": "date-time" }, { "format": "date" }] })
}

/// A URI, as in KLM's CRD. Informational only: nothing connects to it.
pub(crate) fn uri(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "uri" })
}

fn start_of_day(text: &str) -> Option<Timestamp> {
    let date: k8s_openapi::jiff::civil::Date =
        text.parse().ok().filter(|_| text.len() == "2026-01-01".len())?;
    Some(date.to_zoned(k8s_openapi::jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

/// Reads a time that a user wrote. API servers accept some values that are out of range here, such as the end of the
/// year 9999, and an empty list: these become the maximum time, since an unreadable object would be ignored. A date
/// is its beginning in UTC.
pub(crate) fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
    let set: Option<Value> = Deserialize::deserialize(from)?;
    let parsed = |set: &Value| set.as_str().and_then(|text| text.parse().ok().or_else(|| start_of_day(text)));
    Ok(set.map(|set| Time(parsed(&set).unwrap_or(Timestamp::MAX))))
}

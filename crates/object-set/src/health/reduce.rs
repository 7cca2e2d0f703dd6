//! Of objects that are watched whole, only what health needs is kept.

use serde_json::{Map, Value};

use crate::object::GroupKind;

/// Kinds whose health is worth a watch of whole objects; of all others metadata is enough, and health is
/// looked at when it is needed.
pub fn watched_whole(kind: &GroupKind) -> bool {
    matches!(
        (kind.group.as_str(), kind.kind.as_str()),
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet") | ("batch", "Job")
    )
}

/// Fields of the status that rules read; anything else of it is dropped.
const STATUS: &[&str] = &[
    "active",
    "availableReplicas",
    "currentNumberScheduled",
    "currentReplicas",
    "currentRevision",
    "desiredNumberScheduled",
    "fullyLabeledReplicas",
    "numberAvailable",
    "numberReady",
    "observedGeneration",
    "phase",
    "readyReplicas",
    "replicas",
    "startTime",
    "updateRevision",
    "updatedNumberScheduled",
    "updatedReplicas",
];

/// Fields of the spec that rules read.
const SPEC: &[&str] = &[
    "clusterIP",
    "externalIPs",
    "paused",
    "progressDeadlineSeconds",
    "replicas",
    "suspend",
    "type",
    "updateStrategy",
];

/// Fields of the metadata that rules and the index read.
const METADATA: &[&str] =
    &["creationTimestamp", "deletionTimestamp", "generation", "name", "namespace", "uid"];

/// The object with nothing but what [`assess`](super::assess) reads: a few hundred bytes. `assess` gives the
/// same answer for it. Not for kinds whose rules read more: Pods, webhooks, claims and the like stay whole but
/// for `metadata.managedFields`.
pub fn reduce(object: Value) -> Value {
    let Value::Object(mut object) = object else { return object };
    let group = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .and_then(|v| v.split_once('/'))
        .map_or("", |(g, _)| g);
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let small = watched_whole(&GroupKind::new(group, kind));
    if !small {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        return Value::Object(object);
    }
    let mut kept = Map::new();
    for field in ["apiVersion", "kind"] {
        if let Some(value) = object.remove(field) {
            kept.insert(field.to_owned(), value);
        }
    }
    for (field, inner) in [("metadata", METADATA), ("spec", SPEC), ("status", STATUS)] {
        if let Some(Value::Object(map)) = object.get_mut(field) {
            let mut part = pick(map, inner);
            if let Some(conditions) = map.remove("conditions") {
                part.insert("conditions".to_owned(), conditions_of(conditions));
            }
            kept.insert(field.to_owned(), Value::Object(part));
        }
    }
    Value::Object(kept)
}

fn pick(map: &mut Map<String, Value>, fields: &[&str]) -> Map<String, Value> {
    fields.iter().filter_map(|field| Some(((*field).to_owned(), map.remove(*field)?))).collect()
}

/// Conditions without their texts and times.
fn conditions_of(conditions: Value) -> Value {
    let Value::Array(conditions) = conditions else { return Value::Null };
    let small = |condition: Value| match condition {
        Value::Object(mut map) => Value::Object(pick(&mut map, &["type", "status", "reason"])),
        other => other,
    };
    Value::Array(conditions.into_iter().map(small).collect())
}

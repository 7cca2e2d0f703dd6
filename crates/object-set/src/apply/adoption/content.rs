//! Adopts an object without a change of its content: only ownership marks change.

use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use serde_json::{Map, Value};

use super::system::{TRACKING_LABEL, is_mark};
use crate::apply::outcome::Refusal;
use crate::apply::target_object::TargetObject;
use crate::cluster::discovery::Kinds;
use crate::error::{Action, Failure};
use crate::managed_fields::entries::applied_entry;
use crate::managed_fields::field_set::MAX_COMPARISONS;
use crate::object::{Gvk, Object, map_at};
use crate::ownership::{CREATED_BY, OWNER_LABEL};

/// Metadata that only the API server writes, ignored in comparisons.
const API_SERVER_METADATA: [&str; 5] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"];

/// Finds the object whose apply adopts a live object without a change of its content.
pub(in crate::apply) struct LiveContent<'a> {
    /// The object with its desired content.
    pub(in crate::apply) object: &'a Object,
    pub(in crate::apply) target: TargetObject<'a>,
    pub(in crate::apply) kinds: &'a Kinds,
    /// The operator's field manager.
    pub(in crate::apply) manager: &'a str,
    /// Whether Argo CD tracks the live object by the label [`TRACKING_LABEL`]. The desired object may set that label
    /// too.
    pub(in crate::apply) is_tracked: bool,
}

impl LiveContent<'_> {
    /// Returns an object whose apply leaves the live content unchanged. `None` if the desired object itself leaves it
    /// unchanged, the live object does not exist, or the fields that the operator owns are unknown.
    pub(in crate::apply) async fn object_to_send(&self) -> Result<Option<Object>, Refusal> {
        let Self { object, target, is_tracked, .. } = *self;
        let Some((metadata, live)) = target.read().await? else { return Ok(None) };
        if !self.differs_from(&live).await? {
            return Ok(None);
        }
        let Some(operator_entry) = applied_entry(&metadata, self.manager) else {
            return Ok(object_with_fields(object, &Value::Object(Map::new()), is_tracked));
        };
        let Some(fields) = &operator_entry.fields_v1 else { return Ok(None) };
        // The field paths of the entry belong to the API version of that apply.
        let version = operator_entry.api_version.clone().unwrap_or_default();
        if version == target.mapping.resource.api_version {
            return Ok(object_with_fields(object, &extract(&live, &fields.0), is_tracked));
        }
        let (group, name) = version.rsplit_once('/').unwrap_or(("", &version));
        let entry_mapping = self.kinds.get(&Gvk::new(group, name, &target.identity.kind));
        let Some(entry_mapping) = entry_mapping else { return Ok(None) };
        let Some((_, live)) = target.in_version(entry_mapping).read().await? else { return Ok(None) };
        let Some(object) = in_version(object, &version) else { return Ok(None) };
        Ok(object_with_fields(&object, &extract(&live, &fields.0), is_tracked))
    }

    /// Reports whether an apply of the desired object would change the live one. A refusal counts as a change.
    async fn differs_from(&self, live: &Value) -> Result<bool, Refusal> {
        let mut body = self.object.body().clone();
        map_at(&mut body, "metadata").insert("uid".to_owned(), live["metadata"]["uid"].clone());
        let mut params = PatchParams::apply(self.manager).force().dry_run();
        params.field_validation = Some(ValidationDirective::Ignore);
        let patch = Patch::Apply(Value::Object(body));
        let answer: kube::Result<DynamicObject> =
            self.target.api().patch(&self.target.identity.name, &params, &patch).await;
        match answer {
            Ok(dry_run_result) => {
                let dry_run_result = serde_json::to_value(dry_run_result).unwrap_or_default();
                Ok(content(dry_run_result, self.is_tracked) != content(live.clone(), self.is_tracked))
            }
            Err(error) => match self.target.error(Action::Apply, error) {
                // API servers refuse dry runs with 400 if a webhook does not support them.
                error
                    if matches!(
                        error.failure,
                        Failure::Refused(_) | Failure::Immutable(_) | Failure::Denied(_)
                    ) =>
                {
                    Ok(true)
                }
                error => Err(error.into()),
            },
        }
    }
}

/// Returns the content of an object: without status, fields of the API server and ownership marks.
fn content(mut object: Value, tracked: bool) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return object };
    metadata.retain(|field, _| !API_SERVER_METADATA.contains(&field.as_str()));
    without_marks(metadata, tracked);
    object
}

fn without_marks(metadata: &mut Map<String, Value>, tracked: bool) {
    let is_tracking_label = |key: &str| tracked && key == TRACKING_LABEL;
    for place in ["labels", "annotations"] {
        let Some(Value::Object(all)) = metadata.get_mut(place) else { continue };
        all.retain(|key, _| {
            !is_mark(key) && !is_tracking_label(key) && key != OWNER_LABEL && key != CREATED_BY
        });
        if all.is_empty() {
            metadata.remove(place);
        }
    }
}

/// Returns an object of only these fields, with the identity and owner label of `desired`. If Argo CD tracks the object
/// by label, the tracking label gets the value that it has in `desired`, if any.
fn object_with_fields(desired: &Object, fields: &Value, tracked: bool) -> Option<Object> {
    let mut body = fields.as_object().cloned().unwrap_or_default();
    for field in ["apiVersion", "kind"] {
        body.insert(field.to_owned(), desired.body().get(field)?.clone());
    }
    body.remove("status");
    let metadata = map_at(&mut body, "metadata");
    metadata.retain(|field, _| !API_SERVER_METADATA.contains(&field.as_str()));
    without_marks(metadata, tracked);
    metadata.insert("name".to_owned(), desired.name().into());
    if let Some(namespace) = desired.namespace() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    let mut object = Object::from_value(Value::Object(body)).ok()?;
    object.set_label(OWNER_LABEL, desired.label(OWNER_LABEL)?);
    if let Some(instance) = desired.label(TRACKING_LABEL).filter(|_| tracked) {
        object.set_label(TRACKING_LABEL, instance);
    }
    Some(object)
}

fn in_version(object: &Object, api_version: &str) -> Option<Object> {
    let mut body = object.body().clone();
    body.insert("apiVersion".to_owned(), api_version.into());
    Object::from_value(Value::Object(body)).ok()
}

/// Returns the live values of a set of fields: `f:name` is a field, `k:{...}` an item of a list by its keys, `v:...`
/// an item of a set.
fn extract(live: &Value, fields: &Value) -> Value {
    let Some(field_entries) = fields.as_object() else { return live.clone() };
    let mut inner = field_entries.iter().filter(|(key, _)| *key != ".").peekable();
    if inner.peek().is_none() {
        // The set contains this field, but nothing in it: the result is the value of a leaf, otherwise an empty map or
        // list.
        return match live {
            Value::Object(_) if !field_entries.is_empty() => Value::Object(Map::new()),
            Value::Array(_) if !field_entries.is_empty() => Value::Array(vec![]),
            whole => whole.clone(),
        };
    }
    match live {
        Value::Object(live) => {
            let extracted = inner.filter_map(|(key, fields)| {
                let name = key.strip_prefix("f:")?;
                Some((name.to_owned(), extract(live.get(name)?, fields)))
            });
            Value::Object(extracted.collect())
        }
        // Matching every item would take too long. The whole list leaves the content unchanged as well.
        Value::Array(items) if items.len().saturating_mul(field_entries.len()) > MAX_COMPARISONS => {
            live.clone()
        }
        Value::Array(live) => live.iter().filter_map(|item| extract_item(item, field_entries)).collect(),
        // The value has another type than the set of fields describes.
        other => other.clone(),
    }
}

/// Returns the owned fields and the keys of a list item; `None` if the set of fields does not contain the item.
fn extract_item(item: &Value, field_entries: &Map<String, Value>) -> Option<Value> {
    field_entries.iter().find_map(|(key, fields)| match key.split_once(':')? {
        ("v", value) => (serde_json::from_str::<Value>(value).ok()? == *item).then(|| item.clone()),
        ("k", keys) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
            if !keys.iter().all(|(key, value)| item.get(key) == Some(value)) {
                return None;
            }
            let mut extracted = match extract(item, fields) {
                Value::Object(extracted) => extracted,
                _ => Map::new(),
            };
            extracted.extend(keys);
            Some(Value::Object(extracted))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_of_fields_selects_exactly_its_values() {
        let live = json!({
            "metadata": {"labels": {"a": "1", "theirs": "x"}, "finalizers": ["one", "two"]},
            "spec": {
                "replicas": 3, "paused": true, "atomic": [{"x": 1}], "volume": {"emptyDir": {}},
                "ports": [
                    {"port": 80, "protocol": "UDP", "name": "u"},
                    {"port": 80, "protocol": "TCP", "name": "t", "nodePort": 7},
                ],
            },
        });
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:\"two\"": {}}},
            "f:spec": {
                "f:replicas": {}, "f:atomic": {}, "f:gone": {}, "f:volume": {".": {}, "f:emptyDir": {}},
                "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}},
            },
        });
        let expected = json!({
            "metadata": {"labels": {"a": "1"}, "finalizers": ["two"]},
            "spec": {
                "replicas": 3, "atomic": [{"x": 1}], "volume": {"emptyDir": {}},
                "ports": [{"port": 80, "protocol": "TCP", "name": "t"}],
            },
        });
        assert_eq!(extract(&live, &fields), expected);
    }

    #[test]
    fn field_without_subfields_is_empty_and_odd_type_is_kept() {
        assert_eq!(extract(&json!({"theirs": 1}), &json!({".": {}})), json!({}));
        assert_eq!(extract(&json!([1]), &json!({".": {}})), json!([]));
        assert_eq!(extract(&json!("text"), &json!({"f:a": {}})), json!("text"));
        assert_eq!(extract(&json!({"a": 1}), &json!({"odd": {}, "k:no json": {}})), json!({}));
        assert_eq!(extract(&json!([{"a": 1}]), &json!({"k:no json": {}})), json!([]));
    }

    #[test]
    fn marks_of_other_owners_are_no_difference() {
        let object = |labels: Value, annotations: Value, replicas: u8| {
            json!({
                "kind": "Deployment", "status": {"replicas": replicas},
                "metadata": {"name": "d", "generation": replicas, "labels": labels, "annotations": annotations},
                "spec": {"a": 1},
            })
        };
        let foreign = object(
            json!({"helm.toolkit.fluxcd.io/name": "shop"}),
            json!({"argocd.argoproj.io/tracking-id": "x", "own": "1"}),
            1,
        );
        let applied = object(json!({OWNER_LABEL: "operator"}), json!({"own": "1"}), 2);
        assert_eq!(content(foreign.clone(), false), content(applied, false));
        let other = object(json!({}), json!({"own": "2"}), 1);
        assert_ne!(content(foreign, false), content(other, false));

        let named = |instance: &str| object(json!({TRACKING_LABEL: instance}), json!({}), 1);
        assert_eq!(content(named("theirs"), true), content(named("ours"), true));
        assert_ne!(
            content(named("theirs"), false),
            content(named("ours"), false),
            "the label is content if Argo CD does not track by it"
        );
    }

    #[test]
    fn unchanged_adoption_sends_operator_fields_and_owner_label() {
        let desired = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "n", "labels": {OWNER_LABEL: "us", "new": ""}},
            "data": {"a": "2"},
        });
        let desired = Object::from_value(desired).unwrap();
        let fields = json!({"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "x"}, "managedFields": []}, "data": {"a": "1"}});
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "n", "labels": {OWNER_LABEL: "us"}}, "data": {"a": "1"},
        });
        assert_eq!(object_with_fields(&desired, &fields, false).unwrap().into_value(), expected);
        assert_eq!(object_with_fields(&desired, &fields, true).unwrap().into_value(), expected);
    }

    #[test]
    fn the_tracking_label_of_argo_cd_gets_the_desired_value() {
        let desired = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "labels": {OWNER_LABEL: "us", TRACKING_LABEL: "ours"}},
        });
        let desired = Object::from_value(desired).unwrap();
        let fields = json!({"metadata": {"labels": {TRACKING_LABEL: "theirs"}}});
        let instance = |tracked: bool| {
            object_with_fields(&desired, &fields, tracked).unwrap().label(TRACKING_LABEL).map(str::to_owned)
        };
        assert_eq!(instance(true).as_deref(), Some("ours"));
        assert_eq!(instance(false).as_deref(), Some("theirs"), "the live value of the label stays");
    }

    #[test]
    fn long_list_of_a_hostile_target_stays_whole() {
        let extracted = |count: usize| {
            let items: Value = (0..count).map(Value::from).collect();
            let keys = (count..2 * count).map(|at| (format!("v:{at}"), json!({})));
            extract(&items, &Value::Object(keys.collect())).as_array().map(Vec::len)
        };
        assert_eq!((extracted(500), extracted(501)), (Some(0), Some(501)));
    }
}

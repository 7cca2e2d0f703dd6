//! Small corrections before an object is sent, so that server-side apply takes what `kubectl create` takes.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::object::{Object, map_at};
use crate::order;
use crate::set::Warning;

/// Fields of `metadata` that only the API server writes.
const SERVER_METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Corrects an object: removes `status`, what only the server writes and what says nothing (empty labels and
/// annotations, null in kinds of Kubernetes' own), turns a Secret's `stringData` into
/// `data`, defaults the protocol of ports, and leaves of duplicate list keys the last (with a warning each).
pub fn normalise(object: &mut Object) -> Vec<Warning> {
    let identity = object.identity();
    let kind = (object.group().to_owned(), object.kind().to_owned());
    let body = object.body_mut();
    body.remove("status");
    strip_metadata(body);
    if order::is_builtin(&kind.0) {
        strip_nulls(body);
    }
    let mut found = Vec::new();
    match (kind.0.as_str(), kind.1.as_str()) {
        ("", "Secret") => string_data(body),
        // The control plane writes the rules of an aggregated role.
        ("rbac.authorization.k8s.io", "ClusterRole")
            if body.get("aggregationRule").is_some_and(Value::is_object) =>
        {
            body.remove("rules");
        }
        ("", "Service") => {
            if let Some(ports) = body.get_mut("spec").and_then(|spec| spec.get_mut("ports")) {
                default_protocol(ports);
                unique(ports, &["port", "protocol"], "spec.ports", &mut found);
            }
        }
        ("", "Pod") => pod_spec(body.get_mut("spec"), "spec", &mut found),
        ("", "PodTemplate") => template(body.get_mut("template"), "template", &mut found),
        ("" | "apps" | "batch", "CronJob") => {
            let job = body.get_mut("spec").and_then(|spec| spec.get_mut("jobTemplate"));
            let inner = job.and_then(|job| job.get_mut("spec")).and_then(|spec| spec.get_mut("template"));
            template(inner, "spec.jobTemplate.spec.template", &mut found);
        }
        ("" | "apps" | "batch", _) => {
            let inner = body.get_mut("spec").and_then(|spec| spec.get_mut("template"));
            template(inner, "spec.template", &mut found);
        }
        _ => {}
    }
    let warning = |(path, key)| Warning::DuplicateListKey { object: identity.clone(), path, key };
    found.into_iter().map(warning).collect()
}

/// Where a duplicate key was, and which.
type Duplicates = Vec<(String, String)>;

fn strip_metadata(body: &mut Map<String, Value>) {
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        for field in SERVER_METADATA {
            metadata.remove(*field);
        }
        strip_empty(metadata);
    }
}

/// Empty labels and annotations would be owned as a whole: the first label that anybody adds would be drift.
fn strip_empty(metadata: &mut Map<String, Value>) {
    for field in ["labels", "annotations"] {
        let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        if metadata.get(field).is_some_and(is_empty) {
            metadata.remove(field);
        }
    }
}

/// Maps of text, in which the API server reads null as an empty text and not as absent.
const TEXT_MAPS: &[&str] =
    &["annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "selector", "stringData"];

/// Null is absent to the API server for its own kinds, but an apply would own it, and the next one who sets the
/// field would be drift.
fn strip_nulls(map: &mut Map<String, Value>) {
    map.retain(|_, value| !value.is_null());
    for (key, value) in map.iter_mut() {
        match value {
            Value::Object(_) if TEXT_MAPS.contains(&key.as_str()) => {}
            Value::Object(inner) => strip_nulls(inner),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(strip_nulls),
            _ => {}
        }
    }
}

fn string_data(body: &mut Map<String, Value>) {
    let Some(Value::Object(text)) = body.remove("stringData") else { return };
    let data = map_at(body, "data");
    for (key, value) in text {
        let value = match value {
            Value::String(text) => base64::engine::general_purpose::STANDARD.encode(text).into(),
            // Null is an empty string to the API server; anything else it refuses, and it shall.
            Value::Null => Value::String(String::new()),
            other => other,
        };
        data.insert(key, value);
    }
}

fn template(template: Option<&mut Value>, path: &str, found: &mut Duplicates) {
    let Some(template) = template.and_then(Value::as_object_mut) else { return };
    if let Some(Value::Object(metadata)) = template.get_mut("metadata") {
        metadata.remove("creationTimestamp");
        strip_empty(metadata);
    }
    pod_spec(template.get_mut("spec"), &format!("{path}.spec"), found);
}

fn pod_spec(spec: Option<&mut Value>, path: &str, found: &mut Duplicates) {
    let Some(spec) = spec.and_then(Value::as_object_mut) else { return };
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in items(spec.get_mut(list)).enumerate() {
            let Value::Object(container) = container else { continue };
            let at = |field: &str| format!("{path}.{list}[{index}].{field}");
            if let Some(env) = container.get_mut("env") {
                unique(env, &["name"], &at("env"), found);
            }
            if let Some(ports) = container.get_mut("ports") {
                default_protocol(ports);
                unique(ports, &["containerPort", "protocol"], &at("ports"), found);
            }
        }
    }
    for (list, key) in [("imagePullSecrets", "name"), ("hostAliases", "ip")] {
        if let Some(values) = spec.get_mut(list) {
            unique(values, &[key], &format!("{path}.{list}"), found);
        }
    }
}

fn items(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

fn default_protocol(ports: &mut Value) {
    for port in items(Some(ports)) {
        if let Value::Object(port) = port {
            let protocol = port.entry("protocol").or_insert(Value::Null);
            if protocol.is_null() {
                *protocol = "TCP".into();
            }
        }
    }
}

/// Of the items that share their keys, only the last stays, where it stands. Each key is told once.
fn unique(list: &mut Value, keys: &[&str], path: &str, found: &mut Duplicates) {
    let Some(list) = list.as_array_mut() else { return };
    let key_of = |item| keys.iter().map(|key| Value::get(item, *key)).collect::<Option<Vec<&Value>>>();
    let all: Vec<Option<Vec<&Value>>> = list.iter().map(key_of).collect();
    let numbered = all.iter().enumerate();
    let latest: HashMap<&Vec<&Value>, usize> =
        numbered.clone().filter_map(|(index, key)| Some((key.as_ref()?, index))).collect();
    let mut told = HashSet::new();
    let mut stays = Vec::with_capacity(all.len());
    for (index, key) in numbered {
        let again = key.as_ref().filter(|key| latest.get(key) != Some(&index));
        if let Some(values) = again.filter(|key| told.insert(*key)) {
            let parts = keys.iter().zip(values).map(|(key, value)| match value {
                Value::String(text) => format!("{key}={text}"),
                other => format!("{key}={other}"),
            });
            found.push((path.to_owned(), parts.collect::<Vec<_>>().join(",")));
        }
        stays.push(again.is_none());
    }
    let mut stays = stays.into_iter();
    list.retain(|_| stays.next().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn after(value: Value) -> (Value, Vec<Warning>) {
        let mut object = Object::from_value(value).unwrap();
        let warnings = normalise(&mut object);
        (object.into_value(), warnings)
    }

    #[test]
    fn what_only_the_server_writes_goes() {
        let (value, _) = after(
            json!({"apiVersion": "x.io/v1", "kind": "A", "status": {"a": 1}, "metadata": {
            "name": "a", "creationTimestamp": null, "uid": "u", "resourceVersion": "1", "labels": {"l": "v"}}}),
        );
        let expected =
            json!({"apiVersion": "x.io/v1", "kind": "A", "metadata": {"name": "a", "labels": {"l": "v"}}});
        assert_eq!(value, expected);
    }

    #[test]
    fn rules_of_an_aggregated_role_are_the_control_planes() {
        let role = |aggregation: Value| {
            let (role, _) =
                after(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "a"}, "rules": [], "aggregationRule": aggregation}));
            role.get("rules").is_some()
        };
        assert!(!role(json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})));
        assert!(role(Value::Null));
    }

    #[test]
    fn what_says_nothing_goes() {
        let (value, _) = after(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "annotations": null, "labels": {}},
            "spec": {"replicas": null, "selector": {"matchLabels": {"a": null}}, "template": {
                "metadata": {"annotations": {}, "labels": {"a": ""}},
                "spec": {"affinity": {}, "containers": [{"name": "c", "command": null}]}}}}));
        let expected = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"selector": {"matchLabels": {"a": null}}, "template": {"metadata": {"labels": {"a": ""}},
                "spec": {"affinity": {}, "containers": [{"name": "c"}]}}}});
        assert_eq!(value, expected);
        let custom =
            json!({"apiVersion": "x.io/v1", "kind": "A", "metadata": {"name": "a"}, "spec": {"b": null}});
        assert_eq!(after(custom.clone()).0, custom);
    }

    #[test]
    fn string_data_wins_over_data() {
        let (value, _) = after(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "data": {"a": "eA==", "b": "eQ=="}, "stringData": {"b": "hi", "c": null}}));
        assert_eq!(value["data"], json!({"a": "eA==", "b": "aGk=", "c": ""}));
        assert!(value.get("stringData").is_none());
    }

    #[test]
    fn duplicate_list_keys_leave_the_last_and_a_warning() {
        let pod = json!({"containers": [{"name": "c",
            "env": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP", "name": "x"}]}]});
        let kinds = [
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {"metadata": {"creationTimestamp": null}, "spec": pod}}}),
                "/spec/template/spec",
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
                "/spec/jobTemplate/spec/template/spec",
            ),
            (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod}), "/spec"),
        ];
        for (object, at) in kinds {
            let (value, warnings) = after(object);
            let container = &value.pointer(at).unwrap()["containers"][0];
            assert_eq!(container["env"], json!([{"name": "B"}, {"name": "A", "value": "2"}]));
            assert_eq!(container["ports"].as_array().unwrap().len(), 2);
            assert_eq!(warnings.len(), 2, "{warnings:?}");
        }
    }

    #[test]
    fn ports_of_services_get_a_protocol() {
        let (value, warnings) =
            after(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}}));
        assert_eq!(
            value["spec"]["ports"],
            json!([{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}])
        );
        assert!(warnings.is_empty());
    }

    /// What [`unique`] is to do, said one item at a time.
    fn unique_by_definition(list: &[Value], keys: &[&str]) -> (Vec<Value>, Vec<String>) {
        let key_of =
            |item: &Value| -> Option<Vec<Value>> { keys.iter().map(|key| item.get(*key).cloned()).collect() };
        let text = |key: &Vec<Value>| {
            let parts = keys.iter().zip(key).map(|(key, value)| match value {
                Value::String(text) => format!("{key}={text}"),
                other => format!("{key}={other}"),
            });
            parts.collect::<Vec<_>>().join(",")
        };
        let (mut stays, mut told) = (Vec::new(), Vec::new());
        for (index, item) in list.iter().enumerate() {
            let again =
                |key: &Vec<Value>| list[index + 1..].iter().any(|later| key_of(later).as_ref() == Some(key));
            match key_of(item).filter(again) {
                None => stays.push(item.clone()),
                Some(key) if told.contains(&key) => {}
                Some(key) => told.push(key),
            }
        }
        (stays, told.iter().map(text).collect())
    }

    fn any_item() -> impl Strategy<Value = Value> {
        let key = prop_oneof![
            Just(json!("a")),
            Just(json!("b")),
            Just(json!(1)),
            Just(json!(1.5)),
            Just(json!(null)),
            Just(json!({"a": [0.0]})),
            Just(json!({"a": [-0.0]})),
        ];
        (proptest::option::of(key.clone()), proptest::option::of(key), 0..3_u8).prop_map(
            |(one, other, rest)| {
                let with = |key: &str, value: Option<Value>| value.map(|value| (key.to_owned(), value));
                let fields = [with("one", one), with("other", other), with("rest", Some(rest.into()))];
                Value::Object(fields.into_iter().flatten().collect())
            },
        )
    }

    proptest! {
        #[test]
        fn of_equal_keys_the_last_stays(list in proptest::collection::vec(any_item(), 0..12), both: bool) {
            let keys: &[&str] = if both { &["one", "other"] } else { &["one"] };
            let (stays, told) = unique_by_definition(&list, keys);
            let (mut list, mut found) = (Value::Array(list), Vec::new());
            unique(&mut list, keys, "p", &mut found);
            prop_assert_eq!(list, Value::Array(stays));
            prop_assert_eq!(found, told.into_iter().map(|key| ("p".to_owned(), key)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn long_lists_take_no_longer_for_being_long() {
        const MANY: usize = 300_000;
        let distinct: Vec<Value> = (0..MANY).map(|number| json!({"name": format!("V{number}")})).collect();
        for (mut env, left, told) in
            [(Value::from(distinct), MANY, 0), (Value::from(vec![json!({"name": "V"}); MANY]), 1, 1)]
        {
            let (started, mut found) = (Instant::now(), Vec::new());
            unique(&mut env, &["name"], "env", &mut found);
            // Pairs of them would be tens of billions.
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
            assert_eq!((env.as_array().unwrap().len(), found.len()), (left, told));
        }
    }
}

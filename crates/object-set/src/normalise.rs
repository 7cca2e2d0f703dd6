//! Corrects an object before it is sent, so that server-side apply accepts what `kubectl create` accepts.

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::object::{Object, map_at};
use crate::order;
use crate::set::Warning;

pub(crate) mod certificate_authority;
pub(crate) mod keyed_lists;

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

/// Corrects an object: removes `status`, metadata that only the API server or a controller writes, empty labels and
/// annotations, the empty data of Secrets and ConfigMaps, empty lists of ServiceAccounts, nulls in built-in kinds, the
/// rules of an aggregated ClusterRole, CA bundles that a controller injects, and empty volume names of claims; turns a
/// Secret's `stringData` into `data`; sets the defaults of key fields in lists, such as the protocol of ports, and the
/// default types of network policies; keeps the last of several list items with the same key (with a warning each) if
/// that does not change the meaning. Other duplicates stay and are restored after the apply.
pub fn normalise(object: &mut Object) -> Vec<Warning> {
    let identity = object.identity();
    let kind = (object.group().to_owned(), object.kind().to_owned());
    let body = object.body_mut();
    body.remove("status");
    strip_metadata(body);
    if order::is_builtin(&kind.0) {
        strip_nulls(body);
    }
    match (kind.0.as_str(), kind.1.as_str()) {
        ("", "Secret") => {
            string_data(body);
            strip_empty(body, DATA_MAPS);
        }
        ("", "ConfigMap") => strip_empty(body, DATA_MAPS),
        ("", "ServiceAccount") => strip_empty_lists(body, &["imagePullSecrets", "secrets"]),
        ("", "PersistentVolumeClaim") => strip_empty_volume_name(body),
        ("networking.k8s.io", "NetworkPolicy") => default_policy_types(body),
        // The control plane writes the rules of an aggregated role.
        ("rbac.authorization.k8s.io", "ClusterRole")
            if body.get("aggregationRule").is_some_and(Value::is_object) =>
        {
            body.remove("rules");
        }
        _ => certificate_authority::remove_injected(body, &kind.0, &kind.1),
    }
    if let Some(fields) = keyed_lists::pod_spec_fields(&kind.0, &kind.1) {
        strip_template(body, fields);
    }
    let found = keyed_lists::remove_harmless_duplicates(body, &kind.0, &kind.1);
    let warning = |(path, key)| Warning::DuplicateListKey { object: identity.clone(), path, key };
    found.into_iter().map(warning).collect()
}

fn strip_metadata(body: &mut Map<String, Value>) {
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        for field in SERVER_METADATA {
            metadata.remove(*field);
        }
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.retain(|key, _| !CONTROLLER_ANNOTATIONS.contains(&key.as_str()));
        }
        strip_empty(metadata, MARK_MAPS);
    }
}

/// Annotations in which controllers and the API server keep state. Objects that were exported from a cluster have them.
/// An apply would own them, and each write of a controller would be drift.
/// Source: `deploymentutil.RevisionAnnotation`, `resourcelock.LeaderElectionRecordAnnotationKey`, and
/// `pkg/apis/autoscaling/annotations.go` of Kubernetes.
const CONTROLLER_ANNOTATIONS: &[&str] = &[
    "autoscaling.alpha.kubernetes.io/conditions",
    "autoscaling.alpha.kubernetes.io/current-metrics",
    "control-plane.alpha.kubernetes.io/leader",
    "deployment.kubernetes.io/revision",
];

/// Maps of `metadata` in which other managers add entries.
const MARK_MAPS: &[&str] = &["annotations", "labels"];

/// Maps of Secrets and ConfigMaps in which other managers add entries, for example a certificate.
const DATA_MAPS: &[&str] = &["binaryData", "data"];

/// Removes empty maps: an apply would own the whole map, and the first entry of another manager would be drift.
fn strip_empty(parent: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        if parent.get(*field).is_some_and(is_empty) {
            parent.remove(*field);
        }
    }
}

/// Removes empty lists of accounts, in which controllers of the cluster add Secrets: an apply would own the whole list.
fn strip_empty_lists(parent: &mut Map<String, Value>, fields: &[&str]) {
    for field in fields {
        if parent.get(*field).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            parent.remove(*field);
        }
    }
}

/// Maps of strings, in which the API server reads null as an empty string and not as absent.
const TEXT_MAPS: &[&str] =
    &["annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "selector", "stringData"];

/// Removes nulls: for built-in kinds they mean absence to the API server, but an apply would own the field, and a
/// value that another manager sets would be drift.
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
            // The API server reads null as an empty string, and refuses any other type.
            Value::Null => Value::String(String::new()),
            other => other,
        };
        data.insert(key, value);
    }
}

/// Removes an empty volume name: the control plane sets the name of the volume that it binds, which an apply could not
/// take back.
fn strip_empty_volume_name(body: &mut Map<String, Value>) {
    if let Some(Value::Object(spec)) = body.get_mut("spec")
        && spec.get("volumeName").and_then(Value::as_str) == Some("")
    {
        spec.remove("volumeName");
    }
}

/// Sets the types of a network policy that names none. The API server derives them from the rules only at the creation:
/// egress rules that come later would have no effect.
/// Source: `SetDefaults_NetworkPolicy` in `pkg/apis/networking/v1/defaults.go` of Kubernetes.
fn default_policy_types(body: &mut Map<String, Value>) {
    let Some(Value::Object(spec)) = body.get_mut("spec") else { return };
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    if spec.get("policyTypes").is_none_or(is_empty) {
        let has_egress = spec.get("egress").is_some_and(|rules| !is_empty(rules));
        let types = if has_egress { vec!["Ingress", "Egress"] } else { vec!["Ingress"] };
        spec.insert("policyTypes".to_owned(), types.into());
    }
}

fn strip_template(body: &mut Map<String, Value>, pod_spec: &[&str]) {
    let Some((_, template)) = pod_spec.split_last() else { return };
    let mut at = (!template.is_empty()).then_some(body);
    for field in template {
        at = at.and_then(|map| map.get_mut(*field)).and_then(Value::as_object_mut);
    }
    if let Some(Value::Object(metadata)) = at.and_then(|template| template.get_mut("metadata")) {
        metadata.remove("creationTimestamp");
        strip_empty(metadata, MARK_MAPS);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(value: Value) -> (Value, Vec<Warning>) {
        let mut object = Object::from_value(value).unwrap();
        let warnings = normalise(&mut object);
        (object.into_value(), warnings)
    }

    #[test]
    fn fields_that_only_the_api_server_writes_are_removed() {
        let (value, _) = after(
            json!({"apiVersion": "x.io/v1", "kind": "A", "status": {"a": 1}, "metadata": {
            "name": "a", "creationTimestamp": null, "uid": "u", "resourceVersion": "1", "labels": {"l": "v"}}}),
        );
        let expected =
            json!({"apiVersion": "x.io/v1", "kind": "A", "metadata": {"name": "a", "labels": {"l": "v"}}});
        assert_eq!(value, expected);
    }

    #[test]
    fn state_of_controllers_in_exported_objects_is_left_to_them() {
        let annotations = |annotations: Value| {
            let (value, _) = after(json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "annotations": annotations}}));
            value["metadata"].get("annotations").cloned()
        };
        let revision = "deployment.kubernetes.io/revision";
        assert_eq!(annotations(json!({revision: "1"})), None);
        assert_eq!(annotations(json!({revision: "1", "own": "x"})), Some(json!({"own": "x"})));
        let spec = json!({"autoscaling.alpha.kubernetes.io/metrics": "[]"});
        assert_eq!(annotations(spec.clone()), Some(spec), "it is part of the desired state");
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
    fn empty_fields_are_removed() {
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
    fn empty_lists_of_an_account_are_left_to_their_writers() {
        let account = |lists: Value| {
            let mut account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
            json_patch::merge(&mut account, &lists);
            account
        };
        assert_eq!(after(account(json!({"imagePullSecrets": [], "secrets": []}))).0, account(json!({})));
        let lists = json!({"imagePullSecrets": [{"name": "a"}], "secrets": [{"name": "b"}]});
        assert_eq!(after(account(lists.clone())).0, account(lists));
    }

    #[test]
    fn string_data_wins_over_data() {
        let (value, _) = after(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "data": {"a": "eA==", "b": "eQ=="}, "stringData": {"b": "hi", "c": null}}));
        assert_eq!(value["data"], json!({"a": "eA==", "b": "aGk=", "c": ""}));
        assert!(value.get("stringData").is_none());
    }

    #[test]
    fn an_empty_volume_name_of_a_claim_is_the_control_planes() {
        let spec = |volume: &str| {
            let spec = json!({"volumeName": volume, "storageClassName": ""});
            after(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"}, "spec": spec}))
                .0["spec"]
                .clone()
        };
        assert_eq!(spec(""), json!({"storageClassName": ""}));
        assert_eq!(spec("v"), json!({"volumeName": "v", "storageClassName": ""}));
    }

    #[test]
    fn types_of_a_network_policy_follow_its_rules() {
        let types = |spec: Value| {
            let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"name": "a"}, "spec": spec});
            after(policy).0["spec"]["policyTypes"].clone()
        };
        assert_eq!(types(json!({"podSelector": {}})), json!(["Ingress"]));
        assert_eq!(types(json!({"ingress": [{}], "egress": []})), json!(["Ingress"]));
        assert_eq!(types(json!({"egress": [{}], "policyTypes": null})), json!(["Ingress", "Egress"]));
        assert_eq!(types(json!({"egress": [{}], "policyTypes": []})), json!(["Ingress", "Egress"]));
        assert_eq!(types(json!({"egress": [{}], "policyTypes": ["Egress"]})), json!(["Egress"]));
        assert_eq!(types(json!({"policyTypes": "Egress"})), json!("Egress"), "for the API server to refuse");
    }

    #[test]
    fn empty_data_is_left_to_its_writers() {
        for (kind, content) in [
            ("Secret", json!({"data": {}})),
            ("Secret", json!({"stringData": {}})),
            ("Secret", json!({"data": {}, "stringData": {}})),
            ("ConfigMap", json!({"data": {}, "binaryData": {}})),
        ] {
            let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
            json_patch::merge(&mut object, &content);
            let expected = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
            assert_eq!(after(object).0, expected, "{kind} {content}");
        }
        let custom =
            json!({"apiVersion": "x.io/v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {}});
        assert_eq!(after(custom.clone()).0, custom);
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
}

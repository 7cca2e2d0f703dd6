//! Comparable state of a Kyma after a stage.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use e2e::snapshot::{self, Key, Snapshot, paths};
use kube::Client;
use kyma_api::labels;
use serde_json::{Value, json};

use crate::writes::{Write, masked, without_name};

/// Kinds whose objects Kubernetes creates and names itself.
const IGNORED_KINDS: [(&str, &str); 7] = [
    ("", "Pod"),
    ("", "Endpoints"),
    ("", "Node"),
    ("apiregistration.k8s.io", "APIService"),
    ("apps", "ReplicaSet"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "IPAddress"),
];
/// Groups of the apiserver's own settings.
const IGNORED_GROUPS: [&str; 2] = ["flowcontrol.apiserver.k8s.io", "admissionregistration.k8s.io"];
/// Fields whose values depend on names, or that Kubernetes sets.
const IGNORED_FIELDS: [&str; 5] = ["hash", "resourceVersion", "clusterIP", "clusterIPs", labels::SHARD];

/// Objects of one Kyma on the hub, and all objects of its target.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComparableState {
    objects: BTreeMap<String, Value>,
    /// uids of these objects by name.
    uids: BTreeMap<String, String>,
}

impl ComparableState {
    pub(crate) async fn take(hub: &Client, target: &Client, kyma: &str) -> Result<Self> {
        let mut state = Self::default();
        let (on_hub, on_target) = futures::try_join!(
            snapshot::take_whole(hub, is_kyma_group),
            snapshot::take_whole(target, is_compared)
        )?;
        state.add("hub", on_hub.into_iter().filter(|(key, _)| key.name.contains(kyma)).collect(), kyma)?;
        state.add("target", on_target, kyma)?;
        Ok(state)
    }

    fn add(&mut self, place: &str, objects: Snapshot, kyma: &str) -> Result<()> {
        for (key, object) in objects {
            // The apiserver's own address differs between clusters.
            if key.is("", "Service") && key.name == "kubernetes" {
                continue;
            }
            let name = format!("{place}: {}", without_name(&key.to_string(), kyma));
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            self.uids.insert(name.clone(), uid);
            self.objects.insert(name, normalize(&key, object, kyma)?);
        }
        Ok(())
    }

    /// Returns the differences from the other state, one line each.
    pub(crate) fn differs_from(&self, other: &Self) -> Vec<String> {
        let gone = other.objects.keys().filter(|name| !self.objects.contains_key(*name));
        let gone = gone.map(|name| format!("lacks {name}"));
        let rest = self.objects.iter().filter_map(|(name, object)| {
            let Some(expected) = other.objects.get(name) else { return Some(format!("has {name}")) };
            let paths = paths(expected, object);
            let at = |object: &Value, path: &str| object.pointer(path).cloned().unwrap_or_default();
            let of = |path: &String| format!("{path} {} not {}", at(object, path), at(expected, path));
            let all: Vec<String> = paths.iter().map(of).collect();
            (!paths.is_empty()).then(|| format!("{name}: {}", all.join("; ")))
        });
        gone.chain(rest).collect()
    }

    /// Returns objects of both states whose uids differ.
    pub(crate) fn replaced_since(&self, before: &Self) -> BTreeSet<String> {
        let others =
            self.uids.iter().filter(|(name, uid)| before.uids.get(*name).is_some_and(|old| old != *uid));
        others.map(|(name, _)| name.clone()).collect()
    }
}

fn is_kyma_group(group: &str, _: &str) -> bool {
    group.ends_with("kyma-project.io")
}

fn is_compared(group: &str, kind: &str) -> bool {
    !IGNORED_KINDS.contains(&(group, kind)) && !IGNORED_GROUPS.contains(&group)
}

/// Returns the deleted objects with the operator.
pub(crate) fn deletions(writes: &[Write]) -> BTreeSet<String> {
    writes.iter().filter(|write| write.line.contains(" DELETE ")).map(|write| write.line.clone()).collect()
}

/// Returns an object without times, uids, names that differ between Kymas, and status that Kubernetes writes.
fn normalize(key: &Key, mut object: Value, kyma: &str) -> Result<Value> {
    if let Some(fields) = object.as_object_mut()
        && !is_kyma_group(&key.group, &key.kind)
    {
        fields.remove("status");
    }
    if let Some(entries) = object["metadata"]["managedFields"].as_array() {
        object["metadata"]["managedFields"] = owned_fields(entries);
    }
    // The order depends on which operator wrote first.
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
        finalizers.sort_by_key(ToString::to_string);
    }
    if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    // On CRDs and namespaces a mark shows whether they were adopted. For other kinds only the response shows it, which
    // a kill may swallow, so their `adopted` is ignored.
    for group in object["status"]["objects"].as_array_mut().into_iter().flatten() {
        let is_marked = matches!(group["kind"].as_str(), Some("CustomResourceDefinition" | "Namespace"));
        let items = group["items"].as_array_mut().filter(|_| !is_marked);
        for fields in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            fields.remove("adopted");
        }
    }
    drop_ignored_fields(&mut object);
    Ok(serde_json::from_str(&masked(&without_name(&object.to_string(), kyma)))?)
}

/// Returns the fields that operators own, by owner. Namespaces, stamps and the record of a first contact are
/// created by the operator that comes first, so fields that were not applied are attributed to one common owner.
fn owned_fields(entries: &[Value]) -> Value {
    let mut all = json!({});
    for entry in entries {
        let Some(manager) = entry["manager"].as_str().filter(|manager| is_operator(manager)) else {
            continue;
        };
        let owner = if entry["operation"] == "Apply" { manager } else { "first operator" };
        merge(&mut all[format!("{owner} {}", entry["subresource"])], &entry["fieldsV1"]);
    }
    all
}

fn merge(into: &mut Value, from: &Value) {
    let Some(fields) = from.as_object() else {
        *into = from.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    // `.` is the object itself, which belongs to the operator that created it.
    for (field, value) in fields.iter().filter(|(field, _)| *field != ".") {
        merge(&mut into[field], value);
    }
}

fn is_operator(manager: &str) -> bool {
    ["kyma-operator", "helm-component", "release-meta-syncer", "greeting-component"]
        .iter()
        .any(|operator| manager.starts_with(operator))
}

fn drop_ignored_fields(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_ignored_fields),
        Value::Object(fields) => {
            fields.retain(|field, _| !IGNORED_FIELDS.contains(&field.as_str()));
            fields.values_mut().for_each(drop_ignored_fields);
        }
        _ => {}
    }
}

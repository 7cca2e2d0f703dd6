//! Computes the Manifest that KLM would have for a component. Pure.

use kube::api::DynamicObject;
use kyma_api::condition::types;
use kyma_api::{InventoryGroup, State, annotations, klm, labels};
use kyma_connection::owned_fields;
use serde_json::{Map, Value, json};

use super::{ObservedManifest, Origin};
use crate::hub::component::ComponentView;

/// Annotation value on each copy.
const READ_ONLY_DISCLAIMER: &str = "DO NOT EDIT - This Manifest is a read-only copy of the component that owns it. Nobody acts on it, and edits \
                         are undone.";

/// Desired state of a Manifest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DesiredManifest {
    pub(super) name: String,
    module: String,
    /// uid of the component.
    owner: String,
    /// Body of a copy without the status.
    pub(super) body: Value,
    pub(super) status: Value,
}

/// Parts of a Manifest that have to be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Write {
    /// Whether to write everything except the status.
    pub(super) body: bool,
    pub(super) status: bool,
}

/// Compares the desired Manifest with the live one.
pub(super) fn write(desired: &DesiredManifest, observed: Option<&ObservedManifest>) -> Write {
    let Some(observed) = observed else { return Write { body: true, status: true } };
    // KLM truncates long names, so two modules may share one.
    let is_of_module = observed.module.as_ref() == Some(&desired.module);
    let is_its = is_of_module || observed.owner.as_ref() == Some(&desired.owner);
    let status = observed.status.as_ref() != Some(&owned_fields::fingerprint_of_status(&desired.status));
    match observed.origin {
        Origin::Mirror if is_its && !observed.terminating => Write {
            body: observed.body.as_ref() != Some(&owned_fields::fingerprint_of_apply(&desired.body)),
            status,
        },
        Origin::HandedOver if is_of_module => Write { body: false, status },
        _ => Write::default(),
    }
}

/// Returns the Manifest of a component. `ocm` is the name of the OCM component in the catalogue.
pub(super) fn desired(view: &ComponentView, component: &DynamicObject, ocm: Option<&str>) -> DesiredManifest {
    let contract = kyma_api::ComponentView::of(component);
    let named = component.data.pointer("/spec/source/ocm/component").and_then(Value::as_str);
    let ocm = named.or(ocm).unwrap_or(&view.module);
    let name = klm::manifest_name(&view.kyma.name, ocm, &view.module);
    let metadata = json!({
        "name": name,
        "namespace": contract.namespace,
        "labels": labels_of(component),
        "annotations": {
            annotations::FQDN: ocm,
            annotations::OCM_COMPONENT_NAME: ocm,
            annotations::DISCLAIMER: READ_ONLY_DISCLAIMER,
        },
        "ownerReferences": [{
            "apiVersion": view.kind.api_version,
            "kind": view.kind.kind,
            "name": contract.name,
            "uid": contract.uid,
            "controller": true,
            "blockOwnerDeletion": false,
        }],
    });
    let body = json!({
        "apiVersion": klm::manifest_resource().api_version,
        "kind": klm::MANIFEST,
        "metadata": metadata,
        "spec": spec_of(component, &contract),
    });
    let status = status_of(component, &contract);
    DesiredManifest { name, module: view.module.clone(), owner: contract.uid, body, status }
}

fn labels_of(component: &DynamicObject) -> Map<String, Value> {
    let given = component.metadata.labels.as_ref();
    let mut set = Map::new();
    for name in [
        labels::KYMA_NAME,
        labels::MODULE_NAME,
        labels::CHANNEL,
        labels::CONTROLLER_NAME,
        labels::MANAGED_BY,
        labels::MANDATORY_MODULE,
    ] {
        if let Some(value) = given.and_then(|given| given.get(name)) {
            set.insert(name.to_owned(), json!(value));
        }
    }
    // KLM sets the label also without a controller.
    set.entry(labels::CONTROLLER_NAME).or_insert_with(|| json!(""));
    set.insert(labels::SKIP_RECONCILIATION.to_owned(), json!("true"));
    set.insert(labels::MIRROR.to_owned(), json!("true"));
    set
}

/// Returns a spec without content: an operator that mistook the copy for a KLM Manifest would install nothing.
fn spec_of(component: &DynamicObject, contract: &kyma_api::ComponentView) -> Value {
    let at = |pointer: &str| component.data.pointer(pointer);
    let has = |value: &&Value, fields: &[&str]| fields.iter().all(|name| value[name].is_string());
    let policy = at("/spec/resourcePolicy").filter(|policy| policy.is_string());
    let mut spec = json!({
        "remote": false,
        "install": { "name": "raw-manifest", "source": {} },
        "customResourcePolicy": policy.unwrap_or(&json!("CreateAndDelete")),
    });
    if let Some(version) = &contract.wanted_version {
        spec["version"] = json!(version);
    }
    if let Some(resource) = at("/spec/resource").filter(|it| has(it, &["apiVersion", "kind"])) {
        spec["resource"] = resource.clone();
    }
    if let Some(manager) = at("/spec/manager").filter(|it| has(it, &["group", "version", "kind", "name"])) {
        spec["manager"] = manager.clone();
    }
    spec
}

fn status_of(component: &DynamicObject, contract: &kyma_api::ComponentView) -> Value {
    let conditions = component.data.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();
    let created = json!(contract.creation_timestamp);
    let of = |type_: &str| conditions.iter().find(|condition| condition["type"] == type_);
    let moved = |condition: &Value| condition["lastTransitionTime"].as_str().map(str::to_owned);
    let when = |condition: Option<&Value>| condition.and_then(moved).map_or(created.clone(), Value::from);
    let klm_condition = |type_: &str, reason: &str, like: Option<&Value>| {
        let field =
            |name: &str, other: &str| like.and_then(|like| like[name].as_str()).unwrap_or(other).to_owned();
        json!({
            "type": type_, "reason": reason, "status": field("status", "Unknown"),
            "message": field("message", ""), "lastTransitionTime": when(like),
        })
    };
    let (applied, ready) = (of(types::APPLIED), of(types::READY));
    let mut shown = vec![
        klm_condition(klm::RESOURCES, "ResourcesAvailable", applied),
        klm_condition(klm::INSTALLATION, "Ready", ready),
    ];
    let at = |pointer: &str| component.data.pointer(pointer);
    if at("/spec/resource").is_some() && at("/spec/resourcePolicy").is_none_or(|it| it == "CreateAndDelete") {
        let mut made = klm_condition(klm::MODULE_CR, "ModuleCRCreated", applied);
        let is_made = at("/status/resource").is_some();
        made["status"] = json!(if is_made { "True" } else { "False" });
        made["message"] = json!(if is_made { "module CR was created" } else { "" });
        shown.push(made);
    }
    let last = conditions.iter().filter_map(moved).max().map_or(created.clone(), Value::from);
    let operation = ready.and_then(|ready| ready["message"].as_str().filter(|text| !text.is_empty()));
    let operation = operation.or_else(|| ready.and_then(|ready| ready["reason"].as_str())).unwrap_or("");
    json!({
        "state": contract.state.filter(|state| *state != State::Unset).unwrap_or(State::Processing),
        "conditions": shown,
        "lastOperation": { "operation": operation, "lastUpdateTime": last },
        "synced": synced_of(component),
    })
}

/// Returns the objects on the target. Components of other kinds need not report them. An unreadable packed inventory
/// yields nothing until its reconciler writes it again.
fn synced_of(component: &DynamicObject) -> Vec<Value> {
    let status = &component.data["status"];
    let field = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let synced = |group: &Value, item: &Value| {
        let kind = ["group", "version", "kind", "namespace"]
            .map(|name| (name.to_owned(), json!(field(group, name))));
        let name = ("name".to_owned(), json!(field(item, "name")));
        Value::Object(kind.into_iter().chain([name]).collect())
    };
    let packed =
        status["packedObjects"].as_str().map(|text| InventoryGroup::unpack(text).unwrap_or_default());
    let packed = packed.map_or(Value::Null, |groups| json!(groups));
    let mut groups = [&status["objects"], &packed].into_iter().filter_map(Value::as_array).peekable();
    if groups.peek().is_none() {
        // Format of earlier versions.
        let entries = status["inventory"].as_array().into_iter().flatten();
        return entries.map(|entry| synced(entry, entry)).collect();
    }
    let items = |group: &Value| group["items"].as_array().cloned().unwrap_or_default();
    groups.flatten().flat_map(|group| items(group).into_iter().map(|item| synced(group, &item))).collect()
}

//! Converts a Manifest to a component: its body, and the inventory of installed objects. Pure.

use kube::{Resource as _, ResourceExt as _};
use kyma_api::{
    CreatedResource, DeletionPolicy, HelmComponent, InventoryEntry, InventoryGroup, Kyma, SecretKeyRef,
    finalizers, klm, labels, names,
};
use serde_json::{Map, Value, json};

use super::facts::{Manifest, MigrationState, ReadManifest as _};

/// Returns the component of a module as kyma-operator would create it. kyma-operator takes it over later; `waits`
/// stops its reconciler.
pub(super) fn body(facts: &MigrationState, module: &str, manifest: &Manifest, waits: bool) -> Option<Value> {
    let (kyma, access) = (&facts.kyma, facts.access.as_ref().ok()?);
    let version = manifest.spec.version.as_ref()?;
    let mut named = json!({ "name": module, "version": version });
    if let Some(channel) = manifest.labels().get(labels::CHANNEL).filter(|channel| !channel.is_empty()) {
        named["channel"] = json!(channel);
    }
    let mut spec = json!({
        "target": { "kubeconfigSecretRef": access },
        "module": named,
        "source": { "ocm": { "component": manifest.ocm_component()?, "version": version } },
        "resourcePolicy": manifest.spec.custom_resource_policy,
        "deletionPolicy": DeletionPolicy::Orphan,
    });
    if let Some(resource) = &manifest.spec.resource {
        spec["resource"] = json!(resource);
    }
    if let Some(manager) = &manifest.spec.manager {
        spec["manager"] = json!(manager);
    }
    let mut labels = labels_of(kyma, module, manifest, access);
    if waits {
        labels.insert(labels::SKIP_RECONCILIATION.to_owned(), json!("true"));
    }
    Some(json!({
        "apiVersion": HelmComponent::api_version(&()),
        "kind": HelmComponent::kind(&()),
        "metadata": {
            "name": names::component_name(&kyma.name_any(), module),
            "namespace": kyma.namespace(),
            "labels": labels,
            "finalizers": [finalizers::COMPONENT],
            "ownerReferences": [{
                "apiVersion": Kyma::api_version(&()),
                "kind": Kyma::kind(&()),
                "name": kyma.name_any(),
                "uid": kyma.uid(),
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": spec,
    }))
}

fn labels_of(kyma: &Kyma, module: &str, manifest: &Manifest, access: &SecretKeyRef) -> Map<String, Value> {
    let namespace = kyma.namespace().unwrap_or_default();
    let mut set = Map::new();
    let mut label = |name: &str, value: String| drop(set.insert(name.to_owned(), Value::from(value)));
    label(labels::KYMA_NAME, names::label_value(&kyma.name_any()));
    label(labels::MODULE_NAME, names::label_value(module));
    label(labels::SHARD, names::shard(&namespace, &access.name).to_string());
    label(labels::MANAGED_BY, labels::MANAGED_BY_LIFECYCLE_MANAGER.to_owned());
    for name in [labels::CHANNEL, labels::CONTROLLER_NAME, labels::MANDATORY_MODULE] {
        if let Some(value) = manifest.labels().get(name).filter(|value| !value.is_empty()) {
            label(name, value.clone());
        }
    }
    set
}

/// Returns the component's status: objects that KLM applied and that exist, with their uids. Missing hashes show that
/// helm-component never applied them.
pub(super) fn record(facts: &MigrationState, manifest: &Manifest) -> Value {
    let inventory = manifest.synced().iter().filter_map(|object| {
        let identity = object.identity();
        Some(InventoryEntry {
            uid: facts.target.get(&identity)?.uid.clone()?,
            version: object.version.clone(),
            group: identity.group,
            kind: identity.kind,
            namespace: identity.namespace,
            name: identity.name,
            ..InventoryEntry::default()
        })
    });
    let mut status = json!({
        "version": manifest.spec.version,
        "objects": InventoryGroup::of(inventory),
    });
    if let Some(made) = default_cr(facts, manifest) {
        status["resource"] = json!(made);
    }
    status
}

/// Returns the default CR if KLM has created it. It has a uid, by which it is removed with its module, only if KLM's
/// entry in `managedFields` proves that KLM created it and not a user.
fn default_cr(facts: &MigrationState, manifest: &Manifest) -> Option<CreatedResource> {
    let (identity, api_version) = manifest.default_cr().filter(|_| manifest.has_made_default_cr())?;
    let live = facts.target.get(&identity).filter(|live| {
        let mut entries = live.managed_fields.iter().flatten();
        entries.any(|entry| entry.manager.as_deref() == Some(klm::DEFAULT_CR_MANAGER))
    });
    Some(CreatedResource {
        api_version,
        uid: live.and_then(|live| live.uid.clone()),
        kind: identity.kind,
        namespace: identity.namespace,
        name: identity.name,
        absent: None,
    })
}

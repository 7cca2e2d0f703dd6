//! Gives objects on a target back to KLM.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta},
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, PartialObjectMeta, Patch, PatchParams},
};
use kyma_api::{Kyma, annotations, klm, labels, names};
use kyma_controller::{DeleteRequest, Failure, find_object};
use kyma_object_set::{
    CREATED_BY, Gvk, Identity, OWNER_LABEL, Ownership, SET_VERSION, SHARE_PREFIX, SHARED, move_fields,
};
use kyma_targets::{STAMP_MANAGERS, STAMP_NAME, STAMP_NAMESPACE, Stamp};
use serde_json::{Value, json};

use super::{
    back,
    facts::{Manifest, Module},
    note::KymaNote,
    read::{KymaSnapshot, VerifiedTarget},
    write::json_patch,
};
use crate::error::Error;
use crate::hub::MANAGER;

impl KymaSnapshot {
    /// Gives the objects of a module back to KLM: its labels, then the ownership of all fields. No spec is changed.
    pub(super) async fn return_objects(&self, name: &str) -> Result<(), Error> {
        let (Some(reached), Some(module)) = (&self.target, self.facts.modules.get(name)) else {
            return Ok(());
        };
        let kyma = &self.facts.kyma;
        let component = names::component_name(&kyma.name_any(), name);
        let owner = names::owner_hash(&kyma.namespace().unwrap_or_default(), &component);
        let versions: BTreeMap<Identity, String> = module.objects().into_iter().collect();
        for (identity, live) in back::to_give_back(&self.facts, &owner, module) {
            let version = versions.get(&identity).cloned().unwrap_or_default();
            let object = Object { reached, version, identity };
            let live = object.mark(live, module, &owner).await?;
            object.give(&live, &owner).await?;
        }
        Ok(())
    }

    /// Restores the status of the target's Kyma, as KLM derives it from the hub's, and its managedFields.
    pub(super) async fn restore_target_kyma(&self, noted: &KymaNote) -> Result<(), Error> {
        let Some(reached) = &self.target else { return Ok(()) };
        let Identity { namespace, name, .. } = &self.facts.target_kyma;
        let namespace = namespace.as_deref().unwrap_or_default();
        let resource = ApiResource::erase::<Kyma>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(reached.target.client(), namespace, &resource);
        let failed = |error: kube::Error| Failure::target("return the target's Kyma", &error);
        let Some(live) = find_object(&api, name).await.map_err(failed)? else { return Ok(()) };
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": live.uid()});
        let status =
            json!({"op": "add", "path": "/status", "value": status_on_target(&noted.status, namespace)});
        let patch = json_patch([&uid, &status])?;
        let put = api.patch_status(name, &params(klm::UPDATER), &patch).await.map_err(failed)?;
        let version =
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": put.resource_version()});
        let owners = json!({"op": "add", "path": "/metadata/managedFields", "value": owners_back(&put.metadata, noted)});
        let patch = json_patch([uid, version, owners])?;
        api.patch_metadata(name, &params(MANAGER), &patch).await.map_err(failed)?;
        Ok(())
    }
}

impl KymaSnapshot {
    /// Deletes the stamp: no operator owns the target, and a later hand-over starts from the beginning.
    pub(super) async fn remove_stamp(&self) -> Result<(), Error> {
        let Some(reached) = &self.target else { return Ok(()) };
        let api: Api<ConfigMap> = Api::namespaced(reached.target.client(), STAMP_NAMESPACE);
        let failed = |error: kube::Error| Failure::target("remove the stamp", &error);
        let Some(live) = find_object(&api, STAMP_NAME).await.map_err(failed)? else { return Ok(()) };
        if Some(Stamp::from_config_map(&live).kyma.uid) != self.facts.kyma.uid() {
            return Ok(());
        }
        let resource = ApiResource::erase::<ConfigMap>(&());
        let request = DeleteRequest::new(&resource, &live.metadata, &STAMP_MANAGERS);
        let deleted = self.delete_gate().await?.carry_out(&reached.target.client(), &request).await;
        deleted
            .map(drop)
            .map_err(|error| error.into_failure(|error| Failure::target("remove the stamp", error)))?;
        Ok(())
    }
}

/// Returns the managedFields of the target's Kyma: KLM's as recorded, those of users unchanged, none of the
/// operators.
fn owners_back(live: &ObjectMeta, noted: &KymaNote) -> Vec<ManagedFieldsEntry> {
    let name = |entry: &ManagedFieldsEntry| entry.manager.clone().unwrap_or_default();
    let theirs: BTreeSet<String> = noted
        .target_fields
        .iter()
        .map(name)
        .filter(|name| klm::TARGET_KYMA_MANAGERS.contains(&name.as_str()))
        .collect();
    let others = live.managed_fields.iter().flatten().filter(|entry| {
        let name = name(entry);
        !theirs.contains(&name) && !back::STATUS_MANAGERS.contains(&name.as_str())
    });
    let noted = noted.target_fields.iter().filter(|entry| theirs.contains(&name(entry)));
    noted.chain(others).cloned().collect()
}

/// An object on the target.
struct Object<'a> {
    reached: &'a VerifiedTarget,
    version: String,
    identity: Identity,
}

impl Object<'_> {
    fn api(&self) -> Result<Api<DynamicObject>, Error> {
        let gvk = Gvk::new(&self.identity.group, &self.version, &self.identity.kind);
        let mapping = self.reached.kinds.any(&gvk);
        let mapping =
            mapping.ok_or_else(|| Error::input(self.identity.to_string(), "its kind is not served"))?;
        Ok(mapping.api(&self.reached.target.client(), self.identity.namespace.as_deref()))
    }

    fn failed(&self, error: &kube::Error) -> Error {
        Failure::target(&format!("return {}", self.identity), error).into()
    }

    /// Replaces the labels and annotations by KLM's.
    async fn mark(&self, live: &ObjectMeta, module: &Module, owner: &str) -> Result<ObjectMeta, Error> {
        let Some(manifest) = &module.manifest else { return Ok(live.clone()) };
        let body = json!({"metadata": {
            "uid": live.uid,
            "labels": labels_back(live, manifest, owner),
            "annotations": annotations_back(live, manifest),
        }});
        let marked: kube::Result<PartialObjectMeta<DynamicObject>> =
            self.api()?.patch_metadata(&self.identity.name, &params(MANAGER), &Patch::Merge(&body)).await;
        Ok(marked.map_err(|error| self.failed(&error))?.metadata)
    }

    /// Transfers the ownership of fields to KLM.
    async fn give(&self, live: &ObjectMeta, owner: &str) -> Result<(), Error> {
        let [alone, with_others] = back::managers(owner);
        let Some(patch) = move_fields(live, &[&alone, &with_others, MANAGER], klm::APPLIER) else {
            return Ok(());
        };
        let patch = Patch::<()>::Json(patch);
        let given = self.api()?.patch_metadata(&self.identity.name, &params(MANAGER), &patch).await;
        given.map(drop).map_err(|error| self.failed(&error))
    }
}

fn params(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// Returns the labels that KLM sets on every object of a module, with `null` for those of helm-component.
fn labels_back(live: &ObjectMeta, manifest: &Manifest, owner: &str) -> Value {
    let mut set = json!({
        klm::OBJECT_COMPONENT: manifest.name_any(),
        klm::OBJECT_PART_OF: klm::PART_OF_KYMA,
        labels::MANAGED_BY: labels::MANAGED_BY_KYMA,
    });
    let share = Ownership::share_label(owner);
    let held = |name: &str| live.labels.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    let mut others = live.labels.iter().flat_map(BTreeMap::keys);
    let is_shared = others.any(|name| name.starts_with(SHARE_PREFIX) && *name != share);
    if held(&share).is_some() {
        set[share] = Value::Null;
    }
    if held(OWNER_LABEL) == Some(owner) || (held(OWNER_LABEL) == Some(SHARED) && !is_shared) {
        set[OWNER_LABEL] = Value::Null;
    }
    set
}

fn annotations_back(live: &ObjectMeta, manifest: &Manifest) -> Value {
    let owned_by = format!("{}/{}", manifest.namespace().unwrap_or_default(), manifest.name_any());
    let mut set = json!({annotations::OWNED_BY: owned_by});
    let ours = [annotations::MODULE_VERSION, CREATED_BY, SET_VERSION];
    for name in live.annotations.iter().flat_map(BTreeMap::keys).filter(|name| ours.contains(&name.as_str()))
    {
        set[name] = Value::Null;
    }
    set
}

/// Returns the hub's status as KLM shows it on the target: without Manifests, and with the templates' namespace on
/// the target.
fn status_on_target(status: &Value, namespace: &str) -> Value {
    let mut status = if status.is_object() { status.clone() } else { json!({}) };
    let modules = status.get_mut("modules").and_then(Value::as_array_mut).into_iter().flatten();
    for module in modules.filter_map(Value::as_object_mut) {
        module.remove("manifest");
        let template = module.get_mut("template").and_then(|template| template.get_mut("metadata"));
        if let Some(metadata) = template.and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_status_is_the_hubs_without_what_is_only_there() {
        let template =
            json!({"kind": "ModuleTemplate", "metadata": {"name": "keda-1.0.0", "namespace": "kcp-system"}});
        let hub = json!({"state": "Ready", "modules": [
            {"name": "keda", "manifest": {"kind": "Manifest"}, "template": template}, {"name": "bare"},
        ]});
        let shown = status_on_target(&hub, "kyma-system");
        assert_eq!(shown["modules"][0]["template"]["metadata"]["namespace"], "kyma-system");
        assert!(shown["modules"][0].get("manifest").is_none());
        assert_eq!(shown["modules"][1], json!({"name": "bare"}));
        assert_eq!(status_on_target(&Value::Null, "kyma-system"), json!({}));
    }
}

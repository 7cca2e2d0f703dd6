//! Writes of a hand-over on the hub. Each tests the uid, or the resourceVersion if it depends on the read state; API
//! servers ignore the uid in an apply of a status.

use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams},
};
use kyma_api::{
    DeletionPolicy, HelmComponent, Kyma, annotations, finalizers, hand_over::klm_entry, klm, labels,
};
use kyma_controller::{
    DeleteError, DeleteGate, DeleteRequest, apply_status, create_new, find_metadata, hub_apply, is_conflict,
    read_paused_operations,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    back, component,
    facts::{Manifest, hand_over, is_noted, is_skipped},
    note::{self, KymaNote, ManifestNote},
    read::KymaSnapshot,
};
use crate::error::Error;
use crate::hub::MANAGER;

impl KymaSnapshot {
    fn namespace(&self) -> String {
        self.facts.kyma.namespace().unwrap_or_default()
    }

    fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.start.hub.clone(), &self.namespace())
    }

    fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.start.hub.clone(), &self.namespace())
    }

    fn manifests(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.start.hub.clone(), &self.namespace(), &klm::manifest_resource())
    }

    fn manifest(&self, module: &str) -> Result<&Manifest, Error> {
        let manifest = self.facts.modules.get(module).and_then(|module| module.manifest.as_ref());
        manifest.ok_or_else(|| Error::input(module, "its Manifest no longer exists"))
    }

    fn component(&self, module: &str) -> Result<&HelmComponent, Error> {
        let component = self.facts.modules.get(module).and_then(|module| module.component.as_ref());
        component.ok_or_else(|| Error::input(module, "its component no longer exists"))
    }

    /// Adds records and labels to the Manifests and the Kyma.
    pub(super) async fn record_and_label(&self) -> Result<(), Error> {
        for module in self.facts.modules.values() {
            let Some(manifest) = &module.manifest else { continue };
            let noted = || note::text(&note::of_manifest(manifest, &module.manifest_status));
            if let Some(body) = mark(&manifest.metadata, noted) {
                self.patch_manifest(manifest, &body).await?;
            }
        }
        let kyma = &self.facts.kyma;
        let noted = || note::text(&note::of_kyma(&self.facts));
        match mark(&kyma.metadata, noted) {
            Some(body) => self.patch_kyma(&body).await,
            None => Ok(()),
        }
    }

    /// Creates the component of a module with a stopped reconciler.
    pub(super) async fn create_component(&self, module: &str) -> Result<(), Error> {
        let manifest = self.manifest(module)?;
        let body = component::body(&self.facts, module, manifest, true);
        let body = body.ok_or_else(|| Error::input(module, "its Manifest names no content"))?;
        let component: DynamicObject = serde_json::from_value(body)
            .map_err(|error| Error::input(module, format!("its component cannot be built: {error}")))?;
        // Never overwrites an existing component: the read may be older.
        let kind = ApiResource::erase::<HelmComponent>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.start.hub.clone(), &self.namespace(), &kind);
        match create_new(&api, kyma_operator::FIELD_MANAGER, &component).await {
            Err(error) if is_conflict(&error) => {
                let problem = format!(
                    "HelmComponent {} exists already: run the command again, and rename or delete it if it is not the Kyma's",
                    component.name_any()
                );
                Err(Error::input(format!("module {module}"), problem))
            }
            created => Ok(created.map(drop)?),
        }
    }

    /// Writes the inventory to the component's status.
    pub(super) async fn write_inventory(&self, module: &str) -> Result<(), Error> {
        let component = self.component(module)?;
        let record = component::record(&self.facts, self.manifest(module)?);
        // Not with the reconciler's field manager: its next report would remove fields that it does not know yet.
        apply_status(&self.components(), MANAGER, &component.metadata, &json!(record)).await?;
        Ok(())
    }

    /// Stops or starts the component's reconciler.
    pub(super) async fn set_skip_label(&self, module: &str, skips: bool) -> Result<(), Error> {
        let component = self.component(module)?;
        let label = if skips { json!("true") } else { Value::Null };
        let body =
            json!({"metadata": {"uid": component.uid(), "labels": {labels::SKIP_RECONCILIATION: label}}});
        self.components().patch_metadata(&component.name_any(), &params(), &Patch::Merge(&body)).await?;
        Ok(())
    }

    /// Removes KLM's finalizers from a Manifest. A terminating one keeps them until its module is removed.
    pub(super) async fn remove_finalizers(&self, module: &str) -> Result<(), Error> {
        let manifest = self.manifest(module)?;
        let mut body = guarded(&manifest.metadata);
        body["metadata"]["labels"] = json!({labels::HAND_OVER: labels::HAND_OVER_DONE});
        if manifest.metadata.deletion_timestamp.is_none() {
            body["metadata"]["finalizers"] = without_klms(manifest);
        }
        self.patch_manifest(manifest, &body).await
    }

    /// Removes KLM's finalizers from a Manifest whose module is removed.
    pub(super) async fn remove_last_finalizers(&self, module: &str) -> Result<(), Error> {
        let manifest = self.manifest(module)?;
        let mut body = guarded(&manifest.metadata);
        body["metadata"]["finalizers"] = without_klms(manifest);
        self.patch_manifest(manifest, &body).await
    }

    /// Sets the hand-over label: the operators reconcile the Kyma, or all of them stop.
    pub(super) async fn set_hand_over_label(&self, value: &str) -> Result<(), Error> {
        let labels = json!({labels::HAND_OVER: value, labels::SKIP_RECONCILIATION: "true"});
        // Removed, so that an operator that stopped before reports it again.
        let notes: Map<String, Value> = back::OPERATORS
            .into_iter()
            .map(|operator| (annotations::stopped(operator), Value::Null))
            .collect();
        let body =
            json!({"metadata": {"uid": self.facts.kyma.uid(), "labels": labels, "annotations": notes}});
        self.patch_kyma(&body).await
    }

    /// Removes the fields that only KLM writes from the Kyma's status.
    pub(super) async fn clean_status(&self) -> Result<(), Error> {
        let kyma = &self.facts.kyma;
        let Some(manager) = klm_entry(&kyma.metadata).and_then(|entry| entry.manager.as_deref()) else {
            return Ok(());
        };
        let body = kyma_body(kyma);
        self.kymas().patch_status(&kyma.name_any(), &hub_apply(manager), &Patch::Apply(&body)).await?;
        Ok(())
    }

    /// Deletes a component so that everything on the target stays, even if its removal was requested.
    pub(super) async fn delete_component(&self, module: &str) -> Result<(), Error> {
        let component = self.component(module)?;
        let (name, uid) = (component.name_any(), component.uid().unwrap_or_default());
        if component.spec.deletion_policy != DeletionPolicy::Orphan {
            let order = [
                annotations::DELETION_REASON,
                annotations::DELETION_KYMA_UID,
                annotations::DELETION_KYMA_GENERATION,
            ];
            let none: Map<String, Value> =
                order.into_iter().map(|name| (name.to_owned(), Value::Null)).collect();
            let body = json!({
                "metadata": {"uid": uid, "annotations": none},
                "spec": {"deletionPolicy": DeletionPolicy::Orphan},
            });
            self.components().patch(&name, &params(), &Patch::Merge(&body)).await?;
        }
        if component.metadata.deletion_timestamp.is_none() {
            let components = ApiResource::erase::<HelmComponent>(&());
            let live = find_metadata(&self.components(), &name).await?;
            self.delete_live(&components, live.map(|live| live.metadata), &uid).await?;
        }
        Ok(())
    }

    /// Restores a Manifest's status, then its finalizers together with the value `pending` of the hand-over label,
    /// which marks it as restored.
    pub(super) async fn restore_manifest(&self, module: &str) -> Result<(), Error> {
        let manifest = self.manifest(module)?;
        let noted = note::read::<ManifestNote>(&manifest.metadata);
        let mut meta = manifest.metadata.clone();
        if let Some(noted) = noted.as_ref().filter(|noted| noted.status.is_object()) {
            let uid = json!({"op": "test", "path": "/metadata/uid", "value": meta.uid});
            let status = json!({"op": "add", "path": "/status", "value": noted.status});
            let patch = json_patch([uid, version_test(&meta), status])?;
            meta = self.manifests().patch_status(&manifest.name_any(), &params(), &patch).await?.metadata;
        }
        let mut body = guarded(&meta);
        body["metadata"]["labels"] = json!({labels::HAND_OVER: labels::HAND_OVER_PENDING});
        // Nothing is added to a terminating object.
        if let Some(noted) = noted.filter(|_| manifest.metadata.deletion_timestamp.is_none()) {
            let mut all = manifest.finalizers().to_vec();
            all.extend(noted.finalizers.into_iter().filter(|name| !manifest.finalizers().contains(name)));
            body["metadata"]["finalizers"] = json!(all);
        }
        self.patch_manifest(manifest, &body).await
    }

    /// Deletes the Manifests that kyma-operator created as copies of deleted components.
    pub(super) async fn delete_mirrors(&self) -> Result<(), Error> {
        for (name, uid) in &self.facts.mirrors {
            let live = find_metadata(&self.manifests(), name).await?;
            self.delete_live(&klm::manifest_resource(), live.map(|live| live.metadata), uid).await?;
        }
        Ok(())
    }

    /// Returns the delete gate of this command: Pauses of the hub stop it; the brake does not count a user's command.
    pub(super) async fn delete_gate(&self) -> Result<DeleteGate, Error> {
        let kyma = &self.facts.kyma;
        Ok(DeleteGate::uncounted(
            &read_paused_operations(&self.start.hub, &self.namespace(), MANAGER, kyma).await?,
        ))
    }

    /// Deletes an object on the hub through the delete gate if it still has this uid.
    async fn delete_live(
        &self,
        resource: &ApiResource,
        live: Option<ObjectMeta>,
        uid: &str,
    ) -> Result<(), Error> {
        let Some(live) = live.filter(|live| live.uid.as_deref() == Some(uid)) else { return Ok(()) };
        let managers = [MANAGER, kyma_operator::FIELD_MANAGER];
        let request = DeleteRequest::new(resource, &live, &managers);
        match self.delete_gate().await?.carry_out(&self.start.hub, &request).await {
            Ok(_) => Ok(()),
            Err(DeleteError::Refused(failure)) => Err(failure.into()),
            Err(DeleteError::Call(error)) => Err(error.into()),
        }
    }

    /// Restores KLM's status of the Kyma.
    pub(super) async fn restore_status(&self, noted: &KymaNote) -> Result<(), Error> {
        let kyma = &self.facts.kyma;
        let name = kyma.name_any();
        if let Some(manager) = noted.manager.as_deref().filter(|_| noted.status.is_object()) {
            let mut body = kyma_body(kyma);
            body["status"] = noted.status.clone();
            // Not validated: KLM may have written fields that the CRD does not have.
            let params = PatchParams::apply(manager).force();
            self.kymas().patch_status(&name, &params, &Patch::Apply(&body)).await?;
        }
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": kyma.uid()});
        let status = if noted.status.is_object() { noted.status.clone() } else { json!({}) };
        let patch = json_patch([&uid, &json!({"op": "add", "path": "/status", "value": status})])?;
        let put = self.kymas().patch_status(&name, &params(), &patch).await?;
        // managedFields cannot be set together with the status.
        let owners = managed_fields(&put.metadata, |manager, subresource| {
            !(subresource == "status" && back::STATUS_MANAGERS.contains(&manager))
        });
        let patch = json_patch([uid, version_test(&put.metadata), owners])?;
        self.kymas().patch_metadata(&name, &params(), &patch).await?;
        Ok(())
    }

    /// Removes labels and annotations, first from Manifests, so that KLM reconciles again.
    pub(super) async fn remove_labels(&self) -> Result<(), Error> {
        for module in self.facts.modules.values() {
            let Some(manifest) = module.manifest.as_ref().filter(|one| hand_over(&one.metadata).is_some())
            else {
                continue;
            };
            let mut operations = unmark(&manifest.metadata);
            if let Some(noted) = note::read::<ManifestNote>(&manifest.metadata) {
                let fields = json!(noted.managed_fields);
                operations.push(json!({"op": "add", "path": "/metadata/managedFields", "value": fields}));
            }
            let patch = json_patch(operations)?;
            self.manifests().patch_metadata(&manifest.name_any(), &params(), &patch).await?;
        }
        let meta = &self.facts.kyma.metadata;
        let mut operations = unmark(meta);
        let at = meta.finalizers.iter().flatten().position(|name| name == finalizers::CATALOG);
        if let Some(at) = at {
            let path = format!("/metadata/finalizers/{at}");
            operations.push(json!({"op": "test", "path": path, "value": finalizers::CATALOG}));
            operations.push(json!({"op": "remove", "path": path}));
        }
        operations.push(managed_fields(meta, |manager, _| !back::STATUS_MANAGERS.contains(&manager)));
        let patch = json_patch(operations)?;
        self.kymas().patch_metadata(&self.facts.kyma.name_any(), &params(), &patch).await?;
        Ok(())
    }

    async fn patch_manifest(&self, manifest: &Manifest, body: &Value) -> Result<(), Error> {
        self.manifests().patch_metadata(&manifest.name_any(), &params(), &Patch::Merge(body)).await?;
        Ok(())
    }

    async fn patch_kyma(&self, body: &Value) -> Result<(), Error> {
        self.kymas().patch_metadata(&self.facts.kyma.name_any(), &params(), &Patch::Merge(body)).await?;
        Ok(())
    }
}

type Meta = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// Returns the base of a merge patch with uid and resourceVersion of the object that was read.
fn guarded(meta: &Meta) -> Value {
    json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}})
}

fn kyma_body(kyma: &Kyma) -> Value {
    json!({
        "apiVersion": Kyma::api_version(&()),
        "kind": Kyma::kind(&()),
        "metadata": {"uid": kyma.uid()},
    })
}

/// Returns a patch that adds missing labels and the record.
fn mark(meta: &Meta, noted: impl FnOnce() -> String) -> Option<Value> {
    let is_labelled = is_skipped(meta) && hand_over(meta).is_some();
    if is_labelled && is_noted(meta) {
        return None;
    }
    let mut body = guarded(meta);
    let value = hand_over(meta).unwrap_or(labels::HAND_OVER_PENDING);
    body["metadata"]["labels"] = json!({labels::SKIP_RECONCILIATION: "true", labels::HAND_OVER: value});
    if !is_noted(meta) {
        body["metadata"]["annotations"] = json!({annotations::BEFORE_HAND_OVER: noted()});
    }
    Some(body)
}

fn without_klms(manifest: &Manifest) -> Value {
    let left = manifest.finalizers().iter();
    json!(left.filter(|name| !klm::MANIFEST_FINALIZERS.contains(&name.as_str())).collect::<Vec<_>>())
}

/// Returns operations that remove labels and record, if the object is as it was read.
fn unmark(meta: &Meta) -> Vec<Value> {
    let mut operations =
        vec![json!({"op": "test", "path": "/metadata/uid", "value": meta.uid}), version_test(meta)];
    let mut remove = |map: &str, name: &str, held: bool| {
        if held {
            let name = name.replace('~', "~0").replace('/', "~1");
            operations.push(json!({"op": "remove", "path": format!("/metadata/{map}/{name}")}));
        }
    };
    for label in [labels::SKIP_RECONCILIATION, labels::HAND_OVER] {
        remove("labels", label, meta.labels.as_ref().is_some_and(|all| all.contains_key(label)));
    }
    let notes = back::OPERATORS.into_iter().map(annotations::stopped);
    for note in notes.chain([annotations::BEFORE_HAND_OVER.to_owned()]) {
        remove("annotations", &note, meta.annotations.as_ref().is_some_and(|all| all.contains_key(&note)));
    }
    operations
}

fn version_test(meta: &Meta) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version})
}

/// Returns the operation that keeps the entries of `managedFields` that `keeps` selects by manager and subresource.
fn managed_fields(meta: &Meta, keeps: impl Fn(&str, &str) -> bool) -> Value {
    let entries = meta.managed_fields.iter().flatten().filter(|entry| {
        let subresource = entry.subresource.as_deref().unwrap_or_default();
        keeps(entry.manager.as_deref().unwrap_or_default(), subresource)
    });
    json!({"op": "add", "path": "/metadata/managedFields", "value": entries.collect::<Vec<_>>()})
}

pub(super) fn json_patch(operations: impl Serialize) -> Result<Patch<()>, Error> {
    let patch = serde_json::to_value(operations).and_then(serde_json::from_value);
    patch.map(Patch::Json).map_err(|error| Error::input("a patch", error.to_string()))
}

//! Synchronizes the Manifests of one Kyma with its components.

use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kyma_api::klm;
use kyma_controller::{Failure, KymaKey, ResourceVersion};
use serde_json::json;

use super::plan::{self, DesiredManifest};
use super::{ObservedManifest, SyncedManifest};
use crate::FIELD_MANAGER;
use crate::apply;
use crate::error::Error;
use crate::hub::component::ComponentView;
use crate::state::State;

/// Writes Manifests that differ. Does nothing without the flag or if the hub does not list Manifests.
pub(crate) async fn sync(state: &State, kyma: &KymaKey) -> Result<(), Failure> {
    if !state.args.manifest_mirror || !state.manifests().is_listed() {
        return Ok(());
    }
    let components = state.components().of(kyma);
    let is_there = |id: &_| components.iter().any(|view| view.id() == *id);
    state.manifests().retain(kyma, is_there);
    let mut result = Ok(());
    for view in &components {
        result = one(state, view).await.and(result);
    }
    Ok(result?)
}

async fn one(state: &State, view: &ComponentView) -> Result<(), Error> {
    let id = view.id();
    if state.manifests().is_synced(&view.kyma, &id, view.resource_version) {
        return Ok(());
    }
    let Some(component) = read(state, view).await? else { return Ok(()) };
    let ocm = state.catalogue().release(&view.module).and_then(|release| release.ocm_component.clone());
    let desired = plan::desired(view, &component, ocm.as_deref());
    let observed = state.manifests().observed.get(&desired.name).cloned();
    let written = carry_out(state, &view.kyma.namespace, &desired, observed.as_ref()).await?;
    let component = ResourceVersion::of(&component.metadata);
    let (Some(version), Some(component)) = (written, component) else { return Ok(()) };
    let synced = SyncedManifest { component, manifest: desired.name };
    state.manifests().set_synced(&view.kyma, id, synced, version);
    Ok(())
}

/// Reads the whole component, of which the index holds only some fields. The role has no `get` on components; a list
/// by name costs the same.
async fn read(state: &State, view: &ComponentView) -> Result<Option<DynamicObject>, Error> {
    let named = ListParams::default().fields(&format!("metadata.name={}", view.name));
    let listed = apply::api_of(state, view)?.list(&named).await;
    let listed = listed.map_err(|source| Error::ReadComponent { component: apply::named(view), source })?;
    Ok(listed.items.into_iter().next())
}

/// Writes the Manifest and returns its resourceVersion.
async fn carry_out(
    state: &State,
    namespace: &str,
    desired: &DesiredManifest,
    observed: Option<&ObservedManifest>,
) -> Result<Option<ResourceVersion>, Error> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(state.runtime.hub.clone(), namespace, &klm::manifest_resource());
    let failed = |source| Error::Mirror { manifest: desired.name.clone(), source };
    let mut last = observed.map(|observed| observed.resource_version);
    // The API server drops fields that KLM's CRD does not have in this version.
    let by_force = PatchParams::apply(FIELD_MANAGER).force();
    let mut write = plan::write(desired, observed);
    if write.body {
        let mut body = desired.body.clone();
        let params = match observed {
            Some(observed) => {
                body["metadata"]["uid"] = json!(observed.uid);
                by_force.clone()
            }
            // Not forced: if the Manifest exists by now, its owner keeps its fields.
            None => PatchParams::apply(FIELD_MANAGER),
        };
        let applied = api.patch(&desired.name, &params, &Patch::Apply(&body)).await.map_err(failed)?;
        tracing::info!(manifest = desired.name, "mirror applied");
        last = ResourceVersion::of(&applied.metadata);
        // Compare again: the result includes what other writers changed since the last read.
        write.status =
            ObservedManifest::of(&applied).is_some_and(|(_, now)| plan::write(desired, Some(&now)).status);
    }
    if write.status {
        let body = json!({
            "apiVersion": klm::manifest_resource().api_version,
            "kind": klm::MANIFEST,
            "metadata": { "resourceVersion": last.map(|version| version.to_string()) },
            "status": desired.status,
        });
        let applied =
            api.patch_status(&desired.name, &by_force, &Patch::Apply(&body)).await.map_err(failed)?;
        last = ResourceVersion::of(&applied.metadata);
    }
    Ok(last)
}

//! Removes the operator's objects from the target of a Kyma that is being deleted.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{DeleteProof, Kyma, labels, names};
use kyma_object_set::remove::{CrdContents, hold_creation};
use kyma_sdk::{
    DeleteGate, DeleteOutcome, DeleteRequest, KymaKey, find_object, none_if_absent, remove_finalizer,
};
use kyma_targets::{STAMP_MANAGERS, STAMP_NAME, STAMP_NAMESPACE, Stamp, Target};

use crate::error::Error;
use crate::state::State;
use crate::target_kyma::{self, TargetKyma};
use crate::{BIRTH_MANAGER, FIELD_MANAGER, admission};

/// Removes the operator's objects: policies, which would outlive their modules, the target's Kyma, the CRD unless
/// other Kymas remain, then the stamp. Returns true once nothing is left.
pub(super) async fn clean(
    state: &State,
    kyma: &Kyma,
    target: &Target,
    gate: &DeleteGate,
) -> Result<bool, Error> {
    let client = target.client();
    let namespace = &state.runtime.settings.target_namespace;
    admission::clean(state, kyma, target, gate).await?;
    if !is_crd_there(&client).await? {
        return remove_stamp(kyma, &client, gate).await.map(|()| true);
    }
    let is_ours = |object: &DynamicObject| {
        object.namespace().as_deref() == Some(namespace.as_str()) && object.name_any() == target_kyma::NAME
    };
    let mut listed = kymas(&client).await?;
    if let Some(ours) = listed.iter().find(|object| is_ours(object)) {
        remove_kyma(&client, kyma, ours, gate).await?;
        // The Kyma is gone at once unless another controller's finalizer holds it.
        listed = kymas(&client).await?;
    }
    if listed.iter().any(is_ours) {
        return Ok(false);
    }
    if listed.is_empty() {
        remove_crd(kyma, &client, gate).await?;
    }
    remove_stamp(kyma, &client, gate).await.map(|()| true)
}

async fn kymas(client: &Client) -> Result<Vec<DynamicObject>, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Kyma>(&()));
    let listed = api.list(&ListParams::default()).await;
    listed.map(|listed| listed.items).map_err(|source| Error::ListKymas { source })
}

async fn is_crd_there(client: &Client) -> Result<bool, Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let live = find_object(&api, crd_name()).await;
    let live = live.map_err(|source| Error::ReadKymaCrd { source })?;
    Ok(live.is_some_and(|crd| crd.metadata.deletion_timestamp.is_none()))
}

fn crd_name() -> &'static str {
    "kymas.operator.kyma-project.io"
}

/// Reports whether the target's Kyma was created or adopted by this hub Kyma.
fn is_ours(kyma: &Kyma, remote: &TargetKyma) -> bool {
    target_kyma::annotations_for(kyma).iter().all(|(name, value)| remote.annotations.get(name) == Some(value))
}

async fn remove_kyma(
    client: &Client,
    kyma: &Kyma,
    object: &DynamicObject,
    gate: &DeleteGate,
) -> Result<(), Error> {
    let Some(remote) = TargetKyma::of(object).filter(|remote| is_ours(kyma, remote)) else {
        return Err(Error::ClaimKyma);
    };
    let namespace = object.namespace().unwrap_or_default();
    let resource = ApiResource::erase::<Kyma>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let failed = |source| Error::DeleteKyma { source };
    let mut metadata = object.metadata.clone();
    if !remote.terminating {
        let managers = [FIELD_MANAGER, BIRTH_MANAGER];
        let request = DeleteRequest::new(&resource, &object.metadata, &managers);
        match gate.carry_out(client, &request).await {
            Ok(DeleteOutcome::Gone) => return Ok(()),
            // A deletion that waits has a new generation, which the removal of the finalizer needs.
            Ok(DeleteOutcome::Waiting(deleted)) => metadata = deleted.metadata,
            Err(error) => return Err(Error::of_gate(error, failed)),
        }
    }
    if let Some(patch) = remove_finalizer(&metadata, kyma_api::finalizers::KYMA) {
        let patched = api.patch(target_kyma::NAME, &PatchParams::default(), &Patch::<()>::Json(patch)).await;
        none_if_absent(&api, target_kyma::NAME, patched).map_err(failed)?;
    }
    Ok(())
}

/// Deletes the CRD unless an object of its kind exists or is created meanwhile.
async fn remove_crd(kyma: &Kyma, client: &Client, gate: &DeleteGate) -> Result<(), Error> {
    let key = KymaKey::of(kyma);
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let failed = |source| Error::DeleteKymaCrd { source };
    let Some(live) = find_object(&api, crd_name()).await.map_err(failed)? else { return Ok(()) };
    if live.labels().get(labels::OWNER) != Some(&names::owner_hash(&key.namespace, &key.name)) {
        return Ok(());
    }
    gate.permit().await.map_err(Error::Gate)?;
    let held = hold_creation(client, &live, FIELD_MANAGER).await.map_err(failed)?;
    let CrdContents::Empty { resource_version } = held else { return Ok(()) };
    let proof = DeleteProof::CreatedAndEmpty { resource_version };
    let request = DeleteRequest::new(&resource, &live.metadata, &[FIELD_MANAGER]).proven(proof);
    let deleted = gate.carry_out(client, &request).await.map(drop);
    deleted.map_err(|error| Error::of_gate(error, failed))
}

async fn remove_stamp(kyma: &Kyma, client: &Client, gate: &DeleteGate) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), STAMP_NAMESPACE);
    let failed = |source| Error::DeleteStamp { source };
    let Some(live) = find_object(&api, STAMP_NAME).await.map_err(failed)? else { return Ok(()) };
    if Some(Stamp::from_config_map(&live).kyma.uid) != kyma.uid() {
        return Ok(());
    }
    let resource = ApiResource::erase::<ConfigMap>(&());
    let request = DeleteRequest::new(&resource, &live.metadata, &STAMP_MANAGERS);
    let deleted = gate.carry_out(client, &request).await.map(drop);
    deleted.map_err(|error| Error::of_gate(error, failed))
}

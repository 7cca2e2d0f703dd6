//! Removes the operator's objects from the target of a Kyma that is being deleted.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{DeleteProof, Kyma, annotations, labels, names};
use kyma_object_set::remove::{CrdContents, hold_creation, release_kept_crd};
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

/// Deletes the CRD if the operator created it, unless an object of its kind exists or is created meanwhile.
async fn remove_crd(kyma: &Kyma, client: &Client, gate: &DeleteGate) -> Result<(), Error> {
    let key = KymaKey::of(kyma);
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let failed = |source| Error::DeleteKymaCrd { source };
    let Some(live) = find_object(&api, crd_name()).await.map_err(failed)? else { return Ok(()) };
    let owner = names::owner_hash(&key.namespace, &key.name);
    let marks = [live.labels().get(labels::OWNER), live.annotations().get(annotations::CREATED_BY)];
    if marks != [Some(&owner); 2] {
        return Ok(());
    }
    gate.permit().await.map_err(Error::Gate)?;
    let held = hold_creation(client, &live, FIELD_MANAGER).await.map_err(failed)?;
    let CrdContents::Empty { resource_version } = held else { return Ok(()) };
    let proof = DeleteProof::CreatedAndEmpty { resource_version };
    let request = DeleteRequest::new(&resource, &live.metadata, &[FIELD_MANAGER]).proven(proof);
    let deleted = gate.carry_out(client, &request).await;
    if deleted.is_err() {
        release_kept_crd(client, crd_name(), FIELD_MANAGER).await;
    }
    deleted.map(drop).map_err(|error| Error::of_gate(error, failed))
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

#[cfg(test)]
mod tests {
    use kyma_sdk::Halt;
    use serde_json::{Value, json};
    use testbed::{Answer, Matching, Scripted};

    use super::*;

    const CRD: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kymas.operator.kyma-project.io";
    const KYMAS: &str = "/apis/operator.kyma-project.io/v1beta2/";

    fn kyma() -> Kyma {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "blue", "namespace": "kcp-system" }, "spec": { "channel": "regular" },
        }))
        .unwrap()
    }

    /// The Kyma CRD of a target, with these required properties, applied by the operator.
    fn crd(creator: &str, required: &[&str]) -> Answer {
        let owner = names::owner_hash("kcp-system", "blue");
        let creator: &str = if creator.is_empty() { &owner } else { creator };
        let schema = json!({ "openAPIV3Schema": { "type": "object", "required": required } });
        Answer::json(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": crd_name(), "uid": "u", "resourceVersion": "7",
                "labels": { labels::OWNER: owner }, "annotations": { annotations::CREATED_BY: creator },
                "managedFields": [{ "manager": FIELD_MANAGER, "operation": "Apply" }],
            },
            "spec": {
                "group": "operator.kyma-project.io", "scope": "Namespaced",
                "names": { "kind": "Kyma", "plural": "kymas" },
                "versions": [{ "name": "v1beta2", "served": true, "storage": true, "schema": schema }],
            },
        }))
    }

    /// Answers as a target without Kymas on which the creation of Kymas is stopped and the CRD cannot be deleted.
    fn script(target: &Scripted, creator: &str) {
        let listed: Value = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [],
        });
        target.next(1, Matching::path(CRD).method("GET"), crd(creator, &["spec"]));
        target.always(Matching::path(CRD).method("GET"), crd(creator, &["spec", "thisKindIsBeingRemoved"]));
        target.always(Matching::path(CRD).method("PATCH"), crd(creator, &["spec"]));
        target.always(Matching::path(CRD).method("DELETE"), Answer::failure(403, "Forbidden", "no"));
        target.always(Matching::path(KYMAS).method("GET"), Answer::json(&listed));
        let refused = "thisKindIsBeingRemoved: Required value";
        target.always(Matching::path(KYMAS).method("POST"), Answer::failure(422, "Invalid", refused));
    }

    async fn removed(target: &Scripted) -> Result<(), Error> {
        let client = target.access().client().unwrap();
        remove_crd(&kyma(), &client, &DeleteGate::uncounted(&Halt::default())).await
    }

    #[tokio::test]
    async fn a_crd_that_cannot_be_deleted_accepts_objects_again() {
        let target = Scripted::start().await.unwrap();
        script(&target, "");
        assert!(matches!(removed(&target).await, Err(Error::DeleteKymaCrd { .. })));
        assert_eq!(target.count(&Matching::path(CRD).method("DELETE")), 1);
        assert_eq!(target.count(&Matching::path(CRD).method("PATCH")), 2, "stopped and allowed again");
    }

    #[tokio::test]
    async fn an_adopted_crd_is_not_changed() {
        let target = Scripted::start().await.unwrap();
        script(&target, "another");
        removed(&target).await.unwrap();
        assert!(target.seen().iter().all(|request| request.method == "GET"), "{:?}", target.seen());
    }
}

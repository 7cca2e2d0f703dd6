//! Removes the operator's objects from the target of a Kyma that is being deleted.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{DeleteProof, Kyma, annotations, labels, names};
use kyma_controller::{
    DeleteGate, DeleteOutcome, DeleteRequest, KymaKey, find_metadata, find_object, none_if_absent,
    remove_finalizer,
};
use kyma_object_set::remove::{CrdContents, block_creation, unblock_kept_crd};
use kyma_targets::{STAMP_MANAGERS, STAMP_NAME, STAMP_NAMESPACE, Stamp, Target};

use crate::error::Error;
use crate::state::State;
use crate::target::target_kyma::{self, TargetKyma};
use crate::{CREATE_FIELD_MANAGER, FIELD_MANAGER, target::admission};

/// Removes the operator's objects: policies, which would outlive their modules, the target's Kyma, the CRD unless
/// other Kymas remain, then the stamp. Returns true once nothing is left.
pub(super) async fn clean(
    state: &State,
    kyma: &Kyma,
    target: &Target,
    gate: &DeleteGate,
) -> Result<bool, Error> {
    let client = target.client();
    admission::clean(state, kyma, target, gate).await?;
    if !remove_kyma_and_crd(kyma, &client, &state.runtime.settings.target_namespace, gate).await? {
        return Ok(false);
    }
    remove_stamp(kyma, &client, gate).await.map(|()| true)
}

/// Removes the target's Kyma, and the CRD unless other Kymas remain. Returns false while another controller's finalizer
/// holds the Kyma.
async fn remove_kyma_and_crd(
    kyma: &Kyma,
    client: &Client,
    namespace: &str,
    gate: &DeleteGate,
) -> Result<bool, Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = find_metadata(&definitions, crd_name()).await;
    let Some(crd) = crd.map_err(|source| Error::ReadKymaCrd { source })? else { return Ok(true) };
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Kyma>(&()));
    if let Some(live) = find_kyma(&api).await? {
        remove_kyma(&api, client, kyma, &live, gate).await?;
        if find_kyma(&api).await?.is_some() {
            return Ok(false);
        }
    }
    // The API server removes a CRD that is being deleted once it has no objects.
    let is_terminating = crd.metadata.deletion_timestamp.is_some();
    if !is_terminating && !has_kymas(client).await? {
        remove_crd(kyma, client, gate).await?;
    }
    Ok(true)
}

async fn find_kyma(api: &Api<DynamicObject>) -> Result<Option<DynamicObject>, Error> {
    find_object(api, target_kyma::NAME).await.map_err(|source| Error::FindKyma { source })
}

/// Reports whether the target has a Kyma in any namespace. Reads one, since a target may have any number.
async fn has_kymas(client: &Client) -> Result<bool, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Kyma>(&()));
    let listed = api.list_metadata(&ListParams::default().limit(1)).await;
    listed.map(|listed| !listed.items.is_empty()).map_err(|source| Error::ListKymas { source })
}

fn crd_name() -> &'static str {
    "kymas.operator.kyma-project.io"
}

/// Reports whether the target's Kyma was created or adopted by this hub Kyma.
fn is_ours(kyma: &Kyma, remote: &TargetKyma) -> bool {
    target_kyma::annotations_for(kyma).iter().all(|(name, value)| remote.annotations.get(name) == Some(value))
}

/// Deletes the target's Kyma unless it is being deleted already, and removes the finalizer that a Kyma of KLM has.
async fn remove_kyma(
    api: &Api<DynamicObject>,
    client: &Client,
    kyma: &Kyma,
    live: &DynamicObject,
    gate: &DeleteGate,
) -> Result<(), Error> {
    let Some(remote) = TargetKyma::of(live).filter(|remote| is_ours(kyma, remote)) else {
        return Err(Error::ClaimKyma);
    };
    let failed = |source| Error::DeleteKyma { source };
    let mut metadata = live.metadata.clone();
    if !remote.terminating {
        let (resource, managers) = (ApiResource::erase::<Kyma>(&()), [FIELD_MANAGER, CREATE_FIELD_MANAGER]);
        let request = DeleteRequest::new(&resource, &live.metadata, &managers);
        match gate.carry_out(client, &request).await {
            Ok(DeleteOutcome::Gone) => return Ok(()),
            // A deletion that waits has a new generation, which the removal of the finalizer needs.
            Ok(DeleteOutcome::Waiting(deleted)) => metadata = deleted.metadata,
            Err(error) => return Err(Error::of_gate(error, failed)),
        }
    }
    if let Some(patch) = remove_finalizer(&metadata, kyma_api::finalizers::KYMA) {
        let patched = api.patch(target_kyma::NAME, &PatchParams::default(), &Patch::<()>::Json(patch)).await;
        none_if_absent(api, target_kyma::NAME, patched).map_err(failed)?;
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
    let contents = block_creation(client, &live, FIELD_MANAGER).await.map_err(failed)?;
    let CrdContents::Empty { resource_version } = contents else { return Ok(()) };
    let proof = DeleteProof::CreatedAndEmpty { resource_version };
    let request = DeleteRequest::new(&resource, &live.metadata, &[FIELD_MANAGER]).proven(proof);
    let deleted = gate.carry_out(client, &request).await;
    if deleted.is_err() {
        unblock_kept_crd(client, crd_name(), FIELD_MANAGER).await;
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
    use kyma_controller::PausedOperations;
    use serde_json::{Value, json};
    use testbed::{Answer, RequestMatcher, ScriptedServer};

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

    /// Returns the Kyma CRD of a target, with these required properties, applied by the operator.
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
    fn script(target: &ScriptedServer, creator: &str) {
        let listed: Value = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [],
        });
        target.next(1, RequestMatcher::path(CRD).method("GET"), crd(creator, &["spec"]));
        target.always(
            RequestMatcher::path(CRD).method("GET"),
            crd(creator, &["spec", "thisKindIsBeingRemoved"]),
        );
        target.always(RequestMatcher::path(CRD).method("PATCH"), crd(creator, &["spec"]));
        target.always(RequestMatcher::path(CRD).method("DELETE"), Answer::failure(403, "Forbidden", "no"));
        target.always(RequestMatcher::path(KYMAS).method("GET"), Answer::json(&listed));
        let refused = "thisKindIsBeingRemoved: Required value";
        target.always(RequestMatcher::path(KYMAS).method("POST"), Answer::failure(422, "Invalid", refused));
    }

    async fn removed(target: &ScriptedServer) -> Result<(), Error> {
        let client = target.access().client().unwrap();
        remove_crd(&kyma(), &client, &DeleteGate::uncounted(&PausedOperations::default())).await
    }

    #[tokio::test]
    async fn a_crd_that_cannot_be_deleted_accepts_objects_again() {
        let target = ScriptedServer::start().await.unwrap();
        script(&target, "");
        assert!(matches!(removed(&target).await, Err(Error::DeleteKymaCrd { .. })));
        assert_eq!(target.count(&RequestMatcher::path(CRD).method("DELETE")), 1);
        assert_eq!(target.count(&RequestMatcher::path(CRD).method("PATCH")), 2, "stopped and allowed again");
    }

    #[tokio::test]
    async fn finalizer_is_removed_although_the_crd_is_being_deleted() {
        let target = ScriptedServer::start().await.unwrap();
        let path = "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system/kymas/default";
        let deleted = "2026-01-01T00:00:00Z";
        let crd = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": { "name": crd_name(), "uid": "u", "deletionTimestamp": deleted },
        });
        let live = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {
                "name": "default", "namespace": "kyma-system", "uid": "v", "resourceVersion": "8",
                "deletionTimestamp": deleted, "finalizers": [kyma_api::finalizers::KYMA],
                "annotations": target_kyma::annotations_for(&kyma()),
            },
        });
        target.always(RequestMatcher::path(CRD).method("GET"), Answer::json(&crd));
        target.next(1, RequestMatcher::path(path).method("GET"), Answer::json(&live));
        let absent = Answer::not_found("operator.kyma-project.io", "kymas", "default");
        target.always(RequestMatcher::path(path).method("GET"), absent);
        target.always(RequestMatcher::path(path).method("PATCH"), Answer::json(&live));
        let (client, gate) =
            (target.access().client().unwrap(), DeleteGate::uncounted(&PausedOperations::default()));
        let removed = remove_kyma_and_crd(&kyma(), &client, "kyma-system", &gate).await;
        assert!(removed.unwrap());
        assert_eq!(target.count(&RequestMatcher::path(path).method("PATCH")), 1);
        assert_eq!(target.count(&RequestMatcher::any().method("DELETE")), 0, "both are being deleted");
    }

    #[tokio::test]
    async fn an_adopted_crd_is_not_changed() {
        let target = ScriptedServer::start().await.unwrap();
        script(&target, "another");
        removed(&target).await.unwrap();
        assert!(target.requests().iter().all(|request| request.method == "GET"), "{:?}", target.requests());
    }
}

//! Writes deletion requests to components, and withdraws them.

use std::collections::BTreeMap;

use kube::api::{DynamicObject, ObjectMeta, PartialObjectMeta, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::component::DeletionOrder;
use kyma_api::{DeletionPolicy, annotations, finalizers};
use kyma_controller::{DeleteGate, DeleteRequest, Failure, is_absent, is_conflict, live_metadata};
use serde_json::{Value, json};

use super::{Authority, api_of, index_component, named, patch, resource_of};
use crate::FIELD_MANAGER;
use crate::decision::deletion::ComponentDeletion;
use crate::error::Error;
use crate::hub::component::ComponentView;
use crate::plan::owner;
use crate::state::State;

/// Maximum number of attempts to write a request while others write the same component.
const MAX_WRITE_ATTEMPTS: usize = 5;

/// Writes a deletion request, then deletes the component, so that its reconciler sees the request with the deletion.
/// A request that removes objects from the target asks the brake, which counts the Kyma as one target. Returns false
/// if the reconciler removed its finalizer before, so that nothing would carry out the request.
pub(crate) async fn request_deletion(
    state: &State,
    deletion: &ComponentDeletion,
    authority: Authority<'_>,
) -> Result<bool, Failure> {
    let gate = if deletion.removes() {
        DeleteGate::new(
            authority.paused_operations,
            &state.runtime.brake,
            deletion.component.kyma.to_string(),
        )
    } else {
        DeleteGate::releasing(authority.paused_operations)
    };
    gate.permit().await?;
    Ok(carry_out(state, deletion, authority, &gate).await?)
}

async fn carry_out(
    state: &State,
    deletion: &ComponentDeletion,
    authority: Authority<'_>,
    gate: &DeleteGate,
) -> Result<bool, Error> {
    let view = &deletion.component;
    let api = api_of(state, view)?;
    if view.deletion_policy != deletion.policy {
        let body = request_body(deletion, authority);
        if !deletion.removes() {
            let failed = |component, source| Error::RequestRemoval { component, source };
            patch(state, &api, view, &body, failed).await?;
        } else if !write_request(state, &api, view, body).await? {
            tracing::info!(component = view.name, kind = %view.kind, module = view.module, "the component lost its finalizer before its deletion request was written");
            return Ok(false);
        }
    }
    if !view.terminating {
        let failed = |source| Error::DeleteComponent { component: named(view), source };
        let live = live_metadata(&api, &view.name).await.map_err(failed)?;
        if let Some(live) = live.filter(|live| live.uid().as_ref() == Some(&view.uid)) {
            delete_component(state, gate, view, &live.metadata).await?;
        }
    }
    tracing::info!(
        component = view.name, kind = %view.kind, module = view.module, kyma = %view.kyma, kyma_uid = authority.uid,
        reason = %deletion.reason, policy = ?deletion.policy, uid = view.uid, "component deleted"
    );
    Ok(true)
}

async fn delete_component(
    state: &State,
    gate: &DeleteGate,
    view: &ComponentView,
    live: &ObjectMeta,
) -> Result<(), Error> {
    let resource = resource_of(state, view)?;
    let request = DeleteRequest::new(&resource, live, &[FIELD_MANAGER]);
    let deleted = gate.carry_out(&state.runtime.hub, &request).await.map(drop);
    let failed = |source| Error::DeleteComponent { component: named(view), source };
    deleted.map_err(|error| Error::of_gate(error, failed))
}

/// Writes a deletion request to a component that still has its reconciler's finalizer. Returns false if the finalizer
/// or the component is gone: nothing would carry out the request.
async fn write_request(
    state: &State,
    api: &Api<DynamicObject>,
    view: &ComponentView,
    mut body: Value,
) -> Result<bool, Error> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let failed = |source| Error::RequestRemoval { component: named(view), source };
    let mut version = Some(view.resource_version.to_string());
    let mut attempts = 1;
    while let Some(known) = version {
        body["metadata"]["resourceVersion"] = json!(known);
        match api.patch(&view.name, &params, &Patch::Merge(&body)).await {
            Ok(patched) => {
                index_component(state, &view.kind, &patched);
                return Ok(true);
            }
            Err(error) if is_conflict(&error) && attempts < MAX_WRITE_ATTEMPTS => {
                let live = live_metadata(api, &view.name).await.map_err(failed)?;
                let same = live.filter(|live| live.uid().as_ref() == Some(&view.uid) && is_held(live));
                version = same.and_then(|live| live.metadata.resource_version);
                attempts += 1;
            }
            Err(error) if is_absent(api, &view.name, &error) => return Ok(false),
            Err(source) => return Err(failed(source)),
        }
    }
    Ok(false)
}

/// Reports whether the reconciler's finalizer is on the component.
fn is_held(component: &PartialObjectMeta<DynamicObject>) -> bool {
    component.finalizers().iter().any(|finalizer| finalizer == finalizers::COMPONENT)
}

fn request_body(deletion: &ComponentDeletion, authority: Authority<'_>) -> Value {
    let request = DeletionOrder {
        reason: deletion.reason,
        kyma_uid: authority.uid.to_owned(),
        kyma_generation: authority.generation,
    };
    let annotations: BTreeMap<String, Option<String>> = request
        .to_annotations()
        .into_iter()
        .map(|(name, value)| (name, (deletion.policy == DeletionPolicy::Delete).then_some(value)))
        .collect();
    let mut body = json!({
        "metadata": { "uid": deletion.component.uid, "annotations": annotations },
        "spec": { "deletionPolicy": deletion.policy },
    });
    // The reconciler accepts requests of the owner only.
    if deletion.component.owner.as_deref() != Some(authority.uid) {
        body["metadata"]["ownerReferences"] = json!([owner(&authority.kyma.name, authority.uid)]);
    }
    body
}

/// Withdraws a deletion request after the module was selected again: remaining objects stay for the next component.
pub(super) async fn withdraw_request(state: &State, view: &ComponentView) -> Result<(), Error> {
    let api = api_of(state, view)?;
    let none: BTreeMap<&str, Option<&str>> =
        [annotations::DELETION_REASON, annotations::DELETION_KYMA_UID, annotations::DELETION_KYMA_GENERATION]
            .into_iter()
            .map(|name| (name, None))
            .collect();
    let body = json!({
        "metadata": { "uid": view.uid, "annotations": none },
        "spec": { "deletionPolicy": DeletionPolicy::Orphan },
    });
    patch(state, &api, view, &body, |component, source| Error::WithdrawRemoval { component, source }).await
}

//! Writes the target's Kyma: creation, labels and status.

use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Resource};
use kyma_api::{Kyma, KymaStatus, Selection};
use kyma_connection::Connection;
use kyma_controller::{KymaKey, create_new, is_conflict};
use serde_json::{Value, json};

use super::{NAME, TargetKyma, annotations_for, has_owner_metadata, has_status, labels_for, status_for};
use crate::decision::selection;
use crate::error::Error;
use crate::report::events;
use crate::state::State;
use crate::{CREATE_FIELD_MANAGER, FIELD_MANAGER};

/// Creates the target's Kyma from a choice of modules. The operator owns the spec only on creation; later it is the
/// user's.
pub(crate) async fn create_target_kyma(
    state: &State,
    kyma: &Kyma,
    session: &Connection,
    choice: &Selection,
) -> Result<TargetKyma, Error> {
    let mut body = head(state);
    body["metadata"]["labels"] = json!(labels_for(kyma));
    body["metadata"]["annotations"] = json!(annotations_for(kyma));
    body["spec"] = selection::spec_of_new_kyma(choice);
    let object: DynamicObject = serde_json::from_value(body)
        .map_err(|source| Error::Compose { what: "the target's Kyma", source })?;
    let created = match create_new(&api(state, session), CREATE_FIELD_MANAGER, &object).await {
        // The Kyma was created meanwhile; the watch has not delivered it yet.
        Err(error) if is_conflict(&error) => api(state, session).get(NAME).await,
        Ok(created) => {
            events::send_kyma_installed(state, kyma);
            Ok(created)
        }
        other => other,
    };
    let created = created.map_err(|source| Error::CreateTargetKyma { source })?;
    let remote = TargetKyma::of(&created).ok_or(Error::ReadKyma)?;
    state.record_target_write(&KymaKey::of(kyma), remote.clone());
    Ok(remote)
}

/// Writes labels, annotations and the hub's status to the target's Kyma if they differ.
pub(crate) async fn update(
    state: &State,
    kyma: &Kyma,
    session: &Connection,
    remote: &TargetKyma,
    status: &KymaStatus,
) -> Result<(), Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    if !has_owner_metadata(remote, kyma) {
        let mut body = head(state);
        body["metadata"]["uid"] = json!(remote.uid);
        body["metadata"]["labels"] = json!(labels_for(kyma));
        body["metadata"]["annotations"] = json!(annotations_for(kyma));
        let marked = api(state, session).patch(NAME, &params, &Patch::Apply(&body)).await;
        let marked = marked.map_err(|source| Error::LabelTargetKyma { source })?;
        record_write(state, kyma, remote, &marked);
    }
    let desired = status_for(status, &state.runtime.settings.target_namespace);
    if has_status(remote, &desired) {
        return Ok(());
    }
    let mut body = head(state);
    body["status"] = json!(desired);
    let shown = api(state, session).patch_status(NAME, &params, &Patch::Apply(&body)).await;
    let shown = shown.map_err(|source| Error::WriteTargetStatus { source })?;
    record_write(state, kyma, remote, &shown);
    Ok(())
}

fn head(state: &State) -> Value {
    json!({
        "apiVersion": Kyma::api_version(&()),
        "kind": Kyma::kind(&()),
        "metadata": { "name": NAME, "namespace": state.runtime.settings.target_namespace },
    })
}

fn api(state: &State, session: &Connection) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<Kyma>(&());
    Api::namespaced_with(session.target.client(), &state.runtime.settings.target_namespace, &resource)
}

/// Records the result of a write before the watch delivers it. If it contains changes of other writers to the
/// selection or labels, only the watch records it, which requeues the Kyma.
fn record_write(state: &State, kyma: &Kyma, before: &TargetKyma, object: &DynamicObject) {
    let Some(now) = TargetKyma::of(object) else { return };
    if now.spec == before.spec && now.terminating == before.terminating && has_owner_metadata(&now, kyma) {
        state.record_target_write(&KymaKey::of(kyma), now);
    }
}

//! Label and finalizer on the hub's Kyma, set before anything is created for it.

use std::sync::Arc;

use kube::api::Patch;
use kube::{Api, Resource, ResourceExt};
use kyma_api::{Kyma, Reason, finalizers, labels};
use kyma_controller::{Failure, KymaKey, hub_apply, patch_finalizers, remove_finalizer};
use serde_json::json;

use crate::FIELD_MANAGER;
use crate::error::Error;
use crate::report::events;
use crate::state::State;

/// Adds label and finalizer to the Kyma if they are missing.
pub(crate) async fn ensure_claim(state: &State, kyma: &Arc<Kyma>) -> Result<Arc<Kyma>, Error> {
    let is_labelled = kyma
        .labels()
        .get(labels::MANAGED_BY)
        .is_some_and(|value| value == labels::MANAGED_BY_LIFECYCLE_MANAGER);
    if is_labelled && has_finalizer(kyma) {
        return Ok(Arc::clone(kyma));
    }
    let key = KymaKey::of(kyma);
    let body = json!({
        "apiVersion": Kyma::api_version(&()),
        "kind": Kyma::kind(&()),
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "uid": kyma.uid(),
            "labels": { labels::MANAGED_BY: labels::MANAGED_BY_LIFECYCLE_MANAGER },
            "finalizers": [finalizers::KYMA],
        },
    });
    let api: Api<Kyma> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let claimed = api.patch(&key.name, &hub_apply(FIELD_MANAGER), &Patch::Apply(&body)).await;
    let claimed = claimed.map_err(|source| Error::Claim { kyma: key, source })?;
    Ok(state.record_write(claimed))
}

/// Reports whether the operator's finalizer is on the Kyma.
pub(crate) fn has_finalizer(kyma: &Kyma) -> bool {
    kyma.finalizers().iter().any(|name| name == finalizers::KYMA)
}

/// Removes the finalizer, as the last write for a Kyma.
pub(crate) async fn release_kyma(state: &State, kyma: &Kyma) -> Result<(), Failure> {
    let key = KymaKey::of(kyma);
    if let Some(patch) = remove_finalizer(&kyma.metadata, finalizers::KYMA) {
        let api: Api<Kyma> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
        patch_finalizers(&api, &key.name, patch).await?;
        tracing::info!(kyma = %key, uid = ?kyma.uid(), "Kyma released");
        events::send_deletion_step(state, kyma, Reason::DropKymaFinalizer);
    }
    state.forget(&key);
    Ok(())
}

//! Live reads of the hub before a deletion on a target: watch events, or missing ones, are not deletion requests.

use jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, ObjectMeta};
use kyma_api::{Kyma, Reason};
use kyma_controller::{Failure, KymaKey, find_object, is_deleted_alone, namespace_and_crds_since};

use crate::catalogue::ObjectOrigin;
use crate::copy::{Key, Kind};
use crate::rbac::CATALOGUE_CRDS;
use crate::state::State;

/// Returns whether the hub's namespace or one of these CRDs is absent or being deleted: then the deletion of the
/// objects in it was not requested.
pub(crate) async fn is_terminating(state: &State, crds: &[&str]) -> Result<bool, Failure> {
    Ok(intact_since(state, crds).await?.is_none())
}

/// Returns whether the deletion of a catalogue object was requested: its namespace and its CRD are older than the
/// object and are not being deleted, and the garbage collector did not delete it.
///
/// # Errors
/// If the hub does not answer: the caller has to ask again.
pub(crate) async fn is_deletion_requested(
    state: &State,
    kind: Kind,
    origin: &ObjectOrigin,
) -> Result<bool, Failure> {
    if origin.is_dependent {
        return Ok(false);
    }
    let [template, release] = CATALOGUE_CRDS;
    let crd = match kind {
        Kind::Template => template,
        Kind::Release => release,
    };
    Ok(is_deleted_alone(origin.created, intact_since(state, &[crd]).await?))
}

async fn intact_since(state: &State, crds: &[&str]) -> Result<Option<Timestamp>, Failure> {
    let namespace = &state.runtime.settings.hub_namespace;
    let since = namespace_and_crds_since(&state.runtime.hub, namespace, crds).await;
    since.map_err(|error| {
        Failure::hub(&format!("read namespace {namespace} and CRD {}", crds.join(", ")), &error)
    })
}

/// Checks by a live read that this Kyma exists on the hub without a deletionTimestamp: the watch may lag.
pub(crate) async fn ensure_kyma_exists(state: &State, kyma: &Kyma) -> Result<(), Failure> {
    let key = KymaKey::of(kyma);
    let api: Api<Kyma> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let found = api.get_metadata_opt(&key.name).await;
    let found = found.map_err(|error| Failure::hub(&format!("read Kyma {key}"), &error))?;
    let is_it =
        |metadata: &ObjectMeta| metadata.uid == kyma.metadata.uid && metadata.deletion_timestamp.is_none();
    if found.is_some_and(|found| is_it(&found.metadata)) {
        return Ok(());
    }
    Err(Failure::new(Reason::Deleting, format!("Kyma {key} is being deleted")))
}

/// Reports whether the hub has this object, by a live read.
pub(crate) async fn has(state: &State, key: &Key) -> Result<bool, Failure> {
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<DynamicObject> =
        Api::namespaced_with(state.runtime.hub.clone(), namespace, &key.kind.resource());
    let found = find_object(&api, &key.name).await;
    Ok(found.map_err(|error| Failure::hub(&format!("read {key}"), &error))?.is_some())
}

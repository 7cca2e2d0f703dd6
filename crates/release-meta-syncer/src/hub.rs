//! Live looks at the hub before something is deleted on a target: what a watch told, or did not tell, is no order.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, ObjectMeta};
use kyma_api::{Kyma, Reason};
use kyma_sdk::{Failure, KymaKey};

use crate::catalogue::ObjectOrigin;
use crate::copy::{Key, Kind};
use crate::rbac::CATALOGUE_CRDS;
use crate::state::State;

/// Whether the hub's namespace or one of these CRDs is gone or going: what vanishes with them was not wished away.
pub(crate) async fn is_going(state: &State, crds: &[&str]) -> Result<bool, Failure> {
    let hub = &state.runtime.hub;
    let name = &state.runtime.settings.hub_namespace;
    let namespace = Api::<Namespace>::all(hub.clone()).get_opt(name).await;
    let namespace = namespace.map_err(|error| Failure::hub(&format!("read namespace {name}"), &error))?;
    if namespace.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
        return Ok(true);
    }
    for name in crds {
        let crd = Api::<CustomResourceDefinition>::all(hub.clone()).get_opt(name).await;
        let crd = crd.map_err(|error| Failure::hub(&format!("read CRD {name}"), &error))?;
        if crd.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether the deletion of a catalogue object was requested: its namespace and its CRD are older than the object
/// and are not being deleted, and the garbage collector did not delete it.
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
    let hub = &state.runtime.hub;
    let [template, release] = CATALOGUE_CRDS;
    let name = match kind {
        Kind::Template => template,
        Kind::Release => release,
    };
    let crd = Api::<CustomResourceDefinition>::all(hub.clone()).get_metadata_opt(name).await;
    let crd = crd.map_err(|error| Failure::hub(&format!("read CRD {name}"), &error))?;
    let name = &state.runtime.settings.hub_namespace;
    let namespace = Api::<Namespace>::all(hub.clone()).get_metadata_opt(name).await;
    let namespace = namespace.map_err(|error| Failure::hub(&format!("read namespace {name}"), &error))?;
    let (Some(crd), Some(namespace)) = (crd, namespace) else { return Ok(false) };
    let was_there = |meta: &ObjectMeta| {
        let since = meta.creation_timestamp.as_ref().map(|time| time.0);
        meta.deletion_timestamp.is_none()
            && origin.created.is_none_or(|created| since.is_none_or(|since| since <= created))
    };
    Ok(was_there(&crd.metadata) && was_there(&namespace.metadata))
}

/// Fails unless the hub still wants this Kyma: the watch may tell late that it does not.
pub(crate) async fn ensure_wanted(state: &State, kyma: &Kyma) -> Result<(), Failure> {
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

/// Whether the hub has this object.
pub(crate) async fn has(state: &State, key: &Key) -> Result<bool, Failure> {
    let namespace = &state.runtime.settings.hub_namespace;
    let api: Api<DynamicObject> =
        Api::namespaced_with(state.runtime.hub.clone(), namespace, &key.kind.resource());
    let found = api.get_opt(&key.name).await;
    Ok(found.map_err(|error| Failure::hub(&format!("read {key}"), &error))?.is_some())
}

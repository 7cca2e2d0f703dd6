//! Whether a deletion is anybody's order.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ObjectMeta, PartialObjectMeta};

use crate::error::Error;
use crate::state::State;

/// Whether the namespace or the CRD is gone or going: then the deletion of what is in it is nobody's order. Live
/// reads, not a cache.
pub(crate) async fn is_terminating(state: &State, namespace: &str, crd: &str) -> Result<bool, Error> {
    let hub = &state.runtime.hub;
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(hub.clone());
    let crds: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(hub.clone());
    let (of_namespace, of_crd) =
        tokio::try_join!(namespaces.get_opt(namespace), crds.get_opt(crd)).map_err(|source| {
            Error::ReadScope { namespace: namespace.to_owned(), crd: crd.to_owned(), source }
        })?;
    let going = |meta: Option<&ObjectMeta>| meta.is_none_or(|meta| meta.deletion_timestamp.is_some());
    Ok(going(of_namespace.as_ref().map(|object| &object.metadata))
        || going(of_crd.as_ref().map(|object| &object.metadata)))
}

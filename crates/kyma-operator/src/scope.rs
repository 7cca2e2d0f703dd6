//! Whether a deletion is a request of a person or a controller, or only a consequence of another one.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ObjectMeta, PartialObjectMeta};

use crate::error::Error;
use crate::state::State;

/// Returns whether the namespace or the CRD is gone or going: then nobody requested the deletion of what is in it. Live
/// reads, not a cache.
pub(crate) async fn is_terminating(state: &State, namespace: &str, crd: &str) -> Result<bool, Error> {
    Ok(intact_since(state, namespace, crd).await?.is_none())
}

/// Returns since when namespace and CRD both exist; none where one is gone or going. Live reads, not a cache.
pub(crate) async fn intact_since(
    state: &State,
    namespace: &str,
    crd: &str,
) -> Result<Option<Timestamp>, Error> {
    let hub = &state.runtime.hub;
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(hub.clone());
    let crds: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(hub.clone());
    let (of_namespace, of_crd) =
        tokio::try_join!(namespaces.get_opt(namespace), crds.get_opt(crd)).map_err(|source| {
            Error::ReadScope { namespace: namespace.to_owned(), crd: crd.to_owned(), source }
        })?;
    let since = |meta: &ObjectMeta| {
        let intact = meta.deletion_timestamp.is_none();
        intact.then(|| meta.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0))
    };
    let of_namespace = of_namespace.and_then(|object| since(&object.metadata));
    let of_crd = of_crd.and_then(|object| since(&object.metadata));
    Ok(of_namespace.zip(of_crd).map(|(one, other)| one.max(other)))
}

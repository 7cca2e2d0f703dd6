//! Reads whether the namespace and the CRD of hub objects exist.

use jiff::Timestamp;
use kyma_controller::namespace_and_crds_since;

use crate::error::Error;
use crate::state::State;

/// Returns whether the namespace or the CRD is gone or terminating: then the deletion of the objects in it was not
/// requested. Makes live reads.
pub(crate) async fn is_terminating(state: &State, namespace: &str, crd: &str) -> Result<bool, Error> {
    Ok(intact_since(state, namespace, crd).await?.is_none())
}

/// Returns since when namespace and CRD both exist, or `None` if one is gone or terminating. Makes live reads.
pub(crate) async fn intact_since(
    state: &State,
    namespace: &str,
    crd: &str,
) -> Result<Option<Timestamp>, Error> {
    let since = namespace_and_crds_since(&state.runtime.hub, namespace, &[crd]).await;
    since.map_err(|source| Error::ReadScope { namespace: namespace.to_owned(), crd: crd.to_owned(), source })
}

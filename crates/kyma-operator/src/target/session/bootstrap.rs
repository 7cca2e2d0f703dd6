//! Prerequisites of the target's Kyma: the namespace and the CRD.

use kyma_api::{Kyma, crds, names};
use kyma_connection::{ensure_crd, ensure_namespace};
use kyma_controller::{Failure, KymaKey, Runtime};
use kyma_targets::Target;

use crate::state::State;

/// Ensures namespace and CRD. Returns how many of them were written.
pub(super) async fn ensure_namespace_and_crd(
    state: &State,
    kyma: &Kyma,
    target: &Target,
) -> Result<usize, Failure> {
    let Runtime { operator, settings, .. } = &state.runtime;
    let is_namespace_written = ensure_namespace(state, target, &settings.target_namespace).await?;
    let key = KymaKey::of(kyma);
    let owner = names::owner_hash(&key.namespace, &key.name);
    // The following watch shows whether the kind is served.
    let crd = ensure_crd(target.client(), *operator, &owner, &crds::kyma()).await?;
    Ok(usize::from(is_namespace_written) + usize::from(crd.is_written))
}

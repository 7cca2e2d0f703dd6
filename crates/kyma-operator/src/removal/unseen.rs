//! Finds components of a Kyma without a watch, because their kind is being listed or its CRD is terminating.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{CustomResourceExt, ResourceExt};
use kyma_api::{Kyma, KymaStatus, labels, names};
use kyma_sdk::KymaKey;

use crate::component::ComponentKind;
use crate::error::Error;
use crate::kinds::{KindStatus, Kinds};
use crate::state::State;

/// Reports whether the hub has such components, by live reads of kinds without a watch. A kind that is served or
/// removed requeues the Kyma.
pub(super) async fn are_left(state: &State, kyma: &Kyma) -> Result<bool, Error> {
    let key = KymaKey::of(kyma);
    let kinds = unwatched(&state.kinds(), kyma.status.as_ref());
    if kinds.is_empty() {
        return Ok(false);
    }
    state.waits_for_kinds(
        &key,
        kinds.iter().map(|kind| (kind.group().to_owned(), kind.kind.clone())).collect(),
    );
    let crds: Api<CustomResourceDefinition> = Api::all(state.runtime.hub.clone());
    let failed = |source| Error::ListUnwatched { kyma: key.clone(), source };
    let crds = crds.list(&ListParams::default()).await.map_err(failed)?;
    if !is_complete(&crds.items) {
        return Ok(true);
    }
    let of_kyma = names::label_selector(labels::KYMA_NAME, &key.name);
    for kind in kinds {
        let is_its = |crd: &&CustomResourceDefinition| {
            crd.spec.group == kind.group() && crd.spec.names.kind == kind.kind
        };
        // Without a CRD no components exist.
        let Some(crd) = crds.iter().find(is_its) else { continue };
        let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), &kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &crd.spec.names.plural);
        let api: Api<DynamicObject> =
            Api::namespaced_with(state.runtime.hub.clone(), &key.namespace, &resource);
        let one = ListParams::default().labels(&of_kyma).limit(1);
        if !api.list_metadata(&one).await.map_err(failed)?.items.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reports whether a list of the hub's CRDs has that of Kymas, which exists. A list without it proves no CRD absent.
fn is_complete(crds: &[CustomResourceDefinition]) -> bool {
    crds.iter().any(|crd| crd.name_any() == Kyma::crd_name())
}

/// Returns kinds that the status names and that no watch covers.
pub(super) fn unwatched(kinds: &Kinds, status: Option<&KymaStatus>) -> BTreeSet<ComponentKind> {
    let lines = status.iter().flat_map(|status| status.modules.iter().flatten());
    let mandatory = status.iter().flat_map(|status| status.mandatory_modules.iter().flatten());
    let named = lines.filter_map(ComponentKind::of_line).chain(mandatory.map(ComponentKind::of_mandatory));
    let is_watched = |kind: &ComponentKind| matches!(kinds.status(kind), KindStatus::Ready { .. });
    named.filter(|kind| !is_watched(kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_the_crd_of_kymas_proves_no_crd_absent() {
        let components = kyma_api::crds::helm_component();
        assert!(is_complete(&[components.clone(), kyma_api::crds::kyma()]));
        assert!(!is_complete(&[components]) && !is_complete(&[]));
    }
}

//! CRDs of the copies on a target.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube_runtime::wait::{Condition as _, conditions::is_crd_established};
use kyma_api::{annotations, crds};
use kyma_connection::ensure_crd;
use kyma_controller::{Failure, Operator};
use kyma_object_set::drift::fingerprint;
use kyma_targets::Target;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::names::FIELD_MANAGER;
use crate::target::memory::ObjectVersion;

/// Returns the CRDs of the catalogue.
pub(crate) fn catalogue_crds() -> [CustomResourceDefinition; 2] {
    [crds::module_template(), crds::module_release_meta()]
}

/// Adds the hash of the spec as an annotation. Targets have it already: without it, an upgrade of the operator would
/// write every CRD again.
fn with_content_hash(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let hash = hex::encode(&Sha256::digest(json!(crd.spec).to_string().as_bytes())[..8]);
    crd.annotations_mut().insert(annotations::APPLIED.to_owned(), hash);
    crd
}

/// State of the catalogue's CRDs on a target.
pub(crate) struct Crds {
    pub(crate) versions: BTreeMap<String, ObjectVersion>,
    /// Whether both are established, which takes a moment after the installation.
    pub(crate) are_established: bool,
}

/// Installs or updates the catalogue's CRDs, unless a newer version of this operator did. Returns their state.
pub(crate) async fn ensure_crds(target: &Target, operator: Operator, owner: &str) -> Result<Crds, Failure> {
    let mut found = Crds { versions: BTreeMap::new(), are_established: true };
    for definition in catalogue_crds().map(with_content_hash) {
        // Boxed: every reconcile holds this future.
        let live = Box::pin(ensure_crd(target.client(), operator, owner, &definition)).await?.crd;
        let fingerprint = fingerprint(&live.metadata, FIELD_MANAGER);
        found.versions.insert(
            definition.name_any(),
            ObjectVersion { uid: live.uid().unwrap_or_default(), fingerprint },
        );
        found.are_established &= is_crd_established().matches_object(Some(&live));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_content_of_a_crd_has_its_own_hash() {
        let [template, release] = catalogue_crds().map(with_content_hash);
        let hash = |crd: &CustomResourceDefinition| crd.annotations()[annotations::APPLIED].clone();
        assert_eq!(hash(&template).len(), 16);
        assert_ne!(hash(&template), hash(&release));
        assert_eq!(hash(&with_content_hash(template.clone())), hash(&template));
    }
}

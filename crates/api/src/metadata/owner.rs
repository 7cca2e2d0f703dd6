//! Owners of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::kyma::Kyma;
use crate::metadata::groups::OPERATOR_GROUP;

/// Returns the first Kyma among the owners of an object. A kind `Kyma` of another API group does not count.
pub fn kyma_owner(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| is_kyma(owner))
}

/// Returns whether an owner is a Kyma, by group and kind, in any version.
pub fn is_kyma(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    group == OPERATOR_GROUP && owner.kind == <Kyma as kube::Resource>::kind(&())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(api_version: &str, kind: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn owner_is_a_kyma_by_group_and_kind() {
        assert!(is_kyma(&owner("operator.kyma-project.io/v1beta2", "Kyma")));
        assert!(is_kyma(&owner("operator.kyma-project.io/v1beta1", "Kyma")));
        for (api_version, kind) in [
            ("example.org/v1", "Kyma"),
            ("v1", "Kyma"),
            ("operator.kyma-project.io.example.org/v1", "Kyma"),
            ("operator.kyma-project.io/v1beta2", "Manifest"),
        ] {
            assert!(!is_kyma(&owner(api_version, kind)), "{api_version} {kind}");
        }
        let owners = [owner("example.org/v1", "Kyma"), owner("operator.kyma-project.io/v1beta2", "Kyma")];
        assert_eq!(kyma_owner(&owners), Some(&owners[1]));
    }
}

//! Objects of Kyma Lifecycle Manager (KLM) on hub and targets, as far as they are read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};

use crate::metadata::groups::OPERATOR_GROUP;
use crate::metadata::labels;
use crate::metadata::owner::is_kyma;

/// Lease in the hub's namespace that a running KLM renews.
pub const LEASE: &str = "893110f7.kyma-project.io";
/// KLM's component: one module on one target. Kind of [`crate::OPERATOR_GROUP`], `v1beta2`.
pub const MANIFEST: &str = "Manifest";
/// Plural of [`MANIFEST`].
pub const MANIFESTS: &str = "manifests";
/// KLM's finalizers on Manifests, for installed objects, labels of unmanaged modules and the default CR.
pub const MANIFEST_FINALIZERS: [&str; 3] = [
    "declarative.kyma-project.io/finalizer",
    "label-removal-finalizer",
    "resource.kyma-project.io/finalizer",
];
/// Annotation on a Manifest: digest of the last applied content.
pub const SYNCED_REF: &str = "sync-oci-ref";
/// Condition of a Manifest: its content was read.
pub const RESOURCES: &str = "Resources";
/// Condition of a Manifest: everything is installed.
pub const INSTALLATION: &str = "Installation";
/// Condition of a Manifest: the default CR was created, and is not created again.
pub const MODULE_CR: &str = "ModuleCR";
/// Maximum length of a Manifest's name.
const MAX_MANIFEST_NAME_CHARS: usize = 62;

/// Field manager of the modules' objects on targets.
pub const APPLIER: &str = "declarative.kyma-project.io/applier";
/// Field manager with which default CRs are created.
pub const DEFAULT_CR_MANAGER: &str = "resource.kyma-project.io/finalizer";
/// Field managers of the status of Kymas; the second since KLM 1.21.
pub const STATUS_MANAGERS: [&str; 2] = ["lifecycle-manager", "operator.kyma-project.io/lifecycle-manager"];
/// Field manager of KLM's updates without server-side apply: the name of its program.
pub const UPDATER: &str = "manager";

/// Field managers of the target's Kyma: for its labels, and for updates without server-side apply.
pub const TARGET_KYMA_MANAGERS: [&str; 2] = ["kyma-sync-context", UPDATER];

/// Label on every object of a module: the name of its Manifest.
pub const OBJECT_COMPONENT: &str = "app.kubernetes.io/component";
/// Label on every object of a module, with the value [`PART_OF_KYMA`].
pub const OBJECT_PART_OF: &str = "app.kubernetes.io/part-of";
/// Value of [`OBJECT_PART_OF`].
pub const PART_OF_KYMA: &str = "Kyma";

/// Returns the resource of Manifests.
pub fn manifest_resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk(OPERATOR_GROUP, "v1beta2", MANIFEST);
    ApiResource::from_gvk_with_plural(&gvk, MANIFESTS)
}

/// Reports whether a Manifest is a read-only copy of kyma-operator: it has the mirror label, or a component owns it
/// if a user removed the label; it was not handed over, and KLM has not adopted it.
pub fn is_mirror(manifest: &ObjectMeta) -> bool {
    let label = |name: &str| manifest.labels.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    let mut owners = manifest.owner_references.iter().flatten();
    let of_component = owners.any(|owner| owner.controller == Some(true) && !is_kyma(owner));
    let mut finalizers = manifest.finalizers.iter().flatten();
    (label(labels::MIRROR) == Some("true") || of_component)
        && label(labels::HAND_OVER).is_none()
        && !finalizers.any(|name| MANIFEST_FINALIZERS.contains(&name.as_str()))
}

/// Returns the name of a module's Manifest: the Kyma, the last part of the OCM component's name, and the FNV-1 hash
/// of that name and the module's, cut to 62 characters. For long names this removes the hash, so two names may be
/// equal.
pub fn manifest_name(kyma: &str, ocm_component: &str, module: &str) -> String {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let named = ocm_component.bytes().chain(module.bytes());
    let hash = named.fold(BASIS, |hash, byte| hash.wrapping_mul(PRIME) ^ u32::from(byte));
    let last = ocm_component.rsplit('/').next().unwrap_or_default();
    let name: String = format!("{kyma}-{last}-{hash}").chars().take(MAX_MANIFEST_NAME_CHARS).collect();
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_named_as_klm_names_them() {
        let name = |kyma: &str, module: &str| {
            manifest_name(kyma, &format!("kyma-project.io/module/{module}"), module)
        };
        assert_eq!(name("kyma-sample", "keda"), "kyma-sample-keda-1095022605");
        assert_eq!(name("kyma-sample", "template-operator"), "kyma-sample-template-operator-2235966007");
        assert_eq!(name("kyma-sample", "nats"), "kyma-sample-nats-2143556813");
        let long = name(&"k".repeat(56), "keda");
        assert_eq!(long, format!("{}-keda", "k".repeat(56)), "cut after the dash, which goes too");
    }
}

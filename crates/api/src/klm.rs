//! What Kyma Lifecycle Manager (KLM) leaves on hub and targets, as far as we read it.

/// Lease in the hub's namespace that a running KLM renews.
pub const LEASE: &str = "893110f7.kyma-project.io";
/// KLM's component: one module on one target. Of [`crate::OPERATOR_GROUP`], `v1beta2`.
pub const MANIFEST: &str = "Manifest";
/// Plural of [`MANIFEST`].
pub const MANIFESTS: &str = "manifests";
/// Finalizers that KLM puts on Manifests: installed objects, labels of unmanaged modules, the default CR.
pub const MANIFEST_FINALIZERS: [&str; 3] = [
    "declarative.kyma-project.io/finalizer",
    "label-removal-finalizer",
    "resource.kyma-project.io/finalizer",
];
/// Annotation on a Manifest: digest of the content that was applied last.
pub const SYNCED_REF: &str = "sync-oci-ref";
/// Condition of a Manifest: the default CR was created, and is not created again.
pub const MODULE_CR: &str = "ModuleCR";

/// Field manager of the modules' objects on targets.
pub const APPLIER: &str = "declarative.kyma-project.io/applier";
/// Field manager with which default CRs are created.
pub const DEFAULT_CR_MANAGER: &str = "resource.kyma-project.io/finalizer";
/// Field managers of the status of Kymas; the second since KLM 1.21.
pub const STATUS_MANAGERS: [&str; 2] = ["lifecycle-manager", "operator.kyma-project.io/lifecycle-manager"];
/// Field manager of what KLM updates without server-side apply: the name of its program.
pub const UPDATER: &str = "manager";

/// Field managers of the target's Kyma: of its labels, and of what is updated without server-side apply.
pub const TARGET_KYMA_MANAGERS: [&str; 2] = ["kyma-sync-context", UPDATER];

/// Label on every object of a module: the name of its Manifest.
pub const OBJECT_COMPONENT: &str = "app.kubernetes.io/component";
/// Label on every object of a module, with the value [`PART_OF_KYMA`].
pub const OBJECT_PART_OF: &str = "app.kubernetes.io/part-of";
/// Value of [`OBJECT_PART_OF`].
pub const PART_OF_KYMA: &str = "Kyma";

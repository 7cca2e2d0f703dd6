//! Annotations that operators or other Kyma tools read.

/// `true` on a ModuleTemplate: its default CR is cluster-scoped and gets no namespace.
pub const IS_CLUSTER_SCOPED: &str = "operator.kyma-project.io/is-cluster-scoped";
/// `true` on a component of a module that the user took out of management.
pub const IS_UNMANAGED: &str = "operator.kyma-project.io/is-unmanaged";
/// Domain of the target, set by the broker. No prefix, as KLM reads it.
pub const SKR_DOMAIN: &str = "skr-domain";
/// `namespace/name` of the hub object that owns an object on a target.
pub const OWNED_BY: &str = "deprecated-operator.kyma-project.io/owned-by";
/// Text on objects of a target: edits are reverted.
pub const DISCLAIMER: &str = "operator.kyma-project.io/managed-by-reconciler-disclaimer";
/// `true` on a Secret in the manifest of the module `deployer`: it gets the data of the hub's Secret of the same
/// name.
pub const INJECT_DATA_FROM_KCP: &str = "operator.kyma-project.io/inject-data-from-kcp";
/// OCM component name of a module on its Manifest; the older name of [`OCM_COMPONENT_NAME`].
pub const FQDN: &str = "operator.kyma-project.io/fqdn";
/// OCM component name of a module on its component.
pub const OCM_COMPONENT_NAME: &str = "operator.kyma-project.io/ocm-component-name";
/// Module version on the workloads that a component applies; the first source of the running version.
pub const MODULE_VERSION: &str = "component.kyma-project.io/module-version";

/// On a Secret with [`INJECT_DATA_FROM_KCP`]: `<uid>/<resourceVersion>` of the hub's Secret that was copied.
pub const INJECTED_FROM: &str = "component.kyma-project.io/injected-from";

/// Reason of a removal, a [`crate::component::DeletionReason`]. Part of the deletion request.
pub const DELETION_REASON: &str = "component.kyma-project.io/deletion-reason";
/// Uid of the Kyma that requests the removal. Part of the deletion request.
pub const DELETION_KYMA_UID: &str = "component.kyma-project.io/deletion-kyma-uid";
/// Generation of that Kyma at the time of the request, in decimal. Part of the deletion request.
pub const DELETION_KYMA_GENERATION: &str = "component.kyma-project.io/deletion-kyma-generation";

/// Hash of kyma-operator's last apply of a component, so that an unchanged one is not written again.
pub const APPLIED: &str = "component.kyma-project.io/applied";
/// Uid of the target's `kube-system` Namespace at first contact, on the component.
pub const TARGET_UID: &str = "component.kyma-project.io/target-uid";
/// On a Kyma whose target was adopted: `<uid of its kube-system Namespace>/<epoch>`. Written last, to requeue the
/// Kyma.
pub const TARGET_ADOPTED: &str = "component.kyma-project.io/target-adopted";
/// `true` on a Kyma whose cluster no longer exists: its components become Orphan without the waiting time.
pub const CLUSTER_GONE: &str = "component.kyma-project.io/cluster-gone";
/// Version of the operator that last wrote a Kyma CRD or component CRD; an older operator never applies over it.
pub const CRD_VERSION: &str = "component.kyma-project.io/crd-version";
/// On a Kyma that Kyma Lifecycle Manager hands over, and on its Manifests: a JSON record to restore them: status of a
/// Kyma; finalizers, status and `managedFields` of a Manifest.
pub const BEFORE_HAND_OVER: &str = "component.kyma-project.io/before-hand-over";
/// On a component: requests a full reconcile now. Any text, by convention a time in RFC 3339, that differs from
/// `status.lastHandledReconcileAt`; like Flux's `reconcile.fluxcd.io/requestedAt`.
pub const RECONCILE_REQUESTED_AT: &str = "component.kyma-project.io/reconcile-requested-at";
/// On a component: requests a run of the chart's tests. Any text, by convention a time in RFC 3339, that differs from
/// `status.lastHandledTestAt`.
pub const TEST_REQUESTED_AT: &str = "component.kyma-project.io/test-requested-at";
/// On a component, and on a policy on a target: a JSON object with the uid of each ModuleConfig in force, by name. A
/// ModuleConfig that is missing later stays in force until its deletion is proven.
pub const MODULE_CONFIGS: &str = "component.kyma-project.io/module-configs";
/// On a policy on a target: its module.
pub const POLICY_OF_MODULE: &str = "component.kyma-project.io/policy-of-module";
/// On an object with ownerReferences: whether its deletion is a request. `true`: what it installed is removed from
/// targets; `false`: everything stays there. Without it the garbage collector may have deleted the object, which
/// removes nothing.
pub const DELETION_CONFIRMED: &str = "component.kyma-project.io/deletion-confirmed";
/// On a component: the ModuleTemplate that it was made from, as JSON with version, uid and digest of its spec.
pub const MODULE_TEMPLATE: &str = "component.kyma-project.io/module-template";
/// `Manual` on a component: upgrades of the module need the user's approval.
pub const UPGRADE_MODE: &str = "component.kyma-project.io/upgrade-mode";
/// `true` on a component: an earlier component of the module created the default custom resource. If it does not
/// exist, its user deleted it, and it is not created again.
pub const DEFAULT_RESOURCE_CREATED: &str = "component.kyma-project.io/default-resource-created";
/// On an object that an operator created on a target: hash of the owner that created it. Adopted objects are never
/// deleted.
pub const CREATED_BY: &str = "component.kyma-project.io/created-by";
/// `true` on an object that `kymactl run --once` created: `kymactl run --remove` deletes it.
pub const CREATED_BY_RUN: &str = "component.kyma-project.io/created-by-run";
/// On a Secret with Helm's record of a release that helm-component wrote: digest of chart, values, name and namespace.
pub const RELEASE_CONTENT: &str = "component.kyma-project.io/release-content";
/// On objects of a chart's hooks on a target: the hook run that created them, so that a restarted operator recognizes
/// them.
pub const HOOK_RUN: &str = "component.kyma-project.io/hook-run";

/// Annotation on a Kyma during a hand-over: the operator of this name has stopped its work on the Kyma. The writer of the
/// label [`crate::metadata::labels::HAND_OVER`] removes it.
pub fn stopped(operator: &str) -> String {
    format!("component.kyma-project.io/{operator}-stopped")
}

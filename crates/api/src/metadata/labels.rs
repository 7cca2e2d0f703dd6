//! Labels that operators or other Kyma tools read.
//!
//! The environment broker, Busola, the Kyma CLI and module operators read the names under `operator.kyma-project.io`
//! and `kyma-project.io`, which keep KLM's meaning.

/// Name of the Kyma that an access Secret or a component belongs to.
pub const KYMA_NAME: &str = "operator.kyma-project.io/kyma-name";
/// Name of the module of a component or a ModuleTemplate.
pub const MODULE_NAME: &str = "operator.kyma-project.io/module-name";
/// Channel that a component follows; absent for a pinned or mandatory one.
pub const CHANNEL: &str = "operator.kyma-project.io/channel";
/// Value of `spec.modules[].controller`, copied to the component.
pub const CONTROLLER_NAME: &str = "operator.kyma-project.io/controller-name";
/// Manager of an object: [`MANAGED_BY_LIFECYCLE_MANAGER`] on the hub, [`MANAGED_BY_KYMA`] on targets.
pub const MANAGED_BY: &str = "operator.kyma-project.io/managed-by";
/// Value of [`MANAGED_BY`] on Kymas and components of the hub.
pub const MANAGED_BY_LIFECYCLE_MANAGER: &str = "lifecycle-manager";
/// Value of [`MANAGED_BY`] on objects that operators create on a target.
pub const MANAGED_BY_KYMA: &str = "kyma";
/// `kyma` on the target's Kyma: its edits are reported to the hub.
pub const WATCHED_BY: &str = "operator.kyma-project.io/watched-by";
/// Value of [`WATCHED_BY`].
pub const WATCHED_BY_KYMA: &str = "kyma";
/// Labels of the namespace of Kyma on a target, with their values as in KLM. Other parts of Kyma read them.
pub const TARGET_NAMESPACE_LABELS: [(&str, &str); 3] = [
    (MANAGED_BY, MANAGED_BY_KYMA),
    ("istio-injection", "enabled"),
    ("namespaces.warden.kyma-project.io/validate", "enabled"),
];
/// `true` on a Kyma or a component: it is not reconciled, but its deletion continues.
pub const SKIP_RECONCILIATION: &str = "operator.kyma-project.io/skip-reconciliation";
/// On a Kyma and its KLM Manifests: Kyma Lifecycle Manager (KLM) hands it over to these operators. KLM does not know
/// this label, so the object also has [`SKIP_RECONCILIATION`], which stops KLM and is ignored by these operators.
/// While the value is [`HAND_OVER_PENDING`], no operator acts; see [`crate::hand_over`].
pub const HAND_OVER: &str = "component.kyma-project.io/hand-over";
/// Value of [`HAND_OVER`] during a hand-over in either direction.
pub const HAND_OVER_PENDING: &str = "pending";
/// Value of [`HAND_OVER`] after the hand-over.
pub const HAND_OVER_DONE: &str = "done";
/// `true` on a Manifest that kyma-operator keeps as a read-only copy of a component (`--manifest-mirror`). No
/// operator acts on it: it also has [`SKIP_RECONCILIATION`], which KLM honours, and names no content.
pub const MIRROR: &str = "component.kyma-project.io/mirror";
/// `true` on a ModuleTemplate hides it from all Kymas that lack the same label.
pub const BETA: &str = "operator.kyma-project.io/beta";
/// `true` on a ModuleTemplate hides it from all Kymas that lack the same label.
pub const INTERNAL: &str = "operator.kyma-project.io/internal";
/// `true` on objects of a mandatory module.
pub const MANDATORY_MODULE: &str = "operator.kyma-project.io/mandatory-module";

/// Instance id of the environment, set by the broker.
pub const INSTANCE_ID: &str = "kyma-project.io/instance-id";
/// Global account id, set by the broker; copied to the target's Kyma.
pub const GLOBAL_ACCOUNT_ID: &str = "kyma-project.io/global-account-id";
/// Subaccount id, set by the broker; copied to the target's Kyma.
pub const SUBACCOUNT_ID: &str = "kyma-project.io/subaccount-id";
/// Region, set by the broker.
pub const REGION: &str = "kyma-project.io/region";
/// Platform region, set by the broker.
pub const PLATFORM_REGION: &str = "kyma-project.io/platform-region";
/// Plan, set by the broker.
pub const BROKER_PLAN_NAME: &str = "kyma-project.io/broker-plan-name";
/// Runtime id, set by the broker; copied to the target's Kyma.
pub const RUNTIME_ID: &str = "kyma-project.io/runtime-id";

/// On every object that operators create on a target: [`crate::metadata::names::owner_hash`] of the hub object that owns it.
pub const OWNER: &str = "component.kyma-project.io/owner";
/// On objects of a chart's hooks on a target, instead of [`OWNER`]: the same hash. Such objects are neither corrected
/// nor removed with the others.
pub const HOOK_OF: &str = "component.kyma-project.io/hook-of";
/// Shard of a Kyma, component or access Secret: [`crate::metadata::names::shard`] in decimal, `0` to `255`.
pub const SHARD: &str = "component.kyma-project.io/shard";
/// `true` on a Secret in the hub's namespace: operators may copy its content to targets, which are untrusted. Secrets
/// without it are not copied, nor are those with [`KYMA_NAME`] or a kubeconfig.
pub const COPY_TO_TARGETS: &str = "component.kyma-project.io/copy-to-targets";
/// `true` on a Secret or ConfigMap in the hub's namespace: every module may read it.
pub const READABLE_BY_ALL_MODULES: &str = "component.kyma-project.io/readable-by-all-modules";
/// Prefix of labels that name the modules with read access to a Secret or ConfigMap of the hub's namespace; see
/// [`readable_by`].
pub const READABLE_BY: &str = "modules.component.kyma-project.io/";
/// On a Secret of type `kubernetes.io/dockerconfigjson` in the hub's namespace: `true`, or the name of the only
/// module (cut and hashed beyond 63 characters) whose components may use it for their source.
pub const PULL_SECRET: &str = "component.kyma-project.io/pull-secret";
/// On policies on targets: name of their ModuleConfig, cut if it is no label value.
pub const MODULE_CONFIG: &str = "component.kyma-project.io/module-config";
/// `true` on component CRDs that kyma-operator installed; a CRD without it is never adopted.
pub const COMPONENT_CRD: &str = "component.kyma-project.io/managed-crd";

/// Version of the module's operator, the common label in charts and manifests.
pub const APP_VERSION: &str = "app.kubernetes.io/version";

/// Returns the label with the value `true` on a Secret or ConfigMap of the hub's namespace that a module may read:
/// `modules.component.kyma-project.io/<module>`, cut and hashed if the module's name is longer than 63 characters.
pub fn readable_by(module: &str) -> String {
    format!("{READABLE_BY}{}", crate::metadata::names::label_value(module))
}

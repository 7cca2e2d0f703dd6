//! HelmComponent: one module on one target, from a chart or manifests.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    DeletionPolicy, Dependency, FreeForm, GroupKind, Manager, ModuleRef, ResourcePolicy, TargetRef, schemas,
};

mod inventory;
mod packed;
mod policies;
mod source;
mod status;

pub use inventory::{InventoryGroup, InventoryItem};
pub use packed::PackedError;
pub use policies::{
    Adopt, CommonMetadata, CrdPolicy, Drift, DriftIgnore, DriftMode, Health, HealthExpression, History,
    HookPolicy, ObjectSelector, Patch, Release, Rollback, RollbackMode, Timeouts, ValuesFrom, ValuesFromKind,
};
pub use source::{ChartSource, ManifestSource, OcmSource, SecretRef, SignerIdentity, Source, Verify};
pub use status::{
    CreatedResource, Digests, FailedRelease, HelmComponentStatus, HelmHistory, HookPhase, Hooks,
    InventoryEntry, KeptRelease, ReleaseRevision, Replaced, ResolvedVersion, TakenOver,
};

/// What is wished for one module on one target.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "component.kyma-project.io",
    version = "v1alpha1",
    kind = "HelmComponent",
    plural = "helmcomponents",
    shortname = "hc",
    category = "kyma-components",
    namespaced,
    status = "HelmComponentStatus",
    derive = "PartialEq",
    doc = "HelmComponent installs one module on one target, from an OCM component, a Helm chart or plain manifests. \
           It lives on the hub. Usually kyma-operator writes it; it can be used alone as well.",
    printcolumn(name = "Module", type_ = "string", json_path = ".spec.module.name"),
    printcolumn(name = "Wanted", type_ = "string", json_path = ".spec.module.version"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target.kubeconfigSecretRef.name"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct HelmComponentSpec {
    /// The cluster to install on. Absent only where the hub is its own target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRef>,
    /// The module that this installs. Absent for a component without a Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleRef>,
    /// Where its content comes from.
    pub source: Source,
    /// Name and namespace of the Helm release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// The module's own Helm values; they lose to valuesFrom, userValues and overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub values: Option<FreeForm>,
    /// Further values from ConfigMaps and Secrets of the component's namespace; later entries win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_from: Option<Vec<ValuesFrom>>,
    /// The user's values, from the Kyma; they win over values and valuesFrom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub user_values: Option<FreeForm>,
    /// Values decided centrally; they win over all others. status.overridden names the keys that they replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub overrides: Option<FreeForm>,
    /// Changes to the module's objects, one after the other: before commonMetadata and all that the operator adds, and
    /// before images are localised. The default CR is not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub patches: Option<Vec<Patch>>,
    /// Labels and annotations of all of the module's objects, not of Pods that its workloads make, nor of the default CR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// The module's default CR, a whole object. Created once; later edits by the user stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::embedded_object")]
    pub resource: Option<FreeForm>,
    /// CreateAndDelete creates the default CR with the module and deletes it with the module; Ignore leaves it alone.
    #[serde(default)]
    pub resource_policy: ResourcePolicy,
    /// The workload whose readiness is the module's state. Absent: all workloads of the module count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Further kinds whose objects block the removal, beside the CRDs in the module's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub managed_resources: Option<Vec<GroupKind>>,
    /// What the module needs: kinds, for which only their objects wait, and modules or components, for which all of it
    /// waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub depends_on: Option<Vec<Dependency>>,
    /// What happens with CRDs in the chart's crds directory: CreateReplace keeps them up to date, Create installs
    /// missing ones only, Skip ignores them.
    #[serde(default)]
    pub crds: CrdPolicy,
    /// What happens with the chart's hooks: Run runs them at their moment, one after another, and goes on when they have
    /// succeeded; Skip leaves them out.
    #[serde(default)]
    pub hooks: HookPolicy,
    /// How the objects' health counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// What happens when somebody changes the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Objects that exist already: Never touches none; Unowned takes over those without a living owner of ours,
    /// whoever wrote them; Always takes them from other owners too.
    #[serde(default)]
    pub adopt: Adopt,
    /// Objects that may be deleted and made anew where a field of theirs would change that cannot. What depends on them
    /// goes with them, but Pods of a StatefulSet stay for the next one. A Namespace, CRD, PersistentVolume or
    /// PersistentVolumeClaim is only meant where kind says so, and only if this component made it. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub recreate: Option<Vec<ObjectSelector>>,
    /// How long each step may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// What happens when other content or other values fail: their hooks, their objects, or their health. Absent: they
    /// stay and say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// ServiceAccount on the target to act as, in the namespace that helm-component is told; its roles bound what the
    /// module can do. Absent: the default that helm-component is told, or the kubeconfig's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// True: nothing is done, not even put right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// What the deletion of this object means for the target. Orphan leaves everything there; Delete removes the
    /// module. Orphan unless said otherwise: a deletion that nobody ordered removes nothing.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

//! HelmComponent: one module on one target, from a chart or manifests.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::fields::{
    DeletionPolicy, Dependency, FreeForm, GroupKind, Manager, ModuleRef, ResourcePolicy, TargetRef,
};
use crate::schema::schemas;

mod inventory;
mod inventory_group;
mod packed;
mod policies;
mod source;
mod status;
mod status_records;
mod stored;

pub use inventory_group::{InventoryGroup, InventoryItem};
pub use packed::PackedError;
pub use policies::{
    Adopt, CommonMetadata, CrdPolicy, Drift, DriftIgnore, DriftMode, Health, HealthExpression, History,
    HookPolicy, ObjectSelector, Patch, Release, Rollback, RollbackMode, Timeouts, ValuesFrom, ValuesFromKind,
};
pub use source::{ChartSource, ManifestSource, OcmSource, SecretRef, SignerIdentity, Source, Verify};
pub use status::HelmComponentStatus;
pub use status_records::{
    Adoption, CreatedResource, Digests, FailedRevision, HookPhase, Hooks, InstalledValues, InventoryEntry,
    PruneBaseline, ReleaseRecord, ReleaseRevision, ResolvedVersion, RollbackTarget,
};

/// Desired state of one module on one target.
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
    printcolumn(name = "Desired", type_ = "string", json_path = ".spec.module.version"),
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
#[schemars(transform = schemas::keep_field_descriptions)]
pub struct HelmComponentSpec {
    /// Cluster to install on. Absent only if the hub is its own target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRef>,
    /// Module to install. Absent for a component without a Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<ModuleRef>,
    /// Source of the module's content.
    pub source: Source,
    /// Name and namespace of the Helm release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// The module's own Helm values; valuesFrom, userValues and overrides take precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub values: Option<FreeForm>,
    /// Further values from ConfigMaps and Secrets of the component's namespace; later entries take precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_from: Option<Vec<ValuesFrom>>,
    /// The user's values, from the Kyma; they take precedence over values and valuesFrom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub user_values: Option<FreeForm>,
    /// Central values; they take precedence over all others. status.overridden lists the keys that they replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub overrides: Option<FreeForm>,
    /// Patches for the module's objects, applied in order, before commonMetadata, the operator's metadata and the
    /// localisation of images. They do not change the default CR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub patches: Option<Vec<Patch>>,
    /// Labels and annotations of all of the module's objects, except Pods of its workloads and the default CR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// The module's default CR, a complete object. Created once; later edits by the user are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::embedded_object")]
    pub resource: Option<FreeForm>,
    /// CreateAndDelete creates and deletes the default CR with the module; Ignore leaves it to the user.
    #[serde(default)]
    pub resource_policy: ResourcePolicy,
    /// Workload whose readiness determines the module's state. Absent: all workloads of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Kinds whose objects block the removal, besides those of the CRDs in the module's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub managed_resources: Option<Vec<GroupKind>>,
    /// Dependencies. A missing kind delays only objects of that kind; a module or component that is not ready
    /// delays the whole component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub depends_on: Option<Vec<Dependency>>,
    /// Policy for CRDs in the chart's crds directory: CreateReplace keeps them up to date, Create only installs
    /// missing ones, Skip ignores them.
    #[serde(default)]
    pub crds: CrdPolicy,
    /// Policy for the chart's hooks: Run runs them in order and continues when they have succeeded; Skip omits
    /// them.
    #[serde(default)]
    pub hooks: HookPolicy,
    /// Rules for the health of the module's objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Handling of changes that others make to the module's objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// Policy for existing objects: Never does not change them; Unowned adopts objects that no other existing
    /// component owns; Always adopts all.
    #[serde(default)]
    pub adopt: Adopt,
    /// Objects that may be deleted and created again to change an immutable field. Their dependents are deleted
    /// too, except Pods of a StatefulSet. Namespaces, CRDs, PersistentVolumes and PersistentVolumeClaims match only
    /// if kind names them and this component created them. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub recreate: Option<Vec<ObjectSelector>>,
    /// Maximum duration of each step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// Handling of new content or values whose hooks, objects or health fail. Absent: they stay and the failure is
    /// reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// ServiceAccount to impersonate on the target, in the namespace that helm-component is configured with; its
    /// roles limit the module. Absent: helm-component's default, or the kubeconfig's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// True suspends reconciliation, including drift correction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Effect of this object's deletion on the target: Orphan (the default) leaves everything there, Delete removes
    /// the module.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

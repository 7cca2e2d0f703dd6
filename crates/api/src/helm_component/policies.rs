//! Policies for installation, health, drift, adoption and rollback.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::schemas;

/// Name and namespace of the Helm release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Name of the release. Absent: the module's name, or the component's if it has no module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub name: Option<String>,
    /// Namespace on the target for objects without one. Absent: the operator's default, usually kyma-system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Whether to create that namespace if it is missing. Absent: yes. It is never deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_namespace: Option<bool>,
    /// Namespace on the target of Helm's record of a release to take over. Absent: the release's. Flux keeps it in
    /// the HelmRelease's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Records each release of a chart on the target as Helm does, including values, for helm list, helm history
    /// and helm get. The records are deleted with the component. Absent: no records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
}

/// Helm's records of releases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Number of revisions to keep. Absent: 10, as in Helm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max: Option<i32>,
}

/// Values from another object of the component's namespace, which is watched. For a module of a Kyma the object
/// needs the label modules.component.kyma-project.io/<module>=true or
/// component.kyma-project.io/readable-by-all-modules=true; for a component without a Kyma a Secret needs
/// component.kyma-project.io/copy-to-targets=true. Secrets with access to a cluster are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesFrom {
    /// ConfigMap or Secret.
    pub kind: ValuesFromKind,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data. Absent: values.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
    /// Path in the values at which the content is set, as one string: a.b[0].c, with \\ before a dot within a key.
    /// Absent: the content is YAML and is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub target_path: Option<String>,
    /// True: the object or key may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Kind of an object with values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ValuesFromKind {
    /// ConfigMap.
    #[default]
    ConfigMap,
    /// Secret.
    Secret,
}

/// A patch for the module's objects, including hooks and objects of plain manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// Objects to patch; apiVersion, kind, name and namespace in the patch are then ignored. Absent: the object
    /// that the patch names, by default in the release's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectSelector>,
    /// YAML. A map is a strategic merge patch, or a JSON merge patch for custom resources; $patch: delete at its
    /// top removes the object from the module. A list holds JSON patch operations (RFC 6902) and needs a target.
    /// apiVersion, kind, name and namespace never change.
    #[schemars(length(min = 1, max = 65536))]
    pub patch: String,
}

/// Labels and annotations to add to objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonMetadata {
    /// Labels; they replace labels with the same key. Keys of kyma-project.io are not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::added_labels")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations; they replace annotations with the same key. Keys of kyma-project.io and helm.sh/hook are not
    /// allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::added_annotations")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// Selects objects of the module. Absent fields match any value, others exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSelector {
    /// API group; the empty string is the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
    /// API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub version: Option<String>,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub kind: Option<String>,
    /// Namespace; the empty string matches cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
}

/// Policy for CRDs in a chart's `crds` directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CrdPolicy {
    /// Installs the CRDs and keeps them up to date.
    #[default]
    CreateReplace,
    /// Installs missing CRDs and leaves existing ones unchanged, as Helm does.
    Create,
    /// Ignores the CRDs.
    Skip,
}

/// Policy for the chart's hooks, objects with the annotation helm.sh/hook. It does not apply to plain manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookPolicy {
    /// Runs the hooks of an event in order.
    #[default]
    Run,
    /// Omits the hooks.
    Skip,
}

/// Rules for the health of the module's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Objects to ignore, except the workload in spec.manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub ignore: Option<Vec<ObjectSelector>>,
    /// Health of objects of a kind, one entry per kind. It replaces the built-in rule, and objects of these kinds
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub expressions: Option<Vec<HealthExpression>>,
}

/// Health of objects of one kind, in CEL. self is the object without managedFields; its fields also have their own
/// names, such as status.phase; has(status.phase) tests whether one is present. The first expression that is true
/// decides, in the order inProgress, failed, current; one that cannot be evaluated is not true. An object that is
/// being deleted or whose status.observedGeneration is outdated is never healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthExpression {
    /// API group and version. The rule applies to all versions of the group.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// True while the object is in progress. Absent: when neither failed nor current is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub in_progress: Option<String>,
    /// True when the object is healthy.
    #[schemars(length(min = 1, max = 4096))]
    pub current: String,
    /// True when it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub failed: Option<String>,
}

/// Handling of changes that others make to the module's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// Correct reverts changes, Warn only reports them, Off ignores them. Absent: Correct, but Warn for objects
    /// adopted from another system, until the component's spec asks for other content (status.adopted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DriftMode>,
    /// Fields that others may change. They are set when an object is created; after that, changes by others are
    /// neither reverted nor overwritten by a new version. A field that no one else changed is removed once the
    /// module lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub ignore: Option<Vec<DriftIgnore>>,
}

/// Policy for changes that others make to the module's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DriftMode {
    /// Reverts the changes.
    #[default]
    Correct,
    /// Reports the changes.
    Warn,
    /// Ignores the changes.
    Off,
}

/// Fields that others may change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftIgnore {
    /// Objects with these fields. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectSelector>,
    /// Fields as JSON pointers (RFC 6901), for instance /spec/replicas; ~ is written ~0 and / is written ~1. An
    /// index counts from 0 in the module's list; name an atomic list as a whole.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub paths: Vec<String>,
}

/// Policy for objects that exist before the component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Adopt {
    /// Leaves existing objects unchanged.
    Never,
    /// Takes over objects that no other existing component owns.
    #[default]
    Unowned,
    /// Takes over all objects, also from other owners.
    Always,
}

/// Maximum duration of each step, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// One rendering. Absent: 10. Bounded by the operator's --reconcile-deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600))]
    pub render_seconds: Option<i32>,
    /// One hook of the chart, from its creation to its end, before it counts as failed. Absent: 300, as in Helm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub hook_seconds: Option<i32>,
    /// From applied to healthy, before the component counts as failed. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub health_seconds: Option<i32>,
    /// From the request to the end of the removal, before it is reported as stuck. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub delete_seconds: Option<i32>,
}

/// Handling of new content or values that fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// Never leaves the failed release in place; OnFailure applies the last Ready one again, from a Secret of the
    /// hub. The failed release is retried when it changes, on request, and after long pauses.
    #[serde(default)]
    pub mode: RollbackMode,
}

/// Whether a failed release is rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RollbackMode {
    /// The failed release stays.
    #[default]
    Never,
    /// The last Ready release is applied again.
    OnFailure,
}

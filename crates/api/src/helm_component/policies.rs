//! How a module is installed, kept and changed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schemas;

/// Name and namespace of the Helm release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Name of the release. Absent: the module's name, or the component's where there is no module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub name: Option<String>,
    /// Namespace on the target for objects that name none. Absent: the operator's default, usually kyma-system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Whether that namespace is created where it is missing. Absent: yes. It is never deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_namespace: Option<bool>,
    /// Namespace on the target of Helm's record of the release, where one is taken over. Absent: that of the release. Flux
    /// keeps it in the namespace of the HelmRelease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub storage_namespace: Option<String>,
    /// Records each change of a chart's release on the target as Helm does, values included, so that helm list, helm
    /// history and helm get tell of it. Absent: nothing is recorded. With the component the records go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
}

/// How releases are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Revisions that are kept. Absent: 10, as by Helm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max: Option<i32>,
}

/// Values from another object of the component's namespace, which is watched. For a module of a Kyma the object needs the
/// label modules.component.kyma-project.io/<module> with the value true; for a component without a Kyma a Secret needs
/// component.kyma-project.io/copy-to-targets=true. A Secret is refused where it is or holds the access to a cluster.
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
    /// Path in the values at which the content is set, as one string: a.b[0].c, with \\ before a dot that belongs to a
    /// key. Absent: the content is YAML and merged.
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

/// A change to the module's objects, hooks and objects of plain manifests included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// Objects that it changes; apiVersion, kind, name and namespace in the patch mean nothing then. Absent: the one that
    /// the patch itself names. One that names no namespace lies in that of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectSelector>,
    /// YAML. A map is a strategic merge patch, for custom resources a JSON merge patch; $patch: delete at its top takes
    /// the object out of the module. A list holds JSON patch operations (RFC 6902), which need a target. An object always
    /// keeps apiVersion, kind, name and namespace.
    #[schemars(length(min = 1, max = 65536))]
    pub patch: String,
}

/// Labels and annotations that are put on objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonMetadata {
    /// Labels; they replace those of the same key. Keys of kyma-project.io are not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::added_labels")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations; they replace those of the same key. Keys of kyma-project.io and helm.sh/hook are not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::added_annotations")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// Some of the module's objects. Absent fields match anything, others exactly.
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
    /// Namespace; the empty string are objects without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
}

/// What happens with CRDs in a chart's `crds` directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CrdPolicy {
    /// Installed and kept up to date.
    #[default]
    CreateReplace,
    /// Installed where missing, as Helm does, and otherwise left as they are.
    Create,
    /// Ignored.
    Skip,
}

/// What happens with the chart's hooks, which are objects with the annotation helm.sh/hook. In plain manifests it means
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookPolicy {
    /// Run at their moment, one after another.
    #[default]
    Run,
    /// Left out.
    Skip,
}

/// How the objects' health counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Objects that do not count. What spec.manager names always does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub ignore: Option<Vec<ObjectSelector>>,
    /// When objects of a kind work, one entry for each kind. Objects of these kinds count, and the entry replaces what
    /// is built in for the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub expressions: Option<Vec<HealthExpression>>,
}

/// When objects of one kind are healthy, in CEL. self is the object, without managedFields; its fields have their own
/// names too, for instance status.phase. has(status.phase) asks whether there is one. The first that is true decides:
/// inProgress, failed, current. One that cannot be judged, since the object lacks what it looks at, is not true. Before
/// all, an object that is being deleted or whose status.observedGeneration is behind its generation is not healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthExpression {
    /// API group and version. Only the group counts: the rule holds for all versions.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// True while the object is on its way. Absent: what is neither failed nor current is.
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

/// What happens when somebody changes the module's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// Correct puts changes right, Warn only reports them, Off does not look. Absent: Correct; Warn for what was taken over
    /// from another system, until the component asks for something else than it found (status.takenOver).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DriftMode>,
    /// Fields that others may change. They are set when an object is made; from then on no change of theirs is put right,
    /// nor made by another version. A field that nobody changed goes when a version has it no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub ignore: Option<Vec<DriftIgnore>>,
}

/// What happens when somebody changes the module's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DriftMode {
    /// Put right.
    #[default]
    Correct,
    /// Reported.
    Warn,
    /// Not looked for.
    Off,
}

/// Fields that others may change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftIgnore {
    /// Objects. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectSelector>,
    /// Fields, as JSON pointers (RFC 6901), for instance /spec/replicas; in names ~ is written ~0 and / is written ~1. An
    /// index counts from 0 in the list as the module has it; a list that only changes as a whole has to be named as a whole.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub paths: Vec<String>,
}

/// Objects that exist already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Adopt {
    /// Left alone.
    Never,
    /// Taken over where no living owner of ours has them, whoever wrote them.
    #[default]
    Unowned,
    /// Taken over from other owners too.
    Always,
}

/// How long each step may take, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// One rendering. Absent: 10. Never longer than the operator lets one pass take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600))]
    pub render_seconds: Option<i32>,
    /// One hook of the chart, from its creation to its end, before it counts as failed. Absent: 300, as in Helm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub hook_seconds: Option<i32>,
    /// From applied to healthy, before it counts as failed. Absent: it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub health_seconds: Option<i32>,
    /// From ordered to removed, before it is reported as stuck. Absent: it never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub delete_seconds: Option<i32>,
}

/// What happens when other content or other values fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// Never keeps what failed; OnFailure applies again what was Ready last, as it was rendered then. It is kept for that
    /// in a Secret of the hub. What failed is tried again when it changes, on request, and after long pauses.
    #[serde(default)]
    pub mode: RollbackMode,
}

/// Whether what failed is taken back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RollbackMode {
    /// It stays.
    #[default]
    Never,
    /// Back to what was Ready last.
    OnFailure,
}

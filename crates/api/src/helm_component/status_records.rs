//! Records in the status of a HelmComponent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policies::ValuesFromKind;

/// An entry of spec.valuesFrom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstalledValues {
    /// ConfigMap or Secret.
    pub kind: ValuesFromKind,
    /// Name of the object.
    pub name: String,
    /// Key in its data. Absent: values.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The revision of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseRevision {
    /// 1 for an installation, incremented with each change of content or values that is sent.
    pub number: i64,
    /// Digest of the content, the values, and the release's name and namespace.
    pub release: String,
}

/// One object on the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntry {
    /// API group; absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// API version in which it was applied.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid. Only the object with this uid is ever deleted.
    pub uid: String,
    /// Hash of the applied object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Hash of the fields that the operator owned after the last apply. Absent if drift is not corrected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// True if this component created the object. A Namespace, CRD or PersistentVolumeClaim that it did not create
    /// is never deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// True for a Job that succeeded and has ttlSecondsAfterFinished: its deletion is no drift.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
}

/// Inputs of the installed objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Digests {
    /// Digest of all inputs of the objects except the target's API versions: source, values, release,
    /// Kubernetes version.
    /// While it is unchanged, nothing is pulled or rendered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// Digest of the target's API versions. Absent if the chart does not read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_versions: Option<String>,
    /// Digest of the pulled content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Digest of the merged values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<String>,
    /// Digest of a render that is not deterministic, such as one with random values; a Secret stores it under
    /// this digest. Absent if renders are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_render: Option<String>,
    /// Digest of all rendered objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<String>,
}

/// State before the content was applied. If the content has much fewer objects, they are pruned only after
/// confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneBaseline {
    /// Digest of the objects of the content.
    pub objects_digest: String,
    /// Size of the inventory when the content was first applied.
    pub object_count: i32,
    /// True if source and values are unchanged and the target no longer serves an API version. Objects that the
    /// content lacks for this reason are not deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub api_version_gone: bool,
}

/// Version found for a range, kept until the next lookup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedVersion {
    /// The version, as its source writes it.
    pub version: String,
    /// Digest of the OCI manifest for oci://, of the archive otherwise.
    pub digest: String,
    /// Digest of the address, name and range that were looked up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_digest: String,
    /// Reason why the last lookup did not lead to a newer version. Absent: there is none, or no lookup was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// The newest record of a release on the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseRecord {
    /// Digest of the recorded release.
    pub digest: String,
    /// Its revision. Absent: recording failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Its status in Helm's words: deployed or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub status: Option<String>,
    /// Error if recording failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

impl ReleaseRecord {
    /// Reports whether the newest record is of a failed installation or upgrade.
    pub fn has_failed(&self) -> bool {
        self.status.as_deref() == Some("failed")
    }
}

/// Adoption of objects that another system installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// The systems: Helm, Flux, Argo CD, kubectl.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub from: Vec<String>,
    /// Revision of the Helm release whose record was read. Absent: no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Digest of the component's inputs at that time. Absent: they differ from the release, so the adoption is an
    /// upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_digest: Option<String>,
    /// Number of objects that differ from the content and were not corrected. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differing_count: Option<i32>,
    /// The first 20 of them, as Kind.group namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub differing_objects: Option<Vec<String>>,
}

/// Progress of the hooks of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    /// Digest of the objects and hooks that they belong to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Event whose hooks are running, ran last or are due: pre-install, post-install, pre-upgrade, post-upgrade,
    /// pre-rollback, post-rollback, pre-delete, post-delete or test.
    pub event: String,
    /// Phase of the hooks.
    pub phase: HookPhase,
    /// Number of runs of this event's hooks: more than one after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// Start time in RFC 3339 with microseconds. Objects that hooks create carry a digest of it, which identifies
    /// their run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// Time of the last failure in RFC 3339. The hooks, except tests, are run again after a pause that doubles from 30
    /// seconds to 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<String>,
    /// Message about the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Running hook, as Kind.group namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// Uid of the running Job, if it has ttlSecondsAfterFinished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_uid: Option<String>,
    /// Hooks that succeeded, as Kind.group namespace/name, in the order of their runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub succeeded: Option<Vec<String>>,
    /// True if the chart has delete hooks, so that a removal renders it once more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_delete_hooks: bool,
}

/// Phase of the hooks of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookPhase {
    /// The hooks are due.
    #[default]
    Pending,
    /// The hooks run, one after another.
    Running,
    /// All succeeded; their delete policies are carried out.
    Cleaning,
    /// One failed, and later ones did not run.
    Failed,
    /// All succeeded, or there was none.
    Succeeded,
}

/// A release that a rollback can bring back. Its objects are in a Secret of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollbackTarget {
    /// Version of the module or chart, or the digest of the content if it has no version.
    pub version: String,
    /// Inputs of its objects, as status.digests had them, without apiVersions.
    pub digests: Digests,
    /// SHA-256 of the Secret's content. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_digest: Option<String>,
    /// Error if the release could not be stored. Absent: it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// A failed revision that was rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedRevision {
    /// Version of the module or chart, or the digest of the content if it has no version.
    pub version: String,
    /// Digest of its inputs. While the desired inputs equal it, it is retried only after a pause.
    pub inputs_digest: String,
    /// Reason of the failure, in one word.
    pub reason: String,
    /// Message about the failure.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Time of the last failure in RFC 3339. The revision is retried after a pause that doubles from 10 minutes to 6
    /// hours.
    pub last_failure_time: String,
    /// Number of attempts.
    pub attempts: i32,
    /// True during a retry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retrying: bool,
}

/// The default CR as it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedResource {
    /// API group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid; absent if it existed before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// True once the object was found deleted: it is not created again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<bool>,
}

//! What a HelmComponent reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InventoryGroup;
use crate::{State, schemas};

/// What was found and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmComponentStatus {
    /// The whole in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Aspects of it: Ready, DependenciesReady, Rendered, Applied, Healthy, TargetReachable; Kept and Tested where somebody
    /// asked for a rollback or for tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions_of_one")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this was found for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The annotation component.kyma-project.io/reconcile-requested-at, as of the last request that was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Version that is installed: the last one whose objects were all applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Version of which the last objects were sent, while it differs from the installed one: an upgrade that is not
    /// complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_version: Option<String>,
    /// Every object on the target that belongs to this component, by kind and namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub objects: Option<Vec<InventoryGroup>>,
    /// The same as objects where that would take more than 480 KiB: its JSON, compressed by gzip, in base64. To read it,
    /// pipe it through base64 -d and gunzip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_objects: Option<String>,
    /// The same as objects in the form of earlier versions. It counts and stays until something about the objects changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub inventory: Option<Vec<InventoryEntry>>,
    /// What the installed objects were made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests: Option<Digests>,
    /// What the content that is on its way takes the place of. Absent once all of it is there and what it does not have is
    /// gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replaced>,
    /// The version that the range in source.chart.version stands for. Absent: it is no range, or nothing was found yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedVersion>,
    /// Name of the release, shortened and with a hash, if the desired name is longer than Helm's 53 characters.
    /// Absent: the name is the desired one, or an earlier version shortened it without a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// Revision of the release that was sent last, as in .Release.Revision. Absent: no chart has read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<ReleaseRevision>,
    /// How far the chart's hooks are. Absent: it has none, or none ran yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
    /// From whom the objects were taken over, as long as the component asks for nothing else than it did then. Meanwhile
    /// what differs is reported and not put right, unless drift.mode says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
    /// What Helm's record on the target says of the release, where spec.release.history asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HelmHistory>,
    /// The release to which a rollback goes back: the last one that was Ready. Absent unless spec.rollback asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptRelease>,
    /// The release that failed and in whose place the one before is installed. Absent while what is wished is installed,
    /// or on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<FailedRelease>,
    /// How far the chart's tests are that were asked for last. Absent: nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<Hooks>,
    /// The annotation component.kyma-project.io/test-requested-at, as of the last request whose tests are over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_test_at: Option<String>,
    /// The default CR, once it was created. It is not created again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<CreatedResource>,
    /// Paths of values that spec.overrides replaced; never the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub overridden: Option<Vec<String>>,
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
    /// API version that it was applied in.
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
    /// Hash of what was applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Hash of the fields that we owned after the last apply; absent where changes by others are not put right.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// True where this component created the object. A Namespace, CRD or PersistentVolumeClaim that was there before
    /// is never deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// True for a Job that succeeded and has a ttlSecondsAfterFinished: that it is gone is no change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
}

/// What the installed objects were made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Digests {
    /// Of everything that decides the objects besides the target's kinds: source, values, release, Kubernetes
    /// version. While it stays, nothing is pulled or rendered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// Of the target's kinds, where the chart asks for them; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<String>,
    /// Of the content that was pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Of the merged values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<String>,
    /// Of what the chart was rendered to, where each render would give something else, as with random values: the render
    /// is kept in a Secret under this digest. Absent where renders do not differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render: Option<String>,
    /// Of all rendered objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendered: Option<String>,
}

/// What was there before content. If the content has much less, nothing of it is removed without a person's word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replaced {
    /// Digest of the objects of the content.
    pub rendered: String,
    /// Number of objects on record when the first of it was sent.
    pub objects: i32,
    /// True: source and values are the same, and the target no longer serves an API version. Objects that the content
    /// lacks for this reason are not deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub api_version_gone: bool,
}

/// What a range of versions stands for: found once, and kept until it is looked up again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedVersion {
    /// The version, as its source writes it.
    pub version: String,
    /// Digest of its content: of the OCI manifest for oci://, of the archive otherwise.
    pub digest: String,
    /// Digest of address, name and range that it was found for.
    pub of: String,
    /// Why it could not be replaced by a newer one when one was last looked for. Absent: there was no newer one, or
    /// nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub held: Option<String>,
}

/// The newest record of a release on the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmHistory {
    /// Digest of the release that is recorded.
    pub content: String,
    /// Its revision. Absent: it could not be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Its status in Helm's words: deployed or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub status: Option<String>,
    /// Why it could not be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub failure: Option<String>,
}

impl HelmHistory {
    /// Whether it records an installation or upgrade that did not succeed.
    pub fn has_failed(&self) -> bool {
        self.status.as_deref() == Some("failed")
    }
}

/// What another system had installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakenOver {
    /// The systems: Helm, Flux, Argo CD, kubectl.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub from: Vec<String>,
    /// Revision of the Helm release whose record was read. Absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// Digest of what the component asked for then. Absent: something else than the release had, so that taking it over is
    /// an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
    /// Number of objects that differ from the content and were left as they are. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differing: Option<i32>,
    /// The first of them, as Kind.group namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub objects: Option<Vec<String>>,
}

/// How far the hooks of a chart are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    /// Digest of the objects and hooks for which they run or ran.
    pub content: String,
    /// The moment whose hooks run, ran last or are due next: pre-install, post-install, pre-upgrade, post-upgrade,
    /// pre-rollback, post-rollback, pre-delete, post-delete or test.
    pub event: String,
    /// How far they are.
    pub phase: HookPhase,
    /// How many times the hooks of this moment were begun: more than once after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// When they were begun, in RFC 3339 to the microsecond. Objects that hooks made bear a digest of this, so that those of
    /// an earlier time are not taken for those of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<String>,
    /// When they failed, in RFC 3339; they are begun again after a pause that doubles from 30 seconds to 10 minutes. Tests
    /// are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<String>,
    /// What failed, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub failure: Option<String>,
    /// The hook that runs, as Kind.group namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// Uid of the Job that runs, where Kubernetes deletes it by itself once it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_uid: Option<String>,
    /// The hooks that succeeded, as Kind.group namespace/name, in the order in which they ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub done: Option<Vec<String>>,
    /// True: the chart has hooks for its removal, so that it is rendered once more then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_delete: bool,
}

/// How far the hooks of one moment are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HookPhase {
    /// They are due.
    #[default]
    Pending,
    /// They run, one after another.
    Running,
    /// All succeeded, and those go that the chart wants gone then.
    Cleaning,
    /// One failed, and those after it did not run.
    Failed,
    /// All succeeded, or there was none.
    Succeeded,
}

/// A release that a rollback can bring back. Its objects are in a Secret of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptRelease {
    /// Version of the module or chart, or the digest of the content where nothing says a version.
    pub version: String,
    /// Digest of what its objects were made from, as digests.inputs was.
    pub inputs: String,
    /// Digest of its content.
    pub source: String,
    /// Digest of its values.
    pub values: String,
    /// Digest of its render, as digests.render was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render: Option<String>,
    /// Digest of its objects.
    pub rendered: String,
    /// SHA-256 of what the Secret holds. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why it is not kept after all. Absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub failure: Option<String>,
}

/// A release that failed, so that the one before it was brought back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedRelease {
    /// Version of the module or chart, or the digest of the content where nothing says a version.
    pub version: String,
    /// Digest of what its objects were made from. While the wish stays this one, it is not tried again but after a pause.
    pub inputs: String,
    /// Why it failed, in one word.
    pub reason: String,
    /// Why it failed.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// When it failed last, in RFC 3339. It is tried again after a pause that doubles from 10 minutes to 6 hours.
    pub failed_at: String,
    /// How many times it was tried.
    pub attempt: i32,
    /// True while it is tried once more.
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
    /// Namespace; absent for a cluster-scoped one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid; absent where it was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// True once the object was seen to be gone: it is not created again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<bool>,
}

//! Records of the status that earlier versions stored in fields of other names.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::helm_component::status_records::{
    Adoption, Digests, FailedRevision, PruneBaseline, ReleaseRecord, RollbackTarget,
};

/// The prune baseline of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredBaseline {
    /// Deprecated: use pruneBaseline.objectsDigest.
    rendered: Option<String>,
    /// Deprecated: use pruneBaseline.objectCount.
    objects: Option<i32>,
    /// Deprecated: use pruneBaseline.apiVersionGone.
    api_version_gone: Option<bool>,
}

impl StoredBaseline {
    /// Returns the baseline; `None` if a part is missing.
    pub(super) fn current(self) -> Option<PruneBaseline> {
        Some(PruneBaseline {
            objects_digest: self.rendered?,
            object_count: self.objects?,
            api_version_gone: self.api_version_gone.unwrap_or_default(),
        })
    }
}

/// The adoption of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredAdoption {
    /// Deprecated: use adopted.from.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    from: Option<Vec<String>>,
    /// Deprecated: use adopted.revision.
    revision: Option<i64>,
    /// Deprecated: use adopted.inputsDigest.
    wish: Option<String>,
    /// Deprecated: use adopted.differingCount.
    differing: Option<i32>,
    /// Deprecated: use adopted.differingObjects.
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    objects: Option<Vec<String>>,
}

impl StoredAdoption {
    /// Returns the adoption.
    pub(super) fn current(self) -> Adoption {
        Adoption {
            from: self.from.unwrap_or_default(),
            revision: self.revision,
            inputs_digest: self.wish,
            differing_count: self.differing,
            differing_objects: self.objects,
        }
    }
}

/// The release record of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredRecord {
    /// Deprecated: use releaseRecord.digest.
    content: Option<String>,
    /// Deprecated: use releaseRecord.revision.
    revision: Option<i64>,
    /// Deprecated: use releaseRecord.status.
    #[schemars(length(max = 63))]
    status: Option<String>,
    /// Deprecated: use releaseRecord.message.
    #[schemars(length(max = 1024))]
    failure: Option<String>,
}

impl StoredRecord {
    /// Returns the record; `None` if it belongs to no release.
    pub(super) fn current(self) -> Option<ReleaseRecord> {
        Some(ReleaseRecord {
            digest: self.content?,
            revision: self.revision,
            status: self.status,
            message: self.failure,
        })
    }
}

/// The failed revision of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredFailure {
    /// Deprecated: use failedRevision.version.
    version: Option<String>,
    /// Deprecated: use failedRevision.inputsDigest.
    inputs: Option<String>,
    /// Deprecated: use failedRevision.reason.
    reason: Option<String>,
    /// Deprecated: use failedRevision.message.
    #[schemars(length(max = 1024))]
    message: Option<String>,
    /// Deprecated: use failedRevision.lastFailureTime.
    failed_at: Option<String>,
    /// Deprecated: use failedRevision.attempts.
    attempt: Option<i32>,
    /// Deprecated: use failedRevision.retrying.
    retrying: Option<bool>,
}

impl StoredFailure {
    /// Returns the failed revision; `None` if its inputs are unknown.
    pub(super) fn current(self) -> Option<FailedRevision> {
        Some(FailedRevision {
            version: self.version.unwrap_or_default(),
            inputs_digest: self.inputs?,
            reason: self.reason.unwrap_or_default(),
            message: self.message.unwrap_or_default(),
            last_failure_time: self.failed_at.unwrap_or_default(),
            attempts: self.attempt.unwrap_or_default(),
            retrying: self.retrying.unwrap_or_default(),
        })
    }
}

/// The rollback target of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredTarget {
    /// Deprecated: use rollbackTarget.version.
    version: Option<String>,
    /// Deprecated: use rollbackTarget.digests.inputs.
    inputs: Option<String>,
    /// Deprecated: use rollbackTarget.digests.source.
    source: Option<String>,
    /// Deprecated: use rollbackTarget.digests.values.
    values: Option<String>,
    /// Deprecated: use rollbackTarget.digests.storedRender.
    render: Option<String>,
    /// Deprecated: use rollbackTarget.digests.objects.
    rendered: Option<String>,
    /// Deprecated: use rollbackTarget.secretDigest.
    digest: Option<String>,
    /// Deprecated: use rollbackTarget.message.
    #[schemars(length(max = 1024))]
    failure: Option<String>,
}

impl StoredTarget {
    /// Returns the rollback target; `None` if it names no release.
    pub(super) fn current(self) -> Option<RollbackTarget> {
        let digests = Digests {
            inputs: Some(self.inputs?),
            api_versions: None,
            source: self.source,
            values: self.values,
            stored_render: self.render,
            objects: Some(self.rendered?),
        };
        Some(RollbackTarget {
            version: self.version.unwrap_or_default(),
            digests,
            secret_digest: self.digest,
            message: self.failure,
        })
    }
}

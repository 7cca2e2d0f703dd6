//! Reads statuses that earlier versions stored. This module alone knows the names of their fields;
//! [`crate::status::condition`] knows those of their conditions.
//!
//! An API server drops fields that the schema lacks when it reads a stored object, so the schema keeps the deprecated
//! fields. They are read only if the current ones are absent, and never written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::Value;

use super::inventory_group::InventoryGroup;
use super::status_records::{
    Adoption, CreatedResource, Digests, FailedRevision, Hooks, InstalledValues, InventoryEntry,
    PruneBaseline, ReleaseRecord, ReleaseRevision, ResolvedVersion, RollbackTarget,
};
use crate::status::condition;
use crate::status::state::State;

mod records;

use records::{StoredAdoption, StoredBaseline, StoredFailure, StoredRecord, StoredTarget};

/// A status with the fields of this version and the deprecated ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredStatus {
    pub(super) state: Option<State>,
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) observed_generation: Option<i64>,
    pub(super) last_handled_reconcile_at: Option<String>,
    pub(super) version: Option<String>,
    pub(super) attempted_version: Option<String>,
    pub(super) objects: Option<Vec<InventoryGroup>>,
    pub(super) packed_objects: Option<String>,
    pub(super) inventory: Option<Vec<InventoryEntry>>,
    pub(super) digests: Option<StoredDigests>,
    pub(super) prune_baseline: Option<PruneBaseline>,
    pub(super) resolved: Option<StoredVersion>,
    pub(super) release_name: Option<String>,
    pub(super) revision: Option<ReleaseRevision>,
    pub(super) hooks: Option<StoredHooks>,
    pub(super) adopted: Option<Adoption>,
    pub(super) release_record: Option<ReleaseRecord>,
    pub(super) rollback_target: Option<RollbackTarget>,
    pub(super) failed_revision: Option<FailedRevision>,
    pub(super) tests: Option<StoredHooks>,
    pub(super) last_handled_test_at: Option<String>,
    pub(super) resource: Option<CreatedResource>,
    pub(super) overridden: Option<Vec<String>>,
    pub(super) values_from: Option<Vec<InstalledValues>>,
    #[serde(flatten)]
    deprecated: DeprecatedFields,
}

impl StoredStatus {
    /// Moves deprecated fields to the current ones, unless those are present.
    pub(super) fn with_current_names(mut self) -> Self {
        let deprecated = std::mem::take(&mut self.deprecated);
        // The list is written as a whole, so a condition of a former type would stay in it forever.
        if let Some(conditions) = &mut self.conditions {
            condition::rename_stored(conditions);
        }
        self.prune_baseline =
            self.prune_baseline.or_else(|| deprecated.replaces.and_then(StoredBaseline::current));
        self.adopted = self.adopted.or_else(|| deprecated.taken_over.map(StoredAdoption::current));
        self.release_record =
            self.release_record.or_else(|| deprecated.history.and_then(StoredRecord::current));
        self.rollback_target =
            self.rollback_target.or_else(|| deprecated.kept.and_then(StoredTarget::current));
        self.failed_revision =
            self.failed_revision.or_else(|| deprecated.rollback.and_then(StoredFailure::current));
        self
    }
}

/// Fields of the status whose name changed.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeprecatedFields {
    /// Deprecated: use pruneBaseline.
    replaces: Option<StoredBaseline>,
    /// Deprecated: use adopted.
    taken_over: Option<StoredAdoption>,
    /// Deprecated: use releaseRecord.
    history: Option<StoredRecord>,
    /// Deprecated: use failedRevision.
    rollback: Option<StoredFailure>,
    /// Deprecated: use rollbackTarget.
    kept: Option<StoredTarget>,
}

/// Adds the deprecated fields to the schema of the status.
pub(super) fn add_deprecated_fields(schema: &mut Schema) {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut deprecated = settings.into_generator().into_root_schema_for::<DeprecatedFields>();
    let fields = deprecated.get_mut("properties").map(Value::take);
    if let (Some(Value::Object(fields)), Some(Value::Object(properties))) =
        (fields, schema.get_mut("properties"))
    {
        properties.extend(fields);
    }
}

/// Digests, with the fields of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredDigests {
    #[serde(flatten)]
    digests: Digests,
    /// Deprecated: use apiVersions.
    kinds: Option<String>,
    /// Deprecated: use storedRender.
    render: Option<String>,
    /// Deprecated: use objects.
    rendered: Option<String>,
}

impl From<StoredDigests> for Digests {
    fn from(stored: StoredDigests) -> Self {
        let digests = stored.digests;
        // A record has either the current names or those of an earlier version.
        let is_current =
            digests.api_versions.is_some() || digests.stored_render.is_some() || digests.objects.is_some();
        if is_current {
            return digests;
        }
        Self { api_versions: stored.kinds, stored_render: stored.render, objects: stored.rendered, ..digests }
    }
}

/// The version found for a range, with the fields of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredVersion {
    #[serde(flatten)]
    found: ResolvedVersion,
    /// Deprecated: use requestDigest.
    of: Option<String>,
    /// Deprecated: use message.
    #[schemars(length(max = 1024))]
    held: Option<String>,
}

impl From<StoredVersion> for ResolvedVersion {
    fn from(stored: StoredVersion) -> Self {
        let found = stored.found;
        // Each version belongs to a request, so one without it has the names of an earlier version.
        let Some(request_digest) = stored.of.filter(|_| found.request_digest.is_empty()) else {
            return found;
        };
        Self { request_digest, message: stored.held, ..found }
    }
}

/// Progress of hooks, with the fields of earlier versions.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredHooks {
    #[serde(flatten)]
    hooks: Hooks,
    /// Deprecated: use digest.
    content: Option<String>,
    /// Deprecated: use attempts.
    attempt: Option<i32>,
    /// Deprecated: use startTime.
    begun_at: Option<String>,
    /// Deprecated: use lastFailureTime.
    failed_at: Option<String>,
    /// Deprecated: use message.
    #[schemars(length(max = 1024))]
    failure: Option<String>,
    /// Deprecated: use succeeded.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    done: Option<Vec<String>>,
    /// Deprecated: use hasDeleteHooks.
    on_delete: Option<bool>,
}

impl From<StoredHooks> for Hooks {
    fn from(stored: StoredHooks) -> Self {
        let hooks = stored.hooks;
        // Each record has a digest, so one without it has the names of an earlier version.
        let Some(digest) = stored.content.filter(|_| hooks.digest.is_empty()) else { return hooks };
        Self {
            digest,
            attempts: stored.attempt,
            start_time: stored.begun_at,
            last_failure_time: stored.failed_at,
            message: stored.failure,
            succeeded: stored.done,
            has_delete_hooks: stored.on_delete.unwrap_or_default(),
            ..hooks
        }
    }
}

#[cfg(test)]
mod tests;

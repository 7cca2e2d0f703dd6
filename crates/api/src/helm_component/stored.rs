//! Reads statuses that earlier versions stored. This module alone knows the names of their fields and
//! conditions.
//!
//! An API server drops fields that the schema lacks when it reads a stored object, so the schema keeps the deprecated
//! fields. They are read only if the current ones are absent, and never written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::inventory::InventoryGroup;
use super::status::{
    Adoption, CreatedResource, Digests, FailedRevision, HelmComponentStatus, Hooks, InstalledValues,
    InventoryEntry, PruneBaseline, ReleaseRecord, ReleaseRevision, ResolvedVersion, RollbackTarget,
};
use crate::condition;
use crate::condition::types;
use crate::reason::Reason;
use crate::state::State;

mod records;

use records::{StoredAdoption, StoredBaseline, StoredFailure, StoredRecord, StoredTarget};

/// Types of conditions that earlier versions named otherwise: the former one and the current one.
const RENAMED_CONDITIONS: [(&str, &str); 2] =
    [("Kept", types::ROLLBACK_AVAILABLE), ("Tested", types::TEST_SUCCESS)];

/// A status with the fields of this version and the deprecated ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredStatus {
    state: Option<State>,
    conditions: Option<Vec<Condition>>,
    observed_generation: Option<i64>,
    last_handled_reconcile_at: Option<String>,
    version: Option<String>,
    attempted_version: Option<String>,
    objects: Option<Vec<InventoryGroup>>,
    packed_objects: Option<String>,
    inventory: Option<Vec<InventoryEntry>>,
    digests: Option<StoredDigests>,
    prune_baseline: Option<PruneBaseline>,
    resolved: Option<StoredVersion>,
    release_name: Option<String>,
    revision: Option<ReleaseRevision>,
    hooks: Option<StoredHooks>,
    adopted: Option<Adoption>,
    release_record: Option<ReleaseRecord>,
    rollback_target: Option<RollbackTarget>,
    failed_revision: Option<FailedRevision>,
    tests: Option<StoredHooks>,
    last_handled_test_at: Option<String>,
    resource: Option<CreatedResource>,
    overridden: Option<Vec<String>>,
    values_from: Option<Vec<InstalledValues>>,
    #[serde(flatten)]
    deprecated: DeprecatedFields,
}

/// Fields of the status whose name changed.
#[derive(Deserialize, JsonSchema)]
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

impl<'de> Deserialize<'de> for HelmComponentStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StoredStatus::deserialize(deserializer).map(Self::from)
    }
}

impl From<StoredStatus> for HelmComponentStatus {
    fn from(stored: StoredStatus) -> Self {
        let deprecated = stored.deprecated;
        Self {
            state: stored.state,
            conditions: stored.conditions.map(with_current_names),
            observed_generation: stored.observed_generation,
            last_handled_reconcile_at: stored.last_handled_reconcile_at,
            version: stored.version,
            attempted_version: stored.attempted_version,
            objects: stored.objects,
            packed_objects: stored.packed_objects,
            inventory: stored.inventory,
            digests: stored.digests.map(Digests::from),
            prune_baseline: stored
                .prune_baseline
                .or_else(|| deprecated.replaces.and_then(StoredBaseline::current)),
            resolved: stored.resolved.map(ResolvedVersion::from),
            release_name: stored.release_name,
            revision: stored.revision,
            hooks: stored.hooks.map(Hooks::from),
            adopted: stored.adopted.or_else(|| deprecated.taken_over.map(StoredAdoption::current)),
            release_record: stored
                .release_record
                .or_else(|| deprecated.history.and_then(StoredRecord::current)),
            rollback_target: stored
                .rollback_target
                .or_else(|| deprecated.kept.and_then(StoredTarget::current)),
            failed_revision: stored
                .failed_revision
                .or_else(|| deprecated.rollback.and_then(StoredFailure::current)),
            tests: stored.tests.map(Hooks::from),
            last_handled_test_at: stored.last_handled_test_at,
            resource: stored.resource,
            overridden: stored.overridden,
            values_from: stored.values_from,
        }
    }
}

/// Gives conditions of earlier versions their current types and reasons. The list is written as a whole, so a
/// condition of a former type would stay in it forever.
fn with_current_names(mut conditions: Vec<Condition>) -> Vec<Condition> {
    for (former, current) in RENAMED_CONDITIONS {
        condition::rename(&mut conditions, former, current);
    }
    for one in &mut conditions {
        if let Some(reason) = Reason::from_former_word(&one.reason) {
            reason.as_str().clone_into(&mut one.reason);
        }
    }
    conditions
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

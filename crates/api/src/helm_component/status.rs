//! Status of a HelmComponent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::inventory_group::InventoryGroup;
use super::status_records::{
    Adoption, CreatedResource, Digests, FailedRevision, Hooks, InstalledValues, InventoryEntry,
    PruneBaseline, ReleaseRecord, ReleaseRevision, ResolvedVersion, RollbackTarget,
};
use super::stored::{self, StoredStatus};
use crate::schema::schemas;
use crate::status::state::State;

/// Observed state of the component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = stored::add_deprecated_fields, transform = schemas::keep_field_descriptions)]
pub struct HelmComponentStatus {
    /// Summary of the conditions in one word, as in the status of a Kyma.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Conditions: Ready, DependenciesReady, Rendered, Applied, Healthy, TargetReachable; RollbackAvailable with
    /// spec.rollback, TestSuccess after a request for tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::conditions_of_one")]
    pub conditions: Option<Vec<Condition>>,
    /// Generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Value of the annotation component.kyma-project.io/reconcile-requested-at in the last request that was
    /// handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// Installed version: the last one whose objects were all applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Version whose objects were applied last, if it differs from the installed one: an upgrade that is not
    /// complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_version: Option<String>,
    /// Every object on the target that belongs to this component, by kind and namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub objects: Option<Vec<InventoryGroup>>,
    /// The same as objects if those take more than 480 KiB: JSON, compressed by gzip, in base64. Decode it with
    /// base64 -d and gunzip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_objects: Option<String>,
    /// The same as objects in the form of earlier versions. It is valid until the objects change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub inventory: Option<Vec<InventoryEntry>>,
    /// Inputs of the installed objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<stored::StoredDigests>")]
    pub digests: Option<Digests>,
    /// State before the content that is being applied. Absent once all of it is applied and the rest is pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_baseline: Option<PruneBaseline>,
    /// Version found for the range in source.chart.version. Absent: no range, or none found yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<stored::StoredVersion>")]
    pub resolved: Option<ResolvedVersion>,
    /// Name of the release, shortened and with a hash, if the desired name is longer than Helm's 53 characters, or
    /// with the dots of the name in the spec. Absent: the name is the desired one, or an earlier version changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// Revision of the release that was applied last, as in .Release.Revision. Absent: no chart has read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<ReleaseRevision>,
    /// Progress of the chart's hooks. Absent: none, or none ran yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<stored::StoredHooks>")]
    pub hooks: Option<Hooks>,
    /// Adoption of objects from another system, until the component's spec asks for other content. Meanwhile
    /// drift is reported, not corrected, unless drift.mode is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adoption>,
    /// Helm's record of the release on the target, if spec.release.history is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_record: Option<ReleaseRecord>,
    /// Target of a rollback: the last Ready release. Absent unless spec.rollback asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_target: Option<RollbackTarget>,
    /// Failed revision that was rolled back. Absent while the desired release is installed or being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_revision: Option<FailedRevision>,
    /// Progress of the chart's tests that were requested last. Absent: none requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<stored::StoredHooks>")]
    pub tests: Option<Hooks>,
    /// Value of the annotation component.kyma-project.io/test-requested-at in the last request whose tests have
    /// ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_test_at: Option<String>,
    /// The default CR, once it was created. It is not created again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<CreatedResource>,
    /// Paths of the values that spec.overrides replaced, without the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub overridden: Option<Vec<String>>,
    /// Optional entries of spec.valuesFrom whose values the applied objects have. If the object or key of one is
    /// missing, the component keeps what is installed, until it exists again or the entry is removed. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_from: Option<Vec<InstalledValues>>,
}

impl<'de> Deserialize<'de> for HelmComponentStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        StoredStatus::deserialize(deserializer).map(Self::from)
    }
}

impl From<StoredStatus> for HelmComponentStatus {
    fn from(stored: StoredStatus) -> Self {
        let stored = stored.with_current_names();
        Self {
            state: stored.state,
            conditions: stored.conditions,
            observed_generation: stored.observed_generation,
            last_handled_reconcile_at: stored.last_handled_reconcile_at,
            version: stored.version,
            attempted_version: stored.attempted_version,
            objects: stored.objects,
            packed_objects: stored.packed_objects,
            inventory: stored.inventory,
            digests: stored.digests.map(Digests::from),
            prune_baseline: stored.prune_baseline,
            resolved: stored.resolved.map(ResolvedVersion::from),
            release_name: stored.release_name,
            revision: stored.revision,
            hooks: stored.hooks.map(Hooks::from),
            adopted: stored.adopted,
            release_record: stored.release_record,
            rollback_target: stored.rollback_target,
            failed_revision: stored.failed_revision,
            tests: stored.tests.map(Hooks::from),
            last_handled_test_at: stored.last_handled_test_at,
            resource: stored.resource,
            overridden: stored.overridden,
            values_from: stored.values_from,
        }
    }
}

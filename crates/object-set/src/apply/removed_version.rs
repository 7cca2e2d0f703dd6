//! Objects with fields that were written in an API version that no longer exists. API servers refuse every apply to
//! them (kubernetes/kubernetes#111937) until `managedFields` says another version.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use serde_json::Value;

use super::desired_state::{MAX_MANAGED_FIELDS_TRIES, take_over_error};
use super::outcome::{ObjectResult, Refusal};
use super::{DesiredObject, Run};
use crate::cluster::Cluster;
use crate::cluster::discovery::{Kinds, Mapping};
use crate::error::{Action, CallError, Failure};
use crate::managed_fields::entries;
use crate::object::Gvk;

impl Run<'_> {
    /// Applies an object of any kind except Namespaces and CRDs, also if its fields were written in removed API
    /// versions.
    pub(super) async fn apply_plain_of_any_version(
        &self,
        desired: &DesiredObject,
        mapping: &Mapping,
    ) -> ObjectResult {
        let mut result = self.apply_plain(desired, mapping).await;
        // Another manager may write to the object meanwhile.
        for _ in 0..MAX_MANAGED_FIELDS_TRIES {
            let Err(Refusal::Call(error)) = &result else { break };
            let Failure::VersionGone(gone) = &error.failure else { break };
            if !self.replace_removed_version(desired, mapping, gone).await? {
                break;
            }
            result = self.apply_plain(desired, mapping).await;
        }
        result
    }

    /// Changes the API version of all `managedFields` entries of a removed version to the version that is sent, so
    /// that the next apply removes fields that the set lacks and keeps those of other managers. Returns whether a
    /// retry makes sense.
    async fn replace_removed_version(
        &self,
        desired: &DesiredObject,
        mapping: &Mapping,
        gone: &str,
    ) -> Result<bool, CallError> {
        if self.cluster.dry_run.is_some() {
            return Ok(false);
        }
        let Some(found) = self.cluster.metadata(mapping, &desired.identity).await? else { return Ok(true) };
        let kinds = self.kinds_without(mapping, gone).await?;
        let to = mapping.resource.api_version.as_str();
        // All entries at once: with one of a removed version left, the API server would drop all managers.
        let is_gone = |version: &str| {
            version != to && (version == gone || kinds.get(&in_version(mapping, version)).is_none())
        };
        let Some(patch) = entries::replace_removed_versions(&found.metadata, &is_gone, to) else {
            return Ok(false);
        };
        let api = mapping.api(&self.cluster.client, desired.identity.namespace.as_deref());
        let manager = self.options.ownership.manager.clone();
        let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
        let moved =
            api.patch_metadata(&desired.identity.name, &params, &Patch::<Value>::Json(patch)).await.map(drop);
        match moved.map_err(|error| CallError::new(Action::Patch, Some(&desired.identity), error)) {
            Ok(()) => Ok(true),
            Err(error) => match take_over_error(error) {
                error if error.failure == Failure::Conflict => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Returns the served kinds from a discovery after that version was removed.
    async fn kinds_without(&self, mapping: &Mapping, gone: &str) -> Result<Arc<Kinds>, CallError> {
        let Cluster { discovery, client, .. } = self.cluster;
        let kinds = discovery.kinds(client).await?;
        if kinds.get(&in_version(mapping, gone)).is_none() {
            return Ok(kinds);
        }
        discovery.newer_than(&kinds, client).await
    }
}

fn in_version(mapping: &Mapping, api_version: &str) -> Gvk {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Gvk::new(group, version, &mapping.resource.kind)
}

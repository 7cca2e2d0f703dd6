//! Objects with fields that were written in an API version that no longer exists. API servers refuse every apply to
//! them (kubernetes/kubernetes#111937) until `managedFields` says another version.

use std::sync::Arc;

use super::context::DesiredObject;
use super::object::ObjectApply;
use super::outcome::{ObjectResult, Refusal};
use super::target_object::{MAX_MANAGED_FIELDS_TRIES, TargetObject};
use crate::cluster::discovery::{Kinds, Mapping};
use crate::error::{CallError, Failure};
use crate::managed_fields::entries;
use crate::object::Gvk;

/// Applies an object of any kind except Namespaces and CRDs, also if its fields were written in removed API versions.
pub(super) async fn apply_in_any_version(object: &ObjectApply<'_>) -> ObjectResult {
    let mut result = object.apply().await;
    // Another manager may write to the object meanwhile.
    for _ in 0..MAX_MANAGED_FIELDS_TRIES {
        let Err(Refusal::Call(error)) = &result else { break };
        let Failure::VersionGone(gone) = &error.failure else { break };
        if !replace_removed_version(&object.desired, gone).await? {
            break;
        }
        result = object.apply().await;
    }
    result
}

/// Changes the API version of all `managedFields` entries of a removed version to the version that is sent, so that the
/// next apply removes fields that the set lacks and keeps those of other managers. Returns whether a retry makes sense.
async fn replace_removed_version(desired: &DesiredObject<'_>, gone: &str) -> Result<bool, CallError> {
    let target = desired.target;
    if target.is_dry_run() {
        return Ok(false);
    }
    let Some(found) = target.metadata().await? else { return Ok(true) };
    let kinds = kinds_without(&target, gone).await?;
    let to = target.mapping.resource.api_version.as_str();
    // All entries at once: with one of a removed version left, the API server would drop all managers.
    let is_gone = |version: &str| {
        version != to && (version == gone || kinds.get(&in_version(target.mapping, version)).is_none())
    };
    let Some(patch) = entries::replace_removed_versions(&found, &is_gone, to) else {
        return Ok(false);
    };
    match target.patch_managed_fields(&desired.options.ownership.manager, patch).await {
        Err(error) if error.failure != Failure::Conflict => Err(error),
        _ => Ok(true),
    }
}

/// Returns the served kinds from a discovery after that version was removed.
async fn kinds_without(target: &TargetObject<'_>, gone: &str) -> Result<Arc<Kinds>, CallError> {
    let (discovery, client) = (&target.cluster.discovery, &target.cluster.client);
    let kinds = discovery.kinds(client).await?;
    if kinds.get(&in_version(target.mapping, gone)).is_none() {
        return Ok(kinds);
    }
    discovery.newer_than(&kinds, client).await
}

fn in_version(mapping: &Mapping, api_version: &str) -> Gvk {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Gvk::new(group, version, &mapping.resource.kind)
}

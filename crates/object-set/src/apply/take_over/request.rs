//! The request that takes over fields which other tools applied.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use super::super::desired_state::{MAX_MANAGED_FIELDS_TRIES, take_over_error};
use super::super::outcome::Refusal;
use super::super::{DesiredObject, Run};
use super::patch;
use crate::cluster::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::ownership::OWNER_LABEL;

impl Run<'_> {
    /// Moves fields that other tools applied to the operator's field manager. Returns the new metadata if there were
    /// any.
    pub(in super::super) async fn take_over(
        &self,
        DesiredObject { identity, object, .. }: &DesiredObject,
        mapping: &Mapping,
        metadata: &ObjectMeta,
    ) -> Result<Option<ObjectMeta>, Refusal> {
        let manager = &self.options.ownership.manager;
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let params = PatchParams { field_manager: Some(manager.clone()), ..PatchParams::default() };
        let (mut newer, mut tries) = (None, 0);
        loop {
            let metadata = newer.as_ref().unwrap_or(metadata);
            let Some(moved) = patch(metadata, manager, self.options.take_over, object) else {
                return Ok(None);
            };
            if let Some(dry_run) = &self.cluster.dry_run {
                dry_run.record_take_over(identity);
                return Ok(None);
            }
            let error = match api.patch_metadata(&identity.name, &params, &Patch::<Value>::Json(moved)).await
            {
                Ok(taken) => return Ok(Some(taken.metadata)),
                Err(error) => take_over_error(CallError::new(Action::Patch, Some(identity), error)),
            };
            tries += 1;
            if error.failure != Failure::Conflict || tries == MAX_MANAGED_FIELDS_TRIES {
                return Err(error.into());
            }
            let found = self.cluster.metadata(mapping, identity).await?.map(|found| found.metadata);
            // An object that was replaced, is being deleted or has another owner now is left to the next run.
            let Some(found) = found.filter(|found| is_as_seen(found, metadata)) else {
                return Err(error.into());
            };
            newer = Some(found);
        }
    }
}

/// Reports whether the object has the same uid and owner as when it was read, and is not being deleted.
fn is_as_seen(found: &ObjectMeta, seen: &ObjectMeta) -> bool {
    let owner = |metadata: &ObjectMeta| metadata.labels.as_ref()?.get(OWNER_LABEL).cloned();
    found.uid == seen.uid && owner(found) == owner(seen) && found.deletion_timestamp.is_none()
}

//! Releases an object without deleting it.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch as JsonPatch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Run;
use crate::cluster::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::object::Identity;
use crate::ownership::{OWNER_LABEL, Ownership, sharers};

impl Run<'_> {
    /// Removes this owner's marks from an object that stays, so that others may adopt it. Applied content stays,
    /// except for the share in Namespaces and CRDs. Returns whether the object carries the mark of its new owner now.
    /// Fails with a conflict if the object changed since it was read: its other owners may have released it
    /// meanwhile.
    pub(super) async fn release(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        live: &ObjectMeta,
    ) -> Result<bool, CallError> {
        let labels = live.labels.clone().unwrap_or_default();
        let us = &self.rules.ownership.owner;
        let new_owner = self.new_owners.get(identity);
        let mut holder = labels.get(OWNER_LABEL).cloned();
        let mut version = live.resource_version.clone();
        if holder.as_ref() == Some(us) {
            let sharer = sharers(labels.keys()).into_iter().find(|owner| owner != us);
            holder = sharer.or_else(|| new_owner.cloned());
            version = self.relabel(identity, mapping, version, holder.clone()).await?;
        }
        if labels.contains_key(&Ownership::share_label(us)) {
            self.unshare(identity, mapping, live.uid.as_deref(), version).await?;
        }
        // True also if the label was passed on by an earlier call whose answer was lost.
        Ok(new_owner.is_some() && holder.as_ref() == new_owner)
    }

    /// Passes the owner label on, or removes it. Returns the new resourceVersion.
    async fn relabel(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        version: Option<String>,
        new_owner: Option<String>,
    ) -> Result<Option<String>, CallError> {
        let at = |tokens: &[&str]| PointerBuf::from_tokens(tokens.iter().copied());
        let path = at(&["metadata", "labels", OWNER_LABEL]);
        let relabelled = JsonPatch(vec![
            PatchOperation::Test(TestOperation {
                path: at(&["metadata", "resourceVersion"]),
                value: version.into(),
            }),
            match new_owner {
                Some(new_owner) => {
                    PatchOperation::Replace(ReplaceOperation { path, value: new_owner.into() })
                }
                None => PatchOperation::Remove(RemoveOperation { path }),
            },
        ]);
        let params =
            PatchParams { field_manager: Some(self.rules.ownership.creator()), ..PatchParams::default() };
        match self.change(identity, mapping, &params, &Patch::Json(relabelled)).await {
            // The patch tests the resourceVersion, so a refusal means that the object changed.
            Err(mut error) if matches!(error.failure, Failure::Refused(_)) => {
                error.failure = Failure::Conflict;
                Err(error)
            }
            changed => changed,
        }
    }

    /// Ends this owner's share: an apply without fields removes those that only its manager applied.
    async fn unshare(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        uid: Option<&str>,
        version: Option<String>,
    ) -> Result<(), CallError> {
        let nothing = json!({
            "apiVersion": mapping.resource.api_version,
            "kind": identity.kind,
            "metadata": {"name": identity.name, "uid": uid, "resourceVersion": version},
        });
        let params =
            PatchParams::apply(&self.rules.ownership.share_manager(&self.rules.ownership.owner)).force();
        self.change(identity, mapping, &params, &Patch::Apply(nothing)).await.map(drop)
    }

    /// Sends a patch and returns the new resourceVersion; `None` if the object is gone.
    async fn change(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        params: &PatchParams,
        patch: &Patch<Value>,
    ) -> Result<Option<String>, CallError> {
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        match api.patch_metadata(&identity.name, params, patch).await {
            Ok(changed) => Ok(changed.metadata.resource_version),
            Err(error) => match CallError::new(Action::Patch, Some(identity), error) {
                error if error.is_absence(mapping) => Ok(None),
                error => Err(error),
            },
        }
    }
}

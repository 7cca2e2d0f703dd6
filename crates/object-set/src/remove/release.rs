//! Releases an object without deleting it.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch as JsonPatch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::object::Identity;
use crate::ownership::{OWNER_LABEL, Ownership, sharers};

/// The release of one object that stays.
pub(super) struct ObjectRelease<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) ownership: &'a Ownership,
    pub(super) identity: &'a Identity,
    pub(super) mapping: &'a Mapping,
}

impl ObjectRelease<'_> {
    /// Removes this owner's marks from an object that stays, so that others may adopt it. Applied content stays,
    /// except for the share in Namespaces and CRDs. Returns whether the object carries the mark of its new owner now.
    /// Fails with a conflict if the object changed since it was read: its other owners may have released it
    /// meanwhile.
    pub(super) async fn send(
        &self,
        live: &ObjectMeta,
        new_owner: Option<&String>,
    ) -> Result<bool, CallError> {
        let labels = live.labels.clone().unwrap_or_default();
        let us = &self.ownership.owner;
        let mut holder = labels.get(OWNER_LABEL).cloned();
        let mut version = live.resource_version.clone();
        if holder.as_ref() == Some(us) {
            let sharer = sharers(labels.keys()).into_iter().find(|owner| owner != us);
            holder = sharer.or_else(|| new_owner.cloned());
            version = self.relabel(version, holder.clone()).await?;
        }
        if labels.contains_key(&Ownership::share_label(us)) {
            self.unshare(live.uid.as_deref(), version).await?;
        }
        // True also if the label was passed on by an earlier call whose answer was lost.
        Ok(new_owner.is_some() && holder.as_ref() == new_owner)
    }

    /// Passes the owner label on, or removes it. Returns the new resourceVersion.
    async fn relabel(
        &self,
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
        let params = PatchParams { field_manager: Some(self.ownership.creator()), ..PatchParams::default() };
        match self.change(&params, &Patch::Json(relabelled)).await {
            // The patch tests the resourceVersion, so a refusal means that the object changed.
            Err(mut error) if matches!(error.failure, Failure::Refused(_)) => {
                error.failure = Failure::Conflict;
                Err(error)
            }
            changed => changed,
        }
    }

    /// Ends this owner's share: an apply without fields removes those that only its manager applied.
    async fn unshare(&self, uid: Option<&str>, version: Option<String>) -> Result<(), CallError> {
        let nothing = json!({
            "apiVersion": self.mapping.resource.api_version,
            "kind": self.identity.kind,
            "metadata": {"name": self.identity.name, "uid": uid, "resourceVersion": version},
        });
        let params = PatchParams::apply(&self.ownership.share_manager(&self.ownership.owner)).force();
        self.change(&params, &Patch::Apply(nothing)).await.map(drop)
    }

    /// Sends a patch and returns the new resourceVersion; `None` if the object is gone.
    async fn change(&self, params: &PatchParams, patch: &Patch<Value>) -> Result<Option<String>, CallError> {
        let api = self.mapping.api(&self.cluster.client, self.identity.namespace.as_deref());
        match api.patch_metadata(&self.identity.name, params, patch).await {
            Ok(changed) => Ok(changed.metadata.resource_version),
            Err(error) => match CallError::new(Action::Patch, Some(self.identity), error) {
                error if error.is_absence(self.mapping) => Ok(None),
                error => Err(error),
            },
        }
    }
}

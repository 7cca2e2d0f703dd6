//! Giving an object up without deleting it.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch as JsonPatch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Fate, Run};
use crate::cluster::{OWNER_LABEL, Ownership, sharers};
use crate::discovery::Mapping;
use crate::error::{Action, CallError, Failure};
use crate::object::Identity;

impl Run<'_> {
    /// Takes our marks off an object that stays, so that others may have it. What we applied stays, except for
    /// our share in Namespaces and CRDs.
    pub(super) async fn give_up(&self, identity: &Identity) -> Result<(), CallError> {
        let Some(entry) = self.inventory.get(identity) else { return Ok(()) };
        let Some(mapping) = self.mapping(identity, entry) else {
            return match self.without_kind(identity) {
                Fate::Failed(error) => Err(error),
                _ => Ok(()),
            };
        };
        let Some(live) = self.cluster.metadata(mapping, identity).await? else { return Ok(()) };
        let live = live.metadata;
        if live.uid.as_deref() != Some(entry.uid.as_str()) || live.deletion_timestamp.is_some() {
            return Ok(());
        }
        let labels = live.labels.clone().unwrap_or_default();
        let us = &self.ownership.owner;
        if labels.get(OWNER_LABEL) == Some(us) {
            let heir = sharers(labels.keys()).into_iter().find(|owner| owner != us);
            self.relabel(identity, mapping, &live, heir).await?;
        }
        if labels.contains_key(&Ownership::share_label(us)) {
            self.unshare(identity, mapping, &live).await?;
        }
        Ok(())
    }

    /// Passes the owner label on, or removes it.
    async fn relabel(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        live: &ObjectMeta,
        heir: Option<String>,
    ) -> Result<(), CallError> {
        let at = |tokens: &[&str]| PointerBuf::from_tokens(tokens.iter().copied());
        let path = at(&["metadata", "labels", OWNER_LABEL]);
        let uid = live.uid.clone().unwrap_or_default();
        let relabelled = JsonPatch(vec![
            PatchOperation::Test(TestOperation { path: at(&["metadata", "uid"]), value: uid.into() }),
            PatchOperation::Test(TestOperation {
                path: path.clone(),
                value: self.ownership.owner.clone().into(),
            }),
            match heir {
                Some(heir) => PatchOperation::Replace(ReplaceOperation { path, value: heir.into() }),
                None => PatchOperation::Remove(RemoveOperation { path }),
            },
        ]);
        let params = PatchParams { field_manager: Some(self.ownership.creator()), ..PatchParams::default() };
        self.change(identity, mapping, &params, &Patch::Json(relabelled)).await
    }

    /// Ends our share: an apply of nothing removes what only we applied.
    async fn unshare(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        live: &ObjectMeta,
    ) -> Result<(), CallError> {
        let nothing = json!({
            "apiVersion": mapping.resource.api_version,
            "kind": identity.kind,
            "metadata": {"name": identity.name, "uid": live.uid},
        });
        let params = PatchParams::apply(&self.ownership.share_manager(&self.ownership.owner)).force();
        self.change(identity, mapping, &params, &Patch::Apply(nothing)).await
    }

    async fn change(
        &self,
        identity: &Identity,
        mapping: &Mapping,
        params: &PatchParams,
        patch: &Patch<Value>,
    ) -> Result<(), CallError> {
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        match api.patch_metadata(&identity.name, params, patch).await {
            Ok(_) => Ok(()),
            Err(error) => match CallError::new(Action::Patch, Some(identity), error) {
                error if error.failure == Failure::NotFound => Ok(()),
                error => Err(error),
            },
        }
    }
}

//! Secrets of the hub that store data of a component. The component owns them, so they are deleted with it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use kyma_api::HelmComponent;
use kyma_controller::{Failure, find_object};
use kyma_sdk::Context;
use serde_json::{Value, json};

/// A Secret of the release store.
pub(crate) struct StateSecret {
    api: Api<Secret>,
    manager: &'static str,
    name: String,
    type_: &'static str,
    /// Owner reference to the component.
    owner: Value,
    uid: Option<String>,
}

impl StateSecret {
    /// Returns the Secret of a component for data of this type. The API server never changes the type of a Secret, so
    /// no other Secret is overwritten.
    pub(crate) fn of(context: &Context<HelmComponent>, name: String, type_: &'static str) -> Self {
        let component = &context.resource;
        let uid = component.uid();
        let owner = json!({
            "apiVersion": HelmComponent::api_version(&()), "kind": HelmComponent::kind(&()),
            "name": component.name_any(), "uid": uid,
        });
        let namespace = component.namespace().unwrap_or_default();
        let api = Api::namespaced(context.hub.clone(), &namespace);
        Self { api, manager: context.manager(), name, type_, owner, uid }
    }

    /// Returns a Secret of the component with the uid `u`.
    #[cfg(test)]
    pub(crate) fn of_api(api: Api<Secret>, name: String, type_: &'static str) -> Self {
        let owner = json!({
            "apiVersion": HelmComponent::api_version(&()), "kind": HelmComponent::kind(&()),
            "name": "c", "uid": "u",
        });
        Self { api, manager: "test", name, type_, owner, uid: Some("u".to_owned()) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the data; `None` if the Secret does not exist or is not this component's.
    ///
    /// # Errors
    /// If the hub does not answer.
    pub(crate) async fn read(&self) -> Result<Option<BTreeMap<String, ByteString>>, Failure> {
        let found = find_object(&self.api, &self.name).await;
        let found = found.map_err(|error| Failure::hub(&format!("read Secret {}", self.name), &error))?;
        Ok(found.filter(|found| self.is_ours(found)).map(|found| found.data.unwrap_or_default()))
    }

    /// Replaces the data.
    ///
    /// # Errors
    /// If the hub does not accept the write.
    pub(crate) async fn write(&self, data: BTreeMap<String, ByteString>) -> Result<(), Failure> {
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": self.type_,
            "metadata": {"name": self.name, "ownerReferences": [self.owner]},
            "data": data,
        });
        let params = PatchParams::apply(self.manager).force();
        let written = self.api.patch(&self.name, &params, &Patch::Apply(body)).await;
        written.map(drop).map_err(|error| Failure::hub(&format!("write Secret {}", self.name), &error))
    }

    /// Empties the Secret if it has data: the operator may not delete Secrets of the hub.
    ///
    /// # Errors
    /// If the hub does not answer, or does not accept the write.
    pub(crate) async fn empty(&self) -> Result<(), Failure> {
        match self.read().await? {
            Some(data) if !data.is_empty() => self.write(BTreeMap::new()).await,
            _ => Ok(()),
        }
    }

    fn is_ours(&self, found: &Secret) -> bool {
        let owners = found.metadata.owner_references.iter().flatten();
        let mut uids = owners.map(|owner| &owner.uid);
        found.type_.as_deref() == Some(self.type_) && uids.any(|owner| Some(owner) == self.uid.as_ref())
    }
}

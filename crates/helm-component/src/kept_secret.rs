//! Secrets of the hub in which something is kept for a component. They belong to it and go with it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use kyma_api::HelmComponent;
use kyma_sdk::{Context, Failure};
use serde_json::{Value, json};

/// A Secret of the release store.
pub(crate) struct KeptSecret {
    api: Api<Secret>,
    manager: &'static str,
    name: String,
    type_: &'static str,
    /// The component, as an owner reference.
    owner: Value,
    uid: Option<String>,
}

impl KeptSecret {
    /// The Secret of a component for what is of this type. An apiserver never changes the type of a Secret, so nothing
    /// else is ever written over.
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

    /// What it holds; `None` where it is not there, or not this component's.
    ///
    /// # Errors
    /// The hub does not answer.
    pub(crate) async fn read(&self) -> Result<Option<BTreeMap<String, ByteString>>, Failure> {
        let found = self.api.get_opt(&self.name).await;
        let found = found.map_err(|error| Failure::hub(&format!("read Secret {}", self.name), &error))?;
        Ok(found.filter(|found| self.is_ours(found)).map(|found| found.data.unwrap_or_default()))
    }

    /// Makes it hold just this.
    ///
    /// # Errors
    /// The hub does not take it.
    pub(crate) async fn write(&self, data: BTreeMap<&str, ByteString>) -> Result<(), Failure> {
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": self.type_,
            "metadata": {"name": self.name, "ownerReferences": [self.owner]},
            "data": data,
        });
        let params = PatchParams::apply(self.manager).force();
        let written = self.api.patch(&self.name, &params, &Patch::Apply(body)).await;
        written.map(drop).map_err(|error| Failure::hub(&format!("write Secret {}", self.name), &error))
    }

    fn is_ours(&self, found: &Secret) -> bool {
        let owners = found.metadata.owner_references.iter().flatten();
        let mut uids = owners.map(|owner| &owner.uid);
        found.type_.as_deref() == Some(self.type_) && uids.any(|owner| Some(owner) == self.uid.as_ref())
    }
}

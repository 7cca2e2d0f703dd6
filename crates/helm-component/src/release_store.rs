//! The release store of a component: Secrets of the hub with the parts of at most three revisions.
//!
//! Earlier versions stored each kind of part in Secrets of another type. These are read while the release store lacks
//! the part, and emptied after a later one was stored.

use std::array;

use futures::future::try_join3;
use kyma_api::{HelmComponent, release_store};
use kyma_controller::Failure;
use kyma_sdk::Context;

use crate::state_secret::StateSecret;

pub(crate) mod renders;
pub(crate) mod slot;

use slot::{Data, MAX_REVISIONS, MAX_SLOT_SECRETS, Part, PartKind, RevisionCriteria, Slot};

/// The Secrets with a component's revisions.
pub(crate) struct ReleaseStore {
    /// The Secrets of each slot.
    secrets: Vec<[StateSecret; MAX_SLOT_SECRETS]>,
}

impl ReleaseStore {
    /// Returns the release store of the component with this owner hash.
    pub(crate) fn of(context: &Context<HelmComponent>, owner: &str) -> Self {
        let of_slot = |at: usize| {
            let names = slot::secret_names(owner, at);
            names.map(|name| StateSecret::of(context, name, release_store::TYPE))
        };
        Self { secrets: (0..MAX_REVISIONS).map(of_slot).collect() }
    }

    /// Returns the release store of a component with the uid `u` and the owner hash `0a`.
    #[cfg(test)]
    pub(crate) fn of_api(api: &kube::Api<k8s_openapi::api::core::v1::Secret>) -> Self {
        let of_slot = |at: usize| {
            let names = slot::secret_names("0a", at);
            names.map(|name| StateSecret::of_api(api.clone(), name, release_store::TYPE))
        };
        Self { secrets: (0..MAX_REVISIONS).map(of_slot).collect() }
    }

    /// Reads all slots.
    ///
    /// # Errors
    /// If the hub does not answer.
    pub(crate) async fn read(&self) -> Result<[Slot; MAX_REVISIONS], Failure> {
        Ok(try_join3(self.read_slot(0), self.read_slot(1), self.read_slot(2)).await?.into())
    }

    /// Reads a slot; a slot without Secrets has no parts.
    ///
    /// # Errors
    /// If the hub does not answer.
    pub(crate) async fn read_slot(&self, at: usize) -> Result<Slot, Failure> {
        let secrets = &self.secrets[at];
        let mut data: [Data; MAX_SLOT_SECRETS] = array::from_fn(|_| Data::new());
        data[0] = secrets[0].read().await?.unwrap_or_default();
        for further in Slot::further_secrets(&data[0]) {
            data[further] = secrets[further].read().await?.unwrap_or_default();
        }
        Ok(Slot::decode(data))
    }

    /// Replaces a slot. If the process ends between the writes, each part that was not replaced is still readable.
    ///
    /// # Errors
    /// If the hub does not accept a write.
    pub(crate) async fn write(&self, at: usize, slot: Slot) -> Result<(), Failure> {
        let secrets = &self.secrets[at];
        let had_data: [bool; MAX_SLOT_SECRETS] = array::from_fn(|secret| slot.had_data(secret));
        let [first, second, third] = slot.encode();
        let is_unused = [false, had_data[1] && second.is_empty(), had_data[2] && third.is_empty()];
        for (secret, data) in [(&secrets[1], second), (&secrets[2], third)] {
            if !data.is_empty() {
                secret.write(data).await?;
            }
        }
        secrets[0].write(first).await?;
        for (secret, _) in secrets.iter().zip(is_unused).filter(|(_, is_unused)| *is_unused) {
            // The slot is complete without it.
            if let Err(error) = secret.write(Data::new()).await {
                tracing::warn!(name = secret.name(), %error, "a Secret of the release store is not emptied");
            }
        }
        Ok(())
    }

    /// Stores a part of a revision with this render, beside its other parts.
    ///
    /// # Errors
    /// If the hub does not answer, or does not accept a write.
    pub(crate) async fn store_part(
        &self,
        criteria: &RevisionCriteria,
        kind: PartKind,
        part: Part,
        render: Option<&str>,
    ) -> Result<(), Failure> {
        let slots = self.read().await?;
        let at = criteria.slot_for(&slots, kind, &part.revision, render);
        let mut slot = criteria.reduced(&slots, &slots[at]);
        slot.set(kind, part);
        self.write(at, slot).await
    }

    /// Discards the parts of this kind, except those of the revision `kept`.
    ///
    /// # Errors
    /// If the hub does not answer, or does not accept a write.
    pub(crate) async fn discard_parts(
        &self,
        criteria: &RevisionCriteria,
        kind: PartKind,
        kept: Option<&str>,
    ) -> Result<(), Failure> {
        let slots = self.read().await?;
        for (at, slot) in slots.iter().enumerate() {
            if slot.part(kind).is_some_and(|part| Some(&*part.revision) != kept) {
                let mut slot = criteria.reduced(&slots, slot);
                slot.take(kind);
                self.write(at, slot).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, Result};
    use k8s_openapi::api::core::v1::Secret;
    use kube::Api;
    use serde_json::{Value, json};
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    const SECRETS: &str = "/api/v1/namespaces/hub/secrets/";

    /// Returns a hub on which every Secret has this type and data.
    async fn hub(type_: &str, data: &Value) -> Result<(ScriptedServer, Api<Secret>)> {
        let server = ScriptedServer::start().await?;
        let owner = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "name": "c", "uid": "u",
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": type_, "data": data,
            "metadata": {"name": "a", "namespace": "hub", "ownerReferences": [owner]},
        });
        server.always(RequestMatcher::any(), Answer::json(&secret));
        let api = Api::namespaced(server.access().client()?, "hub");
        Ok((server, api))
    }

    /// Returns the names of the Secrets that were written, in order.
    fn written(server: &ScriptedServer) -> Vec<String> {
        let requests = server.requests().into_iter().filter(|request| request.method == "PATCH");
        requests.map(|request| request.path.replacen(SECRETS, "", 1)).collect()
    }

    #[tokio::test]
    async fn a_part_leaves_its_own_secret_after_the_first_one_has_it() -> Result<()> {
        let (server, api) = hub(release_store::TYPE, &json!({})).await?;
        let store = ReleaseStore::of_api(&api);
        let mut slot = Slot::default();
        slot.set(PartKind::Hooks, Part::new("r", b"hooks".to_vec()));
        let mut data = slot.encode();
        // As beside a larger render.
        let hooks = data[0].remove("hooks.json.gz").context("the hooks")?;
        data[1].insert("hooks.json.gz".to_owned(), hooks);
        store.write(0, Slot::decode(data)).await?;
        assert_eq!(written(&server), ["helm-component-release-0a-1", "helm-component-release-0a-1-2"]);
        Ok(())
    }

    #[tokio::test]
    async fn only_a_former_secret_with_data_is_emptied() -> Result<()> {
        let data = json!({"hooks.json.gz": "aA=="});
        let rows = [
            (release_store::HOOKS_TYPE, &data, 1),
            (release_store::HOOKS_TYPE, &json!({}), 0),
            ("Opaque", &data, 0),
        ];
        for (type_, data, expected) in rows {
            let (server, api) = hub(type_, data).await?;
            let secret = StateSecret::of_api(api, "former".to_owned(), release_store::HOOKS_TYPE);
            secret.empty().await?;
            assert_eq!(written(&server).len(), expected, "{type_} {data}");
        }
        Ok(())
    }
}

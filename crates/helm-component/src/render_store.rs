//! Nondeterministic renders, stored in Secrets on the hub so that each release is rendered once.

use std::sync::Arc;

use kyma_api::{HelmComponent, release_store};
use kyma_controller::Failure;
use kyma_sdk::Context;

use crate::blocking::run_blocking_if_large;
use crate::packed::{self, PackError};
use crate::release_store::ReleaseStore;
use crate::release_store::renders::{RenderEntry, RenderLocation};
use crate::release_store::slot::{self, Data, MAX_REVISIONS, Part, PartKind, RevisionCriteria, Slot};
use crate::state_secret::StateSecret;

/// Name suffixes of a component's Secrets of earlier versions.
const FORMER_SUFFIXES: [&str; 3] = ["", "-2", "-3"];
/// Key of the digest of the render's inputs in a Secret of an earlier version.
const REQUEST: &str = "request";
/// Key of the release that was installed at the time, in a Secret of an earlier version; empty if there was none.
const AFTER: &str = "after";
/// Key of the render in a Secret of an earlier version.
const RENDER: &str = "render.yaml.gz";
/// Key of the render's digest in a Secret of an earlier version.
const SHA256: &str = "sha256";

/// The renders of one component.
pub(crate) struct RenderStore {
    release_store: ReleaseStore,
    /// Whether each slot may have a render; a new component need not read all of them.
    may_be: [bool; MAX_REVISIONS],
    /// The Secrets of earlier versions.
    former: Vec<StateSecret>,
    criteria: RevisionCriteria,
    stores_tests: bool,
}

/// A stored render, or a free slot for one.
pub(crate) enum RenderLookup {
    /// The stored render of the request.
    Found(StoredRender),
    /// No render is stored. This slot has none, or its render is no longer needed.
    Missing(Box<FreeSlot>),
}

/// A nondeterministic render.
pub(crate) struct StoredRender {
    pub text: Arc<str>,
    /// Digest of the render, which the status records.
    pub render: String,
    /// Why the render could not be stored.
    pub failure: Option<String>,
}

/// A slot for a render.
pub(crate) struct FreeSlot {
    at: usize,
    /// Its parts that stay.
    slot: Slot,
}

impl RenderStore {
    /// Returns the access to the renders of the component with this owner hash, by its recorded `criteria`. Only
    /// Secrets that may exist are read: by `may_be` those of this version, by `may_be_former` those of earlier ones.
    pub(crate) fn of(
        context: &Context<HelmComponent>,
        owner: &str,
        criteria: RevisionCriteria,
        may_be: impl Fn(&str) -> bool,
        may_be_former: impl Fn(&str) -> bool,
    ) -> Self {
        let former = FORMER_SUFFIXES.map(|suffix| format!("{}{owner}{suffix}", release_store::RENDER_PREFIX));
        let former = former.into_iter().filter(|name| may_be_former(name));
        let former = former.map(|name| StateSecret::of(context, name, release_store::RENDER_TYPE)).collect();
        let may_be = std::array::from_fn(|at| {
            let [first, ..] = slot::secret_names(owner, at);
            may_be(&first)
        });
        let release_store = ReleaseStore::of(context, owner);
        Self { release_store, may_be, former, criteria, stores_tests: false }
    }

    /// Sets whether renders in which only tests vary are stored: a new process must continue tests with the same
    /// render.
    pub(crate) fn with_tests(self, stores_tests: bool) -> Self {
        Self { stores_tests, ..self }
    }

    /// Reports whether renders in which only tests vary are stored.
    pub(crate) fn stores_tests(&self) -> bool {
        self.stores_tests
    }

    /// Returns the stored render of this request, if it belongs to the installed release or to its successor, and
    /// otherwise a slot for it.
    ///
    /// # Errors
    /// If the hub does not answer: another render could differ.
    pub(crate) async fn find(&self, request: &str) -> Result<RenderLookup, Failure> {
        let mut slots: [Slot; MAX_REVISIONS] = std::array::from_fn(|_| Slot::default());
        for (at, slot) in slots.iter_mut().enumerate().filter(|(at, _)| self.may_be[*at]) {
            *slot = self.release_store.read_slot(at).await?;
        }
        let entries = slots.each_ref().map(Slot::render_entry);
        let is_shared = |at: usize| self.criteria.needs_other(&slots, &slots[at], PartKind::Render);
        let at = match self.criteria.renders.locate(&entries, request, is_shared) {
            RenderLocation::Stored(at) => {
                if let Some(part) = slots[at].take(PartKind::Render)
                    && let Some(stored) = unpacked(part.packed, part.sha256).await?
                {
                    return Ok(RenderLookup::Found(stored));
                }
                at
            }
            RenderLocation::Free(at) => {
                if let Some(stored) = self.find_former(request).await? {
                    return Ok(RenderLookup::Found(stored));
                }
                at
            }
        };
        if !self.may_be[at] {
            // The watch may lag behind the parts that this process stored.
            slots[at] = self.release_store.read_slot(at).await?;
        }
        let slot = self.criteria.reduced(&slots, &slots[at]);
        Ok(RenderLookup::Missing(Box::new(FreeSlot { at, slot })))
    }

    /// Returns the render of this request that an earlier version stored.
    async fn find_former(&self, request: &str) -> Result<Option<StoredRender>, Failure> {
        let mut found = Vec::new();
        for secret in &self.former {
            found.push(secret.read().await?.unwrap_or_default());
        }
        let entries: Vec<Option<RenderEntry>> = found.iter().map(entry).collect();
        let Some(at) = self.criteria.renders.find_former(&entries, request) else { return Ok(None) };
        let mut data = found.swap_remove(at);
        let (Some(packed), Some(sha256)) = (data.remove(RENDER), data.remove(SHA256)) else {
            return Ok(None);
        };
        let Ok(sha256) = String::from_utf8(sha256.0) else { return Ok(None) };
        unpacked(packed.0, sha256).await
    }

    /// Stores the render of this request, and returns it even if it could not be stored.
    pub(crate) async fn store(&self, free: FreeSlot, request: &str, text: Arc<str>) -> StoredRender {
        let whole = Arc::clone(&text);
        let packed = run_blocking_if_large(text.len(), move || packed::pack(whole.as_bytes())).await;
        let packed = match packed.unwrap_or(Err(PackError::Unpackable)) {
            Ok(packed) => packed,
            Err(error) => {
                let render = packed::digest(text.as_bytes());
                return StoredRender { text, render, failure: Some(error.to_string()) };
            }
        };
        let after = Some(self.criteria.renders.installed().to_owned());
        let part = Part { after, ..Part::new(request, packed) };
        let render = part.sha256.clone();
        let FreeSlot { at, mut slot } = free;
        slot.set(PartKind::Render, part);
        if let Err(failure) = self.release_store.write(at, slot).await {
            return StoredRender { text, render, failure: Some(failure.message) };
        }
        if let Err(error) = self.empty_former().await {
            // They are emptied after the next render that is stored.
            tracing::warn!(%error, "renders of earlier versions are not emptied");
        }
        StoredRender { text, render, failure: None }
    }

    /// Empties the Secrets of earlier versions whose renders are no longer used.
    async fn empty_former(&self) -> Result<(), Failure> {
        for secret in &self.former {
            let data = secret.read().await?.unwrap_or_default();
            let is_used = entry(&data).is_some_and(|entry| self.criteria.renders.accepts(&entry));
            if !data.is_empty() && !is_used {
                secret.write(Data::new()).await?;
            }
        }
        Ok(())
    }
}

fn entry(data: &Data) -> Option<RenderEntry> {
    let word = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(RenderEntry { request: word(REQUEST)?, render: word(SHA256)?, after: word(AFTER) })
}

/// Returns a packed render; `None` if its digest differs.
async fn unpacked(packed: Vec<u8>, sha256: String) -> Result<Option<StoredRender>, Failure> {
    let size = packed.len();
    let unpack = move || -> Option<StoredRender> {
        let text = String::from_utf8(packed::unpack(&packed, sha256.as_bytes())?).ok()?;
        Some(StoredRender { text: Arc::from(text), render: sha256, failure: None })
    };
    run_blocking_if_large(size, unpack).await
}

#[cfg(test)]
mod tests {
    use anyhow::{Result, bail};
    use k8s_openapi::ByteString;
    use kube::Api;
    use kyma_api::Digests;
    use serde_json::json;
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    const SECRETS: &str = "/api/v1/namespaces/hub/secrets/";

    /// Returns a hub on which an earlier version stored the render `old` of the request `r`, and its renders for a
    /// component with this installed render.
    async fn hub(installed: Option<&str>) -> Result<(ScriptedServer, RenderStore)> {
        let server = ScriptedServer::start().await?;
        let packed = packed::pack(b"old")?;
        let sha256 = packed::digest(&packed);
        let owner = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "name": "c", "uid": "u",
        });
        let former = json!({
            "apiVersion": "v1", "kind": "Secret", "type": release_store::RENDER_TYPE,
            "metadata": {"name": "former", "namespace": "hub", "ownerReferences": [owner]},
            "data": {
                "request": ByteString(b"r".to_vec()), "after": ByteString(vec![]),
                "render.yaml.gz": ByteString(packed), "sha256": ByteString(sha256.into_bytes()),
            },
        });
        server.always(RequestMatcher::path(&format!("{SECRETS}former")), Answer::json(&former));
        server.always(RequestMatcher::any().method("PATCH"), Answer::json(&former));
        let api = Api::namespaced(server.access().client()?, "hub");
        let digests = Digests { stored_render: installed.map(str::to_owned), ..Digests::default() };
        let render_store = RenderStore {
            release_store: ReleaseStore::of_api(&api),
            may_be: [false; MAX_REVISIONS],
            former: vec![StateSecret::of_api(api, "former".to_owned(), release_store::RENDER_TYPE)],
            criteria: RevisionCriteria::of(&digests, None, None),
            stores_tests: false,
        };
        Ok((server, render_store))
    }

    /// Stores a render of the request, and returns the names of the Secrets that were written, in order.
    async fn store(hub: &(ScriptedServer, RenderStore), request: &str) -> Result<Vec<String>> {
        let (server, render_store) = hub;
        let RenderLookup::Missing(free) = render_store.find(request).await? else { bail!("it is stored") };
        let stored = render_store.store(*free, request, Arc::from("new")).await;
        assert_eq!((&*stored.text, stored.failure), ("new", None));
        let requests = server.requests().into_iter().filter(|request| request.method == "PATCH");
        Ok(requests.map(|request| request.path.replacen(SECRETS, "", 1)).collect())
    }

    #[tokio::test]
    async fn render_stored_by_earlier_version_is_used_until_replaced() -> Result<()> {
        let hub_before = hub(None).await?;
        let RenderLookup::Found(stored) = hub_before.1.find("r").await? else { bail!("it is stored") };
        assert_eq!((&*stored.text, stored.failure), ("old", None));
        assert_eq!(store(&hub_before, "other").await?, ["helm-component-release-0a-1"]);
        let hub_after = hub(Some("another")).await?;
        assert_eq!(store(&hub_after, "r").await?, ["helm-component-release-0a-1", "former"]);
        Ok(())
    }
}

//! Nondeterministic renders, stored in Secrets on the hub so that each release is rendered once.

use std::sync::Arc;

use kyma_api::{HelmComponent, release_store};
use kyma_sdk::{Context, Failure};

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

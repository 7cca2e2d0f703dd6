//! Nondeterministic renders, stored in Secrets on the hub so that each release is rendered once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join3;
use k8s_openapi::ByteString;
use kyma_api::{HelmComponent, release_store};
use kyma_sdk::{Context, Failure};

use crate::blocking::run_blocking_if_large;
use crate::packed::{self, PackError};
use crate::state_secret::StateSecret;

mod selection;

pub(crate) use selection::RenderCriteria;
use selection::{RenderEntry, RenderLocation};

/// Type of the Secrets.
const TYPE: &str = release_store::RENDER_TYPE;
/// Name suffixes of a component's Secrets: one for the installed release, one for its successor, and possibly one for
/// a rollback target. Each render has a Secret of its own, since it may need the maximum size of a Secret.
const NAME_SUFFIXES: [&str; 3] = ["", "-2", "-3"];
/// Key of the digest of the render's inputs.
const REQUEST: &str = "request";
/// Key of the release that was installed at the time; empty if there was none.
const AFTER: &str = "after";
/// Key of the render.
const RENDER: &str = "render.yaml.gz";
/// Key of the render's digest, which distinguishes renders of the same request.
const SHA256: &str = "sha256";

type Data = BTreeMap<String, ByteString>;

/// The renders of one component.
pub(crate) struct RenderStore {
    secrets: [StateSecret; 3],
    /// Whether each Secret may exist; a new component need not read all of them.
    may_be: [bool; 3],
    criteria: RenderCriteria,
    stores_tests: bool,
}

/// A stored render, or a free Secret for one.
pub(crate) enum RenderLookup {
    /// The stored render of the request.
    Found(StoredRender),
    /// No render is stored. The Secret of this slot is missing, or its content is no longer needed.
    Missing(Slot),
}

/// A nondeterministic render.
pub(crate) struct StoredRender {
    pub text: Arc<str>,
    /// Digest of the render, which the status records.
    pub render: String,
    /// Why the render could not be stored.
    pub failure: Option<String>,
}

/// Index of one of the component's Secrets.
pub(crate) struct Slot(usize);

impl RenderStore {
    /// Returns the access to the renders of the component with this owner hash, by its recorded `criteria`. Only
    /// Secrets for which `may_be` returns true are read.
    pub(crate) fn of(
        context: &Context<HelmComponent>,
        owner: &str,
        criteria: RenderCriteria,
        may_be: impl Fn(&str) -> bool,
    ) -> Self {
        let names = NAME_SUFFIXES.map(|suffix| format!("{}{owner}{suffix}", release_store::RENDER_PREFIX));
        let may_be = names.each_ref().map(|name| may_be(name));
        let secrets = names.map(|name| StateSecret::of(context, name, TYPE));
        Self { secrets, may_be, criteria, stores_tests: false }
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
        let mut found: [Option<Data>; 3] = try_join3(self.read(0), self.read(1), self.read(2)).await?.into();
        let held = found.each_ref().map(|data| data.as_ref().and_then(entry));
        Ok(match self.criteria.locate(&held, request) {
            RenderLocation::Free(at) => RenderLookup::Missing(Slot(at)),
            RenderLocation::Stored(at) => match text(found[at].take().unwrap_or_default()).await? {
                Some(text) => {
                    let render = held[at].as_ref().map(|entry| entry.render.clone()).unwrap_or_default();
                    RenderLookup::Found(StoredRender { text, render, failure: None })
                }
                None => RenderLookup::Missing(Slot(at)),
            },
        })
    }

    async fn read(&self, at: usize) -> Result<Option<Data>, Failure> {
        if self.may_be[at] { self.secrets[at].read().await } else { Ok(None) }
    }

    /// Stores the render of this request, and returns it even if it could not be stored.
    pub(crate) async fn store(&self, slot: &Slot, request: &str, text: Arc<str>) -> StoredRender {
        let whole = Arc::clone(&text);
        let packed = run_blocking_if_large(text.len(), move || packed::pack(whole.as_bytes())).await;
        let packed = match packed.unwrap_or(Err(PackError::Unpackable)) {
            Ok(packed) => packed,
            Err(error) => {
                let render = packed::digest(text.as_bytes());
                return StoredRender { text, render, failure: Some(error.to_string()) };
            }
        };
        let render = packed::digest(&packed);
        let data = BTreeMap::from([
            (REQUEST, ByteString(request.as_bytes().to_vec())),
            (AFTER, ByteString(self.criteria.installed().as_bytes().to_vec())),
            (RENDER, ByteString(packed)),
            (SHA256, ByteString(render.as_bytes().to_vec())),
        ]);
        let written = self.secrets[slot.0].write(data).await;
        StoredRender { text, render, failure: written.err().map(|failure| failure.message) }
    }
}

fn entry(data: &Data) -> Option<RenderEntry> {
    let word = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(RenderEntry { request: word(REQUEST)?, render: word(SHA256)?, after: word(AFTER) })
}

async fn text(mut data: Data) -> Result<Option<Arc<str>>, Failure> {
    let (Some(packed), Some(sha256)) = (data.remove(RENDER), data.remove(SHA256)) else { return Ok(None) };
    let size = packed.0.len();
    let unpack = move || -> Option<Arc<str>> {
        let text = packed::unpack(&packed.0, &sha256.0)?;
        String::from_utf8(text).ok().map(Arc::from)
    };
    run_blocking_if_large(size, unpack).await
}

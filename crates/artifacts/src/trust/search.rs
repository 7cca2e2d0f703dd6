//! Searches the signatures of an OCI manifest in its repository.

use std::sync::Arc;

use bytes::Bytes;
use oci_spec::image::{ImageIndex, ImageManifest};

use super::flaw::Flaw;
use super::policy::Trust;
use super::{bundle, cosign};
use crate::error::ArtifactError;
use crate::fetch::Fetch;
use crate::selector::reference::OciReference;
use crate::source::credentials::Credentials;
use crate::source::registry::Session;
use crate::storage::digest::Digest;

/// Maximum number of signatures of one manifest that are verified, of each kind.
const MAX_SIGNATURES: usize = 64;
/// Message if no signature is found.
const NO_SIGNATURE: &str = "no signature under cosign's tag or among the referrers";

/// A search for a trusted signature. A failed request to the registry never counts as a missing signature.
pub(crate) struct Search {
    pub(super) fetch: Arc<Fetch>,
    pub(super) trust: Arc<Trust>,
    pub(super) reference: OciReference,
    pub(super) digest: Digest,
    pub(super) credentials: Credentials,
}

impl Search {
    /// Ends with the first trusted signature.
    pub(super) async fn run(self) -> Result<(), ArtifactError> {
        let mut flaws = Vec::new();
        if self.under_tag(&mut flaws).await? || self.among_referrers(&mut flaws).await? {
            return Ok(());
        }
        let what = self.reference.clone().pinned(self.digest).to_string();
        if flaws.is_empty() {
            return Err(ArtifactError::Unsigned { what, looked: NO_SIGNATURE });
        }
        let mut said: Vec<String> = flaws.iter().map(Flaw::to_string).collect();
        said.sort_unstable();
        said.dedup();
        Err(ArtifactError::Untrusted { what, flaws: said.join("; ") })
    }

    /// Verifies signatures under cosign's tag; reports whether one is trusted.
    async fn under_tag(&self, flaws: &mut Vec<Flaw>) -> Result<bool, ArtifactError> {
        let tag = self.reference.repository().tag(&cosign::tag(self.digest))?;
        let answer = self.fetch.registry().manifest(self.session(), &tag).await;
        let signatures = answer.and_then(|(_, manifest)| cosign::signatures(&tag.to_string(), &manifest));
        let Some(signatures) = found(signatures, flaws)? else { return Ok(false) };
        self.bounded(signatures.len())?;
        for signature in signatures {
            let judged = self
                .blob(signature.payload)
                .await?
                .and_then(|payload| self.trust.accepts_cosign(&signature, &payload, self.digest));
            match judged {
                Ok(()) => return Ok(true),
                Err(flaw) => flaws.push(flaw),
            }
        }
        Ok(false)
    }

    /// Verifies bundles among the artifacts that refer to the manifest; reports whether one is trusted.
    async fn among_referrers(&self, flaws: &mut Vec<Flaw>) -> Result<bool, ArtifactError> {
        let pages = self.list_of_referrers().await;
        let what = self.reference.to_string();
        let bundles = pages.and_then(|pages| {
            let bundles: Result<Vec<_>, _> = pages.iter().map(|page| referrers(&what, page)).collect();
            bundles.map(|bundles| bundles.concat())
        });
        let Some(bundles) = found(bundles, flaws)? else { return Ok(false) };
        self.bounded(bundles.len())?;
        for digest in bundles {
            let judged = match self.bundle(digest).await? {
                Ok(json) => self.trust.accepts_bundle(&json, self.digest),
                Err(flaw) => Err(flaw),
            };
            match judged {
                Ok(()) => return Ok(true),
                Err(flaw) => flaws.push(flaw),
            }
        }
        Ok(false)
    }

    /// Returns the pages of the list of referrers: by the API, or from a tag in registries without it.
    async fn list_of_referrers(&self) -> Result<Vec<Bytes>, ArtifactError> {
        let registry = self.fetch.registry();
        let listed = registry.referrers(self.session(), self.digest, bundle::MEDIA_TYPE_NOW).await?;
        if let Some(pages) = listed {
            return Ok(pages);
        }
        let tag = self.reference.repository().tag(&format!("sha256-{}", self.digest.hex()))?;
        Ok(vec![registry.index(self.session(), &tag).await?])
    }

    /// Returns the bundle in an artifact.
    async fn bundle(&self, artifact: Digest) -> Result<Result<Bytes, Flaw>, ArtifactError> {
        let reference = self.reference.repository().digest(artifact);
        let manifest = match self.fetch.registry().manifest(self.session(), &reference).await {
            Ok((_, manifest)) => manifest,
            Err(error) => return Flaw::of(error).map(Err),
        };
        match bundle_of(&manifest) {
            Some(layer) => self.blob(layer).await,
            None => Ok(Err(Flaw::Unreadable("the artifact with its bundle"))),
        }
    }

    async fn blob(&self, digest: Digest) -> Result<Result<Bytes, Flaw>, ArtifactError> {
        let limit = self.fetch.limits().signature;
        match self.fetch.blob(self.reference.repository(), digest, limit, &self.credentials).await {
            Ok(content) => Ok(Ok(content)),
            Err(error) => Flaw::of(error).map(Err),
        }
    }

    fn bounded(&self, count: usize) -> Result<(), ArtifactError> {
        if count <= MAX_SIGNATURES {
            return Ok(());
        }
        let what = self.reference.clone().pinned(self.digest).to_string();
        Err(ArtifactError::Untrusted { what, flaws: format!("there are more than {MAX_SIGNATURES}") })
    }

    fn session(&self) -> Session<'_> {
        let repository = self.reference.repository();
        Session { http: self.fetch.http(), repository, credentials: &self.credentials, push: false }
    }
}

/// Returns `None` for missing content, and for unusable content, which is added to the flaws.
fn found<T>(answer: Result<T, ArtifactError>, flaws: &mut Vec<Flaw>) -> Result<Option<T>, ArtifactError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ArtifactError::NotFound { .. }) => Ok(None),
        Err(error) => {
            flaws.push(Flaw::of(error)?);
            Ok(None)
        }
    }
}

/// Returns the artifacts in a list that contain bundles.
pub(super) fn referrers(what: &str, index: &[u8]) -> Result<Vec<Digest>, ArtifactError> {
    let unreadable = || ArtifactError::invalid(what, "its list of referrers is not an OCI index");
    let index: ImageIndex = serde_json::from_slice(index).map_err(|_| unreadable())?;
    let bundles = index.manifests().iter().filter(|descriptor| {
        let kind = descriptor.artifact_type().as_ref().map(ToString::to_string);
        kind.is_some_and(|kind| kind.starts_with(bundle::MEDIA_TYPE))
    });
    let digest = |descriptor: &oci_spec::image::Descriptor| descriptor.digest().to_string().parse();
    bundles.map(|descriptor| digest(descriptor).map_err(|_| unreadable())).collect()
}

/// Returns the layer of an artifact that is its bundle.
pub(super) fn bundle_of(manifest: &[u8]) -> Option<Digest> {
    let manifest: ImageManifest = serde_json::from_slice(manifest).ok()?;
    let [layer] = &manifest.layers()[..] else { return None };
    layer.media_type().to_string().starts_with(bundle::MEDIA_TYPE).then_some(())?;
    layer.digest().to_string().parse().ok()
}

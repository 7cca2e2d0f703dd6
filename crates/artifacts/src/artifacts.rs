//! Entry point of this crate.

use std::sync::Arc;

use crate::bounds::permits::PullPermits;
use crate::config::Config;
use crate::content::chart::{ChartArchive, ChartSource, ChartVersion, ChartVersions, Indexes, MetadataCache};
use crate::content::manifests::{Manifests, ManifestsSource};
use crate::content::ocm::ModuleContent;
use crate::error::ArtifactError;
use crate::fetch::Fetch;
use crate::push::{ComponentVersion, Progress, PushedArtifact};
use crate::selector::reference::RegistryBase;
use crate::selector::version_range::VersionRange;
use crate::source::credentials::Credentials;
use crate::source::http::Http;
use crate::source::registry::Registry;
use crate::storage::cache::Cache;
use crate::storage::digest::Digest;
use crate::storage::proofs::Proofs;
use crate::trust::{Gate, Trust};
use crate::{content::chart, content::manifests, content::ocm, push};

/// Access to all sources through one cache. Cheap to clone; clones share cache, tokens and proofs.
///
/// Every read is answered for the given credentials: from the cache only if the source has permitted these
/// credentials to read the same artifact within [`Deadlines::proof`](crate::Deadlines::proof), or, while the source
/// cannot be reached at all, within [`Deadlines::proof_unreachable`](crate::Deadlines::proof_unreachable).
#[derive(Clone)]
pub struct Artifacts {
    fetch: Arc<Fetch>,
    /// Cache of entries from indexes of chart repositories.
    indexes: Arc<Indexes>,
    /// Charts whose metadata was read.
    known: Arc<MetadataCache>,
    trust: Option<Arc<Trust>>,
}

impl Artifacts {
    /// Opens the cache and prepares the HTTP client. Sends no request.
    pub fn open(config: &Config) -> Result<Self, ArtifactError> {
        Ok(Self {
            fetch: Arc::new(Fetch::new(
                Http::new(config)?,
                Registry::new(config.limits),
                Cache::open(config.cache_dir.clone(), config.cache_bytes)?,
                Proofs::new(config.deadlines),
                config.limits,
                PullPermits::new(),
            )),
            indexes: Arc::new(Indexes::new()),
            known: Arc::new(MetadataCache::new()),
            trust: None,
        })
    }

    /// Returns the same access with required signatures: content must carry a trusted signature before any of it is
    /// parsed, even if it is cached already. Verified content is remembered by its digest and the trust.
    pub fn trusting(&self, trust: Arc<Trust>) -> Self {
        Self { trust: Some(trust), ..self.clone() }
    }

    fn gate<'a>(&'a self, credentials: &'a Credentials) -> Gate<'a> {
        Gate { fetch: &self.fetch, trust: self.trust.as_ref(), credentials }
    }

    /// Reads the content of a module: OCM component version `<base>/component-descriptors/<component>:<version>`.
    ///
    /// Reads the format of modulectl and the OCM tools: config blob, descriptor layer, resources `raw-manifest`
    /// (required) and `default-cr` as local blobs, YAML or archives of it.
    pub async fn component(
        &self,
        base: &RegistryBase,
        component: &str,
        version: &str,
        credentials: &Credentials,
    ) -> Result<ModuleContent, ArtifactError> {
        ocm::read(self.gate(credentials), base, component, version).await
    }

    /// Reads a chart; checks its archive against its digest and for content that is unsafe to unpack.
    pub async fn chart(
        &self,
        source: &ChartSource,
        credentials: &Credentials,
    ) -> Result<ChartArchive, ArtifactError> {
        chart::read(self.gate(credentials), &self.indexes, &self.known, source).await
    }

    /// Resolves a range to a version of a chart. The source is always asked, and concurrent requests share its
    /// answer.
    pub async fn resolve(
        &self,
        versions: &ChartVersions,
        range: &VersionRange,
        credentials: &Credentials,
    ) -> Result<ChartVersion, ArtifactError> {
        chart::resolve(&self.fetch, &self.indexes, versions, range, credentials).await
    }

    /// Reads manifests from a registry or an address.
    pub async fn manifests(
        &self,
        source: &ManifestsSource,
        credentials: &Credentials,
    ) -> Result<Manifests, ArtifactError> {
        manifests::read(self.gate(credentials), source).await
    }

    /// Drops cached manifests that are not Kubernetes objects, so that the next read pulls them again: the source may
    /// have other content by then.
    pub fn reject_manifests(&self, source: &ManifestsSource, digest: Digest, credentials: &Credentials) {
        match source {
            ManifestsSource::Oci(reference) => self.fetch.reject_manifest(reference, credentials),
            ManifestsSource::Http { url, .. } => self.fetch.reject_document(url, digest, credentials),
        }
    }

    /// Drops a cached OCM component version that is not usable, so that the next read pulls it again.
    pub fn reject_component(
        &self,
        base: &RegistryBase,
        component: &str,
        version: &str,
        credentials: &Credentials,
    ) {
        if let Ok(reference) =
            base.component(component).and_then(|repository| repository.tag(&ocm::tag_of(version)))
        {
            self.fetch.reject_manifest(&reference, credentials);
        }
    }

    /// Writes a module as an OCM component version, in the layout of modulectl. Equal input gives an equal digest.
    pub async fn push_component(
        &self,
        base: &RegistryBase,
        component: &ComponentVersion,
        credentials: &Credentials,
        progress: &dyn Progress,
    ) -> Result<PushedArtifact, ArtifactError> {
        push::component(&self.fetch, base, component, credentials, progress).await
    }

    /// Writes a chart archive to `<repository>/<chart name>:<chart version>`, as `helm push` does.
    pub async fn push_chart(
        &self,
        parent: &RegistryBase,
        archive: &ChartArchive,
        credentials: &Credentials,
        progress: &dyn Progress,
    ) -> Result<PushedArtifact, ArtifactError> {
        push::chart(&self.fetch, parent, archive, credentials, progress).await
    }
}

impl std::fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Artifacts").finish_non_exhaustive()
    }
}

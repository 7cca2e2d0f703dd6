//! The way in: what others ask this crate for.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::{
    ArtifactError, ChartArchive, ChartSource, ChartVersion, ChartVersions, ComponentVersion, Config,
    Credentials, Digest, Manifests, ManifestsSource, ModuleContent, Progress, PushedArtifact, RegistryBase,
    Trust, VersionRange,
    cache::Cache,
    chart,
    chart::{Indexes, KnownCharts},
    fetch::Fetch,
    http::Http,
    manifests, ocm,
    proofs::Proofs,
    push,
    registry::Registry,
    trust::Gate,
};

/// Pulls that run at once, over all sources: bounds the memory that content in flight takes.
const PULLS: usize = 8;

/// All sources behind one cache. Cheap to clone; clones share cache, tokens and proofs.
///
/// Every read is answered for the credentials at hand: from the cache only when the source has let these
/// credentials through to the same artifact within [`Deadlines::proof`](crate::Deadlines::proof), or, while the
/// source cannot be reached at all, within [`Deadlines::proof_unreachable`](crate::Deadlines::proof_unreachable).
#[derive(Clone)]
pub struct Artifacts {
    fetch: Arc<Fetch>,
    /// Cache of entries from indexes of chart repositories.
    indexes: Arc<Indexes>,
    /// Charts that were looked into.
    known: Arc<KnownCharts>,
    trust: Option<Arc<Trust>>,
}

impl Artifacts {
    /// Opens the cache and prepares the HTTP client. Touches no source.
    pub fn open(config: &Config) -> Result<Self, ArtifactError> {
        Ok(Self {
            fetch: Arc::new(Fetch::new(
                Http::new(config)?,
                Registry::new(config.limits),
                Cache::open(config.cache_dir.clone(), config.cache_bytes)?,
                Proofs::new(config.deadlines),
                config.limits,
                Semaphore::new(PULLS),
            )),
            indexes: Arc::new(Indexes::new()),
            known: Arc::new(KnownCharts::new()),
            trust: None,
        })
    }

    /// The same, and what it reads has to carry a signature that counts: before anything of it is parsed, whoever
    /// brought it into the cache. What passed is remembered, by its digest and by whose signatures count.
    pub fn trusting(&self, trust: Arc<Trust>) -> Self {
        Self { trust: Some(trust), ..self.clone() }
    }

    fn gate<'a>(&'a self, credentials: &'a Credentials) -> Gate<'a> {
        Gate { fetch: &self.fetch, trust: self.trust.as_ref(), credentials }
    }

    /// The content of a module: OCM component version `<base>/component-descriptors/<component>:<version>`.
    ///
    /// Reads what modulectl and the OCM tools write: config blob, descriptor layer, resources `raw-manifest`
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

    /// A chart, its archive checked against its digest and for what could hurt when it is unpacked.
    pub async fn chart(
        &self,
        source: &ChartSource,
        credentials: &Credentials,
    ) -> Result<ChartArchive, ArtifactError> {
        chart::read(self.gate(credentials), &self.indexes, &self.known, source).await
    }

    /// The version of a chart that a range stands for, asked of its source now: what was remembered of it does not
    /// count, but for who of many asked at the same time.
    pub async fn resolve(
        &self,
        versions: &ChartVersions,
        range: &VersionRange,
        credentials: &Credentials,
    ) -> Result<ChartVersion, ArtifactError> {
        chart::resolve(&self.fetch, &self.indexes, versions, range, credentials).await
    }

    /// Manifests from a registry or an address.
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

    /// Writes a module as an OCM component version, as modulectl lays it out. The same input gives the same digest.
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

//! Writes component versions and charts.

mod blob;
mod component;

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use crate::content::chart;
use crate::content::chart::ChartArchive;
use crate::error::ArtifactError;
use crate::fetch::Fetch;
use crate::media_types::{CHART_CONFIG, CHART_CONTENT};
use crate::selector::reference::{OciReference, RegistryBase};
use crate::source::credentials::Credentials;
use crate::source::registry::{OCI_MANIFEST, Session};
use crate::storage::digest::Digest;

use blob::{Blob, Layer};
pub use component::ComponentVersion;

/// Receives the progress of a push, for progress bars. Every method does nothing by default.
pub trait Progress: Send + Sync {
    /// Called before a blob of `bytes` bytes is sent; `name` describes its content.
    fn sending(&self, _name: &str, _bytes: u64) {}
    /// Called when the blob is in the registry; `existed` if it was there before.
    fn sent(&self, _name: &str, _bytes: u64, _existed: bool) {}
}

/// Shows no progress.
impl Progress for () {}

/// Result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedArtifact {
    /// The tag that refers to it now.
    pub reference: OciReference,
    /// Digest of its manifest.
    pub digest: Digest,
}

/// An OCI manifest in the field order of the Go libraries.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u8,
    media_type: &'static str,
    config: Layer,
    layers: Vec<Layer>,
    annotations: std::collections::BTreeMap<&'static str, String>,
}

/// Writes a component version.
pub(crate) async fn component(
    fetch: &Arc<Fetch>,
    base: &RegistryBase,
    component: &ComponentVersion,
    credentials: &Credentials,
    progress: &dyn Progress,
) -> Result<PushedArtifact, ArtifactError> {
    let repository = base.component(&component.name)?;
    let reference = repository.tag(&crate::content::ocm::tag_of(&component.version))?;
    let registry_url = fetch.http().origin(base.host())?;
    let (config, layers) = component.blobs(base, registry_url.as_str().trim_end_matches('/'))?;
    let annotations = component.annotations();
    Push { fetch, reference, credentials, progress }.send(config, layers, annotations).await
}

/// Writes a chart.
pub(crate) async fn chart(
    fetch: &Arc<Fetch>,
    parent: &RegistryBase,
    archive: &ChartArchive,
    credentials: &Credentials,
    progress: &dyn Progress,
) -> Result<PushedArtifact, ArtifactError> {
    let metadata = &archive.metadata;
    // Helm's own mapping, since tags have no `+`.
    let reference = parent.repository(&metadata.name)?.tag(&metadata.version.replace('+', "_"))?;
    let chart = archive.files(fetch.limits())?.remove("Chart.yaml").unwrap_or_default();
    let config: serde_json::Value = chart::read_chart_yaml(&reference.to_string(), &chart)?;
    let config = Blob::new("Chart.yaml", CHART_CONFIG, config.to_string());
    let layers = vec![Blob::new("chart", CHART_CONTENT, archive.content().clone())];
    let annotations = [
        ("org.opencontainers.image.title", metadata.name.clone()),
        ("org.opencontainers.image.version", metadata.version.clone()),
    ];
    Push { fetch, reference, credentials, progress }.send(config, layers, annotations.into()).await
}

/// A push in progress.
struct Push<'a> {
    fetch: &'a Arc<Fetch>,
    reference: OciReference,
    credentials: &'a Credentials,
    progress: &'a dyn Progress,
}

impl Push<'_> {
    async fn send(
        self,
        config: Blob,
        layers: Vec<Blob>,
        annotations: std::collections::BTreeMap<&'static str, String>,
    ) -> Result<PushedArtifact, ArtifactError> {
        let manifest = Manifest {
            schema_version: 2,
            media_type: OCI_MANIFEST,
            config: config.layer(),
            layers: layers.iter().map(Blob::layer).collect(),
            annotations,
        };
        for blob in layers.iter().chain([&config]) {
            self.send_blob(blob).await?;
        }
        let manifest = serde_json::to_vec(&manifest).map_err(|_| {
            ArtifactError::invalid(self.reference.to_string(), "its manifest cannot be written")
        })?;
        let manifest = Bytes::from(manifest);
        let digest = Digest::of(&manifest);
        self.fetch.registry().put_manifest(self.session(), &self.reference, &manifest).await?;
        Ok(PushedArtifact { reference: self.reference, digest })
    }

    async fn send_blob(&self, blob: &Blob) -> Result<(), ArtifactError> {
        let size = blob.content.len() as u64;
        self.progress.sending(blob.name, size);
        let registry = self.fetch.registry();
        let existed = registry.has_blob(self.session(), Digest::of(&blob.content)).await?;
        if !existed {
            registry.put_blob(self.session(), &blob.content).await?;
        }
        self.progress.sent(blob.name, size, existed);
        Ok(())
    }

    fn session(&self) -> Session<'_> {
        Session {
            http: self.fetch.http(),
            repository: self.reference.repository(),
            credentials: self.credentials,
            push: true,
        }
    }
}

//! OCM component versions, as packaged by modulectl and read by KLM.

mod descriptor;

use std::sync::Arc;

use bytes::Bytes;
use oci_spec::image::ImageManifest;
use serde::Deserialize;

use crate::error::ArtifactError;
use crate::fetch::Fetch;
use crate::selector::reference::{RegistryBase, Repository};
use crate::selector::selection::{ArtifactKind, SelectedManifest};
use crate::source::credentials::Credentials;
use crate::storage::digest::{Digest, printable};
use crate::trust::Gate;
use crate::{content::archive, content::manifests, selector::selection};

pub(crate) use descriptor::Descriptor;
pub use descriptor::Image;
use descriptor::Resource;

/// Media type of the descriptor layer.
pub(crate) const DESCRIPTOR: &str = "application/vnd.ocm.software.component-descriptor.v2+yaml+tar";
/// Name of the descriptor in its layer.
pub(crate) const DESCRIPTOR_FILE: &str = "component-descriptor.yaml";
/// Name of the resource with the objects to install.
pub(crate) const RAW_MANIFEST: &str = "raw-manifest";
/// Name of the resource with the default CR.
pub(crate) const DEFAULT_CR: &str = "default-cr";

/// Overhead of a descriptor's tar: header, padding, end.
const TAR_OVERHEAD: u64 = 16 << 10;
const MAX_CONFIG_BYTES: u64 = 64 << 10;

/// The content of one module version, read from its OCM component version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleContent {
    /// Name of the component, e.g. `kyma-project.io/module/keda`.
    pub component: String,
    /// Version of the component.
    pub version: String,
    /// Digest of the OCI manifest to which the version's tag referred at the read.
    pub digest: Digest,
    /// Resource `raw-manifest`: YAML documents. Several files of a directory are joined in the order of their paths.
    pub manifest: Bytes,
    /// Digest of the layer with the manifest.
    pub manifest_digest: Digest,
    /// Resource `default-cr`. As in KLM, the default CR comes from the ModuleTemplate instead.
    pub default_cr: Option<Bytes>,
    /// Images of the component, by references that a transfer may have rewritten.
    pub images: Vec<Image>,
}

/// The config blob: refers to the layer with the descriptor.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    pub(crate) component_descriptor_layer: Pointer,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pointer {
    media_type: String,
    pub(crate) digest: Digest,
}

/// Returns the OCI tag of a component version: `+` is not allowed in tags, so OCM writes `.build-`.
pub(crate) fn tag_of(version: &str) -> String {
    version.replace('+', ".build-")
}

/// Reads a component version.
pub(crate) async fn read(
    gate: Gate<'_>,
    base: &RegistryBase,
    component: &str,
    version: &str,
) -> Result<ModuleContent, ArtifactError> {
    let Gate { fetch, credentials, .. } = gate;
    let repository = base.component(component)?;
    let reference = repository.tag(&tag_of(version))?;
    let what = reference.to_string();
    let selected = selection::select(gate, &reference, ArtifactKind::Component).await?;
    let verified = gate.verify_manifest(&reference, selected.manifest_digest).await;
    selection::verify(gate, &reference, &selected, verified).await?;
    let SelectedManifest { digest, manifest, .. } = selected;
    let reader = Reader { fetch, repository: &repository, credentials, what: &what };
    let content = reader.content(&manifest, digest, component, version).await;
    if matches!(content, Err(ArtifactError::Invalid { .. })) {
        fetch.reject_manifest(&reference, credentials);
    }
    content
}

/// Reads the blobs of one component version.
struct Reader<'a> {
    fetch: &'a Arc<Fetch>,
    repository: &'a Repository,
    credentials: &'a Credentials,
    what: &'a str,
}

impl Reader<'_> {
    async fn content(
        &self,
        manifest: &[u8],
        digest: Digest,
        component: &str,
        version: &str,
    ) -> Result<ModuleContent, ArtifactError> {
        let descriptor = self.descriptor(manifest, component, version).await?;
        let raw = descriptor
            .resource(RAW_MANIFEST)
            .ok_or_else(|| ArtifactError::invalid(self.what, "the component has no resource raw-manifest"))?;
        let (manifest_digest, manifest) = self.yaml(raw).await?;
        let default_cr = match descriptor.resource(DEFAULT_CR) {
            Some(resource) => Some(self.yaml(resource).await?.1),
            None => None,
        };
        Ok(ModuleContent {
            component: component.to_owned(),
            version: version.to_owned(),
            digest,
            manifest,
            manifest_digest,
            default_cr,
            images: descriptor.images(),
        })
    }

    async fn descriptor(
        &self,
        manifest: &[u8],
        name: &str,
        version: &str,
    ) -> Result<Descriptor, ArtifactError> {
        let not_ocm = |_| ArtifactError::invalid(self.what, "not an OCM component version");
        let manifest: ImageManifest = serde_json::from_slice(manifest).map_err(not_ocm)?;
        let config = manifests::digest_of(self.what, manifest.config())?;
        let config = self.blob(config, MAX_CONFIG_BYTES).await?;
        let Pointer { media_type, digest } =
            serde_json::from_slice::<Config>(&config).map_err(not_ocm)?.component_descriptor_layer;
        let limit = self.fetch.limits().descriptor;
        let yaml = if media_type.ends_with("+tar") {
            let layer = self.blob(digest, limit + TAR_OVERHEAD).await?;
            self.file_of(layer).await?
        } else {
            self.blob(digest, limit).await?
        };
        if yaml.len() as u64 > limit {
            return Err(ArtifactError::TooLarge { what: format!("{}: {DESCRIPTOR_FILE}", self.what), limit });
        }
        Descriptor::parse(self.what, &yaml, name, version)
    }

    /// Returns the descriptor in an archive.
    async fn file_of(&self, layer: Bytes) -> Result<Bytes, ArtifactError> {
        let (what, limits) = (self.what.to_owned(), *self.fetch.limits());
        let read = move |layer: &Bytes| {
            let found = archive::files(&what, layer, &limits)?.remove(DESCRIPTOR_FILE);
            found.ok_or_else(|| {
                ArtifactError::invalid(what, format!("no {DESCRIPTOR_FILE} in the descriptor layer"))
            })
        };
        let unpacked = archive::run_unpacking(layer, read).await;
        unpacked.unwrap_or_else(|_| Err(ArtifactError::invalid(self.what, "it cannot be unpacked")))
    }

    async fn yaml(&self, resource: &Resource) -> Result<(Digest, Bytes), ArtifactError> {
        let digest = resource.blob(self.what)?;
        let blob = self.blob(digest, self.fetch.limits().blob).await?;
        let what = format!("{}: {}", self.what, printable(&resource.name));
        Ok((digest, manifests::yaml(&what, blob, self.fetch.limits()).await?))
    }

    async fn blob(&self, digest: Digest, limit: u64) -> Result<Bytes, ArtifactError> {
        self.fetch.blob(self.repository, digest, limit, self.credentials).await
    }
}

//! The blobs of a component version, in the layout of modulectl and the OCM tools.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::blob::Blob;
use crate::content::archive::reproducible_header;
use crate::content::ocm;
use crate::content::ocm::Image;
use crate::error::ArtifactError;
use crate::media_types::COMPONENT_CONFIG;
use crate::selector::reference::RegistryBase;
use crate::storage::digest::Digest;

/// A module version to push.
#[derive(Clone, Debug, Default)]
pub struct ComponentVersion {
    /// Name of the component, e.g. `kyma-project.io/module/keda`.
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// Resource `raw-manifest`: YAML documents.
    pub manifest: Bytes,
    /// Resource `default-cr`.
    pub default_cr: Option<Bytes>,
    /// Resource `moduletemplate`: the ModuleTemplate of this version.
    pub module_template: Option<Bytes>,
    /// Images in the manifest.
    pub images: Vec<Image>,
    /// Labels of the component by name, e.g. `operator.kyma-project.io/beta` = `"false"`.
    pub labels: BTreeMap<String, Value>,
    /// Address of the source repository, and the commit of this version.
    pub source: Option<(String, String)>,
}

const TAR: &str = "application/x-tar";
/// Header, padding and the two blocks at the end.
const TAR_OVERHEAD: usize = 2048;

impl ComponentVersion {
    /// Returns the annotations of the OCI manifest.
    pub(super) fn annotations(&self) -> BTreeMap<&'static str, String> {
        [
            ("software.ocm.componentversion", format!("{}:{}", self.name, self.version)),
            ("software.ocm.creator", concat!("kymactl ", env!("CARGO_PKG_VERSION")).to_owned()),
        ]
        .into()
    }

    /// Returns the config blob and the layers: the descriptor first, then the local resources.
    pub(super) fn blobs(
        &self,
        base: &RegistryBase,
        registry_url: &str,
    ) -> Result<(Blob, Vec<Blob>), ArtifactError> {
        let mut resources: Vec<Value> = self.images.iter().map(image).collect();
        let mut layers = Vec::new();
        let mut local = |name: &'static str, media_type: &'static str, kind: &str, content: Bytes| {
            resources.push(self.resource(name, media_type, kind, Digest::of(&content)));
            let mut blob = Blob::new(name, media_type, content);
            let artifact = json!([{"kind": "resource", "identity": {"name": name}}]);
            blob.annotations.insert("software.ocm.artifact", artifact.to_string());
            layers.push(blob);
        };
        local(ocm::RAW_MANIFEST, TAR, "directoryTree", self.tar("manifest.yaml", &self.manifest)?);
        if let Some(default_cr) = &self.default_cr {
            local(ocm::DEFAULT_CR, TAR, "directoryTree", self.tar("default-cr.yaml", default_cr)?);
        }
        if let Some(module_template) = &self.module_template {
            local("moduletemplate", "application/octet-stream", "PlainText", module_template.clone());
        }
        let descriptor = self.descriptor(base, registry_url, &resources)?;
        let descriptor =
            Blob::new("descriptor", ocm::DESCRIPTOR, self.tar(ocm::DESCRIPTOR_FILE, &descriptor)?);
        let pointer = descriptor.layer();
        let config = json!({ "componentDescriptorLayer": {
            "mediaType": pointer.media_type, "digest": pointer.digest, "size": pointer.size,
        }});
        layers.insert(0, descriptor);
        Ok((Blob::new("config", COMPONENT_CONFIG, config.to_string()), layers))
    }

    fn descriptor(
        &self,
        base: &RegistryBase,
        url: &str,
        resources: &[Value],
    ) -> Result<Bytes, ArtifactError> {
        let labels: Vec<Value> = self
            .labels
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value, "version": "v1"}))
            .collect();
        let mut context = json!({"baseUrl": url, "componentNameMapping": "urlPath", "type": "OCIRegistry"});
        if !base.path().is_empty() {
            context["subPath"] = json!(base.path());
        }
        let provider = json!({
            "name": self.name.split('/').next().unwrap_or(&self.name),
            "labels": [{"name": "kyma-project.io/built-by", "value": "kymactl", "version": "v1"}],
        });
        let sources: Vec<Value> = self.source.iter().map(|source| self.source_of(source)).collect();
        let descriptor = json!({
            "component": {
                "componentReferences": [],
                "labels": labels,
                "name": self.name,
                "provider": provider.to_string(),
                "repositoryContexts": [context],
                "resources": resources,
                "sources": sources,
                "version": self.version,
            },
            "meta": {"schemaVersion": "v2"},
        });
        serde_saphyr::to_string(&descriptor)
            .map(Bytes::from)
            .map_err(|_| ArtifactError::invalid(&self.name, "its descriptor cannot be written"))
    }

    fn resource(&self, name: &str, media_type: &str, kind: &str, digest: Digest) -> Value {
        json!({
            "access": {"localReference": digest, "mediaType": media_type, "type": "localBlob"},
            "digest": {
                "hashAlgorithm": "SHA-256",
                "normalisationAlgorithm": "genericBlobDigest/v1",
                "value": digest.hex(),
            },
            "name": name,
            "relation": "local",
            "type": kind,
            "version": self.version,
        })
    }

    fn source_of(&self, (repository, commit): &(String, String)) -> Value {
        json!({
            "access": {"commit": commit, "repoUrl": repository, "type": "gitHub"},
            "name": "module-sources",
            "type": "Github",
            "version": self.version,
        })
    }

    /// Returns a tar archive of one file. Equal content gives equal bytes.
    fn tar(&self, name: &str, content: &Bytes) -> Result<Bytes, ArtifactError> {
        let failed = |_| ArtifactError::invalid(&self.name, format!("{name} cannot be packed"));
        let mut header = reproducible_header(content.len());
        let mut archive = tar::Builder::new(Vec::with_capacity(content.len() + TAR_OVERHEAD));
        archive.append_data(&mut header, name, content.as_ref()).map_err(failed)?;
        archive.into_inner().map(Bytes::from).map_err(failed)
    }
}

fn image(image: &Image) -> Value {
    json!({
        "access": {"imageReference": image.reference, "type": "ociArtifact"},
        "labels": [{"name": "scan.security.kyma-project.io/type", "value": "third-party-image", "version": "v1"}],
        "name": image.name,
        "relation": "external",
        "type": "ociArtifact",
        "version": image.version,
    })
}

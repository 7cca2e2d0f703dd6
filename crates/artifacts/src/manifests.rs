//! Plain manifests: YAML in a layer, an archive or at an address.

use bytes::Bytes;
use oci_spec::image::ImageManifest;
use url::Url;

use crate::{ArtifactError, Digest, Limits, OciReference, archive, trust::Gate};

/// Layers of one artifact that are read.
const LAYERS: usize = 64;

/// Where manifests lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestsSource {
    /// In an OCI registry: layers of YAML, or of tar archives with YAML files.
    Oci(OciReference),
    /// At an address: YAML, or a tar archive, gzipped or not.
    Http {
        /// The address.
        url: Url,
        /// Digest of what lies there, if it is pinned.
        digest: Option<Digest>,
    },
}

/// Manifests as they were pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifests {
    /// Digest of the OCI manifest, or of the document at the address.
    pub digest: Digest,
    /// YAML documents; several files are joined in the order of their paths.
    pub yaml: Bytes,
}

/// YAML from content that is YAML itself or an archive of it, gzipped or not; within the room for archives.
pub(crate) async fn yaml(what: &str, content: Bytes, limits: &Limits) -> Result<Bytes, ArtifactError> {
    if !archive::is_gzip(&content) && !archive::is_tar(&content) {
        return yaml_of(what, &content, limits);
    }
    let (name, limits) = (what.to_owned(), *limits);
    let unpacked = archive::unpacking(content, move |content| yaml_of(&name, content, &limits)).await;
    unpacked.unwrap_or_else(|_| Err(ArtifactError::invalid(what, "it cannot be unpacked")))
}

/// The same, at once.
pub(crate) fn yaml_of(what: &str, content: &Bytes, limits: &Limits) -> Result<Bytes, ArtifactError> {
    let content = if archive::is_gzip(content) {
        archive::gunzip(what, content, limits.unpacked)?
    } else {
        content.clone()
    };
    if !archive::is_tar(&content) {
        return if std::str::from_utf8(&content).is_ok() {
            Ok(content)
        } else {
            Err(ArtifactError::invalid(what, "neither YAML nor an archive of it"))
        };
    }
    let files = archive::files(what, &content, limits)?;
    join(what, files.iter().filter(|(path, _)| is_yaml(path)).map(|(_, content)| content))
}

/// Joins YAML streams into one; a single one stays as it is.
pub(crate) fn join<'a>(what: &str, parts: impl Iterator<Item = &'a Bytes>) -> Result<Bytes, ArtifactError> {
    let parts: Vec<&Bytes> = parts.collect();
    match parts[..] {
        [] => Err(ArtifactError::invalid(what, "there is no YAML in it")),
        [one] => Ok(one.clone()),
        _ => {
            let mut joined = Vec::new();
            for part in parts {
                joined.extend_from_slice(b"---\n");
                joined.extend_from_slice(part);
                if !part.ends_with(b"\n") {
                    joined.push(b'\n');
                }
            }
            Ok(joined.into())
        }
    }
}

fn is_yaml(path: &str) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json"))
}

/// Reads manifests.
pub(crate) async fn read(gate: Gate<'_>, source: &ManifestsSource) -> Result<Manifests, ArtifactError> {
    match source {
        ManifestsSource::Oci(reference) => read_oci(gate, reference).await,
        ManifestsSource::Http { url, digest } => {
            let Gate { fetch, credentials, .. } = gate;
            gate.unsignable("manifests at an address carry no signatures; put them into a registry")?;
            let (digest, content) = fetch.document(url, *digest, fetch.limits().blob, credentials).await?;
            let yaml = yaml(&crate::fetch::shown(url), content, fetch.limits()).await?;
            Ok(Manifests { digest, yaml })
        }
    }
}

async fn read_oci(gate: Gate<'_>, reference: &OciReference) -> Result<Manifests, ArtifactError> {
    let Gate { fetch, credentials, .. } = gate;
    let what = reference.to_string();
    let (digest, manifest) = fetch.manifest(reference, credentials).await?;
    gate.manifest(reference, digest).await?;
    let layers = layers(&what, &manifest)?;
    if layers.len() > LAYERS {
        return Err(ArtifactError::invalid(what, format!("more than {LAYERS} layers")));
    }
    let mut parts = Vec::new();
    let mut total = 0;
    for (_, layer) in layers {
        let blob = fetch.blob(reference.repository(), layer, fetch.limits().blob, credentials).await?;
        let part = yaml(&what, blob, fetch.limits()).await?;
        total += part.len() as u64;
        if total > fetch.limits().unpacked {
            return Err(ArtifactError::TooLarge { what, limit: fetch.limits().unpacked });
        }
        parts.push(part);
    }
    Ok(Manifests { digest, yaml: join(&what, parts.iter())? })
}

/// Media types and digests of an OCI manifest's layers.
pub(crate) fn layers(what: &str, manifest: &[u8]) -> Result<Vec<(String, Digest)>, ArtifactError> {
    let manifest: ImageManifest = serde_json::from_slice(manifest)
        .map_err(|_| ArtifactError::invalid(what, "not an OCI image manifest"))?;
    let layer = |layer: &oci_spec::image::Descriptor| {
        Ok((layer.media_type().to_string(), layer.digest().to_string().parse()?))
    };
    manifest.layers().iter().map(layer).collect()
}

//! Plain manifests: YAML in a layer, an archive or at an address.

use bytes::Bytes;
use oci_spec::image::{Descriptor, ImageManifest};
use url::Url;

use crate::config::Limits;
use crate::error::ArtifactError;
use crate::fetch::{ContentFormat, check_unpacked, shown};
use crate::selector::reference::OciReference;
use crate::selector::selection::ArtifactKind;
use crate::storage::digest::{Digest, printable};
use crate::trust::Gate;
use crate::{content::archive, selector::selection};

/// Maximum number of layers of one artifact.
const MAX_LAYERS: usize = 64;

/// Source of manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestsSource {
    /// In an OCI registry: layers of YAML, or of tar archives with YAML files.
    Oci(OciReference),
    /// At an address: YAML, or a tar archive, gzipped or not.
    Http {
        /// The address.
        url: Url,
        /// Digest of the content, if it is pinned.
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

/// Returns YAML from content that is YAML or an archive of it, gzipped or not; within the memory limit for archives.
pub(crate) async fn yaml(what: &str, content: Bytes, limits: &Limits) -> Result<Bytes, ArtifactError> {
    if !archive::is_gzip(&content) && !archive::is_tar(&content) {
        return yaml_of(what, &content, limits);
    }
    let (name, limits) = (what.to_owned(), *limits);
    let unpacked = archive::run_unpacking(content, move |content| yaml_of(&name, content, &limits)).await;
    unpacked.unwrap_or_else(|_| Err(ArtifactError::invalid(what, "it cannot be unpacked")))
}

/// Returns the same without a wait for memory.
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
            let problem = archive::other_format(&content);
            Err(ArtifactError::invalid(
                what,
                problem.unwrap_or_else(|| "neither YAML nor an archive of YAML".to_owned()),
            ))
        };
    }
    let files = archive::files(what, &content, limits)?;
    let is_manifest = |path: &str, content: &[u8]| is_yaml(path) && !is_apple_double(path, content);
    join(what, files.iter().filter(|(path, content)| is_manifest(path, content)).map(|(_, content)| content))
}

/// Joins YAML streams into one; a single stream stays unchanged.
pub(crate) fn join<'a>(what: &str, parts: impl Iterator<Item = &'a Bytes>) -> Result<Bytes, ArtifactError> {
    let parts: Vec<&Bytes> = parts.collect();
    match parts[..] {
        [] => Err(ArtifactError::invalid(what, "it contains no YAML")),
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

/// Reports whether a file contains only attributes of the file beside it: tar on macOS adds such files. YAML may have
/// such a name too.
/// Source: RFC 1740, appendix A.
fn is_apple_double(path: &str, content: &[u8]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("._") && content.starts_with(b"\0\x05\x16\x07")
}

/// Reads manifests.
pub(crate) async fn read(gate: Gate<'_>, source: &ManifestsSource) -> Result<Manifests, ArtifactError> {
    match source {
        ManifestsSource::Oci(reference) => read_oci(gate, reference).await,
        ManifestsSource::Http { url, digest } => {
            let Gate { fetch, credentials, .. } = gate;
            gate.unsignable("manifests at an address have no signatures; push them to a registry")?;
            let wanted = (fetch.limits().blob, ContentFormat::YamlOrArchive);
            let (digest, content) = fetch.document(url, *digest, wanted, credentials).await?;
            let what = shown(url);
            let yaml = yaml(&what, content, fetch.limits()).await;
            let yaml = yaml.and_then(|yaml| check_unpacked(&what, &yaml).map(|()| yaml));
            if matches!(yaml, Err(ArtifactError::Invalid { .. })) {
                fetch.reject_document(url, digest, credentials);
            }
            Ok(Manifests { digest, yaml: yaml? })
        }
    }
}

async fn read_oci(gate: Gate<'_>, reference: &OciReference) -> Result<Manifests, ArtifactError> {
    let Gate { fetch, credentials, .. } = gate;
    let what = reference.to_string();
    let selected = selection::select(gate, reference, ArtifactKind::Manifests).await?;
    let verified = gate.verify_manifest(reference, selected.manifest_digest).await;
    selection::verify(gate, reference, &selected, verified).await?;
    let yaml = yaml_of_layers(gate, reference, &what, &selected.manifest).await;
    if matches!(yaml, Err(ArtifactError::Invalid { .. })) {
        fetch.reject_manifest(reference, credentials);
    }
    Ok(Manifests { digest: selected.digest, yaml: yaml? })
}

async fn yaml_of_layers(
    gate: Gate<'_>,
    reference: &OciReference,
    what: &str,
    manifest: &[u8],
) -> Result<Bytes, ArtifactError> {
    let Gate { fetch, credentials, .. } = gate;
    let layers = manifest_of(what, manifest)?.layers().clone();
    if layers.len() > MAX_LAYERS {
        return Err(ArtifactError::invalid(what, format!("more than {MAX_LAYERS} layers")));
    }
    let (mut parts, mut skipped) = (Vec::new(), Vec::new());
    let mut total = 0;
    for layer in &layers {
        let use_of = LayerUse::of(layer);
        let digest = digest_of(what, layer)?;
        if use_of == LayerUse::Skipped {
            skipped.push(title(layer).unwrap_or_else(|| layer.media_type().to_string()));
            continue;
        }
        let blob = fetch.blob(reference.repository(), digest, fetch.limits().blob, credentials).await?;
        if use_of == LayerUse::OnlyArchive && !archive::is_gzip(&blob) && !archive::is_tar(&blob) {
            skipped.extend(title(layer));
            continue;
        }
        let part = yaml(what, blob, fetch.limits()).await?;
        total += part.len() as u64;
        if total > fetch.limits().unpacked {
            return Err(ArtifactError::TooLarge { what: what.to_owned(), limit: fetch.limits().unpacked });
        }
        parts.push(part);
    }
    if parts.is_empty() && !skipped.is_empty() {
        let skipped: Vec<String> = skipped.iter().map(|name| printable(name)).collect();
        let problem = format!("no layer is YAML or an archive of YAML; ignored: {}", skipped.join(", "));
        return Err(ArtifactError::invalid(what, problem));
    }
    join(what, parts.iter())
}

/// Annotation with the file name of a layer, by the convention of ORAS.
const TITLE_ANNOTATION: &str = "org.opencontainers.image.title";

/// Beginnings of media types of layers that are not manifests: documents, pictures, lists of components, signatures.
const SKIPPED_MEDIA_TYPES: [&str; 12] = [
    "text/markdown",
    "text/html",
    "text/spdx",
    "application/pdf",
    "application/spdx",
    "application/vnd.cyclonedx",
    "application/vnd.in-toto",
    "application/vnd.dev.cosign",
    "application/vnd.dev.sigstore",
    "image/",
    "audio/",
    "video/",
];

/// The use of a layer in an artifact with manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayerUse {
    /// The layer is YAML, or an archive of it.
    Read,
    /// The layer is read if it is an archive.
    OnlyArchive,
    /// The layer is another file, such as a README.
    Skipped,
}

impl LayerUse {
    /// Skips files without an extension of YAML, as in archives.
    fn of(layer: &Descriptor) -> Self {
        let media_type = layer.media_type().to_string();
        if SKIPPED_MEDIA_TYPES.iter().any(|other| media_type.starts_with(other)) {
            return Self::Skipped;
        }
        let Some(title) = title(layer) else { return Self::Read };
        let name = title.rsplit('/').next().unwrap_or(&title).to_ascii_lowercase();
        let is_archive = [".tar", ".tgz", ".gz"].iter().any(|end| name.ends_with(end));
        match name.rsplit_once('.') {
            _ if is_yaml(&name) || is_archive => Self::Read,
            // A directory is an archive under its own name, which may have a dot.
            _ if media_type.contains("tar") || media_type.contains("gzip") => Self::OnlyArchive,
            Some((before, _)) if !before.is_empty() => Self::Skipped,
            _ => Self::OnlyArchive,
        }
    }
}

fn title(layer: &Descriptor) -> Option<String> {
    layer.annotations().as_ref()?.get(TITLE_ANNOTATION).filter(|title| !title.is_empty()).cloned()
}

fn manifest_of(what: &str, manifest: &[u8]) -> Result<ImageManifest, ArtifactError> {
    serde_json::from_slice(manifest).map_err(|_| ArtifactError::invalid(what, "not an OCI image manifest"))
}

/// Returns the digest of a layer or configuration.
pub(crate) fn digest_of(what: &str, descriptor: &Descriptor) -> Result<Digest, ArtifactError> {
    let digest = descriptor.digest().to_string();
    digest.parse().map_err(|_| ArtifactError::invalid(what, "a layer has a digest that is not sha256"))
}

/// Returns media types and digests of an OCI manifest's layers.
pub(crate) fn layers(what: &str, manifest: &[u8]) -> Result<Vec<(String, Digest)>, ArtifactError> {
    let manifest = manifest_of(what, manifest)?;
    let layer = |layer: &Descriptor| Ok((layer.media_type().to_string(), digest_of(what, layer)?));
    manifest.layers().iter().map(layer).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_with_attributes_of_macos_are_left_out() {
        let files = [
            ("a/._b.yaml", &b"\0\x05\x16\x07"[..]),
            ("a/b.yaml", &b"kind: A\n"[..]),
            ("._c.yaml", &b"kind: C\n"[..]),
        ];
        let files = files.map(|(path, content)| (path.to_owned(), Bytes::from_static(content)));
        let packed = archive::pack(&files.into(), flate2::Compression::fast()).unwrap();
        let yaml = yaml_of("test", &packed, &Limits::default()).unwrap();
        assert_eq!(yaml, "---\nkind: C\n---\nkind: A\n", "a file is recognized by its content");
    }

    #[test]
    fn layers_that_are_something_else_are_left_out() {
        let rows = [
            ("application/vnd.oci.image.layer.v1.tar", Some("manifests.yaml"), LayerUse::Read),
            ("text/yaml", Some("dir/all.YML"), LayerUse::Read),
            ("application/octet-stream", Some("all.json"), LayerUse::Read),
            ("application/octet-stream", Some("all.tar.gz"), LayerUse::Read),
            ("application/x", None, LayerUse::Read),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Some("manifests-1.2"), LayerUse::OnlyArchive),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Some("manifests"), LayerUse::OnlyArchive),
            ("application/octet-stream", Some("LICENSE"), LayerUse::OnlyArchive),
            ("application/octet-stream", Some("README.md"), LayerUse::Skipped),
            ("application/octet-stream", Some("notes.txt"), LayerUse::Skipped),
            ("text/markdown", None, LayerUse::Skipped),
            ("application/spdx+json", Some("sbom.spdx.json"), LayerUse::Skipped),
            ("application/vnd.cyclonedx+json", None, LayerUse::Skipped),
            ("application/vnd.in-toto+json", Some("provenance.json"), LayerUse::Skipped),
            ("image/png", None, LayerUse::Skipped),
        ];
        for (media_type, title, expected) in rows {
            let mut layer = json!({
                "mediaType": media_type, "size": 1, "digest": Digest::of(b"a").to_string(), "annotations": {}
            });
            if let Some(title) = title {
                layer["annotations"][TITLE_ANNOTATION] = title.into();
            }
            let layer: Descriptor = serde_json::from_value(layer).unwrap();
            assert_eq!(LayerUse::of(&layer), expected, "{media_type} {title:?}");
        }
    }
}

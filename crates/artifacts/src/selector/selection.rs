//! Selects the manifest of an artifact. A tag may name an OCI index, for example of an image and its chart.

use std::collections::BTreeSet;

use bytes::Bytes;
use oci_spec::image::{Descriptor, ImageManifest};
use serde::Deserialize;

use crate::error::ArtifactError;
use crate::media_types::{CHART_CONFIG, COMPONENT_CONFIG};
use crate::selector::reference::OciReference;
use crate::storage::digest::{Digest, printable};
use crate::trust::Gate;

/// Maximum number of manifests that are read from one index.
const MAX_CANDIDATES: usize = 16;

/// Media types of the configurations of images.
const IMAGE_CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// A kind of artifact, identified by the media type of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArtifactKind {
    /// A Helm chart.
    Chart,
    /// An OCM component version.
    Component,
    /// Kubernetes manifests: the media type is not that of an image, a Helm chart or an OCM component version.
    Manifests,
}

impl ArtifactKind {
    fn matches(self, media_type: &str) -> bool {
        match self {
            Self::Chart => media_type == CHART_CONFIG,
            Self::Component => media_type == COMPONENT_CONFIG,
            Self::Manifests => {
                !IMAGE_CONFIGS.contains(&media_type)
                    && media_type != CHART_CONFIG
                    && media_type != COMPONENT_CONFIG
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Chart => "Helm chart",
            Self::Component => "OCM component version",
            Self::Manifests => "artifact with manifests",
        }
    }
}

/// The manifest that a reference selects.
pub(crate) struct SelectedManifest {
    /// Digest to which the reference resolves: that of the manifest, or of the index that contains the manifest.
    pub(crate) digest: Digest,
    /// Digest of the manifest.
    pub(crate) manifest_digest: Digest,
    /// The manifest.
    pub(crate) manifest: Bytes,
}

#[derive(Deserialize)]
struct Index {
    manifests: Option<Vec<Descriptor>>,
}

/// Reads the manifest of a reference. In an index, exactly one manifest must be of the kind.
pub(crate) async fn select(
    gate: Gate<'_>,
    reference: &OciReference,
    kind: ArtifactKind,
) -> Result<SelectedManifest, ArtifactError> {
    let Gate { fetch, credentials, .. } = gate;
    let (digest, content) = fetch.manifest(reference, credentials).await?;
    let Some(descriptors) = index_of(&content) else {
        return Ok(SelectedManifest { digest, manifest_digest: digest, manifest: content });
    };
    let artifact = reference.to_string();
    let candidates = candidates(&artifact, &descriptors, kind)?;
    if candidates.len() > MAX_CANDIDATES {
        return Err(ArtifactError::invalid(
            artifact,
            format!("an index of more than {MAX_CANDIDATES} artifacts"),
        ));
    }
    let mut found = Vec::new();
    for candidate in &candidates {
        let pinned = reference.repository().digest(*candidate);
        let (manifest_digest, manifest) = fetch.manifest(&pinned, credentials).await?;
        if is_of_kind(&manifest, kind) {
            found.push(SelectedManifest { digest, manifest_digest, manifest });
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(selected), true) => Ok(selected),
        (None, _) => Err(ArtifactError::invalid(artifact, no_match_message(&descriptors, kind))),
        (Some(last), false) => {
            found.push(last);
            let digests = found.iter().map(|selected| selected.manifest_digest);
            Err(ArtifactError::invalid(artifact, ambiguous_message(digests, kind)))
        }
    }
}

/// Returns the verification result of the manifest. If the manifest is unsigned or untrusted and belongs to an index,
/// verifies the signature of the index instead.
pub(crate) async fn verify(
    gate: Gate<'_>,
    reference: &OciReference,
    selected: &SelectedManifest,
    manifest_result: Result<(), ArtifactError>,
) -> Result<(), ArtifactError> {
    match manifest_result {
        Err(error @ (ArtifactError::Unsigned { .. } | ArtifactError::Untrusted { .. }))
            if selected.digest != selected.manifest_digest =>
        {
            gate.verify_manifest(reference, selected.digest).await.map_err(|_| error)
        }
        result => result,
    }
}

/// Returns the descriptors of an index; `None` for a manifest.
fn index_of(content: &[u8]) -> Option<Vec<Descriptor>> {
    serde_json::from_slice::<Index>(content).ok()?.manifests
}

/// Returns the digests of manifests that may be of a kind: the manifests whose descriptor has an artifact type of the
/// kind, or, if there are none, the manifests whose descriptor has no artifact type. If more than [`MAX_CANDIDATES`]
/// manifests have no artifact type, manifests with a platform are omitted.
fn candidates(
    artifact: &str,
    descriptors: &[Descriptor],
    kind: ArtifactKind,
) -> Result<Vec<Digest>, ArtifactError> {
    let type_of = |descriptor: &Descriptor| descriptor.artifact_type().as_ref().map(ToString::to_string);
    let digests = |is_wanted: &dyn Fn(&Descriptor) -> bool| {
        let wanted = descriptors.iter().filter(|descriptor| is_wanted(descriptor));
        let digest = |descriptor: &Descriptor| descriptor.digest().to_string().parse();
        let digests: Result<Vec<Digest>, _> = wanted.map(digest).collect();
        digests
            .map(remove_repeated)
            .map_err(|_| ArtifactError::invalid(artifact, "an index with a digest that is not sha256"))
    };
    let named = digests(&|descriptor| type_of(descriptor).is_some_and(|found| kind.matches(&found)))?;
    if !named.is_empty() {
        return Ok(named);
    }
    let unnamed = digests(&|descriptor| type_of(descriptor).is_none())?;
    if unnamed.len() <= MAX_CANDIDATES {
        return Ok(unnamed);
    }
    // Only images have a platform.
    digests(&|descriptor| type_of(descriptor).is_none() && descriptor.platform().is_none())
}

/// Removes repeated digests: a manifest may be listed for several platforms.
fn remove_repeated(mut digests: Vec<Digest>) -> Vec<Digest> {
    let mut found = BTreeSet::new();
    digests.retain(|digest| found.insert(*digest));
    digests
}

fn is_of_kind(manifest: &[u8], kind: ArtifactKind) -> bool {
    let Ok(manifest) = serde_json::from_slice::<ImageManifest>(manifest) else { return false };
    let declared = manifest.artifact_type().as_ref().map(ToString::to_string);
    kind.matches(manifest.config().media_type().as_ref())
        || declared.is_some_and(|found| kind.matches(&found))
}

fn no_match_message(descriptors: &[Descriptor], kind: ArtifactKind) -> String {
    let mut types: Vec<String> = descriptors
        .iter()
        .filter_map(|descriptor| descriptor.artifact_type().as_ref())
        .map(|found| printable(found.as_ref()))
        .collect();
    types.sort_unstable();
    types.dedup();
    let count = descriptors.len();
    let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
    format!("an OCI index of {count} manifests without a {}{types}", kind.name())
}

fn ambiguous_message(digests: impl Iterator<Item = Digest>, kind: ArtifactKind) -> String {
    let digests: Vec<String> = digests.map(|digest| digest.to_string()).collect();
    format!("an OCI index with more than one {}: name one of the digests {}", kind.name(), digests.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn descriptor(digest: Digest, artifact_type: Option<&str>) -> Value {
        let mut descriptor = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1, "digest": digest.to_string()
        });
        if let Some(artifact_type) = artifact_type {
            descriptor["artifactType"] = artifact_type.into();
        }
        descriptor
    }

    #[test]
    fn candidates_have_the_artifact_type_or_else_none() {
        let (image, chart) = (Digest::of(b"image"), Digest::of(b"chart"));
        let found = |manifests: Value| {
            let index = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
            candidates("a", &index_of(index.as_bytes()).unwrap(), ArtifactKind::Chart).unwrap()
        };
        let typed = Some(CHART_CONFIG);
        assert_eq!(found(json!([descriptor(image, None), descriptor(chart, typed)])), [chart]);
        assert_eq!(found(json!([descriptor(image, None), descriptor(chart, None)])), [image, chart]);
        assert_eq!(
            found(json!([descriptor(image, Some(IMAGE_CONFIGS[0])), descriptor(chart, None)])),
            [chart]
        );
        assert!(found(json!([descriptor(image, Some("application/x"))])).is_empty());
        assert_eq!(found(json!([descriptor(chart, None), descriptor(chart, None)])), [chart]);
        assert_eq!(found(json!([descriptor(chart, typed), descriptor(chart, typed)])), [chart]);
        let image_of = |number: usize| {
            let mut image = descriptor(Digest::of(number.to_string().as_bytes()), None);
            image["platform"] = json!({"os": "linux", "architecture": format!("a{number}")});
            image
        };
        let mut all: Vec<Value> = (0..MAX_CANDIDATES).map(image_of).collect();
        all.push(descriptor(chart, None));
        assert_eq!(found(all.into()), [chart]);
    }

    #[test]
    fn a_manifest_is_no_index() {
        assert!(index_of(br#"{"schemaVersion": 2, "layers": []}"#).is_none());
    }
}

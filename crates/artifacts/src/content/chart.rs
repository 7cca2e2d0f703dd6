//! Helm charts from OCI registries and HTTP repositories.

mod chart_archive;
pub(crate) mod index;
mod metadata_cache;
mod package;
mod versions;

use std::sync::Arc;

use bytes::Bytes;
use url::Url;

use crate::config::Limits;
use crate::error::ArtifactError;
use crate::fetch::ContentFormat;
use crate::selector::reference::OciReference;
use crate::selector::selection::ArtifactKind;
use crate::storage::digest::{Digest, printable};
use crate::trust::{Gate, PROVENANCE};
use crate::{content::archive, content::manifests, selector::selection};

use chart_archive::archive_of;
pub use chart_archive::{ChartArchive, ChartMetadata, read_chart_yaml};
use index::ArchiveLocation;
pub(crate) use index::Indexes;
pub(crate) use metadata_cache::MetadataCache;
pub(crate) use versions::resolve;
pub use versions::{ChartVersion, ChartVersions};

/// Source of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChartSource {
    /// In an OCI registry, by tag (the chart's version with `+` as `_`) or digest.
    Oci(OciReference),
    /// In a chart repository with an `index.yaml`.
    Repository {
        /// Address of the repository, without `index.yaml`.
        url: Url,
        /// Name of the chart.
        name: String,
        /// Exact version.
        version: String,
        /// Digest of the archive; without it, that of the index is used.
        digest: Option<Digest>,
    },
    /// A chart archive at its own address.
    Archive {
        /// Address of the `.tgz`.
        url: Url,
        /// Digest of the archive, if it is pinned.
        digest: Option<Digest>,
    },
}

impl ChartMetadata {
    /// Checks that a signed chart is the one that the source names. Names, tags and indexes are not signed, so anyone
    /// with write access to the source could replace the chart by another signed one or by an older version.
    fn check_place(&self, source: &ChartSource) -> Result<(), ArtifactError> {
        let (what, name, version) = match source {
            ChartSource::Oci(reference) => {
                let path = reference.repository().path();
                let version = reference.tag().filter(|tag| versions::parse_tag(tag).is_some());
                let name = path.rsplit('/').next().unwrap_or(path);
                (reference.to_string(), name, version.map(|tag| tag.replace('_', "+")))
            }
            ChartSource::Repository { name, version, .. } => {
                (format!("chart {} {}", printable(name), printable(version)), &**name, Some(version.clone()))
            }
            ChartSource::Archive { .. } => return Ok(()),
        };
        // In an index, `1.0.0` also selects `1.0.0+build`.
        let may_be_build = matches!(source, ChartSource::Repository { .. });
        let is_version = version.is_none_or(|version| {
            index::same_version(&self.version, &version)
                || may_be_build && index::is_build_of(&self.version, &version)
        });
        if self.name == name && is_version {
            return Ok(());
        }
        let chart = format!("{} {}", printable(&self.name), printable(&self.version));
        Err(ArtifactError::Misplaced { what, chart })
    }
}

/// Reads a chart.
pub(crate) async fn read(
    gate: Gate<'_>,
    indexes: &Arc<Indexes>,
    known: &Arc<MetadataCache>,
    source: &ChartSource,
) -> Result<ChartArchive, ArtifactError> {
    let Gate { fetch, credentials, .. } = gate;
    let wanted = (fetch.limits().blob, ContentFormat::Archive);
    if !matches!(source, ChartSource::Oci(_)) {
        gate.archives()?;
    }
    let from = async |what: String, url: &Url, digest: Option<Digest>| {
        let (digest, content) = fetch.document(url, digest, wanted, credentials).await?;
        gate.archive(url, digest).await?;
        Ok::<_, ArtifactError>((what, digest, content, Some(url.clone())))
    };
    let (what, digest, content, url) = match source {
        ChartSource::Oci(reference) => {
            let found = read_oci(gate, reference).await?;
            (reference.to_string(), found.digest, found.content, None)
        }
        ChartSource::Archive { url, digest } => from(crate::fetch::shown(url), url, *digest).await?,
        ChartSource::Repository { url, name, version, digest } => {
            let found = index::locate(fetch, indexes, url, name, version, credentials).await?;
            let (what, pinned) = (format!("chart {name} {version}"), digest.or(found.digest));
            match found.archive {
                ArchiveLocation::Url(url) => from(what, &url, pinned).await?,
                ArchiveLocation::Registry(reference) => {
                    let found = read_oci(gate, &reference).await?;
                    found.check(&what, pinned)?;
                    (what, found.digest, found.content, None)
                }
            }
        }
    };
    let chart = match known.get(digest) {
        Some(metadata) => ChartArchive { digest, metadata, content },
        None => match parsed(what, content, *fetch.limits()).await {
            Err(error @ ArtifactError::Invalid { .. }) => {
                // The address or the tag may have other content at the next request.
                match (source, &url) {
                    (ChartSource::Oci(reference), _) => fetch.reject_manifest(reference, credentials),
                    (_, Some(url)) => fetch.reject_document(url, digest, credentials),
                    (_, None) => {}
                }
                return Err(error);
            }
            parsed => parsed?,
        },
    };
    known.remember(chart.digest, &chart.metadata);
    if gate.trust.is_some() {
        chart.metadata.check_place(source)?;
    }
    match source {
        ChartSource::Repository { name, .. } if *name != chart.metadata.name => {
            Err(ArtifactError::invalid(format!("chart {name}"), "the archive contains another chart"))
        }
        _ => Ok(chart),
    }
}

async fn parsed(what: String, content: Bytes, limits: Limits) -> Result<ChartArchive, ArtifactError> {
    let parse = move |content: &Bytes| ChartArchive::parse(&what, content.clone(), &limits);
    let parsed = archive::run_unpacking(content, parse).await;
    parsed.unwrap_or_else(|_| Err(ArtifactError::invalid("a chart archive", "it cannot be unpacked")))
}

/// A chart in a registry.
struct OciArchive {
    /// Digest of the manifest.
    manifest: Digest,
    /// Digest of the archive according to its manifest.
    digest: Digest,
    content: Bytes,
}

impl OciArchive {
    /// Compares the chart with a digest from an index or from the user: of the archive, or of the manifest.
    fn check(&self, what: &str, pinned: Option<Digest>) -> Result<(), ArtifactError> {
        match pinned {
            Some(expected) if expected != self.digest && expected != self.manifest => {
                Err(ArtifactError::DigestMismatch { what: what.to_owned(), expected, found: self.digest })
            }
            _ => Ok(()),
        }
    }
}

/// Reads the archive, by the digest in its manifest.
async fn read_oci(gate: Gate<'_>, reference: &OciReference) -> Result<OciArchive, ArtifactError> {
    let Gate { fetch, credentials, .. } = gate;
    let what = reference.to_string();
    let selected = selection::select(gate, reference, ArtifactKind::Chart).await?;
    let digest = selected.manifest_digest;
    let archive = archive_of(&what, &selected.manifest)?;
    let layers = manifests::layers(&what, &selected.manifest)?;
    let provenance = layers.iter().find(|(kind, _)| &**kind == PROVENANCE).map(|(_, layer)| *layer);
    let verified = gate.chart(reference, digest, archive, provenance).await;
    selection::verify(gate, reference, &selected, verified).await?;
    let content = fetch.blob(reference.repository(), archive, fetch.limits().blob, credentials).await?;
    Ok(OciArchive { manifest: digest, digest: archive, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_chart_may_have_build_metadata_that_the_source_lacks() {
        let chart: ChartMetadata = read_chart_yaml("chart", b"name: demo\nversion: 1.0.0+build\n").unwrap();
        let check = |version: &str| {
            let url = "https://charts.example.org".parse().unwrap();
            let (name, version) = ("demo".to_owned(), version.to_owned());
            chart.check_place(&ChartSource::Repository { url, name, version, digest: None })
        };
        for version in ["1.0.0", "v1.0.0", "1.0.0+build"] {
            assert!(check(version).is_ok(), "{version}");
        }
        for version in ["1.0.1", "1.0.0+other", "1.0"] {
            assert!(matches!(check(version), Err(ArtifactError::Misplaced { .. })), "{version}");
        }
        let reference = "registry.example.org/demo:1.0.0".parse().unwrap();
        assert!(chart.check_place(&ChartSource::Oci(reference)).is_err(), "tags have the whole version");
    }
}

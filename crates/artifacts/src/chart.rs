//! Helm charts from OCI registries and HTTP repositories.

pub(crate) mod index;
mod metadata_cache;
mod package;
mod versions;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};
use url::Url;

use crate::config::Limits;
use crate::digest::{Digest, printable};
use crate::error::ArtifactError;
use crate::fetch::ContentFormat;
use crate::reference::OciReference;
use crate::selection::ArtifactKind;
use crate::trust::{Gate, PROVENANCE};
use crate::{archive, manifests, selection};

use index::ArchiveLocation;
pub(crate) use index::Indexes;
pub(crate) use metadata_cache::MetadataCache;
pub(crate) use versions::resolve;
pub use versions::{ChartVersion, ChartVersions};

/// Media type of a chart's config blob.
pub(crate) const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media type of a chart's archive.
pub(crate) const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Media type of a chart's archive before Helm 3.7.
const OLD_CONTENT: &str = "application/tar+gzip";

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

/// A verified chart archive, safe to unpack.
#[derive(Clone, Debug)]
pub struct ChartArchive {
    /// Digest of the archive.
    pub digest: Digest,
    /// Content of its `Chart.yaml`.
    pub metadata: ChartMetadata,
    content: Bytes,
}

/// The part of a `Chart.yaml` that determines whether and as what a chart is installed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartMetadata {
    /// `v1` or `v2`; absent means `v1`.
    #[serde(default)]
    pub api_version: Option<String>,
    /// Name of the chart.
    pub name: String,
    /// Version of the chart.
    pub version: String,
    /// Version of the application.
    #[serde(default)]
    pub app_version: Option<String>,
    /// `application` (default) or `library`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Supported Kubernetes versions, as a semver range.
    #[serde(default)]
    pub kube_version: Option<String>,
}

impl ChartArchive {
    /// Checks a `.tgz`: limits, paths, links, one chart with a usable `Chart.yaml`.
    pub(crate) fn parse(what: &str, content: Bytes, limits: &Limits) -> Result<Self, ArtifactError> {
        let files = archive::files(what, &content, limits)?;
        let root = root_of(what, &files)?;
        let chart = files
            .get(&format!("{root}/Chart.yaml"))
            .ok_or_else(|| ArtifactError::invalid(what, "there is no Chart.yaml in it"))?;
        let metadata: ChartMetadata = read_chart_yaml(what, chart)?;
        metadata.check(what)?;
        Ok(Self { digest: Digest::of(&content), metadata, content })
    }

    /// Returns the archive as it was pulled: a gzipped tar.
    pub fn content(&self) -> &Bytes {
        &self.content
    }

    /// Returns the chart's files, by their paths below the chart's directory.
    ///
    /// # Errors
    /// If they exceed `limits` in number or size.
    pub fn files(&self, limits: &Limits) -> Result<archive::Files, ArtifactError> {
        let files = archive::files(&self.metadata.name, &self.content, limits)?;
        let below = |(path, content): (String, Bytes)| Some((path.split_once('/')?.1.to_owned(), content));
        Ok(files.into_iter().filter_map(below).collect())
    }
}

impl ChartMetadata {
    fn check(&self, what: &str) -> Result<(), ArtifactError> {
        let problem = match self.api_version.as_deref() {
            None | Some("v1" | "v2" | "") => None,
            Some(_) => Some("only charts of apiVersion v1 and v2 can be installed"),
        };
        let problem = problem
            .or((self.kind.as_deref() == Some("library")).then_some("a library chart installs nothing"));
        let problem = problem
            .or((self.name.is_empty() || self.name.contains(['/', '\\'])).then_some("its name is unusable"));
        problem.map_or(Ok(()), |problem| Err(ArtifactError::invalid(what, problem)))
    }
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

/// Parses a `Chart.yaml` as Helm does: of equal keys the last counts, and only the first document is read.
///
/// # Errors
/// If it is not YAML, or lacks a field of `T`. `what` names the chart.
pub fn read_chart_yaml<T: DeserializeOwned>(what: &str, content: &[u8]) -> Result<T, ArtifactError> {
    let unreadable = |problem: &str| {
        ArtifactError::invalid(what, format!("Chart.yaml is unreadable: {}", printable(problem)))
    };
    let text = std::str::from_utf8(content).map_err(|_| unreadable("it is not UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(first_document(text), options)
        .map_err(|error| unreadable(error.to_string().lines().next().unwrap_or_default()))
}

/// Returns the text up to the end of its first YAML document.
fn first_document(text: &str) -> &str {
    let (mut end, mut has_content) = (0, false);
    for line in text.split_inclusive('\n') {
        let marker = after_marker(line);
        if marker.is_some() && has_content {
            break;
        }
        let content = marker.unwrap_or(line).trim();
        has_content |= !content.is_empty() && !content.starts_with(['#', '%']);
        end += line.len();
    }
    &text[..end]
}

/// Returns the rest of a line that begins with a marker of a document's start or end.
fn after_marker(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."))?;
    let is_marker = rest.is_empty() || rest.starts_with(char::is_whitespace);
    is_marker.then_some(rest)
}

/// Returns the one directory that contains the chart.
fn root_of(what: &str, files: &archive::Files) -> Result<String, ArtifactError> {
    let mut roots: Vec<&str> = files.keys().map(|path| path.split('/').next().unwrap_or(path)).collect();
    roots.dedup();
    match roots[..] {
        [root] => Ok(root.to_owned()),
        _ => Err(ArtifactError::invalid(what, "it does not hold exactly one chart")),
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
            Err(ArtifactError::invalid(format!("chart {name}"), "the archive holds another chart"))
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

/// Returns the archive digest in a manifest.
fn archive_of(what: &str, manifest: &[u8]) -> Result<Digest, ArtifactError> {
    let layers = manifests::layers(what, manifest)?;
    let mut archives = layers.iter().filter(|(kind, _)| [CONTENT, OLD_CONTENT].contains(&&**kind));
    let found = archives.next().map(|(_, digest)| *digest);
    found.ok_or_else(|| ArtifactError::invalid(what, "the artifact holds no Helm chart"))
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

//! Archives of charts and their `Chart.yaml`.

use bytes::Bytes;
use serde::{Deserialize, de::DeserializeOwned};

use crate::config::Limits;
use crate::error::ArtifactError;
use crate::media_types::CHART_CONTENT;
use crate::storage::digest::{Digest, printable};
use crate::{content::archive, content::manifests};

/// Media type of a chart's archive before Helm 3.7.
const OLD_CONTENT: &str = "application/tar+gzip";

/// A verified chart archive, safe to unpack.
#[derive(Clone, Debug)]
pub struct ChartArchive {
    /// Digest of the archive.
    pub digest: Digest,
    /// Content of its `Chart.yaml`.
    pub metadata: ChartMetadata,
    pub(super) content: Bytes,
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
            .ok_or_else(|| ArtifactError::invalid(what, "it contains no Chart.yaml"))?;
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
    pub(super) fn check(&self, what: &str) -> Result<(), ArtifactError> {
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
        _ => Err(ArtifactError::invalid(what, "it does not contain exactly one chart")),
    }
}

/// Returns the archive digest in a manifest.
pub(super) fn archive_of(what: &str, manifest: &[u8]) -> Result<Digest, ArtifactError> {
    let layers = manifests::layers(what, manifest)?;
    let mut archives = layers.iter().filter(|(kind, _)| [CHART_CONTENT, OLD_CONTENT].contains(&&**kind));
    let found = archives.next().map(|(_, digest)| *digest);
    found.ok_or_else(|| ArtifactError::invalid(what, "the artifact contains no Helm chart"))
}

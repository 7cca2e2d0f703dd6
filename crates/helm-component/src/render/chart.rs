//! A chart's files, read within bounds before any engine sees them.

use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use regex::bytes::Regex;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Bytes of all files of a chart, subcharts unpacked (Helm's own bound).
const TOTAL: u64 = 100 << 20;
/// Bytes of one file (Helm's own bound).
const FILE: u64 = 5 << 20;
/// Files of a chart, subcharts included.
const FILES: usize = 20_000;
/// Charts within charts.
const NESTING: usize = 10;

/// Why a chart is refused.
#[derive(Debug, Clone, Error)]
pub enum ChartFault {
    /// It could not be read as an archive.
    #[error("the chart cannot be read: {detail}")]
    Unreadable {
        /// What the reader said.
        detail: String,
    },
    /// It is larger than the bounds of an archive.
    #[error("the chart is refused: {what}")]
    TooLarge {
        /// Which bound.
        what: &'static str,
    },
    /// There is no usable `Chart.yaml`.
    #[error("the archive is no chart: {what}")]
    NotAChart {
        /// What is missing or wrong.
        what: &'static str,
    },
    /// A library chart, or one for a newer Helm.
    #[error("the chart cannot be installed: {what}")]
    NotInstallable {
        /// Why.
        what: &'static str,
    },
    /// A `values.schema.json` refers to something outside of itself.
    #[error("{file} refers to `{target}`; only references within the document are followed")]
    RemoteReference {
        /// The schema's path in the chart.
        file: String,
        /// The reference, cut to 200 characters.
        target: String,
    },
}

/// A chart archive that was read once, within bounds: what it says about itself, and what its text may look at.
pub struct Chart {
    archive: Bytes,
    digest: String,
    name: String,
    version: String,
    reads_api_versions: bool,
    uses_lookup: bool,
}

impl std::fmt::Debug for Chart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chart({} {} {})", self.name, self.version, self.digest)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    api_version: String,
    name: String,
    version: String,
    #[serde(default, rename = "type")]
    kind: String,
}

impl Metadata {
    fn installable(&self) -> Result<(), ChartFault> {
        if self.kind == "library" {
            return Err(ChartFault::NotInstallable { what: "it is a library chart" });
        }
        match self.api_version.as_str() {
            "" | "v1" | "v2" => Ok(()),
            _ => Err(ChartFault::NotInstallable { what: "its apiVersion is neither v1 nor v2" }),
        }
    }
}

impl Chart {
    /// Reads a `.tgz` and refuses what must not reach an engine: bombs, references from a schema to files or
    /// URLs, library charts, chart API versions other than v1 and v2.
    pub fn open(archive: Bytes) -> Result<Self, ChartFault> {
        let mut root: Option<Metadata> = None;
        let (mut reads_api_versions, mut uses_lookup) = (false, false);
        walk(&archive, &mut |file, bytes| {
            if file == "Chart.yaml" {
                let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
                let metadata = serde_saphyr::from_slice(bytes)
                    .map_err(|_| ChartFault::NotAChart { what: "its Chart.yaml lacks name or version" })?;
                root = Some(metadata);
            }
            if file.rsplit('/').next() == Some("values.schema.json") {
                check_schema(file, bytes)?;
            }
            reads_api_versions |= API_VERSIONS.is_match(bytes);
            uses_lookup |= file.contains("templates/") && LOOKUP.is_match(bytes);
            Ok(())
        })?;
        let root = root.ok_or(ChartFault::NotAChart { what: "it has no Chart.yaml" })?;
        root.installable()?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&archive)));
        let Metadata { name, version, .. } = root;
        Ok(Self { archive, digest, name, version, reads_api_versions, uses_lookup })
    }

    /// The archive: a gzipped tar.
    pub fn archive(&self) -> &Bytes {
        &self.archive
    }

    /// `sha256:…` of the archive.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// `name` of Chart.yaml.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `version` of Chart.yaml.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether any text of it mentions `APIVersions`: if not, the target's API list cannot change the result.
    pub fn reads_api_versions(&self) -> bool {
        self.reads_api_versions
    }

    /// Whether any template calls `lookup`, which finds nothing here.
    pub fn uses_lookup(&self) -> bool {
        self.uses_lookup
    }
}

/// The text of a chart's templates, to tell what an author wrote from what values brought in.
pub(super) struct TemplateText(String);

impl TemplateText {
    pub(super) fn of(chart: &Chart) -> Self {
        let mut text = String::new();
        // The same archive was walked when the chart was opened; what fails now only shortens a message.
        let _ = walk(&chart.archive, &mut |file, bytes| {
            if file.contains("templates/") {
                text.push_str(&String::from_utf8_lossy(bytes));
                text.push('\n');
            }
            Ok(())
        });
        Self(text)
    }

    /// Whether `words` stand in a template as they are (also inside a quoted string literal).
    pub(super) fn holds(&self, words: &str) -> bool {
        let literal = words.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        self.0.contains(words) || self.0.contains(&literal)
    }

    #[cfg(test)]
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }
}

static API_VERSIONS: LazyLock<Regex> = LazyLock::new(|| pattern("APIVersions"));
static LOOKUP: LazyLock<Regex> = LazyLock::new(|| pattern(r"\blookup\s"));

fn check_schema(file: &str, bytes: &[u8]) -> Result<(), ChartFault> {
    // What is not JSON fails in the engine with a better message.
    let Ok(schema) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let mut open = vec![&schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                for (key, value) in fields {
                    let target = value.as_str().unwrap_or("#");
                    let reference = matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef");
                    if reference && !target.starts_with('#') {
                        return Err(ChartFault::RemoteReference {
                            file: file.to_owned(),
                            target: target.chars().take(200).collect(),
                        });
                    }
                    open.push(value);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn pattern(text: &str) -> Regex {
    // The patterns are constants of this file, exercised by its tests.
    Regex::new(text).unwrap_or_else(|_| unreachable!("a constant pattern"))
}

type See<'a> = dyn FnMut(&str, &[u8]) -> Result<(), ChartFault> + 'a;

fn walk(archive: &[u8], see: &mut See<'_>) -> Result<(), ChartFault> {
    walk_archive(archive, "", 0, &mut Budget { bytes: TOTAL, files: FILES }, see)
}

/// What is left of the bounds.
struct Budget {
    bytes: u64,
    files: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), ChartFault> {
        self.files =
            self.files.checked_sub(1).ok_or(ChartFault::TooLarge { what: "it has too many files" })?;
        self.bytes = self
            .bytes
            .checked_sub(bytes as u64)
            .ok_or(ChartFault::TooLarge { what: "it unpacks to more than 100 MiB" })?;
        Ok(())
    }
}

fn walk_archive(
    packed: &[u8],
    prefix: &str,
    depth: usize,
    budget: &mut Budget,
    see: &mut See<'_>,
) -> Result<(), ChartFault> {
    if depth > NESTING {
        return Err(ChartFault::TooLarge { what: "charts are nested too deeply" });
    }
    // Headers count too, hence twice the bound; files are counted exactly below.
    let unpacked = flate2::read::MultiGzDecoder::new(packed).take(2 * TOTAL);
    let mut archive = tar::Archive::new(unpacked);
    for entry in archive.entries().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if !entry.header().entry_type().is_file() {
            budget.take(0)?;
            continue;
        }
        let path = entry.path().map_err(unreadable)?.to_string_lossy().replace('\\', "/");
        // The first segment is the chart's own folder.
        let Some((_, inside)) = path.trim_start_matches("./").split_once('/') else { continue };
        let name = format!("{prefix}{inside}");
        visit(&name, entry, depth, budget, see)?;
    }
    Ok(())
}

fn visit(
    name: &str,
    content: impl Read,
    depth: usize,
    budget: &mut Budget,
    see: &mut See<'_>,
) -> Result<(), ChartFault> {
    let mut bytes = Vec::new();
    content.take(FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE {
        return Err(ChartFault::TooLarge { what: "one of its files is larger than 5 MiB" });
    }
    budget.take(bytes.len())?;
    let subchart = name.rsplit_once('/').is_some_and(|(folder, file)| {
        let packed =
            Path::new(file).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tgz"));
        packed && folder.rsplit('/').next() == Some("charts")
    });
    if subchart {
        let prefix = format!("{}/", name.trim_end_matches(".tgz"));
        return walk_archive(&bytes, &prefix, depth + 1, budget, see);
    }
    see(name, &bytes)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn unreadable(error: std::io::Error) -> ChartFault {
    ChartFault::Unreadable { detail: error.to_string() }
}

#[cfg(test)]
mod tests;

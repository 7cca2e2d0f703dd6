//! A chart's files, read within bounds before any engine sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use kyma_artifacts::ArtifactError;
use kyma_object_set::Identity;
use regex::bytes::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::chance::{Chance, Varies};
use super::context_template;
use super::kinds::KindsUse;
use super::pattern::pattern;
use super::release_use::ReleaseUse;
use super::version::VersionUse;

mod crds;
mod schemas;
mod tree;

use schemas::{Schemas, is_schema};
use tree::Tree;

/// Why a chart is refused.
#[derive(Debug, Clone, Error)]
pub enum ChartFault {
    /// It could not be read as an archive, or not within bounds.
    #[error("the chart cannot be read: {0}")]
    Unreadable(ArtifactError),
    /// What was read could not be packed again.
    #[error("the chart cannot be packed: {detail}")]
    Unpackable {
        /// Error of the packer.
        detail: String,
    },
    /// Charts within charts within charts.
    #[error("the chart is refused: charts are nested too deeply")]
    TooDeep,
    /// There is no usable `Chart.yaml`.
    #[error("the archive is no chart: {what}")]
    NotAChart {
        /// Description of the problem.
        what: &'static str,
    },
    /// A library chart, or one for a newer Helm.
    #[error("the chart cannot be installed: {what}")]
    NotInstallable {
        /// Why.
        what: &'static str,
    },
    /// A `values.schema.json` that we cannot read: the engine might, and follow what it refers to.
    #[error("{file} is not JSON")]
    SchemaUnreadable {
        /// The schema's path in the chart.
        file: String,
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

/// A chart that was read once, within bounds: what it says about itself, and what its text may look at.
pub struct Chart {
    archive: Bytes,
    digest: String,
    name: String,
    version: String,
    app_version: String,
    uses_lookup: bool,
    kinds_use: KindsUse,
    version_use: VersionUse,
    release_use: ReleaseUse,
    chance: Chance,
    prints_kube_version: bool,
    schemas: Schemas,
    own_kinds: OnceLock<BTreeMap<Identity, BTreeSet<String>>>,
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
    /// A number without quotes is common.
    #[serde(default)]
    app_version: Value,
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
    pub fn open(archive: &[u8]) -> Result<Self, ChartFault> {
        let mut tree = Tree::read(archive)?;
        let mut root: Option<Metadata> = None;
        let (mut uses_lookup, mut chance) = (false, Chance::default());
        let (mut kinds_use, mut version_use) = (KindsUse::default(), VersionUse::default());
        let (mut release_use, mut schemas) = (ReleaseUse::default(), Schemas::default());
        let (mut prints_kube_version, mut has_git_version) = (false, false);
        tree.each(&mut |file, bytes| {
            if file == "Chart.yaml" {
                let metadata = serde_saphyr::from_slice(without_bom(bytes))
                    .map_err(|_| ChartFault::NotAChart { what: "its Chart.yaml lacks name or version" })?;
                root = Some(metadata);
            }
            if is_schema(file) {
                schemas.see(file, without_bom(bytes));
            }
            kinds_use.see(bytes);
            release_use.see(bytes);
            prints_kube_version |= PRINTED_VERSION.is_match(bytes);
            has_git_version |= GIT_VERSION.is_match(bytes);
            version_use.see(file, bytes);
            let is_template = file.contains("templates/");
            uses_lookup |= is_template && LOOKUP.is_match(bytes);
            chance.see(file, &String::from_utf8_lossy(bytes));
            Ok(())
        })?;
        let root = root.ok_or(ChartFault::NotAChart { what: "it has no Chart.yaml" })?;
        root.installable()?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(archive)));
        tree.replace(&mut |file| schemas.replacement(file));
        tree.add_context_template(&Bytes::from(context_template::template(has_git_version)));
        let archive = tree.pack()?;
        let Metadata { name, version, app_version, .. } = root;
        let app_version = match app_version {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        Ok(Self {
            archive,
            digest,
            name,
            version,
            app_version,
            uses_lookup,
            kinds_use,
            version_use,
            release_use,
            chance,
            prints_kube_version,
            schemas,
            own_kinds: OnceLock::new(),
        })
    }

    /// The chart for an engine: a gzipped tar of what was read, packed anew, so that no other reader of archives
    /// sees in it what this one did not.
    pub fn archive(&self) -> &Bytes {
        &self.archive
    }

    /// `sha256:…` of the archive as it was pulled.
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

    /// `appVersion` of Chart.yaml; empty where it has none.
    pub fn app_version(&self) -> &str {
        &self.app_version
    }

    /// Whether any text of it, or of the values, names the list of kinds that a target serves.
    pub fn names_api_versions(&self, values: &Map<String, Value>) -> bool {
        self.kinds_use.is_named(values)
    }

    /// Whether the kinds that a target serves can change what comes of these values, as far as the text of its files and of
    /// the values tells: it names the list, or hands on what has it.
    pub fn depends_on_api_versions(&self, values: &Map<String, Value>) -> bool {
        self.kinds_use.counts(values)
    }

    /// Returns whether the revision of the release, or that it is an upgrade, can change the result with these values.
    pub fn depends_on_revision(&self, values: &Map<String, Value>) -> bool {
        self.release_use.counts(values)
    }

    /// Returns whether a template prints `.Capabilities.KubeVersion` as a whole. It then has to be Helm's own value, so
    /// the API versions that the program was compiled with stay in the list.
    pub(crate) fn keeps_compiled_versions(&self) -> bool {
        self.prints_kube_version
    }

    /// Returns the fault of a refused schema, if that is why a render failed.
    pub(super) fn schema_fault(&self, error_text: &str) -> Option<ChartFault> {
        self.schemas.fault_in(error_text)
    }

    /// Whether any text of it, or of the values, names the version of Kubernetes.
    pub fn names_kube_version(&self, values: &Map<String, Value>) -> bool {
        self.version_use.is_named(values)
    }

    /// Whether the version of Kubernetes can change what comes of these values, as far as the text of its files and of the
    /// values tells: it names the version, hands on what has it, or some versions refuse it (`kubeVersion` of Chart.yaml).
    pub fn depends_on_kube_version(&self, values: &Map<String, Value>) -> bool {
        self.version_use.counts(values)
    }

    /// Whether each render with these values may give something else, as far as the text of its files and of the values
    /// tells: chance, a clock, an order by chance. Text that is put together from pieces before it goes to `tpl` does not.
    pub fn goes_by_chance(&self, values: &Map<String, Value>) -> bool {
        self.varies(values) != Varies::Nothing
    }

    /// What of renders with these values may differ.
    pub fn varies(&self, values: &Map<String, Value>) -> Varies {
        self.chance.of(values)
    }

    /// Whether any template calls `lookup`, which finds nothing here.
    pub fn uses_lookup(&self) -> bool {
        self.uses_lookup
    }
}

/// The text and the files of a chart's templates, to tell what an author wrote from what values brought in.
pub(super) struct TemplateText {
    text: String,
    /// What charts say about themselves and the charts in them, names among it.
    about: String,
    /// Paths below `templates/`.
    files: BTreeSet<String>,
}

impl TemplateText {
    pub(super) fn of(chart: &Chart) -> Self {
        let mut found = Self { text: String::new(), about: String::new(), files: BTreeSet::new() };
        // The archive is one that we packed; what fails now only shortens a message.
        let tree = Tree::read(&chart.archive);
        let _ = tree.and_then(|tree| {
            tree.each(&mut |file, bytes| {
                found.take(file, &String::from_utf8_lossy(bytes));
                Ok(())
            })
        });
        found
    }

    fn take(&mut self, file: &str, content: &str) {
        if let Some((_, below)) = file.split_once("templates/") {
            self.text.push_str(content);
            self.text.push('\n');
            self.files.insert(below.to_owned());
        }
        if matches!(file.rsplit('/').next(), Some("Chart.yaml" | "requirements.yaml")) {
            self.about.push_str(content);
            self.about.push('\n');
        }
    }

    /// Whether `words` stand in a template as they are (also inside a quoted string literal).
    pub(super) fn holds(&self, words: &str) -> bool {
        let literal = words.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        self.text.contains(words) || self.text.contains(&literal)
    }

    /// Whether a place, as the engine names it (`<chart>/charts/<chart>/templates/a.yaml:1:2`), is one in the chart.
    pub(super) fn has(&self, place: &str) -> bool {
        let path = place.split(':').next().unwrap_or_default();
        let Some((folders, below)) = path.split_once("/templates/") else { return false };
        let known = |folder: &str| folder == "charts" || self.about.contains(folder);
        self.files.contains(below) && folders.split('/').all(known)
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn from_files(files: &[(&str, &str)]) -> Self {
        let mut found = Self { text: String::new(), about: String::new(), files: BTreeSet::new() };
        for (file, content) in files {
            found.take(file, content);
        }
        found
    }
}

static LOOKUP: LazyLock<Regex> = LazyLock::new(|| pattern(r"\blookup\s"));

/// `.Capabilities.KubeVersion` without a field after it.
static PRINTED_VERSION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Capabilities\.KubeVersion(?:[^.\w]|\z)"));
static GIT_VERSION: LazyLock<Regex> = LazyLock::new(|| pattern(r"GitVersion"));

/// Helm drops the byte order mark of every file.
fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

#[cfg(test)]
mod tests;

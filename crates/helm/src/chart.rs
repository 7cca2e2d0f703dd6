//! A chart's files, read within bounds before any engine reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use kyma_artifacts::read_chart_yaml;
use kyma_object_set::Identity;
use regex::bytes::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

mod context_template;
mod crds;
mod fault;
mod kinds;
mod nondeterminism;
mod pattern;
mod release_use;
mod schemas;
mod tree;
mod version;

pub(crate) use context_template::{REVISION, TARGET_VERSIONS_BEGIN};
pub use fault::ChartFault;
pub use nondeterminism::Nondeterminism;

use kinds::KindsUse;
use nondeterminism::NondeterministicCalls;
use pattern::pattern;
use release_use::ReleaseUse;
use schemas::{Schemas, is_schema};
use tree::Tree;
use version::VersionUse;

/// A chart that was read once, within bounds: its metadata, and the inputs that its text may read.
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
    nondeterministic_calls: NondeterministicCalls,
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
    /// Many charts write a number without quotes.
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
    /// Reads a `.tgz` and refuses charts that must not reach an engine: archives that unpack beyond the limits,
    /// library charts, and chart API versions other than v1 and v2. Schemas with references to files or URLs are
    /// replaced.
    pub fn open(archive: &[u8]) -> Result<Self, ChartFault> {
        let mut tree = Tree::read(archive)?;
        let mut root: Option<Metadata> = None;
        let (mut uses_lookup, mut nondeterministic_calls) = (false, NondeterministicCalls::default());
        let (mut kinds_use, mut version_use) = (KindsUse::default(), VersionUse::default());
        let (mut release_use, mut schemas) = (ReleaseUse::default(), Schemas::default());
        let (mut prints_kube_version, mut has_git_version, mut has_string) = (false, false, false);
        tree.each(&mut |file, bytes| {
            if file == "Chart.yaml" {
                root = Some(read_chart_yaml("the archive", bytes).map_err(ChartFault::Unreadable)?);
            }
            if is_schema(file) {
                schemas.see(file, without_bom(bytes));
            }
            kinds_use.see(bytes);
            release_use.see(bytes);
            prints_kube_version |= PRINTED_VERSION.is_match(bytes);
            has_git_version |= GIT_VERSION.is_match(bytes);
            has_string |= STRING.is_match(bytes);
            version_use.see(file, bytes);
            let is_template = file.contains("templates/");
            uses_lookup |= is_template && LOOKUP.is_match(bytes);
            nondeterministic_calls.add_file(file, &String::from_utf8_lossy(bytes));
            Ok(())
        })?;
        let root = root.ok_or(ChartFault::NotAChart { what: "it has no Chart.yaml" })?;
        root.installable()?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(archive)));
        tree.replace(&mut |file| schemas.replacement(file));
        tree.add_context_template(&Bytes::from(context_template::template(has_git_version, has_string)));
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
            nondeterministic_calls,
            prints_kube_version,
            schemas,
            own_kinds: OnceLock::new(),
        })
    }

    /// Returns the chart for an engine: a gzipped tar of the files that were read, packed again, so that no other
    /// reader of archives finds files in it that this one did not.
    pub fn archive(&self) -> &Bytes {
        &self.archive
    }

    /// Returns `sha256:…` of the archive as it was pulled.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns `name` of Chart.yaml.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `version` of Chart.yaml.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns `appVersion` of Chart.yaml; empty if it has none.
    pub fn app_version(&self) -> &str {
        &self.app_version
    }

    /// Reports whether a text of the chart or the values names the list of kinds that a target serves.
    pub fn names_api_versions(&self, values: &Map<String, Value>) -> bool {
        self.kinds_use.is_named(values)
    }

    /// Reports whether the kinds that a target serves can change the result with these values, as far as the text of
    /// chart and values shows: it names the list, or passes on an object that contains it.
    pub fn depends_on_api_versions(&self, values: &Map<String, Value>) -> bool {
        self.kinds_use.counts(values)
    }

    /// Returns whether the revision of the release, or that it is an upgrade, can change the result with these
    /// values.
    pub fn depends_on_revision(&self, values: &Map<String, Value>) -> bool {
        self.release_use.counts(values)
    }

    /// Returns whether a template prints `.Capabilities.KubeVersion` as a whole. It then has to be Helm's own value,
    /// so the API versions that the program was compiled with stay in the list.
    pub fn keeps_compiled_versions(&self) -> bool {
        self.prints_kube_version
    }

    /// Returns, for each of the chart's CRDs, the API versions and kinds that a target serves once it has the CRD, as
    /// in `.Capabilities.APIVersions`. They are read once.
    pub fn own_kinds(&self) -> &BTreeMap<Identity, BTreeSet<String>> {
        self.own_kinds.get_or_init(|| crds::own_kinds(&self.archive))
    }

    /// Returns the CRDs in its `crds` folder and in those of its subcharts. Unreadable files are skipped: rendering
    /// the chart reports them.
    pub fn crds(&self) -> BTreeSet<Identity> {
        crds::crds(&self.archive)
    }

    /// Returns the fault of a refused schema, if that is why a render failed.
    pub(crate) fn schema_fault(&self, error_text: &str) -> Option<ChartFault> {
        self.schemas.fault_in(error_text)
    }

    /// Reports whether a text of the chart or the values names the version of Kubernetes.
    pub fn names_kube_version(&self, values: &Map<String, Value>) -> bool {
        self.version_use.is_named(values)
    }

    /// Reports whether the version of Kubernetes can change the result with these values, as far as the text of chart
    /// and values shows: it names the version, passes on an object that contains it, or `kubeVersion` of Chart.yaml
    /// refuses some versions.
    pub fn depends_on_kube_version(&self, values: &Map<String, Value>) -> bool {
        self.version_use.counts(values)
    }

    /// Reports whether each render with these values may differ, as far as the text of chart and values shows: random
    /// values, the time, or unordered maps. Text that is assembled from pieces before it is passed to `tpl` is not
    /// detected.
    pub fn is_nondeterministic(&self, values: &Map<String, Value>) -> bool {
        self.nondeterminism(values) != Nondeterminism::None
    }

    /// Returns the parts of renders with these values that may differ.
    pub fn nondeterminism(&self, values: &Map<String, Value>) -> Nondeterminism {
        self.nondeterministic_calls.nondeterminism(values)
    }

    /// Reports whether a template calls `lookup`, which finds nothing here.
    pub fn uses_lookup(&self) -> bool {
        self.uses_lookup
    }
}

/// Text and file names of a chart's templates, to tell the author's text from that of values.
#[derive(Default)]
pub(crate) struct TemplateText {
    text: String,
    /// Name of the chart itself.
    name: String,
    /// Metadata of the chart and its subcharts, with their names.
    about: String,
    /// Paths below `templates/`.
    files: BTreeSet<String>,
}

impl TemplateText {
    pub(crate) fn of(chart: &Chart) -> Self {
        let mut found = Self::default();
        // This crate packed the archive; a failure only shortens a message.
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
        if file == "Chart.yaml" {
            let metadata: Option<Metadata> = read_chart_yaml("the archive", content.as_bytes()).ok();
            self.name = metadata.map(|metadata| metadata.name).unwrap_or_default();
        }
        if matches!(file.rsplit('/').next(), Some("Chart.yaml" | "requirements.yaml")) {
            self.about.push_str(content);
            self.about.push('\n');
        }
    }

    /// Reports whether a template contains `words`, unchanged or within a quoted string literal.
    pub(crate) fn holds(&self, words: &str) -> bool {
        let literal = words.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        self.text.contains(words) || self.text.contains(&literal)
    }

    /// Reports whether `name` is that of the chart itself.
    pub(crate) fn is_root(&self, name: &str) -> bool {
        name == self.name
    }

    /// Reports whether `name` is that of the chart or of a subchart.
    pub(crate) fn has_chart(&self, name: &str) -> bool {
        !name.is_empty() && self.about.contains(name)
    }

    /// Reports whether the chart has a location that the engine names
    /// (`<chart>/charts/<chart>/templates/a.yaml:1:2`).
    pub(crate) fn has(&self, place: &str) -> bool {
        let path = place.split(':').next().unwrap_or_default();
        let Some((folders, below)) = path.split_once("/templates/") else { return false };
        let known = |folder: &str| folder == "charts" || self.about.contains(folder);
        self.files.contains(below) && folders.split('/').all(known)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn from_files(files: &[(&str, &str)]) -> Self {
        let mut found = Self::default();
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
static STRING: LazyLock<Regex> = LazyLock::new(|| pattern(r"\.String\b"));

/// Removes the byte order mark, as Helm does in every file.
fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

#[cfg(test)]
mod tests;

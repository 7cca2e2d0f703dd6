//! A chart's files, with those of packed subcharts.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use flate2::Compression;
use kyma_artifacts::Limits;
use kyma_artifacts::archive::{self, Unpacker};

use super::context_template;
use super::fault::ChartFault;

/// Maximum size of a chart with its subcharts in bytes (Helm's own limit).
const MAX_CHART_BYTES: u64 = 100 << 20;
/// Maximum number of files of a chart with its subcharts.
const MAX_CHART_FILES: usize = 20_000;
/// Maximum depth of nested charts.
const MAX_CHART_DEPTH: usize = 10;

/// Callback for each file: its path below the chart's own folder, and its content.
type See<'a> = dyn FnMut(&str, &[u8]) -> Result<(), ChartFault> + 'a;

/// The files of a chart by their complete path.
pub(super) struct Tree(BTreeMap<String, Node>);

enum Node {
    File(Bytes),
    Chart(Tree),
}

impl Tree {
    /// Reads the archive of a chart, and the archives in its `charts` folders.
    pub(super) fn read(packed: &[u8]) -> Result<Self, ChartFault> {
        // Limited by the size of the archive: nested archives could unpack to more.
        let unpacked = MAX_CHART_BYTES.min(archive::max_unpacked_bytes(packed.len()));
        let limits =
            Limits { unpacked, file: MAX_CHART_BYTES, entries: MAX_CHART_FILES, ..Limits::default() };
        Self::unpack(packed, 0, &mut Unpacker::new(&limits))
    }

    fn unpack(archive: &[u8], depth: usize, unpacker: &mut Unpacker) -> Result<Self, ChartFault> {
        if depth > MAX_CHART_DEPTH {
            return Err(ChartFault::TooDeep);
        }
        let files = unpacker.files("the archive", archive).map_err(ChartFault::Unreadable)?;
        let node = |(path, content): (String, Bytes)| {
            if !path.contains('/') {
                return Err(ChartFault::NotAChart { what: "it has files outside of its folder" });
            }
            let node = if is_chart(&path) {
                Node::Chart(Self::unpack(&content, depth + 1, unpacker)?)
            } else {
                Node::File(content)
            };
            Ok((path, node))
        };
        files.into_iter().map(node).collect::<Result<_, _>>().map(Self)
    }

    /// Calls `see` for every file. A file of a packed chart appears below a folder with the archive's name.
    pub(super) fn each(&self, see: &mut See<'_>) -> Result<(), ChartFault> {
        self.each_below("", see)
    }

    fn each_below(&self, prefix: &str, see: &mut See<'_>) -> Result<(), ChartFault> {
        for (path, node) in &self.0 {
            // The first segment is the chart's own folder.
            let Some((_, inside)) = path.split_once('/') else { continue };
            match node {
                Node::File(content) => see(&format!("{prefix}{inside}"), content)?,
                Node::Chart(tree) => {
                    let folder = inside.rsplit_once('.').map_or(inside, |(folder, _)| folder);
                    tree.each_below(&format!("{prefix}{folder}/"), see)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `with` for every file, as [`Tree::each`] does, and replaces those for which it returns content.
    pub(super) fn replace(&mut self, with: &mut dyn FnMut(&str) -> Option<Bytes>) {
        self.replace_below("", with);
    }

    fn replace_below(&mut self, prefix: &str, with: &mut dyn FnMut(&str) -> Option<Bytes>) {
        for (path, node) in &mut self.0 {
            let Some((_, inside)) = path.split_once('/') else { continue };
            match node {
                Node::File(content) => {
                    if let Some(other) = with(&format!("{prefix}{inside}")) {
                        *content = other;
                    }
                }
                Node::Chart(tree) => {
                    let folder = inside.rsplit_once('.').map_or(inside, |(folder, _)| folder);
                    tree.replace_below(&format!("{prefix}{folder}/"), with);
                }
            }
        }
    }

    /// Adds a template to every chart of the tree, at a path that Helm executes before the chart's other templates.
    pub(super) fn add_context_template(&mut self, content: &Bytes) {
        let roots: Vec<String> = self.0.keys().filter_map(|path| chart_root(path)).collect();
        for root in roots {
            let below = format!("{root}/templates/");
            let templates = self.0.keys().filter(|path| path.starts_with(&below));
            let deepest =
                templates.map(|path| path.matches('/').count() - root.matches('/').count() - 1).max();
            let path = format!("{root}/{}", context_template::path(deepest.unwrap_or_default()));
            self.0.insert(path, Node::File(content.clone()));
        }
        for node in self.0.values_mut() {
            if let Node::Chart(tree) = node {
                tree.add_context_template(content);
            }
        }
    }

    /// Returns a gzipped tar of the tree.
    pub(super) fn pack(&self) -> Result<Bytes, ChartFault> {
        let pack = |(path, node): (&String, &Node)| {
            let content = match node {
                Node::File(content) => content.clone(),
                Node::Chart(tree) => tree.pack()?,
            };
            Ok((path.clone(), content))
        };
        let files = self.0.iter().map(pack).collect::<Result<_, ChartFault>>()?;
        archive::pack(&files, Compression::fast())
            .map_err(|error| ChartFault::Unpackable { detail: error.to_string() })
    }
}

/// Returns the folder of a `Chart.yaml`, if that is the archive's root chart or one in a `charts` folder.
fn chart_root(path: &str) -> Option<String> {
    let root = path.strip_suffix("/Chart.yaml")?;
    is_chart_folder(root).then(|| root.to_owned())
}

/// Reports whether Helm reads the file as a packed chart: other archives are content of the chart, also in other
/// folders of that name, and hidden files, such as those of macOS, are skipped.
fn is_chart(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(folder, file)| {
        let packed = Path::new(file).extension().is_some_and(|found| found.eq_ignore_ascii_case("tgz"));
        let is_in_charts = folder.strip_suffix("/charts").is_some_and(is_chart_folder);
        packed && is_in_charts && !file.starts_with(['_', '.'])
    })
}

/// Reports whether a folder is that of the archive's root chart, or of a chart in a `charts` folder.
fn is_chart_folder(path: &str) -> bool {
    let folders: Vec<&str> = path.split('/').collect();
    folders.iter().skip(1).step_by(2).all(|folder| *folder == "charts") && folders.len() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_archives_that_helm_reads_are_charts() {
        for (path, expected) in [
            ("demo/charts/db-1.0.0.tgz", true),
            ("demo/charts/db/charts/inner.tgz", true),
            ("demo/charts/._db-1.0.0.tgz", false),
            ("demo/charts/_db.tgz", false),
            ("demo/files/charts/data.tgz", false),
            ("demo/templates/charts/data.tgz", false),
            ("demo/charts/db/files/charts/data.tgz", false),
            ("charts/data.tgz", false),
        ] {
            assert_eq!(is_chart(path), expected, "{path}");
        }
    }
}

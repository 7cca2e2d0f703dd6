//! Packs a chart's directory to an archive. Equal files give equal bytes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use flate2::Compression;
use glob::{MatchOptions, Pattern};

use super::chart_archive::{ChartArchive, ChartMetadata, read_chart_yaml};
use crate::config::Limits;
use crate::content::archive;
use crate::error::ArtifactError;
use crate::storage::digest::printable;

impl ChartArchive {
    /// Packs the chart in `directory`, without files that its `.helmignore` names. Links are refused. Unlike `helm
    /// package` it stores no time, so that the same chart has the same digest.
    pub fn package(directory: &Path) -> Result<Self, ArtifactError> {
        let what = printable(&directory.display().to_string());
        let failed = |error: io::Error| ArtifactError::invalid(&what, format!("cannot be read: {error}"));
        let ignored = IgnoreRules::of(directory).map_err(failed)?;
        let mut files = Vec::new();
        collect(directory, Path::new(""), &ignored, &mut files).map_err(failed)?;
        files.sort_unstable();
        let chart = fs::read(directory.join("Chart.yaml"))
            .map_err(|error| ArtifactError::invalid(&what, format!("Chart.yaml cannot be read: {error}")))?;
        let metadata: ChartMetadata = read_chart_yaml(&what, &chart)?;
        metadata.check(&what)?;
        let content = pack(directory, &metadata.name, &files).map_err(failed)?;
        Self::parse(&what, content, &Limits::default())
    }

    /// Reads a packed chart from a file.
    pub fn load(file: &Path) -> Result<Self, ArtifactError> {
        let what = printable(&file.display().to_string());
        let content = fs::read(file)
            .map_err(|error| ArtifactError::invalid(&what, format!("cannot be read: {error}")))?;
        Self::parse(&what, content.into(), &Limits::default())
    }
}

fn pack(directory: &Path, name: &str, files: &[PathBuf]) -> io::Result<Bytes> {
    let read = |file: &PathBuf| {
        let path = Path::new(name).join(file).into_os_string().into_string();
        let path = path.map_err(|_| io::Error::other("a path is not UTF-8"))?;
        Ok((path, fs::read(directory.join(file))?.into()))
    };
    archive::pack(&files.iter().map(read).collect::<io::Result<_>>()?, Compression::best())
}

fn collect(root: &Path, below: &Path, ignored: &IgnoreRules, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type()?;
        if ignored.covers(&path, kind.is_dir()) {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, ignored, files)?;
        } else if kind.is_file() {
            files.push(path);
        } else {
            return Err(io::Error::other(format!("{} is a link or a device", path.display())));
        }
    }
    Ok(())
}

/// Rules of `.helmignore`: shell patterns on the name, or on the path if the pattern has a slash; no `**`.
struct IgnoreRules {
    rules: Vec<Rule>,
}

struct Rule {
    pattern: Pattern,
    whole_path: bool,
    directories: bool,
    negated: bool,
}

impl IgnoreRules {
    fn of(directory: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(directory.join(".helmignore")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let rules = lines.chain(["templates/.?*"]).map(Rule::parse).collect::<Result<_, _>>();
        rules.map(|rules| Self { rules }).map_err(|_| io::Error::other(".helmignore has an invalid pattern"))
    }

    fn covers(&self, path: &Path, is_directory: bool) -> bool {
        self.rules.iter().any(|rule| rule.covers(path, is_directory))
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Self, glob::PatternError> {
        let (negated, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (directories, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
        let whole_path = line.contains('/');
        let pattern = Pattern::new(line.trim_start_matches('/'))?;
        Ok(Self { pattern, whole_path, directories, negated })
    }

    /// Reports whether the rule ignores a path. As in Helm, a negated rule ignores all paths that its pattern does
    /// not match.
    fn covers(&self, path: &Path, is_directory: bool) -> bool {
        if self.directories && !is_directory {
            return false;
        }
        let name = if self.whole_path { Some(path.as_os_str()) } else { path.file_name() };
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        let matches =
            name.and_then(|name| name.to_str()).is_some_and(|name| self.pattern.matches_with(name, options));
        matches != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 1.0.0\n");
        write(".helmignore", "# comment\n*.bak\n/ci/\ndocs/*.md\n");
        write("templates/a.yaml", "a: 1");
        write("templates/.hidden", "x");
        write("templates/a.yaml.bak", "x");
        write("ci/values.yaml", "x");
        write("docs/a.md", "x");
        write("docs/deep/a.md", "kept");
        directory
    }

    #[test]
    fn a_directory_without_chart_yaml_is_refused_by_that_name() {
        let directory = tempfile::tempdir().unwrap();
        let error = ChartArchive::package(directory.path()).unwrap_err().to_string();
        assert!(error.contains("Chart.yaml cannot be read"), "{error}");
    }

    #[test]
    fn a_chart_packs_without_what_is_ignored_and_to_the_same_digest() {
        let directory = chart();
        let packed = ChartArchive::package(directory.path()).unwrap();
        let files = packed.files(&Limits::default()).unwrap();
        let paths: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(paths, [".helmignore", "Chart.yaml", "docs/deep/a.md", "templates/a.yaml"]);
        assert_eq!(ChartArchive::package(chart().path()).unwrap().digest, packed.digest);
    }

    #[test]
    fn a_link_in_a_chart_is_refused() {
        let directory = chart();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("templates/b.yaml")).unwrap();
        assert!(ChartArchive::package(directory.path()).unwrap_err().to_string().contains("link"));
    }

    #[test]
    fn chart_yaml_is_read_as_helm_reads_it() {
        let packaged = |chart: &str| {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("Chart.yaml"), chart).unwrap();
            ChartArchive::package(directory.path()).map(|archive| archive.metadata)
        };
        let once = "apiVersion: v2\nname: demo\nversion: 1.0.0\nappVersion: 1.5\n";
        for chart in [
            format!("\u{feff}# first\n---\n{once}"),
            format!("{once}...\n"),
            format!("{once}---\n- another document\n"),
            format!("  # first\n---\n{once}---key: a\n"),
            "--- {name: demo, version: 1.0.0, apiVersion: v2, appVersion: '1.5'}\n---\na: b\n".to_owned(),
            format!("--- # first\n{once}keywords: [a]\nkeywords: [b]\nappVersion: 1.5\n")
                .replace('\n', "\r\n"),
        ] {
            let metadata = packaged(&chart).unwrap();
            let app_version = metadata.app_version.as_deref();
            assert_eq!(
                (&*metadata.name, &*metadata.version, app_version),
                ("demo", "1.0.0", Some("1.5")),
                "{chart}"
            );
        }
        let unreadable = packaged("name: demo\n").unwrap_err().to_string();
        assert!(unreadable.contains("version"), "{unreadable}");
    }

    #[test]
    fn library_charts_and_unknown_api_versions_are_refused() {
        for chart in [
            "apiVersion: v2\nname: l\nversion: 1.0.0\ntype: library\n",
            "apiVersion: v3\nname: n\nversion: 1.0.0\n",
        ] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("Chart.yaml"), chart).unwrap();
            assert!(ChartArchive::package(directory.path()).is_err(), "{chart}");
        }
    }
}

//! Third-party modules: manifest, default CR, and an earlier release where there is one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// A module and its releases.
#[derive(Clone, Debug)]
pub struct Module {
    /// Name in Kymas and catalogue.
    pub name: String,
    /// The newest release.
    pub current: Release,
    /// An earlier release, if there is one.
    pub previous: Option<Release>,
}

/// The files of one release.
#[derive(Clone, Debug)]
pub struct Release {
    /// Version, from the index.
    pub version: String,
    /// Location of its files.
    pub directory: PathBuf,
}

impl Module {
    /// Returns the name of its OCM component.
    pub fn component(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// Returns the oldest release.
    pub fn first(&self) -> &Release {
        self.previous.as_ref().unwrap_or(&self.current)
    }
}

impl Release {
    /// Returns its config file.
    pub fn config(&self) -> Option<PathBuf> {
        Some(self.directory.join("module-config.yaml")).filter(|path| path.is_file())
    }
}

/// Prefix of the OCM component names of modules.
const PREFIX: &str = "kyma-project.io/module/";

/// Returns all modules of the test inputs by name.
///
/// # Errors
/// A module cannot be read, or the index lacks its version.
pub fn all(inputs: &Path) -> Result<Vec<Module>> {
    let directory = inputs.join("modules");
    let index = std::fs::read_to_string(directory.join("INDEX.md"))
        .with_context(|| format!("no index of modules in {}", directory.display()))?;
    let mut modules = Vec::new();
    for entry in std::fs::read_dir(&directory)? {
        let path = entry?.path();
        if path.join("raw-manifest.yaml").is_file() {
            modules.push(read(&path, &index)?);
        }
    }
    modules.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(modules)
}

fn read(path: &Path, index: &str) -> Result<Module> {
    let title = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let version = |title: &str| version(index, title).with_context(|| format!("the index has no {title}"));
    let current = Release { version: version(&title)?, directory: path.to_owned() };
    let directory = path.join("previous");
    let previous = if directory.is_dir() {
        Some(Release { version: version(&format!("{title} (previous/)"))?, directory })
    } else {
        None
    };
    let name = match current.config() {
        Some(config) => named(&config)?,
        None => title,
    };
    Ok(Module { name, current, previous })
}

/// Returns the module's name, which may differ from its directory.
fn named(config: &Path) -> Result<String> {
    let yaml: Value = serde_saphyr::from_str(&std::fs::read_to_string(config)?)?;
    let name = yaml["name"].as_str().with_context(|| format!("{} names no module", config.display()))?;
    Ok(name.strip_prefix(PREFIX).unwrap_or(name).to_owned())
}

/// Returns the second column of the index's first row with this title.
fn version(index: &str, title: &str) -> Option<String> {
    let mut rows = index.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1) == Some(&title))?;
    row.get(2).map(|version| (*version).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_index() {
        let index = "| module | version |\n|---|---|\n| oak | 1.2.0 | x |\n| oak (previous/) | 1.1.0 | x |\n";
        assert_eq!(version(index, "oak").as_deref(), Some("1.2.0"));
        assert_eq!(version(index, "oak (previous/)").as_deref(), Some("1.1.0"));
        assert_eq!(version(index, "elm"), None);
    }
}

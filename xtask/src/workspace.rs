//! Paths and packages of this checkout.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A package in the output of `cargo metadata`.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev` or `build`; absent for a normal one.
    pub(crate) kind: Option<String>,
    /// Path, for a package of this workspace.
    pub(crate) path: Option<String>,
}

/// A build target of a package.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// For example `["lib"]` or `["test"]`.
    pub(crate) kind: Vec<String>,
}

/// Returns the root of the checkout.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Returns cargo, to run in the root of the checkout.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root());
    remove_package_variables(&mut cargo);
    cargo
}

/// Removes the variables of the package `xtask` that `cargo run` sets for this program.
///
/// Build scripts read variables of the same names: ring, and all its dependents, would be rebuilt if they differ
/// between two calls of cargo.
pub(crate) fn remove_package_variables(command: &mut Command) {
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
}

fn is_of_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// Returns cargo's target directory.
pub(crate) fn target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target)
}

/// Build profile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Short compile time.
    Dev,
    /// Optimised.
    Release,
}

impl Profile {
    /// Returns cargo's arguments for this profile.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &[],
            Self::Release => &["--release"],
        }
    }

    /// Returns the path of a workspace binary built with this profile.
    pub(crate) fn bin(self, name: &str) -> PathBuf {
        let directory = match self {
            Self::Dev => "debug",
            Self::Release => "release",
        };
        target().join(directory).join(name)
    }
}

/// Returns the path of a workspace binary.
pub(crate) fn bin(name: &str) -> PathBuf {
    Profile::Dev.bin(name)
}

/// Returns the packages of the workspace at `root`.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice::<Metadata>(&output.stdout)?.packages)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn cargo_gets_no_variables_of_the_running_package() {
        let cargo = cargo();
        let removed: Vec<&OsStr> =
            cargo.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            assert!(removed.contains(&OsStr::new(name)), "{name}: {removed:?}");
        }
    }
}

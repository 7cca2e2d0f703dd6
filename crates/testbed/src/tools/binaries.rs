//! Finds the programs of test environments.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::tools::pins;

/// A program that test environments run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `kube-apiserver`
    ApiServer,
    /// `etcd`
    Etcd,
    /// `kube-controller-manager`
    ControllerManager,
    /// `kube-scheduler`
    Scheduler,
    /// `kwok`, which simulates the nodes
    Kwok,
    /// `registry`, the OCI registry of go-containerregistry
    Registry,
    /// `helm`, with which tests and measurements compare, and with which helm-component renders
    Helm,
}

impl Program {
    /// Returns the name of its file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::Etcd => "etcd",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Registry => "registry",
            Self::Helm => "helm",
        }
    }

    /// Returns its path: in `$KUBEBUILDER_ASSETS`, or else in the cache that `cargo xtask setup` fills.
    ///
    /// # Errors
    /// The program is in neither; the message names the command to run.
    pub fn path(self) -> Result<PathBuf> {
        let assets = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = pins::directory(&workspace()).context("cannot read which programs are pinned")?;
        let places = assets.into_iter().chain([cache]);
        match places.map(|place| place.join(self.file_name())).find(|path| path.is_file()) {
            Some(path) => Ok(path),
            None => bail!("{} is missing: run `cargo xtask setup`", self.file_name()),
        }
    }
}

/// Returns the root of the workspace in which this crate was compiled.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the path of `testbed-exec`: `$TESTBED_EXEC`, or a file beside the running program (one directory higher
/// for tests), or else a binary that is built now, once, which takes seconds.
pub(crate) fn wrapper() -> Result<&'static Path> {
    static WRAPPER_PATH: OnceLock<PathBuf> = OnceLock::new();
    if let Some(found) = WRAPPER_PATH.get() {
        return Ok(found);
    }
    let path = find_wrapper()?;
    Ok(WRAPPER_PATH.get_or_init(|| path))
}

const WRAPPER: &str = "testbed-exec";

fn find_wrapper() -> Result<PathBuf> {
    if let Some(path) = env::var_os("TESTBED_EXEC") {
        return Ok(PathBuf::from(path));
    }
    let running = env::current_exe().context("cannot tell where this program lies")?;
    let found =
        running.ancestors().skip(1).take(2).map(|place| place.join(WRAPPER)).find(|path| path.is_file());
    match found {
        Some(path) => Ok(path),
        None => build_wrapper(&running),
    }
}

/// Builds `testbed-exec`, since cargo does not build binaries of dependencies for tests of other crates.
fn build_wrapper(running: &Path) -> Result<PathBuf> {
    let in_target = running.parent().is_some_and(|place| place.ends_with("debug/deps"));
    let target = if in_target { running.ancestors().nth(3) } else { None };
    let target = target.map_or_else(|| workspace().join("target"), Path::to_path_buf);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = std::process::Command::new(cargo)
        .args(["build", "--quiet", "--package", WRAPPER, "--manifest-path"])
        .arg(workspace().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .context("cannot run cargo to build testbed-exec")?;
    let path = target.join("debug").join(WRAPPER);
    if built.success() && path.is_file() { Ok(path) } else { bail!("cargo build -p {WRAPPER} failed") }
}

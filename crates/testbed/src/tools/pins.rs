//! The directory of the pinned programs. `cargo xtask setup`, which fills that directory, compiles this same file.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The files that decide which programs test environments run, below the root of the workspace.
const PINS: [&str; 5] = [
    "xtask/tools.toml",
    "xtask/tools/kube/go.mod",
    "xtask/tools/kube/go.sum",
    "xtask/tools/etcd/go.mod",
    "xtask/tools/etcd/go.sum",
];

/// Returns the directory of the programs, below `$TESTBED_CACHE` or `kyma-testbed` in the user's cache directory.
/// Each set of pins has a directory, outside the checkout so that fresh clones find it.
pub(crate) fn directory(workspace: &Path) -> io::Result<PathBuf> {
    let mut hash = Sha256::new();
    for pin in PINS {
        hash.update(std::fs::read(workspace.join(pin))?);
    }
    let set: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(cache_root()?.join(set).join("bin"))
}

fn cache_root() -> io::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TESTBED_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("kyma-testbed")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/kyma-testbed")))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "set HOME or TESTBED_CACHE"))
}

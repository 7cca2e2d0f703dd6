//! Where things are in this checkout.

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Where `cargo build` leaves what it builds.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target)
}

/// A binary of the workspace as `cargo build` leaves it.
pub(crate) fn bin(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

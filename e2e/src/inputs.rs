//! Third-party charts and modules to work with. They are read from outside the repository and never copied into it.

pub mod charts;
pub mod modules;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Where they are: `$TEST_INPUTS`, else beside the checkout. `None` if `NO_INPUTS=1` says to go without.
///
/// # Errors
/// They are missing, and nobody said to go without.
pub fn directory() -> Result<Option<PathBuf>> {
    if std::env::var_os("NO_INPUTS").is_some_and(|value| value == "1") {
        return Ok(None);
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/inputs");
    let inputs = std::env::var_os("TEST_INPUTS").map_or(beside, PathBuf::from);
    if !inputs.is_dir() {
        bail!("{} is missing: TEST_INPUTS names another place, NO_INPUTS=1 goes without", inputs.display());
    }
    Ok(Some(inputs))
}

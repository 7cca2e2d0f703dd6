//! Third-party modules, charts and recordings that tests read and that are never copied into the repository.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Returns their directory: `$TEST_INPUTS`, or else `shared/inputs` beside the checkout. With `NO_INPUTS=1` it is
/// `None`, and a line on standard error says that `what` is left out.
///
/// # Errors
/// The directory is missing, and `NO_INPUTS=1` is not set.
pub fn inputs(what: &str) -> Result<Option<PathBuf>> {
    if env::var_os("NO_INPUTS").is_some_and(|value| value == "1") {
        say(&format!("left out, since NO_INPUTS=1: {what}"));
        return Ok(None);
    }
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/inputs");
    let inputs = env::var_os("TEST_INPUTS").map_or_else(beside, PathBuf::from);
    if !inputs.is_dir() {
        bail!("{} is missing; set TEST_INPUTS, or NO_INPUTS=1 to leave out: {what}", inputs.display());
    }
    Ok(Some(inputs))
}

#[expect(clippy::print_stderr, reason = "the harness shows standard error of a failed test")]
fn say(line: &str) {
    eprintln!("{line}");
}

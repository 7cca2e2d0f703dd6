//! `cargo xtask setup`: installs the programs of the test bed.

mod build;
mod download;
pub(crate) mod progress;

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::pins;
use crate::tools::{Pins, Tool};
use crate::workspace;
use download::Downloads;
use progress::{Progress, say};

/// Installs missing programs from `$KUBEBUILDER_ASSETS`, the cache, PATH (same version only) or official downloads,
/// or builds them. Prints nothing if none is missing, unless `talk`.
pub(crate) fn run(talk: bool) -> Result<()> {
    let tools = Pins::read(workspace::root())?.tools();
    let bin = pins::directory(workspace::root()).context("cannot name the cache directory")?;
    fs::create_dir_all(&bin).with_context(|| format!("cannot write {}", bin.display()))?;
    let missing: Vec<_> = tools.iter().filter(|tool| !is_there(tool, &bin)).collect();
    if !missing.is_empty() {
        get_all(&missing, &bin)?;
    }
    if talk || !missing.is_empty() {
        say(&format!("the test bed has its {} programs; the cache is {}", tools.len(), bin.display()));
    }
    Ok(())
}

/// Programs in `$KUBEBUILDER_ASSETS` are used in any version, as the user requested.
fn is_there(tool: &Tool, bin: &Path) -> bool {
    let assets = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty());
    assets.is_some_and(|assets| Path::new(&assets).join(&tool.name).is_file())
        || bin.join(&tool.name).is_file()
}

fn get_all(missing: &[&Tool], bin: &Path) -> Result<()> {
    // Two concurrent setups would build everything twice.
    let lock = File::create(bin.join(".lock"))?;
    lock.lock()?;
    let scratch = bin.with_file_name("scratch");
    let mut downloads = Downloads::default();
    for tool in missing {
        if bin.join(&tool.name).is_file() {
            continue;
        }
        if scratch.exists() {
            fs::remove_dir_all(&scratch)?;
        }
        fs::create_dir_all(&scratch)?;
        get(tool, bin, &scratch, &mut downloads)?;
    }
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    Ok(())
}

fn get(tool: &Tool, bin: &Path, scratch: &Path, downloads: &mut Downloads) -> Result<()> {
    let Tool { name, version, .. } = tool;
    let place = bin.join(name);
    if let Some(found) = on_path(tool) {
        // A dangling link counts as missing and has to be removed.
        if place.is_symlink() {
            fs::remove_file(&place)?;
        }
        symlink(&found, &place)?;
        say(&format!("{name} {version}: taken from {}", found.display()));
        return Ok(());
    }
    let program = scratch.join(name);
    if let Some(download) = &tool.download {
        let progress = Progress::begin(format!("{name} {version}: download"));
        let fetched = downloads.fetch(download, scratch, &program)?;
        progress.end(if fetched { "done" } else { "no answer, so it is built" });
        if fetched {
            return fs::rename(&program, &place).context("cannot move the program to the cache");
        }
    }
    build::ensure_go().with_context(|| format!("{name} {version} has to be built"))?;
    let progress = Progress::begin(format!("{name} {version}: build"));
    build::build(tool, scratch, &bin.with_file_name(format!("{name}.log")), &progress)?;
    progress.end("done");
    // The file appears atomically.
    fs::rename(&program, &place).context("cannot move the program to the cache")
}

/// Returns the program on PATH if it has the pinned version.
fn on_path(tool: &Tool) -> Option<PathBuf> {
    if tool.version_arguments.is_empty() {
        return None;
    }
    let path = env::var_os("PATH")?;
    let found = env::split_paths(&path).map(|place| place.join(&tool.name)).find(|path| path.is_file())?;
    let printed = Command::new(&found).args(tool.version_arguments).output().ok()?;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    if tool.says_version(&printed) {
        return found.canonicalize().ok();
    }
    let line = printed.lines().next().unwrap_or("nothing").trim();
    say(&format!("{} is not {} but says: {line}", found.display(), tool.version));
    None
}

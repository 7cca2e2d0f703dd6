//! Rules for names, lengths and words of files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use regex::Regex;

const MAX_LINES: usize = 600;

/// Names that say nothing about what is inside.
const BANNED_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "manager", "handler", "v2", "mod"];

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let machine_path = Regex::new(r"(^|[^\w./-])/(root|work|home/\w+)/")?;
    for path in files {
        findings.extend(name(path));
        let Ok(text) = fs::read_to_string(root.join(path)) else {
            continue;
        };
        let generated = path.file_name().is_some_and(|name| name == "Cargo.lock" || name == "go.sum");
        if is_rust(path) {
            findings.extend(length(path, &text));
        }
        if !generated && machine_path.is_match(&text) && !path.ends_with("tidy/text.rs") {
            findings.push(format!("{}: names a path of one machine", path.display()));
        }
        if path.extension().is_some_and(|extension| extension == "md") {
            findings.extend(links(root, path, &text)?);
        }
    }
    Ok(findings)
}

/// Reports whether a file has Rust code.
pub(super) fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn name(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    (is_rust(path) && BANNED_NAMES.contains(&stem))
        .then(|| format!("{}: a name that says nothing", path.display()))
}

fn length(path: &Path, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_LINES).then(|| format!("{}: {lines} lines, {MAX_LINES} are the most", path.display()))
}

/// Relative links must lead somewhere.
fn links(root: &Path, path: &Path, text: &str) -> Result<Vec<String>> {
    let link = Regex::new(r"\]\(([^)#\s]+)[^)]*\)")?;
    let directory = root.join(path).parent().map(Path::to_path_buf).unwrap_or_default();
    let targets = link.captures_iter(text).filter_map(|found| found.get(1)).map(|target| target.as_str());
    let broken = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    let broken = broken.filter(|target| !directory.join(target).exists());
    Ok(broken.map(|target| format!("{}: the link {target} leads nowhere", path.display())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_nothing_are_found() {
        assert!(name(Path::new("crates/a/src/util.rs")).is_some());
        assert!(name(Path::new("crates/a/src/order.rs")).is_none());
    }

    #[test]
    fn a_file_that_grew_too_long_is_found() {
        assert!(length(Path::new("a.rs"), &"\n".repeat(601)).is_some());
        assert!(length(Path::new("a.rs"), &"\n".repeat(600)).is_none());
    }
}

//! Checks that every reason has a runbook page and is used by code, and that every page has a reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const DIRECTORY: &str = "docs/runbook";

/// The list of reasons, and the crate that only names them.
const TABLE: &str = "crates/api/src/status/reason/table.rs";
const API: &str = "crates/api";

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = pages(root)?;
    findings.extend(unused(root, files)?);
    Ok(findings)
}

/// The words of the list.
pub(super) fn all_reasons(root: &Path) -> Result<BTreeSet<String>> {
    let table = fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    Ok(reasons(&table).collect())
}

/// Finds reasons that no code uses: users would match reasons that never occur.
fn unused(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let table = fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    anyhow::ensure!(reasons(&table).next().is_some(), "{TABLE} lists no reasons");
    let mut code = Vec::new();
    for path in files.iter().filter(|path| may_give(path)) {
        code.push(fs::read_to_string(root.join(path))?);
    }
    let finding = |reason| format!("{TABLE}: no code gives the reason {reason}");
    Ok(without_giver(&table, &code).into_iter().map(finding).collect())
}

fn without_giver(table: &str, code: &[String]) -> BTreeSet<String> {
    let given: BTreeSet<&str> = code.iter().flat_map(|text| given(text)).collect();
    reasons(table).filter(|reason| !given.contains(reason.as_str())).collect()
}

/// `Name: Class => "…";` or `Name => "…";`.
fn reasons(table: &str) -> impl Iterator<Item = String> {
    table.lines().filter_map(|line| {
        let (name, _) = line.trim().split_once(" => \"")?;
        let name = name.split(':').next().unwrap_or(name);
        name.chars().all(char::is_alphanumeric).then(|| name.to_owned())
    })
}

fn may_give(path: &Path) -> bool {
    let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
    path.extension().is_some_and(|extension| extension == "rs")
        && path.starts_with("crates")
        && !path.starts_with(API)
        && !is_test
}

/// Names after `Reason::`, tests left out.
fn given(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code.split("Reason::").skip(1).filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next())
}

fn pages(root: &Path) -> Result<Vec<String>> {
    let index = root.join(DIRECTORY).join("README.md");
    let text = fs::read_to_string(&index).with_context(|| format!("cannot read {}", index.display()))?;
    let listed: BTreeSet<String> = text.split("](").filter_map(page).collect();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root.join(DIRECTORY))? {
        found.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    found.remove("README.md");
    let missing =
        listed.difference(&found).map(|name| format!("{DIRECTORY}/{name}: a reason without its page"));
    let left = found.difference(&listed).map(|name| format!("{DIRECTORY}/{name}: a page without its reason"));
    Ok(missing.chain(left).collect())
}

fn page(rest: &str) -> Option<String> {
    let (target, _) = rest.split_once(')')?;
    target.strip_suffix(".md").filter(|name| !name.contains('/')).map(|name| format!("{name}.md"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_from_the_table_and_from_what_gives_them() {
        let table = "    // Nothing is wrong.\n    Ready => \"All.\";\n    Denied: Blocked => \"No.\";\n    (@class) => { None };\n";
        assert_eq!(reasons(table).collect::<Vec<_>>(), ["Ready", "Denied"]);
        let code = "Failure::new(Reason::Denied, x)\n#[cfg(test)]\nmod tests { Reason::Ready }";
        assert_eq!(given(code).collect::<Vec<_>>(), ["Denied"]);
    }

    #[test]
    fn only_code_outside_of_the_api_and_of_tests_gives_reasons() {
        let may = |path: &str| may_give(Path::new(path));
        assert!(may("crates/sdk/src/driver.rs"));
        for path in [
            "crates/api/src/status/reason.rs",
            "crates/sdk/src/a/tests.rs",
            "crates/sdk/tests/a.rs",
            "README.md",
        ] {
            assert!(!may(path), "{path}");
        }
    }

    #[test]
    fn a_reason_that_nothing_gives_is_found() {
        let table = "    Ready => \"All.\";\n    Denied: Blocked => \"No.\";\n";
        let found = without_giver(table, &["Reason::Ready".to_owned(), String::new()]);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["Denied"]);
    }
}

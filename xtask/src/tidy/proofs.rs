//! Tests that a page names as its proof exist and are not ignored.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use regex::Regex;

/// The page whose tables end in a column of tests.
const PAGE: &str = "docs/helm-troubles.md";

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let named = named(&page)?;
    ensure!(!named.is_empty(), "{PAGE} names no tests");
    let mut tests = BTreeSet::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        tests.extend(of(&fs::read_to_string(root.join(path))?)?);
    }
    let missing = named.iter().filter(|name| !tests.contains(*name));
    Ok(missing.map(|name| format!("{PAGE}: there is no test {name} that runs")).collect())
}

/// Names in backticks in the last cell of each row.
fn named(page: &str) -> Result<BTreeSet<String>> {
    let word = Regex::new("`([a-z0-9_]+)`")?;
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    Ok(cells.flat_map(|cell| word.captures_iter(cell).map(|found| found[1].to_owned())).collect())
}

/// Functions that an attribute makes a test, and none keeps from being run.
fn of(code: &str) -> Result<BTreeSet<String>> {
    let function = Regex::new(r"((?:#\[[^\]]*\]\s*)+)(?:async )?fn ([a-z0-9_]+)")?;
    let test = Regex::new(r"#\[(?:tokio::)?test\b")?;
    let functions = function.captures_iter(code).map(|found| found.extract::<2>().1);
    let tests = functions
        .filter(|[attributes, _]| test.is_match(attributes) && !attributes.contains("ignore"))
        .map(|[_, name]| name.to_owned());
    Ok(tests.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_the_last_column_and_from_tests_alone() {
        let page = "| `a_thing` | `one`, `two_words` |\n`no_row`\n";
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(named(page).unwrap(), set(&["one", "two_words"]));
        let code = "#[test]\nfn plain() {}\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn on_clusters() {}\n\
                    #[test]\n#[ignore = \"long\"]\nfn long() {}\n#[ignore]\n#[test]\nfn slow() {}\nfn helps() {}\n\
                    #[test]\n#[cfg(unix)]\nfn on_unix() {}";
        assert_eq!(of(code).unwrap(), set(&["plain", "on_clusters", "on_unix"]));
    }
}

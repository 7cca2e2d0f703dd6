//! Every kind that an operator reads has a row in the tables about missing data: in SECURITY.md, and in the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use regex::Regex;

const PAGE: &str = "SECURITY.md";
const HEADING: &str = "## Missing data";
const TABLE: &str = "e2e/tests/missing_data/table.rs";

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let read = |path: &Path| {
        fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {}", path.display()))
    };
    let mut kinds = BTreeSet::new();
    for path in files.iter().filter(|path| path.starts_with("deploy/rbac")) {
        kinds.extend(kinds_read(&read(path)?)?);
    }
    ensure!(!kinds.is_empty(), "deploy/rbac has no rules that read");
    let page = kinds_of_page(&read(Path::new(PAGE))?)?;
    let tests = kinds_of_tests(&read(Path::new(TABLE))?)?;
    let lacks = |place: &'static str, rows: &BTreeSet<String>| {
        let missing: Vec<String> = kinds.difference(rows).cloned().collect();
        missing.into_iter().map(move |kind| {
            format!("{place}: an operator reads {kind}, which has no row in the table about missing data")
        })
    };
    Ok(lacks(PAGE, &page).chain(lacks(TABLE, &tests)).collect())
}

/// Resources that a role may get, list or watch; subresources and all resources do not count.
fn kinds_read(role: &str) -> Result<BTreeSet<String>> {
    let pattern =
        Regex::new(r"resources: \[([^\]]*)\]\s+(?:resourceNames: \[[^\]]*\]\s+)?verbs: \[([^\]]*)\]")?;
    let word = Regex::new(r#""([a-z]+)""#)?;
    let reads = |verbs: &str| ["get", "list", "watch"].iter().any(|verb| verbs.contains(verb));
    let rules = pattern.captures_iter(role).map(|found| found.extract::<2>().1);
    let resources = rules.filter(|[_, verbs]| reads(verbs)).map(|[resources, _]| resources);
    Ok(resources
        .flat_map(|resources| word.captures_iter(resources).map(|found| found[1].to_owned()))
        .collect())
}

/// Resources in backticks in the first cell of each row below the heading.
fn kinds_of_page(page: &str) -> Result<BTreeSet<String>> {
    let word = Regex::new("`([a-z]+)`")?;
    let section = page.split_once(HEADING).map_or("", |(_, rest)| rest);
    let rows =
        section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    Ok(cells.flat_map(|cell| word.captures_iter(cell).map(|found| found[1].to_owned())).collect())
}

fn kinds_of_tests(code: &str) -> Result<BTreeSet<String>> {
    let row = Regex::new(r#"kind\("([a-z]+)""#)?;
    Ok(row.captures_iter(code).map(|found| found[1].to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn kinds_are_read_from_roles_page_and_tests() {
        let role = "rules:\n  - apiGroups: [\"\"]\n    resources: [\"secrets\", \"pods/log\"]\n    verbs: [\"get\"]\n  \
                    - apiGroups: [\"\"]\n    resources: [\"configmaps\"]\n    resourceNames: [\"a\"]\n    verbs: [\"list\"]\n  \
                    - apiGroups: [\"\"]\n    resources: [\"events\"]\n    verbs: [\"create\"]\n";
        assert_eq!(kinds_read(role).unwrap(), set(&["configmaps", "secrets"]));
        let page = "| `a` | `b` |\n## Missing data\n| Kind | Effect |\n|---|---|\n| Kyma (`kymas`) | `no` |\n## Next\n| `c` |\n";
        assert_eq!(kinds_of_page(page).unwrap(), set(&["kymas"]));
        let code = "    kind(\"kymas\", HUB),\n    kind(\"secrets\", HUB).says(\"AwaitingAccess\"),";
        assert_eq!(kinds_of_tests(code).unwrap(), set(&["kymas", "secrets"]));
    }
}

//! Every reason has a page that says what to do, and no page is left over.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: &str = "docs/runbook";

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
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

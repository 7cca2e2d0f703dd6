//! Limits the names that the crate `sdk` exports, since other teams build on each of them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::use_paths;

/// Sources of the crate.
const DIRECTORY: &str = "crates/sdk/src";
/// Maximum number of names at the root of the crate and in its public modules.
const MAX_EXPORTS: usize = 30;

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let read = |name: &str| {
        let path = root.join(DIRECTORY).join(name).with_extension("rs");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let mut names = exports(&read("lib")?);
    let modules: Vec<String> =
        names.iter().filter_map(|name| name.strip_prefix("mod ")).map(str::to_owned).collect();
    for module in modules {
        names.extend(exports(&read(&module)?));
    }
    Ok(refused(&names))
}

/// Returns the paths of the `pub use` declarations in a file, and keyword and name of its public items.
fn exports(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with("//"));
    let code: String = lines.map(|line| format!("\n{line}")).collect();
    let items = code.split("\npub ").skip(1);
    items.flat_map(|item| declared_in(item).unwrap_or_else(|| vec![head(item)])).collect()
}

/// Returns the paths of a `use` declaration; `None` for another item.
fn declared_in(item: &str) -> Option<Vec<String>> {
    let (tree, _) = item.strip_prefix("use ")?.split_once(';')?;
    Some(use_paths::imports(&format!("use {tree};")))
}

/// Returns the first two words of an item, such as `mod testing`.
fn head(item: &str) -> String {
    let words = item.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.take(2).collect::<Vec<_>>().join(" ")
}

fn refused(names: &[String]) -> Vec<String> {
    let globs = names.iter().filter(|name| name.ends_with('*'));
    let mut findings: Vec<String> =
        globs.map(|name| format!("{DIRECTORY}: {name} exports names that cannot be counted")).collect();
    if names.len() > MAX_EXPORTS {
        findings.push(format!("{DIRECTORY}: {} exported names; at most {MAX_EXPORTS}", names.len()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_uses_public_items_and_modules_count() {
        let code = "//! pub use doc::Name;\nmod a;\npub mod testing;\npub use a::{B, c::D as E};\npub use kube;\n\
                    use a::F;\npub(crate) use a::G;\npub fn h() {}\n";
        assert_eq!(exports(code), ["mod testing", "a::B", "a::c::D", "kube", "fn h"]);
    }

    #[test]
    fn too_many_names_and_globs_are_refused() {
        let names = |count: usize| vec!["a::B".to_owned(); count];
        assert!(refused(&names(MAX_EXPORTS)).is_empty());
        assert_eq!(refused(&names(MAX_EXPORTS + 1)), ["crates/sdk/src: 31 exported names; at most 30"]);
        assert_eq!(refused(&["a::*".to_owned()]).len(), 1);
    }
}

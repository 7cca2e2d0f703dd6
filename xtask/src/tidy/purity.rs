//! Checks that modules for decisions import no client, clock or environment.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::text::is_rust;
use super::use_paths::imports;

/// Modules, by path without extension, whose results depend only on arguments.
const PURE: &[&str] = &[
    "crates/api/src",
    "crates/kyma-operator/src/plan",
    "crates/kyma-operator/src/decision/resolve",
    "crates/kyma-operator/src/hub/catalogue",
    "crates/kyma-operator/src/hub/config",
    "crates/kyma-operator/src/decision/deletion",
    "crates/kyma-operator/src/process/rbac",
    "crates/kyma-operator/src/decision/selection",
    "crates/helm/src/hooks",
    "crates/helm/src/storage",
    "crates/helm/src/values",
    "crates/helm-component/src/actions/history/due",
    "crates/helm-component/src/actions/hooks/conditions",
    "crates/helm-component/src/actions/hooks/due",
    "crates/helm-component/src/actions/hooks/release",
    "crates/helm-component/src/actions/hooks/state",
    "crates/helm-component/src/actions/hooks/stored",
    "crates/helm-component/src/actions/rollback/due",
    "crates/helm-component/src/actions/test/conditions",
    "crates/helm-component/src/actions/test/due",
    "crates/helm-component/src/plan",
    "crates/helm-component/src/rbac",
    "crates/helm-component/src/values",
    "crates/release-meta-syncer/src/catalogue",
    "crates/release-meta-syncer/src/plan",
    "crates/release-meta-syncer/src/rbac",
    "crates/health/src",
    "crates/object-set/src/order",
    "crates/object-set/src/managed_fields/drift",
];

/// Words that only code with effects needs.
const FORBIDDEN: &[&str] = &[
    "kube::Client",
    "kube::Api",
    "kube::client",
    "kube_runtime",
    "kube::runtime",
    "tokio::",
    "std::env",
    "std::fs",
    "std::net",
    "Timestamp::now",
    "SystemTime::now",
    "Instant::now",
    "Zoned::now",
];

/// The end of the first paragraph of a pure module's documentation.
const MARKER: &str = ". Pure.";

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let finding = |module| format!("{module}: no such module, but xtask/src/tidy/purity.rs lists it");
    let mut findings: Vec<String> = missing(files).into_iter().map(finding).collect();
    for path in files.iter().filter(|path| is_rust(path)) {
        let text = fs::read_to_string(root.join(path))?;
        if let Some(line) = other_marker(&text) {
            let path = path.display();
            findings.push(format!("{path}:{line}: a pure module's first paragraph ends with `{MARKER}`"));
        }
        if !is_pure(path) && !is_marked(&text) {
            continue;
        }
        findings
            .extend(violations(&text).map(|word| format!("{}: a pure module uses {word}", path.display())));
    }
    Ok(findings)
}

/// Returns the listed modules without a file. A renamed module would not be checked any more.
fn missing(files: &[PathBuf]) -> Vec<&'static str> {
    let exists = |module: &str| files.iter().any(|path| path.with_extension("").starts_with(module));
    PURE.iter().copied().filter(|module| !exists(module)).collect()
}

/// Reports whether the first paragraph of a file's documentation ends with the marker.
fn is_marked(text: &str) -> bool {
    let paragraph = text.lines().map_while(|line| line.strip_prefix("//! "));
    paragraph.collect::<Vec<_>>().join(" ").ends_with(MARKER)
}

/// Returns the line of a file's documentation that calls the module pure in another form or elsewhere.
fn other_marker(text: &str) -> Option<usize> {
    let paragraph = text.lines().take_while(|line| line.starts_with("//! ")).count();
    let mut head = (1..).zip(text.lines().map_while(|line| line.strip_prefix("//!")));
    head.find_map(|(number, line)| {
        let is_expected = number == paragraph && is_marked(text);
        let rest = if is_expected { line.trim_end_matches("Pure.") } else { line };
        let mut words = rest.split(|letter: char| !letter.is_alphanumeric());
        let is_other = rest.contains("(pure)") || words.any(|word| word == "Pure");
        is_other.then_some(number)
    })
}

fn is_pure(path: &Path) -> bool {
    let in_binary = path.components().any(|part| part.as_os_str() == "bin");
    let stem = path.with_extension("");
    is_rust(path) && !in_binary && PURE.iter().any(|module| stem.starts_with(module))
}

fn violations(text: &str) -> impl Iterator<Item = &'static str> {
    let code: String = text
        .split("#[cfg(test)]")
        .next()
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let imported = imports(&code);
    FORBIDDEN.iter().copied().filter(move |word| {
        code.contains(word) || imported.iter().any(|path| format!("{path}::").contains(&whole(word)))
    })
}

/// A word of the list as the end of a path or the beginning of a longer one.
fn whole(word: &str) -> String {
    format!("{}::", word.trim_end_matches(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_in_a_decision_is_found_but_not_in_its_test() {
        assert_eq!(violations("fn f() { Timestamp::now() }").count(), 1);
        assert_eq!(violations("fn f() {}\n#[cfg(test)]\nmod t { fn g() { Timestamp::now() } }").count(), 0);
        assert_eq!(violations("use kube::{ResourceExt, Api, core::Kind};").count(), 1);
        assert_eq!(violations("use std::{collections::{BTreeMap, BTreeSet}, fs};").count(), 1);
        assert_eq!(violations("use kube::{ResourceExt, core::ApiResource};").count(), 0);
        assert_eq!(violations("/// Unlike `Timestamp::now`, pure.\nfn f() {}").count(), 0);
    }

    #[test]
    fn files_below_a_pure_module_are_pure() {
        assert!(is_pure(Path::new("crates/helm-component/src/plan/next.rs")));
        assert!(!is_pure(Path::new("crates/helm-component/src/apply.rs")));
    }

    #[test]
    fn listed_modules_without_a_file_are_found() {
        let files: Vec<PathBuf> = PURE.iter().map(|module| PathBuf::from(format!("{module}.rs"))).collect();
        assert!(missing(&files).is_empty());
        assert_eq!(missing(&files[1..]), [PURE[0]]);
    }

    #[test]
    fn marker_ends_the_first_paragraph() {
        assert!(is_marked("//! The next step.\n//! By a rule. Pure.\n\nuse a;\n"));
        assert!(is_marked("//! The next step. Pure.\n//!\n//! More.\n"));
        assert!(!is_marked("//! The next step.\n\nconst WORD: &str = \". Pure.\";\n"));
    }

    #[test]
    fn other_markers_are_found_with_their_line() {
        assert_eq!(other_marker("//! The next step (pure).\n"), Some(1));
        assert_eq!(other_marker("//! Pure checks. Pure.\n"), Some(1));
        assert_eq!(other_marker("//! The next step.\n//!\n//! Pure.\n"), Some(3));
        assert_eq!(other_marker("//! The next step. Pure.\n//!\n//! More. Pure.\n"), Some(3));
        assert_eq!(other_marker("//! The next step. Pure.\n//!\n//! Asks a pure plan.\n"), None);
        assert_eq!(other_marker("//! The next step.\n\n/// Pure.\nfn next() {}\n"), None);
    }
}

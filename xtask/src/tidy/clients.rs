//! Programs create clients by one function: kube's own clients send bodies that API servers parse as other data.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// File with the function that creates clients with safe bodies.
const ALLOWED: &[&str] = &["crates/targets/src/apply_body.rs"];

/// Crates that are not part of an operator.
const TEST_CRATES: &[&str] = &["crates/testbed", "e2e/src", "xtask", "fuzz"];

const FORBIDDEN: &[&str] = &["Client::try_from(", "Client::try_default(", "ClientBuilder::"];

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| is_program(path)) {
        let text = fs::read_to_string(root.join(path))?;
        let found = violations(&text);
        findings.extend(found.map(|word| {
            format!(
                "{}: {word}…) writes text that API servers change; use targets::client_from",
                path.display()
            )
        }));
    }
    Ok(findings)
}

fn is_program(path: &Path) -> bool {
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    let is_test = path.iter().any(|part| part == "tests") || path.ends_with("tests.rs");
    is_rust
        && !is_test
        && !ALLOWED.iter().any(|allowed| path == Path::new(allowed))
        && !TEST_CRATES.iter().any(|directory| path.starts_with(directory))
}

fn violations(text: &str) -> impl Iterator<Item = &'static str> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    FORBIDDEN.iter().copied().filter(move |word| code.iter().any(|line| line.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_kubes_own_are_found_in_programs_only() {
        assert_eq!(violations("fn f() { kube::Client::try_from(config) }").count(), 1);
        assert_eq!(violations("/// As [`Client::try_from`](x).\nfn f() { client_from(config) }").count(), 0);
        assert!(is_program(Path::new("crates/kymactl/src/hub.rs")));
        assert!(!is_program(Path::new("crates/kymactl/tests/story/main.rs")));
        assert!(!is_program(Path::new("crates/testbed/src/client/access.rs")));
    }
}

//! Only the delete gate sends a DELETE.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// The delete gate itself, admission policies that match DELETEs, the conformance check that other teams run against their
/// own component, and the client of dry runs, which refuses DELETEs.
const ALLOWED: &[&str] = &[
    "crates/controller/src/deletion/gate.rs",
    "crates/controller/src/rbac/guard.rs",
    "crates/sdk/src/testing/behaviour.rs",
    "crates/targets/src/client/caller.rs",
];
/// Crates that only tests use.
const DEVELOPMENT: &[&str] = &["crates/testbed/", "crates/testbed-exec/", "e2e/", "fuzz/", "xtask/"];
/// Words of code that sends or prepares a DELETE.
const DELETE_WORDS: &[&str] = &[
    "DeleteParams",
    "delete_collection",
    "Api::delete",
    "Request::delete",
    "Method::DELETE",
    "\"DELETE\"",
    "::delete_opt",
];

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| is_checked(path)) {
        let text = fs::read_to_string(root.join(path))?;
        findings.extend(violations(&text).into_iter().map(|(line, what)| {
            format!(
                "{}:{line}: {what}: every DELETE goes through kyma_controller::DeleteGate",
                path.display()
            )
        }));
    }
    Ok(findings)
}

fn is_checked(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let is_source = path.extension().is_some_and(|extension| extension == "rs") && name.contains("/src/");
    let is_test = name.ends_with("/tests.rs") || name.contains("/tests/") || name.ends_with("_tests.rs");
    is_source
        && !is_test
        && !ALLOWED.contains(&&*name)
        && !DEVELOPMENT.iter().any(|directory| name.starts_with(directory))
}

/// Lines that send a DELETE, with the word that shows it.
fn violations(text: &str) -> Vec<(usize, String)> {
    // Unit tests stand last in a file.
    let code = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code);
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let is_comment = |at: usize| {
        let start = code[..at].rfind('\n').map_or(0, |end| end + 1);
        code[start..at].contains("//")
    };
    let words = DELETE_WORDS.iter().flat_map(|word| code.match_indices(word));
    let words = words.map(|(at, word)| (at, word.to_owned()));
    let calls =
        code.match_indices(".delete(").filter(|(at, call)| has_two_arguments(&code[at + call.len()..]));
    let calls = calls.map(|(at, _)| (at, ".delete(name, params)".to_owned()));
    let found = words.chain(calls).filter(|(at, _)| !is_comment(*at));
    let mut found: Vec<_> = found.map(|(at, word)| (line_of(at), word)).collect();
    found.sort();
    found
}

/// Reports whether a call has more than one argument; `remove` and the like of collections take only a key. `rest`
/// begins after the opening parenthesis.
fn has_two_arguments(rest: &str) -> bool {
    let mut depth = 0_usize;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => return false,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => return !rest[at + 1..].trim_start().starts_with(')'),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_send_a_delete_are_found() {
        let found = |text: &str| !violations(text).is_empty();
        assert!(found("api.delete(&name, &params).await"));
        assert!(found("api\n    .delete(\n        &live.name_any(),\n        &Default::default(),\n    )"));
        assert!(found("Api::<Secret>::namespaced(a, b).delete_collection(&x, &y)"));
        assert!(found("let params = DeleteParams::background();"));
        assert!(found("Request::builder().method(\"DELETE\")"));
        assert!(!found("index.delete(&(a, b))") && !found("index.delete(key,\n)"));
        assert!(!found("// api.delete(&name, &params)"));
        assert!(!found("fn a() {}\n#[cfg(test)]\nmod tests {\n    api.delete(&name, &params)\n}"));
    }

    #[test]
    fn sources_of_operators_are_checked() {
        let checked = |path: &str| is_checked(Path::new(path));
        assert!(checked("crates/helm-component/src/actions/hooks/objects.rs"));
        assert!(checked("crates/kymactl/src/command/migrate/klm/write.rs"));
        for path in [
            "crates/controller/src/deletion/gate.rs",
            "crates/helm-component/tests/clusters/hooks.rs",
            "crates/testbed/src/cluster.rs",
            "crates/kyma-operator/src/hub/config/tests.rs",
            "docs/design.md",
        ] {
            assert!(!checked(path), "{path}");
        }
    }
}

//! Checks the length of the names of tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::text::is_rust;

const MAX_NAME_CHARACTERS: usize = 60;

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| is_rust(path)) {
        let code = fs::read_to_string(root.join(path))?;
        let found = long_names(&code).into_iter().map(|(line, name)| {
            let (path, length) = (path.display(), name.chars().count());
            format!(
                "{path}:{line}: test name of {length} characters, {MAX_NAME_CHARACTERS} are the most: {name}"
            )
        });
        findings.extend(found);
    }
    Ok(findings)
}

/// Returns the names of tests that are too long, with their lines.
fn long_names(code: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut is_test = false;
    for (number, line) in (1..).zip(code.lines()) {
        let line = line.trim_start();
        is_test |= is_test_attribute(line);
        let Some(name) = function_name(line) else { continue };
        if is_test && name.chars().count() > MAX_NAME_CHARACTERS {
            names.push((number, name));
        }
        is_test = false;
    }
    names
}

/// Reports whether a line begins with `#[test]`, `#[tokio::test(…)]`, `#[rstest]` or the like.
fn is_test_attribute(line: &str) -> bool {
    let Some(attribute) = line.strip_prefix("#[") else { return false };
    let path =
        attribute.split(|letter: char| !is_of_name(letter) && letter != ':').next().unwrap_or_default();
    path.rsplit("::").next().is_some_and(|name| name == "test" || name == "rstest")
}

/// Returns the name of the function that a line declares.
fn function_name(line: &str) -> Option<&str> {
    let (qualifiers, rest) = line.split_once("fn ")?;
    let is_declaration = (qualifiers.split_whitespace())
        .all(|word| word.starts_with("pub") || ["async", "const", "unsafe"].contains(&word));
    let name = rest.split(|letter: char| !is_of_name(letter)).next()?;
    is_declaration.then_some(name)
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_of_tests_are_found_with_their_lines() {
        let (long, longest) = ("n".repeat(MAX_NAME_CHARACTERS + 1), "n".repeat(MAX_NAME_CHARACTERS));
        for attribute in ["#[test]", "#[tokio::test(flavor = \"multi_thread\")]", "#[rstest]"] {
            let test =
                |name: &str| format!("{attribute}\n#[ignore = \"slow\"]\n    async fn {name}() {{}}\n");
            assert_eq!(long_names(&test(&long)), [(3, long.as_str())], "{attribute}");
            assert!(long_names(&test(&longest)).is_empty(), "{attribute}");
        }
    }

    #[test]
    fn names_of_other_functions_are_not_limited() {
        let long = "n".repeat(MAX_NAME_CHARACTERS + 1);
        let code = format!("#[test]\nfn short() {{}}\n\n#[cfg(test)]\npub(crate) fn {long}() {{}}\n");
        assert!(long_names(&code).is_empty());
        assert_eq!(function_name("// fn a"), None);
    }
}

//! Refuses names of types and constants that need an explanation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use regex::Regex;

use super::text::is_rust;

/// Names that one kind of declaration must not have.
struct Rule {
    /// Pattern of a declaration at the beginning of a line, with the name as its only group.
    declaration: &'static str,
    refused: &'static [&'static str],
    instead: &'static str,
}

/// Pronouns, participles and images.
const REFUSED_TYPES: &[&str] = &[
    "Crowd", "Deed", "Doors", "Drawn", "Found", "Given", "Guest", "Heir", "Held", "Known", "Made", "Parting",
    "Place", "Said", "Seen", "Shelf", "Sight", "Thaw", "Thawed", "Told", "Town", "Wanted", "Way",
];

/// Words without subject or unit.
const REFUSED_CONSTANTS: &[&str] = &["LASTS", "LOOK", "MOST", "NAMED", "PATIENCE", "TOLD", "UNTOLD", "WORDS"];

const RULES: &[Rule] = &[
    Rule {
        declaration: r"^\s*(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|union|trait|type) (\w+)",
        refused: REFUSED_TYPES,
        instead: "a type is named by a noun of Kubernetes, Helm, Flux or Kyma",
    },
    Rule {
        declaration: r"^\s*(?:pub(?:\([^)]*\))? )?(?:const|static(?: mut)?) (\w+)",
        refused: REFUSED_CONSTANTS,
        instead: "a constant names its subject and unit",
    },
];

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let rules = compiled()?;
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| is_rust(path)) {
        let code = fs::read_to_string(root.join(path))?;
        let found = violations(&code, &rules);
        findings.extend(found.iter().map(|(line, finding)| format!("{}:{line}: {finding}", path.display())));
    }
    Ok(findings)
}

fn compiled() -> Result<Vec<(Regex, &'static Rule)>> {
    RULES.iter().map(|rule| Ok((Regex::new(rule.declaration)?, rule))).collect()
}

/// Returns the declarations with a refused name, with their lines.
fn violations(code: &str, rules: &[(Regex, &Rule)]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        for (declaration, rule) in rules {
            let Some(parts) = declaration.captures(line) else { continue };
            let name = &parts[1];
            if rule.refused.contains(&name) {
                found.push((number, format!("{name}: {}", rule.instead)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(code: &str) -> Vec<usize> {
        violations(code, &compiled().unwrap()).into_iter().map(|(line, _)| line).collect()
    }

    /// Returns the declaration with this name in place of `NAME`.
    fn declared(declaration: &str, name: &str) -> String {
        declaration.replace("NAME", name)
    }

    #[test]
    fn refused_names_of_types_are_found_with_their_lines() {
        for name in REFUSED_TYPES {
            for declaration in [
                "struct NAME;",
                "pub(crate) enum NAME {",
                "    pub(in crate::a) struct NAME<'a> {",
                "pub trait NAME {",
                "    type NAME = ();",
            ] {
                let code = declared(declaration, name);
                assert_eq!(lines(&format!("use a::b;\n{code}\n")), [2], "{code}");
            }
            for other in ["struct NAMEState;", "// struct NAME", "use a::NAME;", "fn get(value: NAME) {"] {
                let code = declared(other, name);
                assert!(lines(&code).is_empty(), "{code}");
            }
        }
    }

    #[test]
    fn refused_names_of_constants_are_found() {
        for name in REFUSED_CONSTANTS {
            for declaration in
                ["const NAME: usize = 1;", "    pub const NAME: u8 = 1;", "static NAME: u8 = 1;"]
            {
                let code = declared(declaration, name);
                assert_eq!(lines(&code), [1], "{code}");
            }
            for other in ["const NAME_RETRIES: usize = 1;", "const fn count() {}", "if count > NAME {"] {
                let code = declared(other, name);
                assert!(lines(&code).is_empty(), "{code}");
            }
        }
    }
}

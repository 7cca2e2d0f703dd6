//! Code that has a typed way of its own is not written by hand elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use regex::Regex;

/// A pattern of code, the file that may contain it, and what to write instead.
struct Rule {
    pattern: &'static str,
    home: &'static str,
    instead: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        pattern: r#"format!\(\s*"\{\w*\}=[^"]*",\s*(kyma_api::)?labels::"#,
        home: "crates/api/src/metadata/names.rs",
        instead: "a label selector is made by names::label_selector, which shortens values that are no label values",
    },
    Rule {
        pattern: r#"\bowner\w*\.kind (==|!=) "Kyma""#,
        home: "crates/api/src/metadata/owner.rs",
        instead: "whether an owner is a Kyma is told by kyma_api::is_kyma, by group and kind",
    },
    Rule {
        pattern: r"serde_json::Error\|\s*(kyma_\w+::)?Failure::new\([^;]*\b(error|err|e)\b",
        home: "crates/controller/src/calls/unreadable.rs",
        instead: "the words of a decoder quote values: name the fields by unreadable_fields",
    },
    Rule {
        pattern: r"\bresource_version\b[^;{}]*\.parse(::<u64>)?\(\)",
        home: "crates/controller/src/informer/resource_version.rs",
        instead: "a resourceVersion is read by kyma_controller::ResourceVersion",
    },
];

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let rules = RULES.iter().map(|rule| Ok((Regex::new(rule.pattern)?, rule))).collect::<Result<Vec<_>>>()?;
    let mut findings = Vec::new();
    let is_checked = |path: &&PathBuf| {
        path.extension().is_some_and(|extension| extension == "rs")
            && (path.starts_with("crates") || path.starts_with("e2e"))
    };
    for path in files.iter().filter(is_checked) {
        let text = fs::read_to_string(root.join(path))?;
        let broken =
            rules.iter().filter(|(regex, rule)| path != Path::new(rule.home) && regex.is_match(&text));
        findings.extend(broken.map(|(_, rule)| format!("{}: {}", path.display(), rule.instead)));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_by_hand_is_found() {
        let samples = [
            r#"ListParams::default().labels(&format!("{}={}", labels::KYMA_NAME, key.name))"#,
            r#"owners.iter().find(|owner| owner.kind == "Kyma")"#,
            "let invalid = |error: serde_json::Error| Failure::new(Reason::ManifestInvalid, error.to_string());",
            "object.resource_version().and_then(|version| version.parse::<u64>().ok())",
        ];
        for (rule, sample) in RULES.iter().zip(samples) {
            assert!(Regex::new(rule.pattern).unwrap().is_match(sample), "{sample}");
        }
    }
}

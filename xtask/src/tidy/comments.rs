//! Checks the wording of comments in Rust files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use regex::Regex;

use super::text::is_rust;

/// Words that a comment must not have, and what to write instead.
struct Rule {
    /// Pattern with the refused word as its only group.
    pattern: &'static str,
    instead: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        pattern: r"(?:^|[.!?] )[*_(\[]*(What|Who|Whose|Whoever|Those)\b",
        instead: "a sentence begins with its subject",
    },
    Rule { pattern: r"(?i)\b(somebody|nobody|whoever|anybody)\b", instead: "name the actor" },
];

/// A comment, with its text as the only group. Markers of lists, headings and quotations are not part of the text.
const COMMENT: &str = r"(?:^|\s)//[/!]?\s+(?:(?:[-*#>]+|\d+\.)\s+)?(.*)";

/// The rules, ready to be matched.
struct Wording {
    comment: Regex,
    rules: Vec<(Regex, &'static Rule)>,
}

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let wording = Wording::new()?;
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| is_rust(path)) {
        let text = fs::read_to_string(root.join(path))?;
        let found = wording.violations(&text);
        findings.extend(found.iter().map(|(line, finding)| format!("{}:{line}: {finding}", path.display())));
    }
    Ok(findings)
}

impl Wording {
    fn new() -> Result<Self> {
        let rules =
            RULES.iter().map(|rule| Ok((Regex::new(rule.pattern)?, rule))).collect::<Result<Vec<_>>>()?;
        Ok(Self { comment: Regex::new(COMMENT)?, rules })
    }

    /// Returns the comments that break a rule, with their lines.
    fn violations(&self, text: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let Some(comment) = self.comment.captures(line) else { continue };
            for (regex, rule) in &self.rules {
                if let Some(words) = regex.captures(&comment[1]) {
                    found.push((number, format!("the comment says {:?}: {}", &words[1], rule.instead)));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        Wording::new().unwrap().violations(text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn sentences_without_a_subject_at_their_beginning_are_found() {
        for line in [
            "//! What is due.",
            "\t/// Those of the chart.",
            "// - Whose object it is.",
            "/// **Who** asks.",
            "/// Returns the owner. What is left stays.",
        ] {
            assert_eq!(lines(&format!("let a = 1;\n{line}\n")), [2], "{line}");
        }
        for line in ["/// Returns what is left.", "/// Whatever is left.", "let a = \"What\";", "/// `Who`"] {
            assert!(lines(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn actors_without_a_name_are_found_in_all_comments() {
        for actor in ["somebody", "Nobody", "whoever", "anybody"] {
            for comment in ["/// An object of ACTOR.", "// ACTOR", "let a = 1;\t// for ACTOR"] {
                let code = comment.replace("ACTOR", actor);
                assert_eq!(lines(&format!("let b = 1;\n{code}\n")), [2], "{code}");
            }
        }
        assert!(lines("let nobody = \"nobody\";\n/// The user.\nlet url = \"http://nobody\";\n").is_empty());
    }
}

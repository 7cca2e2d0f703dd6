//! Reduces Helm's error text to parts without values: locations, functions, key paths, and words of the chart itself.

use std::sync::LazyLock;

use regex::Regex;

use super::RenderError;
use super::chart::TemplateText;

/// Maximum number of violations in a message.
const VIOLATIONS: usize = 10;
/// Maximum length of a summary, in characters.
const SUMMARY: usize = 600;

/// Converts the standard error of a failed `helm template` to an error that may be shown.
pub(super) fn reduce(stderr: &str, chart: &TemplateText) -> RenderError {
    // Log lines before the error are not needed here.
    let start = stderr.find("Error: ").filter(|start| *start == 0 || stderr[..*start].ends_with('\n'));
    let stderr = &stderr[start.unwrap_or(0)..];
    if stderr.lines().next().is_some_and(|line| line.contains("meet the specifications of the schema")) {
        return RenderError::Schema { violations: violations(stderr) };
    }
    let mut summary = words(stderr, chart).unwrap_or_else(|| {
        "helm gave no reason that can be shown without values; run `helm template` with the same values"
            .to_owned()
    });
    if let Some((end, _)) = summary.char_indices().nth(SUMMARY) {
        summary.truncate(end);
    }
    RenderError::Template { summary }
}

fn pattern(text: &str) -> Regex {
    // The patterns are constants of this file, exercised by its tests.
    Regex::new(text).unwrap_or_else(|_| unreachable!("a constant pattern"))
}

static REFUSED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?s)execution error at \(([^)\s]+)\): (.*?)(?:\n\nUse --debug.*)?$"));
static PARSE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^Error: parse error at \(([^)\s]+)\): (.*)"));
static YAML: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"YAML parse error on ([^\s:]+): .*?(?:yaml|json): (.*)"));
static PLACE: LazyLock<Regex> = LazyLock::new(|| pattern(r"([\w./@-]+/templates/[\w./@-]+:\d+(?::\d+)?)"));
static EXPRESSION: LazyLock<Regex> = LazyLock::new(|| pattern(r"at <([^\n]*?)>:"));
static REASON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"nil pointer evaluating [\w {}.\[\]*]+|can't evaluate field \w+ in type [\w {}.\[\]*]+",
        r"|wrong type for value; expected [\w {}.\[\]*]+; got [\w {}.\[\]*]+|expected [\w.]+; found",
        r"|wrong number of args for \w+: want [\w ]+ got \d+|map has no entry for key",
        r"|error calling \w+|function .\w+. not defined|incompatible types for comparison|range can't iterate over",
    ))
});
static KUBE_VERSION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^Error: (?:[\w .`]+: )*(chart requires kubeVersion: [^\n]+ which is incompatible with Kubernetes v[\w.+-]+)",
    )
});
static MISSING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^Error: (?:[\w .`]+: )*(found in Chart.yaml, but missing in charts/ directory: [\w, .-]+)")
});
static VIOLATION: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*- at '([^']*)': (.*)$"));
static TYPES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^got \w+, want [\w ]+(?: or \w+)*$|^(?:missing|additional) propert(?:y|ies) ")
});

/// Words of [`REASON`] that the engine writes: those of its messages and of types.
const ENGINE: &[&str] = &[
    "nil",
    "pointer",
    "evaluating",
    "can",
    "t",
    "evaluate",
    "field",
    "in",
    "type",
    "wrong",
    "for",
    "value",
    "expected",
    "got",
    "found",
    "number",
    "of",
    "args",
    "want",
    "map",
    "has",
    "no",
    "entry",
    "key",
    "error",
    "calling",
    "function",
    "not",
    "defined",
    "incompatible",
    "types",
    "comparison",
    "range",
    "iterate",
    "over",
    "interface",
    "string",
    "int",
    "int64",
    "float64",
    "bool",
    "struct",
    "slice",
    "list",
    "any",
    "at",
    "least",
    "integer",
    "chart",
    "common",
    "Values",
    "Metadata",
    "Capabilities",
    "Files",
    "files",
];

fn words(stderr: &str, chart: &TemplateText) -> Option<String> {
    let known = |place: &str| chart.has(place);
    if let Some(found) = PARSE.captures(stderr).filter(|found| known(&found[1])) {
        return Some(format!("{}: {}", &found[1], found[2].trim()));
    }
    if let Some(found) = REFUSED.captures(stderr).filter(|found| known(&found[1])) {
        let (place, said) = (&found[1], found[2].trim());
        return Some(if chart.holds(said) {
            format!("{place}: {said}")
        } else {
            format!(
                "{place}: the chart refuses these values (`fail` or `required`; its words may hold values)"
            )
        });
    }
    if let Some(found) = YAML.captures(stderr).filter(|found| known(&found[1])) {
        return Some(format!("{}: it gives broken YAML: {}", &found[1], unquoted(&found[2])));
    }
    for fixed in [&*KUBE_VERSION, &*MISSING] {
        if let Some(found) = fixed.captures(stderr) {
            return Some(found[1].to_owned());
        }
    }
    // `tpl` evaluates values as templates: text that looks like a location or a name may be part of a value.
    let place = PLACE.find_iter(stderr).map(|found| found.as_str()).filter(|place| known(place)).last()?;
    let expression = EXPRESSION.captures_iter(stderr).last().map(|found| found[1].to_owned());
    let reason = REASON.find_iter(stderr).last().map(|found| without_values(found.as_str(), chart));
    let at = expression.filter(|text| chart.holds(text)).map(|text| format!(" at <{text}>"));
    Some(format!(
        "{place}{}: {}",
        at.unwrap_or_default(),
        reason.unwrap_or_else(|| "the template fails".to_owned())
    ))
}

/// Cuts the text before the first word that is neither the engine's nor the chart's.
fn without_values(reason: &str, chart: &TemplateText) -> String {
    let is_count = |word: &str| word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_known = |word: &str| is_count(word) || ENGINE.contains(&word) || chart.holds(word);
    let words = reason.split(|c: char| !c.is_alphanumeric() && c != '_');
    let foreign = words.into_iter().find(|word| !is_known(word));
    match foreign.and_then(|word| reason.find(word)) {
        Some(start) => {
            let kept = reason[..start].trim_end_matches(|c: char| !c.is_alphanumeric());
            format!("{kept} … (its words may hold values)")
        }
        None => reason.to_owned(),
    }
}

/// Cuts the text before the first quote, after which the parser shows the text that it read.
fn unquoted(text: &str) -> &str {
    text.split(['"', '\'', '`']).next().unwrap_or_default().trim()
}

fn violations(stderr: &str) -> Vec<String> {
    let mut found: Vec<String> = stderr
        .lines()
        .filter_map(|line| VIOLATION.captures(line))
        .filter(|violation| &violation[2] != "validation failed")
        .map(|violation| {
            let path = if violation[1].is_empty() { "/" } else { &violation[1] };
            let what =
                if TYPES.is_match(&violation[2]) { &violation[2] } else { "not allowed by the schema" };
            format!("{path}: {what}")
        })
        .collect();
    found.sort();
    found.dedup();
    let more = found.len().saturating_sub(VIOLATIONS);
    found.truncate(VIOLATIONS);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found
}

#[cfg(test)]
mod tests;

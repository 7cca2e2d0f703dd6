//! Reduces Helm's error text to parts without values: locations, functions, key paths, and words of the chart itself.

use std::sync::LazyLock;

use regex::Regex;

use super::error::RenderError;
use crate::chart::TemplateText;

/// Maximum number of violations in a message.
const MAX_VIOLATIONS: usize = 10;
/// Maximum length of a summary, in characters.
const MAX_SUMMARY_CHARS: usize = 600;

/// Converts the standard error of a failed `helm template` to an error that may be shown.
pub(super) fn reduce(stderr: &str, chart: &TemplateText) -> RenderError {
    // Log lines before the error are not needed here.
    let start = stderr.find("Error: ").filter(|start| *start == 0 || stderr[..*start].ends_with('\n'));
    let stderr = &stderr[start.unwrap_or(0)..];
    if stderr.lines().next().is_some_and(|line| line.contains("meet the specifications of the schema")) {
        return schema_error(stderr, chart);
    }
    let mut summary = words(stderr, chart).unwrap_or_else(|| {
        "helm gave no reason that can be shown without values; run `helm template` with the same values"
            .to_owned()
    });
    if let Some((end, _)) = summary.char_indices().nth(MAX_SUMMARY_CHARS) {
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
        r"|no template .[\w./-]+. associated with template|template .[\w./-]+. not defined|index of untyped nil",
        r"|rendering template has a nested reference name|index out of range|integer divide by zero",
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
/// Errors about the chart's own files, which Helm reads before the values.
static LOADING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"^Error: ((?:error unpacking subchart [\w.-]+ in [\w.-]+: )*)",
        r"(validation: [^\n]+|cannot load [\w.-]+: [^\n]+|Chart\.yaml file is missing|unexpected EOF)",
    ))
});
/// Errors about a schema, not about values.
static UNUSABLE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^json-pointer in |^failing loading |is not valid against metaschema"));
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
    "template",
    "associated",
    "with",
    "rendering",
    "a",
    "nested",
    "reference",
    "name",
    "index",
    "out",
    "untyped",
    "divide",
    "by",
    "zero",
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
    if let Some(found) = LOADING.captures(stderr) {
        let reason = if found[2].starts_with("cannot load") { unquoted(&found[2]) } else { &found[2] };
        return Some(format!("{}{reason}", &found[1]));
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

/// Converts an error about schemas: values that do not fit, or a schema that cannot be used.
fn schema_error(stderr: &str, chart: &TemplateText) -> RenderError {
    let (mut name, mut is_unusable) = ("", false);
    let (mut violations, mut faults, mut unusable) = (Vec::new(), Vec::new(), None);
    for line in stderr.lines().skip(1) {
        let of_subchart =
            if name.is_empty() || chart.is_root(name) { String::new() } else { format!("{name}: ") };
        if let Some(heading) = line.strip_suffix(':').filter(|heading| chart.has_chart(heading)) {
            (name, is_unusable) = (heading, false);
        } else if UNUSABLE.is_match(line) {
            is_unusable = true;
            unusable.get_or_insert(name);
        } else if line.starts_with("invalid type for values: ") {
            violations.push(format!("{of_subchart}/: want object"));
        } else if let Some(found) = VIOLATION.captures(line).filter(|found| &found[2] != "validation failed")
        {
            let path = if found[1].is_empty() { "/" } else { &found[1] };
            let problem = &found[2];
            if is_unusable {
                faults.push(path.to_owned());
            } else {
                let what = if TYPES.is_match(problem) { problem } else { "not allowed by the schema" };
                violations.push(format!("{of_subchart}{path}: {what}"));
            }
        }
    }
    let Some(name) = unusable else { return RenderError::Schema { violations: limited(violations) } };
    let at = if faults.is_empty() { String::new() } else { format!(" ({})", limited(faults).join(", ")) };
    RenderError::Template {
        summary: format!("values.schema.json of chart {name} is not a valid JSON schema{at}"),
    }
}

/// Returns the sorted entries without duplicates, at most [`MAX_VIOLATIONS`], and the number of further ones.
fn limited(mut found: Vec<String>) -> Vec<String> {
    found.sort();
    found.dedup();
    let more = found.len().saturating_sub(MAX_VIOLATIONS);
    found.truncate(MAX_VIOLATIONS);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found
}

#[cfg(test)]
mod tests;

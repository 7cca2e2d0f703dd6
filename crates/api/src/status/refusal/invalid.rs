//! Reads the problems of a refused object from the answer. Pure.

use std::collections::BTreeSet;

use kube::core::Status;

/// Maximum number of paths of one answer, and their maximum length.
const MAX_PATHS: usize = 10;
const MAX_PATH_BYTES: usize = 200;

/// Phrases of API servers about fields that cannot change.
const IMMUTABLE_PHRASES: &[&str] = &[
    "immutable",
    "may not be changed",
    "may not change once set",
    "cannot change roleRef",
    "updates to statefulset spec",
    "pod updates may not change",
    "field cannot be changed",
    // For a StorageClass.
    "updates to parameters are forbidden",
    "updates to provisioner are forbidden",
    "updates to reclaimPolicy are forbidden",
];

/// Messages for a value that another object has allocated, such as a node port.
const ALLOCATED_PHRASE: &str = "already allocated";

/// Messages before the duplicate key of a list.
const DUPLICATE_KEY_PHRASE: &str = "duplicate entries for key ";

/// Problems of a refused object, with the paths of its fields.
pub(super) enum Problems {
    /// Only fields that cannot change.
    Immutable(Vec<String>),
    /// Any others, or a mix: a recreated object would be refused as well.
    Invalid(Vec<String>),
}

/// Returns the problems in an answer.
pub(super) fn problems(status: &Status) -> Problems {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    // Sorted: for custom resources their order differs between answers.
    let paths = |with_reason: bool| -> Vec<String> {
        let named = causes.iter().filter(|cause| is_path(&cause.field));
        let paths: BTreeSet<String> = named
            .map(|cause| {
                if with_reason && detail(&cause.message).contains(ALLOCATED_PHRASE) {
                    format!("{} ({ALLOCATED_PHRASE})", cause.field)
                } else if with_reason && is_path(&cause.reason) {
                    format!("{} ({})", cause.field, cause.reason)
                } else {
                    cause.field.clone()
                }
            })
            .collect();
        paths.into_iter().take(MAX_PATHS).collect()
    };
    // Without causes the text may quote values anywhere, so none of it is kept.
    let all = !causes.is_empty() && causes.iter().all(|cause| is_immutable(&cause.message));
    if all { Problems::Immutable(paths(false)) } else { Problems::Invalid(paths(true)) }
}

/// Reports whether a cause is about an immutable field. The quoted value is skipped: it may contain any text.
fn is_immutable(message: &str) -> bool {
    IMMUTABLE_PHRASES.iter().any(|words| detail(message).contains(words))
}

/// Returns the text after the value in a cause of the types that immutable fields have. Source: `ErrorBody` in
/// `staging/src/k8s.io/apimachinery/pkg/util/validation/field/errors.go` of Kubernetes.
fn detail(message: &str) -> &str {
    if let Some(detail) = message.strip_prefix("Forbidden: ") {
        return detail;
    }
    let Some(rest) = message.strip_prefix("Invalid value: ") else { return "" };
    if let Some(text) = rest.strip_prefix('"') {
        return after_quoted(text);
    }
    // A value that is no text is JSON, or omitted.
    let detail = rest.rsplit_once(": ").map_or(rest, |(_, detail)| detail);
    if detail.contains('"') { "" } else { detail }
}

/// Returns the text after the first unescaped quotation mark.
fn after_quoted(text: &str) -> &str {
    let mut escaped = false;
    let end = text.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.and_then(|end| text.get(end..)?.strip_prefix("\": ")).unwrap_or_default()
}

/// Returns the paths in answers to requests that cannot be decoded: `unknown field "spec.x"`, `.spec.x: ...`.
pub(super) fn unknown_fields(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for kind in ["unknown field", "duplicate field"] {
        for after in text.split(&format!("{kind} \"")).skip(1).take(MAX_PATHS) {
            let path = after.split('"').next().unwrap_or_default();
            if is_path(path) {
                paths.push(format!("{path} ({kind})"));
            }
        }
    }
    if paths.is_empty() {
        paths.extend(typed_path(text).or_else(|| decoded_path(text)));
    }
    paths
}

/// Returns the path in `.spec.env[name="A"]: ...`, without quotation marks, and the duplicate key.
fn typed_path(text: &str) -> Option<String> {
    let word = text.split_whitespace().find(|word| word.starts_with('.') && word.ends_with(':'))?;
    let path = word.trim_matches([':', '.']).replace('"', "");
    let key = text.split_once(DUPLICATE_KEY_PHRASE).and_then(|(_, after)| after.split_once(']'));
    let key = key.map(|(key, _)| format!("{key}]").replace('"', "")).filter(|key| is_path(key));
    let path = Some(path).filter(|path| is_path(path))?;
    Some(match key {
        Some(key) => format!("{path} ({DUPLICATE_KEY_PHRASE}{key})"),
        None => path,
    })
}

/// Returns the path in `json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string`.
fn decoded_path(text: &str) -> Option<String> {
    let (_, after) = text.split_once("Go struct field ")?;
    let (_, path) = after.split_whitespace().next()?.split_once('.')?;
    is_path(path).then(|| path.to_owned())
}

/// Reports whether a text looks like a path or a word; only such text of an answer is quoted.
pub(super) fn is_path(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/[]()=$~*,".contains(c);
    !text.is_empty() && text.len() <= MAX_PATH_BYTES && text.chars().all(allowed)
}

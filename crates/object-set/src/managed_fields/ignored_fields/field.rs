//! A field that drift detection ignores, and its path.

use std::fmt;

use json_patch::jsonptr::PointerBuf;
use kyma_api::patterns;
use thiserror::Error;

/// Problem of a path.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PathProblem {
    /// The path is not a JSON pointer by RFC 6901.
    #[error("is not a JSON pointer; it begins with /, and in names ~ is written ~0 and / is written ~1")]
    Syntax,
    /// The path is the empty pointer.
    #[error("is the whole object; use drift.mode")]
    Whole,
    /// The path names a field that identifies the object.
    #[error("identifies the object and cannot change")]
    Identity,
    /// The path names all labels or annotations, or one of the operator.
    #[error("includes labels or annotations of the operator; name other labels and annotations individually")]
    Marks,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Names and indices on the way to it.
    pub(super) tokens: Vec<String>,
    /// The rule that names it, as in `spec.drift.ignore[0].paths[1]`.
    pub(super) rule: String,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&pointer(&self.tokens))
    }
}

/// Returns the JSON pointer of these names and indices.
pub(super) fn pointer(tokens: &[String]) -> String {
    PointerBuf::from_tokens(tokens.iter().map(String::as_str)).to_string()
}

/// Returns the names and indices of a pointer, if the field may have another manager.
pub(super) fn tokens(text: &str) -> Result<Vec<String>, PathProblem> {
    let pointer = PointerBuf::parse(text).map_err(|_| PathProblem::Syntax)?;
    let tokens: Vec<String> = pointer.tokens().map(|token| token.decoded().into_owned()).collect();
    let names: Vec<&str> = tokens.iter().map(String::as_str).collect();
    match names.as_slice() {
        [] => Err(PathProblem::Whole),
        ["apiVersion" | "kind", ..] | ["metadata", "name" | "namespace" | "uid", ..] => {
            Err(PathProblem::Identity)
        }
        ["metadata"] | ["metadata", "labels" | "annotations"] => Err(PathProblem::Marks),
        ["metadata", "labels" | "annotations", key, ..] if patterns::is_reserved_metadata_key(key) => {
            Err(PathProblem::Marks)
        }
        _ => Ok(tokens),
    }
}

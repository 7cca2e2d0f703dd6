//! Reasons for which a kubeconfig is not used.

/// Maximum size of a kubeconfig, in bytes.
pub(super) const MAX_KUBECONFIG_BYTES: usize = 256 * 1024;

/// Error of a kubeconfig that is not used. Names fields, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// Larger than the maximum size.
    #[error("kubeconfig is larger than {MAX_KUBECONFIG_BYTES} bytes")]
    TooLarge,
    /// Not YAML, not a mapping, a duplicate key, or beyond the parser's budget.
    #[error("kubeconfig is not one valid YAML document{}", at_line(*.line))]
    Syntax {
        /// Line of the first problem, from 1, where known.
        line: Option<u64>,
    },
    /// A field that would run a program, read a file, weaken TLS or borrow an identity.
    #[error("kubeconfig field {field} is not allowed: {why}")]
    Refused {
        /// Path of the field.
        field: &'static str,
        /// Its effect, and what to use instead.
        why: &'static str,
    },
    /// An unknown field.
    #[error("kubeconfig has an unknown field in {parent}")]
    Unknown {
        /// Path of the mapping that holds it.
        parent: &'static str,
    },
    /// A missing required field.
    #[error("kubeconfig field {field} is missing")]
    Missing {
        /// Path of the field.
        field: &'static str,
    },
    /// A field that has a wrong type or content.
    #[error("kubeconfig field {field} is not valid: {why}")]
    Malformed {
        /// Path of the field.
        field: &'static str,
        /// The expected content.
        why: &'static str,
    },
    /// A name that refers to no entry.
    #[error("kubeconfig field {field} names no entry of its list")]
    Dangling {
        /// Path of the reference.
        field: &'static str,
    },
}

fn at_line(line: Option<u64>) -> String {
    line.map(|line| format!(" (line {line})")).unwrap_or_default()
}

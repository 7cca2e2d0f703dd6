//! Errors of requests and settings.

use crate::error::ArtifactError;
use crate::storage::digest::printable;

/// Returns the innermost cause, which names the failure (`Connection refused`, `UnknownIssuer`) and no address.
pub(super) fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    printable(&innermost.to_string())
}

pub(super) fn settings(setting: &'static str, problem: &str) -> ArtifactError {
    ArtifactError::Settings { setting, problem: problem.to_owned() }
}

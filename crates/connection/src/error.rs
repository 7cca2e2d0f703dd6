//! Errors of the connection to a target: one variant for each action.

use kyma_api::Reason;
use kyma_sdk::Failure;

/// A failed action. The text names the action; [`Failure`] adds the answer of the API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("ensure namespace {name}")]
    EnsureNamespace { name: String, source: kube::Error },
    #[error("install CRD {name}")]
    InstallCrd { name: String, source: kube::Error },
    #[error("the access to the target changed while it was read")]
    OpenSession,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let action = error.to_string();
        match error {
            Error::EnsureNamespace { source, .. } | Error::InstallCrd { source, .. } => {
                Self::target(&action, &source)
            }
            Error::OpenSession => Self::new(Reason::TargetAnswerInvalid, action),
        }
    }
}

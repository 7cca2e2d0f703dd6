//! Errors of the connection to a target: one variant for each action.

use kyma_api::Reason;
use kyma_controller::{Failure, KymaKey};

/// A failed action. The text names the action; [`Failure`] adds the answer of the API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    // Actions on the hub.
    #[error("record the fencing generation of Kyma {kyma}")]
    RecordFencingGeneration { kyma: KymaKey, source: kube::Error },
    #[error("the hub records another fencing generation of Kyma {kyma} than the one that was read")]
    MissFencingGeneration { kyma: KymaKey },
    #[error(
        "the hub does not store the fencing generation of Kyma {kyma}: its CRD of Kymas is older than this operator, apply the CRD of this version"
    )]
    KeepFencingGeneration { kyma: KymaKey },

    // Actions on the target.
    #[error("ensure namespace {name}")]
    EnsureNamespace { name: String, source: kube::Error },
    #[error("install CRD {name}")]
    InstallCrd { name: String, source: kube::Error },
    #[error("the access to the target changed while it was read")]
    OpenSession,
    // No source text: messages of the decoder quote values.
    #[error("compose {what}: a field has a wrong type")]
    Compose { what: &'static str, source: serde_json::Error },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let action = error.to_string();
        match error {
            Error::RecordFencingGeneration { source, .. } => Self::hub(&action, &source),
            Error::MissFencingGeneration { .. } => Self::new(Reason::ApplyConflict, action),
            Error::KeepFencingGeneration { .. } => Self::new(Reason::HubRefused, action),
            Error::EnsureNamespace { source, .. } | Error::InstallCrd { source, .. } => {
                Self::target(&action, &source)
            }
            Error::Compose { .. } => Self::new(Reason::Internal, action),
            Error::OpenSession => Self::new(Reason::TargetAnswerInvalid, action),
        }
    }
}

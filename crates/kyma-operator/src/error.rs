//! Errors of the operator's actions: one variant for each action.

use kyma_api::Reason;
use kyma_controller::{DeleteError, Failure, KymaKey, WatchLimit};

use crate::hub::component::ComponentKind;

/// Delay before a refused status write is retried.
const REFUSED_STATUS_RETRY_DELAY: std::time::Duration = std::time::Duration::from_mins(1);

/// A failed action. The text names the action; [`Failure`] adds the answer of the API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    // Actions on the hub.
    #[error("add the finalizer to Kyma {kyma}")]
    Claim { kyma: KymaKey, source: kube::Error },
    #[error("write the status of Kyma {kyma}")]
    Report { kyma: KymaKey, source: kube::Error },
    #[error("write the status of ModuleConfig {name}")]
    ReportConfig { name: String, source: kube::Error },
    #[error("read ModuleConfig {name}")]
    ReadConfig { name: String, source: kube::Error },
    #[error("read namespace {namespace} and CRD {crd}")]
    ReadScope { namespace: String, crd: String, source: kube::Error },
    #[error("list components of Kyma {kyma} that are not watched")]
    ListUnwatched { kyma: KymaKey, source: kube::Error },
    #[error("list access Secrets of Kyma {kyma}")]
    ListAccess { kyma: KymaKey, source: kube::Error },
    #[error("install CRD {name}")]
    InstallComponentCrd { name: String, source: kube::Error },
    #[error("apply {component}")]
    ApplyComponent { component: String, source: kube::Error },
    #[error("request the removal of {component}")]
    RequestRemoval { component: String, source: kube::Error },
    #[error("withdraw the removal of {component}")]
    WithdrawRemoval { component: String, source: kube::Error },
    #[error("delete {component}")]
    DeleteComponent { component: String, source: kube::Error },
    #[error("read {component}")]
    ReadComponent { component: String, source: kube::Error },
    #[error("mirror a component as Manifest {manifest}")]
    Mirror { manifest: String, source: kube::Error },
    #[error("read image-pull Secret {secret}")]
    ReadHubPullSecret { secret: String, source: kube::Error },
    #[error("the hub has no kind {kind}")]
    FindKind { kind: ComponentKind },

    // Actions on the target.
    #[error("create the target's Kyma")]
    CreateTargetKyma { source: kube::Error },
    #[error("label the target's Kyma")]
    LabelTargetKyma { source: kube::Error },
    #[error("write the status of the target's Kyma")]
    WriteTargetStatus { source: kube::Error },
    #[error("list the target's Kymas")]
    ListKymas { source: kube::Error },
    #[error("read the target's Kyma")]
    FindKyma { source: kube::Error },
    #[error("read the operator's CRD")]
    ReadKymaCrd { source: kube::Error },
    #[error("delete the target's Kyma")]
    DeleteKyma { source: kube::Error },
    #[error("delete the operator's CRD")]
    DeleteKymaCrd { source: kube::Error },
    #[error("delete the stamp")]
    DeleteStamp { source: kube::Error },
    #[error("read the target's image-pull Secret")]
    ReadPullSecret { source: kube::Error },
    #[error("copy the image-pull Secret")]
    CopyPullSecret { source: kube::Error },
    #[error(
        "the target's Secret of this name is labelled with another owner, so it does not become the image-pull Secret"
    )]
    ClaimPullSecret,
    #[error("list policies with rules of ModuleConfigs")]
    ListPolicies { source: kube::Error },
    #[error("read policy {name}")]
    ReadPolicy { name: String, source: kube::Error },
    #[error("apply policy {name} with rules of ModuleConfig {config}")]
    ApplyPolicy { name: String, config: String, source: kube::Error },
    #[error("delete policy {name}")]
    DeletePolicy { name: String, source: kube::Error },
    #[error("the target does not list its Kyma")]
    AwaitList,
    #[error("the target's Kyma has no uid")]
    ReadKyma,
    #[error("the target's Kyma is not labelled as this Kyma's, so it is not deleted")]
    ClaimKyma,
    #[error(transparent)]
    Gate(Failure),
    #[error(transparent)]
    Watch(#[from] WatchLimit),
    // No source text: messages of the decoder quote values.
    #[error("compose {what}: a field has a wrong type")]
    Compose { what: &'static str, source: serde_json::Error },
}

impl Error {
    /// Returns the error of a deletion: the gate's refusal, or the answer as `failed` classifies it.
    pub(crate) fn of_gate(error: DeleteError, failed: impl FnOnce(kube::Error) -> Self) -> Self {
        match error {
            DeleteError::Refused(failure) => Self::Gate(failure),
            DeleteError::Call(source) => failed(source),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let action = error.to_string();
        match error {
            Error::Report { source, .. } => {
                let failure = Self::hub(&action, &source);
                // A user's value may cause the refusal, and the user changes it on the target.
                let is_refused = failure.reason == Reason::HubRefused;
                if is_refused { failure.retry_after(REFUSED_STATUS_RETRY_DELAY) } else { failure }
            }
            Error::Claim { source, .. }
            | Error::ReportConfig { source, .. }
            | Error::ReadConfig { source, .. }
            | Error::ReadScope { source, .. }
            | Error::ListUnwatched { source, .. }
            | Error::ListAccess { source, .. }
            | Error::InstallComponentCrd { source, .. }
            | Error::ApplyComponent { source, .. }
            | Error::RequestRemoval { source, .. }
            | Error::WithdrawRemoval { source, .. }
            | Error::DeleteComponent { source, .. }
            | Error::ReadComponent { source, .. }
            | Error::Mirror { source, .. }
            | Error::ReadHubPullSecret { source, .. } => Self::hub(&action, &source),
            Error::CreateTargetKyma { source }
            | Error::LabelTargetKyma { source }
            | Error::WriteTargetStatus { source }
            | Error::ListKymas { source }
            | Error::FindKyma { source }
            | Error::ReadKymaCrd { source }
            | Error::DeleteKyma { source }
            | Error::DeleteKymaCrd { source }
            | Error::DeleteStamp { source }
            | Error::ReadPullSecret { source }
            | Error::CopyPullSecret { source }
            | Error::ListPolicies { source }
            | Error::ReadPolicy { source, .. }
            | Error::ApplyPolicy { source, .. }
            | Error::DeletePolicy { source, .. } => Self::target(&action, &source),
            Error::Gate(failure) => failure,
            Error::FindKind { .. } => Self::new(Reason::ComponentCrdMissing, action),
            Error::AwaitList => Self::new(Reason::TargetTimeout, action),
            Error::ReadKyma => Self::new(Reason::TargetAnswerInvalid, action),
            Error::ClaimKyma | Error::ClaimPullSecret => Self::new(Reason::OwnedByOther, action),
            Error::Watch(_) | Error::Compose { .. } => Self::new(Reason::Internal, action),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kyma_api::ErrorClass;

    use super::*;

    fn answer(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }))
    }

    #[test]
    fn the_hubs_words_are_kept_and_the_targets_are_not() {
        let kyma = KymaKey::new("kcp-system", "sample");
        let on_hub = Failure::from(Error::Report { kyma, source: answer(403, "no rights") });
        assert_eq!(on_hub.reason, Reason::HubForbidden);
        assert_eq!(on_hub.message, "write the status of Kyma kcp-system/sample: no rights");
        let on_target = Failure::from(Error::WriteTargetStatus { source: answer(403, "read this") });
        assert_eq!(on_target.reason, Reason::TargetForbidden);
        assert!(on_target.message.starts_with("write the status of the target's Kyma: "));
        assert!(!on_target.message.contains("read this"), "{}", on_target.message);
    }

    #[test]
    fn an_error_without_a_response_has_its_own_reason() {
        let rows = [
            (Error::FindKind { kind: ComponentKind::helm() }, Reason::ComponentCrdMissing),
            (Error::AwaitList, Reason::TargetTimeout),
            (Error::ReadKyma, Reason::TargetAnswerInvalid),
            (Error::ClaimKyma, Reason::OwnedByOther),
        ];
        for (error, reason) in rows {
            let text = error.to_string();
            let failure = Failure::from(error);
            assert_eq!((failure.reason, &failure.message), (reason, &text));
        }
        assert_eq!(Failure::from(Error::ClaimKyma).class, ErrorClass::Blocked);
    }
}

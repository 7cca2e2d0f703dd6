//! Failures in words, where the words are ours.

use kyma_api::Reason;
use kyma_sdk::Failure;
use kyma_targets::{Mismatch, Verdict};

/// What a verdict means that forbids to write.
pub(crate) fn refused(verdict: &Verdict) -> Failure {
    match verdict {
        Verdict::TargetChanged { .. } => Failure::new(
            Reason::TargetChanged,
            "the access Secret leads to another cluster than before: nothing is written or deleted there until \
             `kymactl target adopt`",
        ),
        Verdict::StampMismatch(mismatch) => Failure::new(
            Reason::StampMismatch,
            match mismatch {
                Mismatch::TakenOver => "another hub took the target over",
                Mismatch::LaterEpoch => "the target was last managed by a later state of this hub",
                Mismatch::NewerOperator => "a newer version of this operator has worked on the target",
            },
        ),
        Verdict::TargetInUse { kyma, other_hub } => {
            let place = if *other_hub { " of another hub" } else { "" };
            Failure::new(Reason::TargetInUse, format!("the target belongs to Kyma {kyma}{place}"))
        }
        Verdict::TargetIsHub | Verdict::Match { .. } | Verdict::FirstContact { .. } => Failure::new(
            Reason::TargetIsHub,
            "the access Secret leads to the hub itself: use --local-kyma or single-cluster mode if that is meant",
        ),
    }
}

/// No access Secret.
pub(crate) fn awaiting_access(kyma: &str) -> Failure {
    let label = kyma_api::labels::KYMA_NAME;
    let message = format!("no access Secret for Kyma {kyma}: create one labelled {label}={kyma}");
    Failure::new(Reason::AwaitingAccess, message)
}

/// More than one access Secret.
pub(crate) fn ambiguous_access(kyma: &str, names: &[String]) -> Failure {
    let message = format!("{} Secrets are labelled for Kyma {kyma}: {}", names.len(), names.join(", "));
    Failure::new(Reason::AccessAmbiguous, message)
}

/// Somebody wrote between our look and our write; the next look tells.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// What is gone need not be removed.
pub(crate) fn gone_is_fine(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    }
}

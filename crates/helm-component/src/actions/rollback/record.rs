//! Record of a rollback in a component's status: `rollbackTarget` and `failedRevision`. Pure.

use kyma_api::{FailedRevision, HelmComponentSpec, HelmComponentStatus, RollbackMode, RollbackTarget};
use serde_json::{Value, json};

use super::failed_revision::attempt_digest;
use crate::plan::step::StopReason;

/// Field of the status with the rollback target.
pub(super) const TARGET_FIELD: &str = "rollbackTarget";
/// Field of the status with the failed revision.
pub(super) const FAILED_FIELD: &str = "failedRevision";

/// Record of a rollback in a component's status.
#[derive(Debug, Clone, Default)]
pub(crate) struct RollbackRecord {
    /// The release that was Ready last, if rollback is enabled.
    pub(super) target: Option<RollbackTarget>,
    /// The revision that failed and that a rollback replaces.
    pub(super) failed: Option<FailedRevision>,
}

impl RollbackRecord {
    /// Reads the record in a status.
    pub(crate) fn of(status: &HelmComponentStatus) -> Self {
        Self { target: status.rollback_target.clone(), failed: status.failed_revision.clone() }
    }

    /// Returns the fields of the status; `null` removes one.
    pub(crate) fn fields(&self) -> [(String, Value); 2] {
        [(TARGET_FIELD.to_owned(), json!(self.target)), (FAILED_FIELD.to_owned(), json!(self.failed))]
    }

    /// Returns the rollback target, stored or not.
    pub(crate) fn target(&self) -> Option<&RollbackTarget> {
        self.target.as_ref()
    }

    /// Removes the failed revision when a pass ends with it Ready.
    pub(crate) fn note_end(&mut self, stop_reason: &StopReason) {
        if *stop_reason == StopReason::Ready {
            self.failed = None;
        }
    }

    /// Returns the digest of a release; during its retry, that of the attempt.
    pub(crate) fn attempted_release(&self, release: String) -> String {
        match self.failed.as_ref().filter(|failed| failed.retrying) {
            Some(failed) => attempt_digest(&release, failed),
            None => release,
        }
    }

    /// Returns the rollback target, if its objects are stored.
    pub(super) fn stored_target(&self) -> Option<&RollbackTarget> {
        self.target.as_ref().filter(|target| target.message.is_none() && target.digests.inputs.is_some())
    }

    /// Returns the rollback target, while the inputs with this digest are those of the revision that failed.
    pub(super) fn active_target(&self, spec: &HelmComponentSpec, inputs: &str) -> Option<&RollbackTarget> {
        let failed = self.failed.as_ref().filter(|failed| !failed.retrying)?;
        let holds = is_enabled(spec) && failed.inputs_digest == inputs;
        self.stored_target().filter(|_| holds)
    }

    /// Reports whether the component no longer requests the revision that failed.
    pub(super) fn is_obsolete(&self, spec: &HelmComponentSpec, inputs: &str) -> bool {
        self.failed.as_ref().is_some_and(|failed| {
            failed.inputs_digest != inputs || (!failed.retrying && self.active_target(spec, inputs).is_none())
        })
    }
}

/// Reports whether a component rolls back to the release that was Ready.
pub(super) fn is_enabled(spec: &HelmComponentSpec) -> bool {
    spec.rollback.as_ref().is_some_and(|rollback| rollback.mode == RollbackMode::OnFailure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(mode: &str) -> HelmComponentSpec {
        serde_json::from_value(json!({"source": {}, "rollback": {"mode": mode}})).unwrap()
    }

    fn record(retrying: bool) -> RollbackRecord {
        let status = json!({
            "rollbackTarget": {"version": "1", "digests": {"inputs": "a"}},
            "failedRevision": {
                "version": "2", "inputsDigest": "b", "reason": "HookFailed", "message": "", "attempts": 1,
                "lastFailureTime": "1970-01-01T00:00:00Z", "retrying": retrying,
            },
        });
        RollbackRecord::of(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn rollback_is_active_while_the_failed_inputs_are_desired() {
        let rows = [
            ("OnFailure", false, "b", true, false),
            ("OnFailure", false, "c", false, true),
            ("OnFailure", true, "b", false, false),
            ("OnFailure", true, "c", false, true),
            ("Never", false, "b", false, true),
        ];
        for (mode, retrying, inputs, is_active, is_obsolete) in rows {
            let record = record(retrying);
            let found = record.active_target(&spec(mode), inputs).is_some();
            assert_eq!(found, is_active, "{mode} {retrying} {inputs}");
            assert_eq!(record.is_obsolete(&spec(mode), inputs), is_obsolete, "{mode} {retrying} {inputs}");
        }
        let mut unstored = record(false);
        unstored.target.as_mut().unwrap().message = Some("too large".to_owned());
        assert!(unstored.active_target(&spec("OnFailure"), "b").is_none());
        assert!(unstored.is_obsolete(&spec("OnFailure"), "b"));
    }

    #[test]
    fn failed_revision_ends_only_when_it_is_ready() {
        let mut record = record(true);
        record.note_end(&StopReason::RolledBack);
        assert!(record.failed.is_some());
        record.note_end(&StopReason::Ready);
        assert_eq!(record.fields()[1], ("failedRevision".to_owned(), Value::Null));
    }

    #[test]
    fn only_a_retry_changes_the_digest_of_a_release() {
        assert_eq!(record(false).attempted_release("r".to_owned()), "r");
        assert_ne!(record(true).attempted_release("r".to_owned()), "r");
    }
}

//! Steps of a rollback, and of a retry of the failed release.

use jiff::Timestamp;
use kyma_api::{Digests, FailedRevision, FreeForm, Reason, RollbackTarget};
use kyma_controller::Failure;
use serde_json::json;

use super::failed_revision::{self, attempt_digest, time_until_retry};
use super::observe::version_of;
use super::record::FAILED_FIELD;
use super::state::RollbackAction;
use super::store::{read_stored_release, store_target};
use super::stored_release::StoredReleaseError;
use crate::actions::outcome::StepOutcome;
use crate::content::LoadedContent;
use crate::pass::{CompletedSteps, Pass};
use crate::plan::StopReason;

/// Executes one step. A dry run stores nothing, and ends instead of a rollback.
///
/// # Errors
/// If the hub does not answer. If the Ready release cannot be stored, that is reported, and the component stays Ready.
pub(crate) async fn run(
    pass: &mut Pass<'_>,
    action: RollbackAction,
    is_dry_run: bool,
) -> Result<StepOutcome, Failure> {
    match (action, is_dry_run) {
        (RollbackAction::Store, false) => store_target(pass).await,
        (RollbackAction::Store, true) => pass.rollback.stored = Some(Ok(())),
        (RollbackAction::RollBack(failure), false) => roll_back(pass, &failure).await?,
        (RollbackAction::RollBack(failure), true) => {
            return Ok(StepOutcome::Stop(StopReason::Failed(failure)));
        }
        (RollbackAction::Retry, _) => retry(pass).await?,
    }
    Ok(StepOutcome::Continue)
}

/// Rolls back to the stored release, since the desired one failed. The rollback is recorded on the hub before any
/// object is applied.
async fn roll_back(pass: &mut Pass<'_>, failure: &Failure) -> Result<(), Failure> {
    begin_rollback(pass, failure).await?;
    tracing::warn!(component = %pass.key.name, %failure, "rolling back to the last Ready release");
    Ok(())
}

async fn begin_rollback(pass: &mut Pass<'_>, failure: &Failure) -> Result<(), Failure> {
    let Some(target) = pass.state.recorded.rollback.target.clone() else { return Ok(()) };
    let mut loaded = match read_stored_release(pass, &target).await? {
        Ok(loaded) => loaded,
        Err(error) => {
            // No rollback is possible; the failure of the desired release stays visible.
            pass.state.recorded.rollback.target =
                Some(RollbackTarget { message: Some(error.to_string()), ..target });
            return Ok(());
        }
    };
    let inputs = pass.inputs.as_ref().map_err(Clone::clone)?.digest.clone();
    let source = pass.state.loaded.as_ref().map(|loaded| loaded.source.clone());
    let source = source.or_else(|| pass.state.recorded.digests.source.clone()).unwrap_or_default();
    let version = version_of(pass, &source);
    let before = pass.state.recorded.rollback.failed.as_ref();
    let failed = failed_revision::record_failure(before, &inputs, version, failure, Timestamp::now());
    loaded.release = attempt_digest(&loaded.release, &failed);
    // Objects on the target may belong to the failed or to the stored release, so all are applied again.
    let digests = Digests { inputs: None, ..pass.state.recorded.digests.clone() };
    record_rollback(pass, &failed, &digests).await?;
    pass.state.recorded.rollback.failed = Some(failed);
    pass.state.recorded.digests = digests;
    reset(pass, Some(loaded));
    pass.remember();
    Ok(())
}

/// Records a rollback on the hub before the first object of the rollback target is applied, so that a new process
/// continues the rollback (ADR 16).
async fn record_rollback(pass: &Pass<'_>, failed: &FailedRevision, digests: &Digests) -> Result<(), Failure> {
    let failed = (FAILED_FIELD.to_owned(), json!(failed));
    let digests = ("digests".to_owned(), json!(digests));
    pass.context.checkpoint(FreeForm::from_iter([failed, digests])).await
}

/// Tries the failed release again.
async fn retry(pass: &mut Pass<'_>) -> Result<(), Failure> {
    let Some(mut failed) = pass.state.recorded.rollback.failed.clone() else { return Ok(()) };
    failed.retrying = true;
    record_retry(pass, &failed).await?;
    pass.state.recorded.rollback.failed = Some(failed);
    reset(pass, None);
    pass.remember();
    pass.rollback.is_retried = true;
    Ok(())
}

/// Records a retry on the hub before the failed release is applied again, so that a new process continues the retry
/// (ADR 16).
async fn record_retry(pass: &Pass<'_>, failed: &FailedRevision) -> Result<(), Failure> {
    let failed = (FAILED_FIELD.to_owned(), json!(failed));
    pass.context.checkpoint(FreeForm::from_iter([failed])).await
}

/// Ends a retry whose content cannot be loaded: the installed release stays until the next retry. Returns true if a
/// retry was ended.
pub(crate) fn end_failed_retry(pass: &mut Pass<'_>, failure: &Failure) -> bool {
    let failed = pass.state.recorded.rollback.failed.clone().filter(|failed| failed.retrying);
    let Some(failed) = failed.filter(|_| !failure.is_about_hub()) else { return false };
    let version = failed.version.clone();
    let digest = &failed.inputs_digest;
    let failed_again =
        failed_revision::record_failure(Some(&failed), digest, version, failure, Timestamp::now());
    pass.state.recorded.rollback.failed = Some(failed_again);
    reset(pass, None);
    true
}

/// Resets the state of a pass, which is about the other release.
fn reset(pass: &mut Pass<'_>, loaded: Option<LoadedContent>) {
    pass.done = CompletedSteps::default();
    pass.rollback.stored = None;
    pass.state.loaded = loaded;
    pass.state.unready_since = None;
    pass.set_module_version();
    pass.rescope();
}

/// Loads the rollback target, from the hub alone.
///
/// # Errors
/// `RollbackUnavailable` if it no longer exists; if the hub does not answer.
pub(crate) async fn load_target(pass: &Pass<'_>, target: &RollbackTarget) -> Result<LoadedContent, Failure> {
    let mut loaded = read_stored_release(pass, target).await?.map_err(|gone| unavailable(pass, &gone))?;
    if let Some(failed) = &pass.state.recorded.rollback.failed {
        loaded.release = attempt_digest(&loaded.release, failed);
    }
    Ok(loaded)
}

/// Returns the failure for a rollback target that no longer exists or was altered. The failed release is retried
/// when its backoff ends.
fn unavailable(pass: &Pass<'_>, gone: &StoredReleaseError) -> Failure {
    let failure = Failure::new(Reason::RollbackUnavailable, gone.to_string());
    let failed = pass.state.recorded.rollback.failed.as_ref();
    let left = failed.and_then(|failed| time_until_retry(failed, Timestamp::now()));
    left.map_or(failure.clone(), |left| failure.retry_after(left))
}

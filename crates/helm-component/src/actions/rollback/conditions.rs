//! Condition of the rollback target, and the report of a rollback.

use std::time::Duration;

use jiff::Timestamp;
use kyma_api::condition::{self, Condition, Status, types};
use kyma_api::{FailedRevision, Reason, RollbackTarget};
use kyma_controller::Failure;
use kyma_sdk::Progress;

use super::failed_revision::{self, time_until_retry};
use super::observe::active_target;
use super::record::is_enabled;
use crate::pass::Pass;
use crate::plan::{Content, Observed};
use crate::watch_wait::WATCH_SYNC_TIMEOUT;

/// Time until a retry after the release could not be stored.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// The release that failed and its rollback target.
#[derive(Debug, Clone)]
pub(crate) struct RollbackReport {
    failed: FailedRevision,
    target: RollbackTarget,
    now: Timestamp,
    /// Whether the rollback was reported, and its content is the recorded one.
    was_reported: bool,
}

impl RollbackReport {
    pub(crate) fn of(pass: &Pass<'_>, seen: &Observed) -> Option<Self> {
        let target = active_target(pass)?.clone();
        let failed = pass.state.recorded.rollback.failed.clone()?;
        let is_rolled_back =
            reported(pass, types::READY).is_some_and(|ready| ready.reason == Reason::RolledBack.as_str());
        let was_reported = is_rolled_back && seen.content == Content::Recorded;
        Some(Self { failed, target, now: Timestamp::now(), was_reported })
    }

    /// Returns the failure after a completed rollback, which is retried no later than the earliest of `delays`.
    pub(crate) fn rolled_back(report: Option<&Self>, delays: [Option<Duration>; 2]) -> Failure {
        let failure = report.map(Self::failure);
        let mut failure =
            failure.unwrap_or_else(|| Failure::new(Reason::Internal, "the rollback target was lost"));
        failure.retry_after = delays.into_iter().chain([failure.retry_after]).flatten().min();
        failure
    }

    fn failure(&self) -> Failure {
        failed_revision::rolled_back(&self.failed, &self.target, self.now)
    }

    /// Returns the previous report, which stays after a restart until the watches show another state.
    pub(crate) fn previous(&self) -> Option<Progress> {
        let failure = self.failure();
        let delay = failure.retry_after.map_or(WATCH_SYNC_TIMEOUT, |left| left.min(WATCH_SYNC_TIMEOUT));
        self.was_reported.then(|| Progress::stopped(failure.retry_after(delay)))
    }

    /// Adds the rollback to the report of any wait or failure, and requeues in time for the next retry.
    pub(crate) fn add_to(&self, mut progress: Progress) -> Progress {
        let prefix = failed_revision::in_progress(&self.failed, &self.target);
        progress.message =
            if progress.message.is_empty() { prefix } else { format!("{prefix}: {}", progress.message) };
        if let Some(failure) = &mut progress.failure {
            let left = time_until_retry(&self.failed, self.now);
            failure.message.clone_from(&progress.message);
            failure.at_latest = failure.at_latest.into_iter().chain(left).min();
        }
        progress
    }
}

/// Returns the time until a retry after storing the release failed.
pub(crate) fn retry_delay(pass: &Pass<'_>) -> Option<Duration> {
    matches!(pass.rollback.stored, Some(Err(_))).then_some(RETRY_PAUSE)
}

/// Returns the condition of the rollback target; `None` if a rollback was never enabled.
pub(crate) fn available(pass: &Pass<'_>) -> Option<Condition> {
    if !is_enabled(&pass.context.resource.spec) {
        let not_wanted = || {
            Condition::new(types::ROLLBACK_AVAILABLE, Status::Unknown, Reason::RollbackUnavailable)
                .with_message("spec.rollback does not request it")
        };
        return reported(pass, types::ROLLBACK_AVAILABLE).map(|_| not_wanted());
    }
    if let Some(Err(failure)) = &pass.rollback.stored {
        return Some(
            Condition::new(types::ROLLBACK_AVAILABLE, Status::False, failure.reason)
                .with_message(&failure.message),
        );
    }
    let target = pass.state.recorded.rollback.target.as_ref()?;
    Some(match &target.message {
        Some(why) => Condition::new(types::ROLLBACK_AVAILABLE, Status::False, Reason::RollbackUnavailable)
            .with_message(format!("{}: {why}", target.version)),
        None => Condition::new(types::ROLLBACK_AVAILABLE, Status::True, Reason::Succeeded)
            .with_message(&target.version),
    })
}

/// Returns a condition as it was last reported.
fn reported<'a>(
    pass: &'a Pass<'_>,
    type_: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    let conditions = pass.context.resource.status.as_ref()?.conditions.as_deref()?;
    condition::get(conditions, type_)
}

#[cfg(test)]
mod tests {
    use kyma_controller::{delay_after, longest_delay};

    use super::*;

    #[test]
    fn delayed_rollback_is_retried_no_later_than_failed_release() {
        let late = Failure::new(Reason::HealthTimeout, "late");
        let now = Timestamp::from_second(0).unwrap();
        let failed = failed_revision::record_failure(None, "i", "2.0.0".to_owned(), &late, now);
        let rollback = RollbackReport { failed, target: RollbackTarget::default(), now, was_reported: false };
        let told = |failure: &Failure| rollback.add_to(Progress::stopped(failure.clone())).failure.unwrap();
        for reason in [Reason::TargetTimeout, Reason::TargetForbidden] {
            let failure = Failure::new(reason, "no");
            assert_eq!(delay_after(&told(&failure), 1, 0.5), delay_after(&failure, 1, 0.5), "{reason}");
        }
        let refused = Failure::new(Reason::ApplyRefused, "no");
        assert_eq!(longest_delay(&told(&refused)), Some(Duration::from_mins(10)));
    }
}

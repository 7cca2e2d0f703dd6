//! Record of a release that failed, its retries, and messages about it. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kyma_api::{Backoff, FailedRevision, HelmComponentSpec, Reason, RollbackTarget, Source};
use kyma_controller::Failure;
use serde_json::json;

use crate::content;

/// Pauses after failures of a release. Long, since each retry is an upgrade of a working target.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_mins(10), Duration::from_hours(6));
/// Maximum length of a recorded failure, in characters.
const MAX_MESSAGE_CHARS: usize = 1024;
/// Length of a digest that replaces a version, in characters.
const DIGEST_CHARS: usize = 19;

/// Returns the version of the content of a source with a resolved range, for messages: the version of module or
/// chart, or the beginning of the digest.
pub(super) fn version(spec: &HelmComponentSpec, of: &Source, source: &str) -> String {
    let module = spec.module.as_ref().map(|module| module.version.clone());
    let ocm = of.ocm.as_ref().map(|ocm| ocm.version.clone());
    let chart = of.chart.as_ref().and_then(|chart| chart.version.clone());
    let manifests = of.manifests.as_ref().and_then(|manifests| manifests.version.clone());
    module.or(ocm).or(chart).or(manifests).unwrap_or_else(|| source.chars().take(DIGEST_CHARS).collect())
}

/// Returns the record of a release that failed now, for the first time or again.
pub(super) fn record_failure(
    before: Option<&FailedRevision>,
    inputs: &str,
    version: String,
    failure: &Failure,
    now: Timestamp,
) -> FailedRevision {
    let same = before.filter(|before| before.inputs_digest == inputs);
    FailedRevision {
        version,
        inputs_digest: inputs.to_owned(),
        reason: failure.reason.as_str().to_owned(),
        message: failure.message.chars().take(MAX_MESSAGE_CHARS).collect(),
        last_failure_time: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        attempts: same.map_or(0, |before| before.attempts).saturating_add(1),
        retrying: false,
    }
}

/// Returns the time of the next retry of a failed release; `None` if the record cannot be read.
fn next_retry(failed: &FailedRevision) -> Option<Timestamp> {
    let at: Timestamp = failed.last_failure_time.parse().ok()?;
    let attempts = u32::try_from(failed.attempts).unwrap_or_default();
    at.checked_add(SignedDuration::try_from(RETRY_BACKOFF.delay(attempts)).ok()?).ok()
}

/// Returns the remaining time until the retry; `None` if it is due, or the record cannot be read.
pub(super) fn time_until_retry(failed: &FailedRevision, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(next_retry(failed)?.duration_since(now)).ok();
    left.filter(|left| !left.is_zero())
}

/// Returns the digest that identifies one rollback or retry of a release, so that hooks run again.
pub(super) fn attempt_digest(release: &str, failed: &FailedRevision) -> String {
    let FailedRevision { inputs_digest, last_failure_time, attempts, .. } = failed;
    content::digest(&[json!([release, inputs_digest, last_failure_time, attempts]).to_string().as_bytes()])
}

/// Returns the names of both releases, for messages. Two releases of one version differ in their values.
fn names(failed: &FailedRevision, target: &RollbackTarget) -> (String, String) {
    if failed.version == target.version {
        return (
            format!("{} with its new values", failed.version),
            format!("{} with its former values", target.version),
        );
    }
    (failed.version.clone(), target.version.clone())
}

/// Returns the beginning of all messages during a rollback.
pub(super) fn in_progress(failed: &FailedRevision, target: &RollbackTarget) -> String {
    let (desired, back) = names(failed, target);
    format!("{desired} failed ({}), and the operator rolls back to {back}", failed.reason)
}

/// Returns the failure to report after a completed rollback; it stays equal until something changes.
pub(super) fn rolled_back(failed: &FailedRevision, target: &RollbackTarget, now: Timestamp) -> Failure {
    let (desired, back) = names(failed, target);
    let moment = next_retry(failed).map_or_else(String::new, |moment| format!(" after {moment:.0}"));
    let message = format!(
        "{desired} failed ({}: {}), and {back} is installed again; the failed release is retried when spec \
         or content change, on kymactl reconcile, or automatically{moment}",
        failed.reason, failed.message
    );
    let failure = Failure::new(Reason::RolledBack, message);
    time_until_retry(failed, now).map_or(failure.clone(), |left| failure.retry_after(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn late() -> Failure {
        Failure::new(Reason::HealthTimeout, "not ready within 9 s: Deployment.apps here/d")
    }

    fn target(version: &str) -> RollbackTarget {
        RollbackTarget { version: version.to_owned(), ..RollbackTarget::default() }
    }

    #[test]
    fn failed_release_is_retried_with_growing_bounded_delays() {
        let mut record = record_failure(None, "i", "2".to_owned(), &late(), at(0));
        let mut pauses = vec![];
        for _ in 0..8 {
            let left = time_until_retry(&record, at(0)).unwrap();
            let after = i64::try_from(left.as_secs()).unwrap();
            assert_eq!(time_until_retry(&record, at(after - 1)), Some(Duration::from_secs(1)));
            assert_eq!(time_until_retry(&record, at(after)), None);
            pauses.push(left.as_secs() / 60);
            record = record_failure(Some(&record), "i", "2".to_owned(), &late(), at(0));
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 360, 360]);
        assert_eq!(record_failure(Some(&record), "other", "3".to_owned(), &late(), at(0)).attempts, 1);
    }

    #[test]
    fn a_record_that_cannot_be_read_holds_nothing_up() {
        let odd = FailedRevision { last_failure_time: "yesterday".to_owned(), ..FailedRevision::default() };
        assert_eq!(time_until_retry(&odd, at(0)), None);
    }

    #[test]
    fn both_are_named_with_the_cause_and_the_next_try() {
        let record = record_failure(None, "i", "2.0.0".to_owned(), &late(), at(0));
        let told = rolled_back(&record, &target("1.0.0"), at(1));
        assert_eq!((told.reason, told.retry_after), (Reason::RolledBack, Some(Duration::from_secs(599))));
        for word in ["2.0.0", "1.0.0", "HealthTimeout", "Deployment.apps here/d", "1970-01-01T00:10:00Z"] {
            assert!(told.message.contains(word), "{}", told.message);
        }
        assert_eq!(
            told.message,
            rolled_back(&record, &target("1.0.0"), at(2)).message,
            "no new words for no news"
        );
        let values = rolled_back(&record, &target("2.0.0"), at(1)).message;
        assert!(values.starts_with("2.0.0 with its new values failed"), "{values}");
    }

    #[test]
    fn hooks_of_every_rollback_and_every_try_are_a_run_of_their_own() {
        let first = record_failure(None, "i", "2".to_owned(), &late(), at(0));
        let second = record_failure(Some(&first), "i", "2".to_owned(), &late(), at(9));
        let renewed = record_failure(None, "i", "2".to_owned(), &late(), at(9));
        let all = [&first, &second, &renewed].map(|record| attempt_digest("r", record));
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert_eq!(attempt_digest("r", &first), all[0]);
    }

    #[test]
    fn content_without_a_version_is_named_by_its_digest() {
        let spec = |spec: serde_json::Value| serde_json::from_value(spec).unwrap();
        let chart = spec(json!({"source": {"chart": {"url": "oci://r/c", "version": "1.2.3"}}}));
        assert_eq!(version(&chart, &chart.source, "sha256:0"), "1.2.3");
        let plain = spec(json!({"source": {"manifests": {"url": "https://e.org/a.yaml"}}}));
        assert_eq!(version(&plain, &plain.source, "sha256:0123456789abcdef"), "sha256:0123456789ab");
    }
}

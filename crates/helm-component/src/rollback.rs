//! State of a release that failed and was rolled back. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kyma_api::{FailedRelease, HelmComponentSpec, KeptRelease, Reason, RollbackMode, Source};
use kyma_sdk::Failure;
use serde_json::json;

use crate::content;

/// The pause after a release failed first; it doubles. Each try is an upgrade on a target that works.
const PAUSE: Duration = Duration::from_mins(10);
/// The longest pause.
const LONGEST: Duration = Duration::from_hours(6);
/// Characters of a failure that are kept.
const WORDS: usize = 1024;
/// Characters of a digest that stands for a version.
const DIGEST: usize = 19;

/// Whether a component goes back to what was Ready.
pub(crate) fn is_wanted(spec: &HelmComponentSpec) -> bool {
    spec.rollback.as_ref().is_some_and(|rollback| rollback.mode == RollbackMode::OnFailure)
}

/// What people call the content of a source, which names the version that a range stands for: version of module or chart,
/// or the beginning of the digest.
pub(crate) fn version(spec: &HelmComponentSpec, of: &Source, source: &str) -> String {
    let module = spec.module.as_ref().map(|module| module.version.clone());
    let ocm = of.ocm.as_ref().map(|ocm| ocm.version.clone());
    let chart = of.chart.as_ref().and_then(|chart| chart.version.clone());
    let manifests = of.manifests.as_ref().and_then(|manifests| manifests.version.clone());
    module.or(ocm).or(chart).or(manifests).unwrap_or_else(|| source.chars().take(DIGEST).collect())
}

/// The record of a release that failed now, as it did before or for the first time.
pub(crate) fn failed(
    before: Option<&FailedRelease>,
    inputs: &str,
    version: String,
    failure: &Failure,
    now: Timestamp,
) -> FailedRelease {
    let same = before.filter(|before| before.inputs == inputs);
    FailedRelease {
        version,
        inputs: inputs.to_owned(),
        reason: failure.reason.as_str().to_owned(),
        message: failure.message.chars().take(WORDS).collect(),
        failed_at: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        attempt: same.map_or(0, |before| before.attempt).saturating_add(1),
        retrying: false,
    }
}

/// When a release that failed is tried again; `None` where the record cannot be read.
fn again(failed: &FailedRelease) -> Option<Timestamp> {
    let at: Timestamp = failed.failed_at.parse().ok()?;
    let doublings = u32::try_from(failed.attempt.saturating_sub(1)).unwrap_or_default().min(16);
    let pause = PAUSE.saturating_mul(1 << doublings).min(LONGEST);
    at.checked_add(SignedDuration::try_from(pause).ok()?).ok()
}

/// The time that is left until then; `None` where it is over. One that cannot be read is.
pub(crate) fn pause(failed: &FailedRelease, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(again(failed)?.duration_since(now)).ok();
    left.filter(|left| !left.is_zero())
}

/// Digest of what hooks run for: a release that is gone back to or tried again, this very time.
pub(crate) fn time(release: &str, failed: &FailedRelease) -> String {
    let FailedRelease { inputs, failed_at, attempt, .. } = failed;
    content::digest(&[json!([release, inputs, failed_at, attempt]).to_string().as_bytes()])
}

/// Names of both, for messages; two releases of one version differ by their values.
fn names(failed: &FailedRelease, kept: &KeptRelease) -> (String, String) {
    if failed.version == kept.version {
        return (format!("{} with its new values", failed.version), format!("{} as it was", kept.version));
    }
    (failed.version.clone(), kept.version.clone())
}

/// What stands before all that is said while the way back is not at its end.
pub(crate) fn on_the_way(failed: &FailedRelease, kept: &KeptRelease) -> String {
    let (wished, back) = names(failed, kept);
    format!("{wished} failed ({}), and {back} takes its place again", failed.reason)
}

/// What is told once what was Ready is there again; the same as long as nothing changes.
pub(crate) fn is_back(failed: &FailedRelease, kept: &KeptRelease, now: Timestamp) -> Failure {
    let (wished, back) = names(failed, kept);
    let moment = again(failed).map_or_else(String::new, |moment| format!(" after {moment:.0}"));
    let message = format!(
        "{wished} failed ({}: {}), and {back} is installed again; it is tried again when spec or content change, when \
         kymactl reconcile asks for it, or by itself{moment}",
        failed.reason, failed.message
    );
    let failure = Failure::new(Reason::RolledBack, message);
    pause(failed, now).map_or(failure.clone(), |left| failure.retry_after(left))
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

    fn kept(version: &str) -> KeptRelease {
        KeptRelease { version: version.to_owned(), ..KeptRelease::default() }
    }

    #[test]
    fn a_failed_release_is_tried_again_after_pauses_that_grow_to_a_bound() {
        let mut record = failed(None, "i", "2".to_owned(), &late(), at(0));
        let mut pauses = vec![];
        for _ in 0..8 {
            let left = pause(&record, at(0)).unwrap();
            let after = i64::try_from(left.as_secs()).unwrap();
            assert_eq!(pause(&record, at(after - 1)), Some(Duration::from_secs(1)));
            assert_eq!(pause(&record, at(after)), None);
            pauses.push(left.as_secs() / 60);
            record = failed(Some(&record), "i", "2".to_owned(), &late(), at(0));
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 360, 360]);
        assert_eq!(failed(Some(&record), "other", "3".to_owned(), &late(), at(0)).attempt, 1);
    }

    #[test]
    fn a_record_that_cannot_be_read_holds_nothing_up() {
        let odd = FailedRelease { failed_at: "yesterday".to_owned(), ..FailedRelease::default() };
        assert_eq!(pause(&odd, at(0)), None);
    }

    #[test]
    fn both_are_named_with_the_cause_and_the_next_try() {
        let record = failed(None, "i", "2.0.0".to_owned(), &late(), at(0));
        let told = is_back(&record, &kept("1.0.0"), at(1));
        assert_eq!((told.reason, told.retry_after), (Reason::RolledBack, Some(Duration::from_secs(599))));
        for word in ["2.0.0", "1.0.0", "HealthTimeout", "Deployment.apps here/d", "1970-01-01T00:10:00Z"] {
            assert!(told.message.contains(word), "{}", told.message);
        }
        assert_eq!(told.message, is_back(&record, &kept("1.0.0"), at(2)).message, "no new words for no news");
        let values = is_back(&record, &kept("2.0.0"), at(1)).message;
        assert!(values.starts_with("2.0.0 with its new values failed"), "{values}");
    }

    #[test]
    fn hooks_of_every_rollback_and_every_try_are_a_run_of_their_own() {
        let first = failed(None, "i", "2".to_owned(), &late(), at(0));
        let second = failed(Some(&first), "i", "2".to_owned(), &late(), at(9));
        let anew = failed(None, "i", "2".to_owned(), &late(), at(9));
        let all = [&first, &second, &anew].map(|record| time("r", record));
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert_eq!(time("r", &first), all[0]);
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

//! State of each object between its reconciles.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use kyma_api::ErrorClass;
use parking_lot::Mutex;

use crate::failure::Failure;
use crate::process::diagnosis::Diagnosis;
use crate::reconciler::backoff::shares_delays;

/// The records of all objects of a kind.
#[derive(Debug)]
pub(super) struct Records<Key>(Mutex<HashMap<Key, Record>>);

#[derive(Debug, Default)]
struct Record {
    /// Time of the first event that requested the next reconcile.
    first_request: Option<Instant>,
    /// Time of the last event that did.
    last_request: Option<Instant>,
    /// Start of the running reconcile.
    began: Option<Instant>,
    /// Time of the next reconcile without an event.
    next: Option<Instant>,
    /// Time at which a verification is due. A successful reconcile before it postpones it.
    verified_by: Option<Instant>,
    /// Failures since the last successful reconcile.
    failed: Option<FailureRecord>,
}

/// The failures since the last successful reconcile.
#[derive(Debug)]
struct FailureRecord {
    /// Failures in a row that share their delays. A reason with its own delays starts at the shortest.
    in_a_row: u32,
    last: Failure,
}

/// Facts about a reconcile at its start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReconcileStart {
    /// Time of the first event that requested it; `None` if only a timer did.
    pub(super) first_request: Option<Instant>,
    /// Time of the last event that requested it.
    pub(super) last_request: Option<Instant>,
    /// No reconcile succeeded for the resync period.
    pub(super) verifies: bool,
}

impl<Key: Eq + Hash> Records<Key> {
    /// Records that an event requested a reconcile. Requests while one is pending are merged.
    pub(super) fn record_request(&self, key: Key) {
        let now = Instant::now();
        let mut records = self.0.lock();
        let record = records.entry(key).or_default();
        record.first_request.get_or_insert(now);
        record.last_request = Some(now);
    }

    /// Returns the time until the next reconcile is due; `None` if an event requested one or it is due. An earlier
    /// reconcile, which waited for its slot, may have handled the event of this one.
    pub(super) fn remaining_delay(&self, key: &Key, now: Instant) -> Option<Duration> {
        let records = self.0.lock();
        let record = records.get(key).filter(|record| record.first_request.is_none())?;
        record.next?.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    pub(super) fn begins(&self, key: Key, now: Instant) -> ReconcileStart {
        let mut records = self.0.lock();
        let record = records.entry(key).or_default();
        (record.began, record.next) = (Some(now), None);
        // The verification stays due until a reconcile succeeds.
        let verifies = record.verified_by.is_some_and(|due| due <= now);
        ReconcileStart {
            first_request: record.first_request.take(),
            last_request: record.last_request.take(),
            verifies,
        }
    }

    /// Records the end of a reconcile, or that it did not begin; without an event the next one begins after `delay`.
    pub(super) fn again_after(&self, key: Key, now: Instant, delay: Duration) {
        let mut records = self.0.lock();
        let record = records.entry(key).or_default();
        (record.began, record.next) = (None, Some(now + delay));
    }

    /// Records a successful reconcile; the next verification is due after `resync`.
    pub(super) fn verify_after(&self, key: Key, now: Instant, resync: Duration) {
        self.0.lock().entry(key).or_default().verified_by = Some(now + resync);
    }

    /// Returns the time until the next verification; `None` if it is due, or no reconcile ever succeeded.
    pub(super) fn verifies_in(&self, key: &Key, now: Instant) -> Option<Duration> {
        let due = self.0.lock().get(key)?.verified_by?;
        due.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Returns the same as [`verifies_in`](Self::verifies_in) after a failed reconcile; a verification that was due
    /// is due again after `again`.
    pub(super) fn not_verified(&self, key: &Key, now: Instant, again: Duration) -> Option<Duration> {
        let left = self.verifies_in(key, now);
        if left.is_none()
            && let Some(record) = self.0.lock().get_mut(key)
        {
            record.verified_by = record.verified_by.map(|_| now + again);
        }
        left
    }

    /// Counts a failure and returns the number of failures in a row that share their delays.
    pub(super) fn failed(&self, key: Key, failure: &Failure) -> u32 {
        let mut records = self.0.lock();
        let record = records.entry(key).or_default();
        let before =
            record.failed.as_ref().filter(|failed| shares_delays(failed.last.reason, failure.reason));
        let in_a_row = before.map_or(0, |failed| failed.in_a_row).saturating_add(1);
        record.failed = Some(FailureRecord { in_a_row, last: failure.clone() });
        in_a_row
    }

    pub(super) fn got_through(&self, key: &Key) {
        if let Some(record) = self.0.lock().get_mut(key) {
            record.failed = None;
        }
    }

    /// Reports whether the target did not answer last time.
    pub(super) fn was_unreachable(&self, key: &Key) -> bool {
        let records = self.0.lock();
        let failed = records.get(key).and_then(|record| record.failed.as_ref());
        failed.is_some_and(|failed| failed.last.class == ErrorClass::Unreachable)
    }

    /// Returns the diagnosis of an object; `None` if it was never queued.
    pub(super) fn diagnosis(&self, key: &Key, now: Instant) -> Option<Diagnosis> {
        let records = self.0.lock();
        let record = records.get(key)?;
        let since = |then: Option<Instant>| then.map(|then| now.duration_since(then).as_secs_f64());
        let until = |then: Option<Instant>| then.map(|then| then.duration_since(now).as_secs_f64());
        Some(Diagnosis {
            queued: since(record.first_request),
            working: since(record.began),
            next: until(record.next),
            failures: record.failed.as_ref().map_or(0, |failed| failed.in_a_row),
            failure: record.failed.as_ref().map(|failed| failed.last.to_string()),
            ..Diagnosis::default()
        })
    }

    /// Drops the records of deleted objects once they outnumber the existing ones.
    pub(super) fn forget(&self, there: usize, is_there: impl Fn(&Key) -> bool) {
        let mut records = self.0.lock();
        if records.len() > 2 * there + 64 {
            records.retain(|key, _| is_there(key));
        }
    }
}

impl<Key> Default for Records<Key> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::Reason;

    use super::*;

    const RESYNC: Duration = Duration::from_secs(100);

    #[test]
    fn incomplete_pass_leaves_the_verification_to_a_later_one() {
        let records = Records::default();
        let start = Instant::now();
        let (at, seconds) = (|seconds| start + Duration::from_secs(seconds), Duration::from_secs);
        records.begins("a", at(0));
        assert_eq!(records.not_verified(&"a", at(0), seconds(9)), None);
        assert!(!records.begins("a", at(50)).verifies, "nothing ever got through");
        records.verify_after("a", at(0), RESYNC);
        assert!(!records.begins("a", at(60)).verifies);
        assert_eq!(records.not_verified(&"a", at(60), seconds(9)), Some(seconds(40)), "due as before");
        assert!(records.begins("a", at(100)).verifies);
        assert_eq!(records.verifies_in(&"a", at(100)), None);
        assert!(records.begins("a", at(101)).verifies, "the one before was cut off");
        assert_eq!(records.not_verified(&"a", at(101), seconds(9)), None);
        assert!(!records.begins("a", at(102)).verifies, "not with each try");
        assert_eq!(records.not_verified(&"a", at(102), seconds(9)), Some(seconds(8)));
        assert!(records.begins("a", at(110)).verifies);
        records.verify_after("a", at(110), RESYNC);
        assert!(!records.begins("a", at(111)).verifies);
    }

    #[test]
    fn pauses_that_belong_to_one_failure_begin_with_it() {
        let records = Records::default();
        let fails = |reason| records.failed("a", &Failure::new(reason, ""));
        let ordinary = [Reason::TargetTimeout, Reason::HubUnavailable, Reason::TargetTimeout].map(fails);
        assert_eq!(ordinary, [1, 2, 3], "one that changes its words goes on");
        assert_eq!([Reason::TargetForbidden, Reason::TargetForbidden].map(fails), [1, 2]);
        assert_eq!([Reason::QuotaExceeded, Reason::WebhookDenied].map(fails), [1, 1]);
        assert_eq!([Reason::TargetTimeout, Reason::TargetTimeout].map(fails), [1, 2]);
    }

    #[test]
    fn only_a_pass_that_nothing_but_time_led_to_verifies() {
        let records = Records::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let verifies = |seconds| records.begins("a", at(seconds)).verifies;
        assert!(!verifies(0), "the first one");
        records.verify_after("a", at(0), RESYNC);
        assert!(!verifies(99), "an event came before");
        records.verify_after("a", at(99), RESYNC);
        assert!(verifies(199));
        records.verify_after("a", at(199), RESYNC);
        assert!(!verifies(200), "it was done just now");
    }

    #[test]
    fn pass_records_first_and_last_event_that_requested_it() {
        let records = Records::default();
        assert_eq!(records.begins("a", Instant::now()).first_request, None, "only time led to it");
        records.record_request("a");
        let first = records.0.lock()["a"].first_request;
        records.record_request("a");
        let last = records.0.lock()["a"].last_request;
        let begins = || records.begins("a", Instant::now());
        let (second, third) = (begins(), begins());
        assert_eq!((second.first_request, second.last_request), (first, last));
        assert!(last >= first && (third.first_request, third.last_request) == (None, None));
    }

    #[test]
    fn only_an_event_requests_a_reconcile_before_its_time() {
        let (records, start) = (Records::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(records.remaining_delay(&"a", at(0)), None, "the first one");
        records.begins("a", at(0));
        records.again_after("a", at(1), Duration::from_secs(9));
        assert_eq!(records.remaining_delay(&"a", at(4)), Some(Duration::from_secs(6)));
        assert_eq!(records.remaining_delay(&"a", at(10)), None);
        records.record_request("a");
        assert_eq!(records.remaining_delay(&"a", at(4)), None);
        records.begins("a", at(4));
        records.again_after("a", at(5), Duration::from_secs(9));
        assert_eq!(
            records.remaining_delay(&"a", at(5)),
            Some(Duration::from_secs(9)),
            "the event is handled"
        );
    }

    #[test]
    fn what_is_gone_is_forgotten_before_it_becomes_many() {
        let records = Records::default();
        for key in 0..1000 {
            records.verify_after(key, Instant::now(), RESYNC);
        }
        records.forget(1000, |_| false);
        assert_eq!(records.0.lock().len(), 1000);
        records.forget(3, |key| *key < 3);
        assert_eq!(records.0.lock().len(), 3);
        (3..60).for_each(|key| records.record_request(key));
        records.forget(0, |_| false);
        assert_eq!(records.0.lock().len(), 60, "few are not worth it");
    }

    #[test]
    fn an_object_stands_in_the_queue_then_in_work_and_then_waits() {
        let records = Records::default();
        assert_eq!(records.diagnosis(&"a", Instant::now()), None);
        records.record_request("a");
        let diagnosis = |seconds| {
            let now = Instant::now() + Duration::from_secs(seconds);
            let diagnosis = records.diagnosis(&"a", now).unwrap();
            let whole = |time: Option<f64>| time.map(f64::round);
            (whole(diagnosis.queued), whole(diagnosis.working), whole(diagnosis.next), diagnosis.failures)
        };
        assert_eq!(diagnosis(2), (Some(2.0), None, None, 0));
        records.begins("a", Instant::now());
        assert_eq!(diagnosis(3), (None, Some(3.0), None, 0));
        let failure = Failure::new(Reason::TargetTimeout, "no answer");
        assert_eq!((records.failed("a", &failure), records.failed("a", &failure)), (1, 2));
        records.again_after("a", Instant::now(), Duration::from_secs(9));
        assert_eq!(diagnosis(0), (None, None, Some(9.0), 2));
        assert!(records.was_unreachable(&"a"));
        let told = records.diagnosis(&"a", Instant::now()).unwrap().failure.unwrap();
        assert!(told.contains("no answer"), "{told}");
        records.got_through(&"a");
        assert_eq!(diagnosis(0), (None, None, Some(9.0), 0));
    }
}

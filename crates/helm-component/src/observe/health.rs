//! Health of a component's objects, as input of decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kyma_health::{Health, HealthStatus};
use kyma_object_set::Identity;

use crate::pass::Pass;
use crate::plan::{ObjectState, Operation};
use crate::target_cache::{Snapshot, WatchedObject};

/// Seconds after which the causes that hold up objects are read, and then read again: at the first read a Pod may not
/// exist yet, and the cause may change later.
const CAUSE_READ_SECONDS: [i64; 5] = [10, 40, 160, 640, 2560];

/// Context of a decision on health, besides the object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthContext<'a> {
    /// Current time.
    pub now: Timestamp,
    /// Time for which a failure must last before it counts.
    pub lasting: Duration,
    /// StorageClasses, and whether each binds a claim only when a Pod uses it.
    pub classes: &'a BTreeMap<String, bool>,
}

/// Health of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObservedHealth {
    /// `None` while it is unknown.
    pub status: Option<HealthStatus>,
    /// Time until the failure has lasted long enough.
    pub fails_in: Option<Duration>,
}

impl<'a> HealthContext<'a> {
    /// Returns the context of a component. An unhealthy component stays unhealthy until no object fails.
    pub(crate) fn of(pass: &'a Pass<'_>) -> Self {
        let lasting = if pass.state.unhealthy { Duration::ZERO } else { pass.shared.unhealthy_after };
        Self { now: Timestamp::now(), lasting, classes: &pass.state.classes }
    }

    /// Returns the health of an object in this context.
    pub(crate) fn observed_health(self, seen: &WatchedObject) -> ObservedHealth {
        let Some(health) = &seen.health else { return ObservedHealth::default() };
        if self.waits_for_a_pod(health) {
            return ObservedHealth { status: Some(HealthStatus::Current), fails_in: None };
        }
        let failed = health.status == HealthStatus::Failed;
        let since = health.failed_from.or(seen.failed_since.filter(|_| failed));
        let Some(since) = since else {
            return ObservedHealth { status: Some(health.status), fails_in: None };
        };
        let lasting = SignedDuration::try_from(self.lasting).unwrap_or(SignedDuration::MAX);
        let left =
            since.checked_add(lasting).map_or(SignedDuration::MAX, |from| from.duration_since(self.now));
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => {
                ObservedHealth { status: Some(HealthStatus::InProgress), fails_in: Some(left) }
            }
            _ => ObservedHealth { status: Some(HealthStatus::Failed), fails_in: None },
        }
    }

    /// Reports whether a claim waits for its first Pod. Such a claim is healthy if its class binds on the first Pod.
    fn waits_for_a_pod(self, health: &Health) -> bool {
        health.storage_class.as_ref().is_some_and(|class| self.classes.get(class) == Some(&true))
    }
}

/// Returns the time until the first of the objects that count has been failed for long enough.
pub(super) fn fails_in(
    context: HealthContext<'_>,
    snapshot: &Snapshot,
    objects: &[ObjectState],
    made: Option<&Identity>,
) -> Option<Duration> {
    let counting = objects.iter().filter(|object| object.counts).map(|object| &object.identity).chain(made);
    let seen = counting.filter_map(|identity| snapshot.objects.get(identity));
    seen.filter_map(|seen| context.observed_health(seen).fails_in).min()
}

/// Returns the `StorageClass`es of claims that no Pod uses yet.
pub(crate) fn classes(snapshot: &Snapshot, objects: &[ObjectState]) -> BTreeSet<String> {
    let counting = objects.iter().filter(|object| object.counts);
    let seen = counting.filter_map(|object| snapshot.objects.get(&object.identity));
    seen.filter_map(|seen| seen.health.as_ref()?.storage_class.clone()).collect()
}

/// Reports whether objects or StorageClasses must be read before health is known.
pub(super) fn is_unjudged(pass: &Pass<'_>, snapshot: &Snapshot, objects: &[ObjectState]) -> bool {
    let unknown = |class: &String| !pass.state.classes.contains_key(class);
    !pass.done.judged && (!snapshot.unjudged.is_empty() || classes(snapshot, objects).iter().any(unknown))
}

/// Reports whether objects take so long that the causes that hold them up should be read.
pub(super) fn are_causes_due(pass: &Pass<'_>, objects: &[ObjectState]) -> bool {
    let waits = |object: &ObjectState| object.counts && object.health != Some(HealthStatus::Current);
    next_cause_read(pass) == Some(Duration::ZERO) && objects.iter().any(waits)
}

/// Returns the time until the causes are read; `None` after the last read, or if nothing is awaited.
pub(crate) fn next_cause_read(pass: &Pass<'_>) -> Option<Duration> {
    let since = pass.state.unready_since?;
    if pass.operation != Operation::Install {
        return None;
    }
    let last_read = pass.state.cause_read.filter(|read| read.wait == since);
    let left = time_until_cause_read(since, last_read.map(|read| read.at), Timestamp::now().as_second())?;
    Some(if pass.done.causes_read { in_another_pass(left) } else { left })
}

/// Returns the pause until the read of another pass: each pass reads once.
fn in_another_pass(left: Duration) -> Duration {
    left.max(Duration::from_secs(1))
}

/// Returns the time until the next read of the causes that hold up objects; `None` after the last read. `since`:
/// beginning of the wait, `last_read`: time of the previous read, both in Unix seconds.
fn time_until_cause_read(since: i64, last_read: Option<i64>, now: i64) -> Option<Duration> {
    let mut reads = CAUSE_READ_SECONDS.iter().map(|after| since.saturating_add(*after));
    let next = reads.find(|at| last_read.is_none_or(|last_read| last_read < *at))?;
    Some(Duration::from_secs(u64::try_from(next.saturating_sub(now)).unwrap_or_default()))
}

/// Returns why an object is not healthy: the cause that was found, or its own failure message.
pub(super) fn why(
    pass: &Pass<'_>,
    identity: &Identity,
    seen: Option<&WatchedObject>,
    status: Option<HealthStatus>,
) -> String {
    if status == Some(HealthStatus::Current) {
        return String::new();
    }
    let wait = pass.state.cause_read.map(|read| read.wait);
    let of_this_wait = wait == pass.state.unready_since;
    let found = pass.state.delay_causes.get(identity).filter(|_| of_this_wait).cloned();
    let failed = seen.and_then(|seen| seen.health.as_ref());
    let failed = failed.filter(|_| status == Some(HealthStatus::Failed)).map(|health| health.message.clone());
    found.or(failed).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kyma_object_set::ObservedObject;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000 + seconds).unwrap()
    }

    fn seen(health: Health, failed_since: Option<i64>) -> WatchedObject {
        WatchedObject {
            observed: ObservedObject::default(),
            health: Some(health),
            failed_since: failed_since.map(at),
            version: None,
        }
    }

    fn observed_health(seen: &WatchedObject, now: i64, lasting: u64) -> (Option<HealthStatus>, Option<u64>) {
        let classes = [("late".to_owned(), true), ("early".to_owned(), false)].into();
        let context =
            HealthContext { now: at(now), lasting: Duration::from_secs(lasting), classes: &classes };
        let ObservedHealth { status, fails_in } = context.observed_health(seen);
        (status, fails_in.map(|left| left.as_secs()))
    }

    const WAITS: Option<HealthStatus> = Some(HealthStatus::InProgress);
    const FAILED: Option<HealthStatus> = Some(HealthStatus::Failed);

    #[test]
    fn a_failure_is_one_when_it_has_lasted_and_not_before() {
        let failed = seen(Health::new(HealthStatus::Failed, "x"), Some(0));
        assert_eq!(observed_health(&failed, 0, 30), (WAITS, Some(30)));
        assert_eq!(observed_health(&failed, 29, 30), (WAITS, Some(1)));
        assert_eq!(observed_health(&failed, 30, 30), (FAILED, None));
        assert_eq!(observed_health(&failed, 0, 0), (FAILED, None), "one that was told already");
        assert_eq!(observed_health(&failed, -5, 30), (WAITS, Some(35)), "a clock that went back");
    }

    #[test]
    fn a_failure_with_a_known_time_lasts_from_that_time() {
        let health = Health { failed_from: Some(at(15)), ..Health::new(HealthStatus::InProgress, "x") };
        let pending = seen(health, None);
        assert_eq!(observed_health(&pending, 0, 30), (WAITS, Some(45)));
        assert_eq!(observed_health(&pending, 45, 30), (FAILED, None), "though nothing was seen of it since");
    }

    #[test]
    fn all_else_is_as_it_says() {
        for status in [
            HealthStatus::Current,
            HealthStatus::InProgress,
            HealthStatus::Terminating,
            HealthStatus::Unknown,
        ] {
            assert_eq!(observed_health(&seen(Health::new(status, ""), None), 0, 30), (Some(status), None));
        }
        let unknown = WatchedObject { health: None, ..seen(Health::new(HealthStatus::Current, ""), None) };
        assert_eq!(observed_health(&unknown, 0, 30), (None, None));
    }

    #[test]
    fn causes_are_read_after_growing_pauses_and_finally_not_again() {
        let left = |last_read: Option<i64>, now: i64| {
            time_until_cause_read(100, last_read, now).map(|left| left.as_secs())
        };
        assert_eq!(left(None, 100), Some(10));
        assert_eq!((left(None, 110), left(None, 500)), (Some(0), Some(0)));
        assert_eq!((left(Some(110), 110), left(Some(139), 139)), (Some(30), Some(1)));
        assert_eq!(left(Some(500), 500), Some(240), "those that were missed are not made up for");
        assert_eq!((left(Some(2659), 2659), left(Some(2660), 2660)), (Some(1), None));
    }

    #[test]
    fn a_pass_that_read_causes_returns_the_time_of_the_next_read() {
        let next = |now: i64| time_until_cause_read(100, Some(now), now).map(in_another_pass);
        assert_eq!(next(110), Some(Duration::from_secs(30)));
        let slow = time_until_cause_read(100, Some(139), 141).map(in_another_pass);
        assert_eq!(slow, Some(Duration::from_secs(1)), "not again in the same pass");
        assert_eq!(next(2660), None, "that was the last one");
    }

    #[test]
    fn a_claim_waits_for_a_pod_where_its_class_does() {
        let claim = |class: &str| {
            let health = Health::new(HealthStatus::InProgress, "it is not bound");
            observed_health(&seen(Health { storage_class: Some(class.to_owned()), ..health }, None), 0, 30).0
        };
        assert_eq!(claim("late"), Some(HealthStatus::Current));
        assert_eq!((claim("early"), claim("unknown")), (WAITS, WAITS));
    }
}

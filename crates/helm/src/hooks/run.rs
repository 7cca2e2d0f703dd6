//! Determines the hooks that are due, and the record of their progress, which outlives the process.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kyma_api::{Backoff, HookPhase, Hooks};
use sha2::{Digest, Sha256};

use super::hook::{Event, Hook, of_event};

/// Pauses before failed hooks run again.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(10));
/// Maximum length of a recorded failure, in characters.
const MAX_MESSAGE_CHARS: usize = 1024;

/// Operation of the current content on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseChange {
    /// First installation.
    Install,
    /// Upgrade: replaces other content or values.
    Upgrade,
    /// Rollback: the content was installed before, and replaces content that failed.
    Rollback,
}

impl ReleaseChange {
    const fn before(self) -> Event {
        match self {
            Self::Install => Event::PreInstall,
            Self::Upgrade => Event::PreUpgrade,
            Self::Rollback => Event::PreRollback,
        }
    }

    /// Returns the event after the content was applied.
    pub const fn after(self) -> Event {
        match self {
            Self::Install => Event::PostInstall,
            Self::Upgrade => Event::PostUpgrade,
            Self::Rollback => Event::PostRollback,
        }
    }
}

/// The current content and its relation to the installed one.
#[derive(Debug, Clone, Copy)]
pub struct ReleaseHooks<'a> {
    /// Hooks of the current content.
    pub hooks: &'a [Hook],
    /// Digest of the artifact, values, name and namespace, which identify the release.
    pub content: &'a str,
    /// Operation of the content on the target.
    pub change: ReleaseChange,
    /// Progress of hooks.
    pub record: Option<&'a Hooks>,
}

/// Returns the event before the apply, if the content has hooks for it that have not succeeded.
pub fn before(release: ReleaseHooks<'_>) -> Option<Event> {
    let event = release.change.before();
    let passed = release.record.filter(|record| record.digest == release.content).is_some_and(|record| {
        let recorded = Event::of(&record.event);
        recorded.is_some_and(Event::follows_apply)
            || (recorded == Some(event) && record.phase == HookPhase::Succeeded)
    });
    (!passed && !of_event(release.hooks, event).is_empty()).then_some(event)
}

/// Returns the record to store with the apply, so that a process that did not apply the content knows the hooks that
/// follow. `None` if the content has no hooks for this operation or for its removal.
pub fn before_apply(release: ReleaseHooks<'_>) -> Option<Hooks> {
    let has_delete_hooks = are_of_removal(release.hooks);
    let same = release.record.filter(|record| record.digest == release.content);
    if let Some(record) = same.filter(|record| Event::of(&record.event).is_some_and(Event::follows_apply)) {
        return Some(record.clone());
    }
    let (before, after) = (release.change.before(), release.change.after());
    if !has_delete_hooks && [before, after].iter().all(|event| of_event(release.hooks, *event).is_empty()) {
        return None;
    }
    let fresh = |event: Event, phase: HookPhase| Hooks {
        digest: release.content.to_owned(),
        event: event.as_str().to_owned(),
        phase,
        has_delete_hooks,
        ..Hooks::default()
    };
    if of_event(release.hooks, after).is_empty() {
        let ran = same.filter(|record| Event::of(&record.event) == Some(before));
        let ran = ran.map(|ran| Hooks { has_delete_hooks, ..ran.clone() });
        return Some(ran.unwrap_or_else(|| fresh(before, HookPhase::Succeeded)));
    }
    Some(fresh(after, HookPhase::Pending))
}

/// Returns the record to store with the apply if hooks are disabled: the hooks of the removal may be enabled by then.
pub fn record_if_disabled(release: ReleaseHooks<'_>) -> Option<Hooks> {
    are_of_removal(release.hooks).then(|| Hooks {
        digest: release.content.to_owned(),
        event: release.change.after().as_str().to_owned(),
        phase: HookPhase::Succeeded,
        has_delete_hooks: true,
        ..Hooks::default()
    })
}

/// Reports whether any of these hooks runs at the removal of the release.
pub fn are_of_removal(hooks: &[Hook]) -> bool {
    hooks.iter().flat_map(Hook::events).any(Event::is_of_removal)
}

/// Returns the event after the apply, as long as its hooks have not succeeded.
pub fn after(record: Option<&Hooks>) -> Option<Event> {
    let record = record.filter(|record| record.phase != HookPhase::Succeeded)?;
    Event::of(&record.event).filter(|event| event.follows_apply())
}

/// Reports whether the hooks of this removal event have succeeded, or a later event has begun.
pub fn is_over(record: Option<&Hooks>, event: Event) -> bool {
    let Some(record) = record else { return true };
    let recorded = Event::of(&record.event).filter(|recorded| recorded.is_of_removal());
    match recorded {
        Some(recorded) if recorded == event => record.phase == HookPhase::Succeeded,
        Some(recorded) => recorded > event,
        None => !record.has_delete_hooks,
    }
}

/// Reports whether hooks are recorded that have neither failed nor succeeded.
pub fn is_under_way(record: Option<&Hooks>) -> bool {
    record.is_some_and(|record| !matches!(record.phase, HookPhase::Failed | HookPhase::Succeeded))
}

/// Returns the record of a run that begins or continues now.
pub fn begin(record: Option<&Hooks>, event: Event, content: &str, now: Timestamp) -> Hooks {
    let same = record.filter(|record| record.digest == content && record.event == event.as_str());
    match same {
        Some(record) if matches!(record.phase, HookPhase::Running | HookPhase::Cleaning) => record.clone(),
        _ => Hooks {
            digest: content.to_owned(),
            event: event.as_str().to_owned(),
            phase: HookPhase::Running,
            attempts: Some(same.and_then(|record| record.attempts).unwrap_or(0).saturating_add(1)),
            start_time: Some(now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()),
            has_delete_hooks: record.is_some_and(|record| record.has_delete_hooks),
            ..Hooks::default()
        },
    }
}

/// Returns the record after a hook failed.
pub fn fail(run: Hooks, failure: &str, now: Timestamp) -> Hooks {
    Hooks {
        phase: HookPhase::Failed,
        last_failure_time: Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        message: Some(failure.chars().take(MAX_MESSAGE_CHARS).collect()),
        running: None,
        running_uid: None,
        ..run
    }
}

/// Returns the remaining pause before failed hooks run again, with the failure; `None` if they may run.
pub fn next_try(
    record: Option<&Hooks>,
    event: Event,
    content: &str,
    now: Timestamp,
) -> Option<(Duration, String)> {
    let record = record.filter(|record| record.digest == content && record.event == event.as_str())?;
    Some((pause(record, now)?, record.message.clone().unwrap_or_default()))
}

/// Returns the remaining pause after a failure.
pub fn pause(record: &Hooks, now: Timestamp) -> Option<Duration> {
    let failed = record.last_failure_time.as_deref().filter(|_| record.phase == HookPhase::Failed)?;
    let failed: Timestamp = failed.parse().ok()?;
    let attempts = u32::try_from(record.attempts.unwrap_or(1)).unwrap_or_default();
    let pause = SignedDuration::try_from(RETRY_BACKOFF.delay(attempts)).ok()?;
    let again = failed.checked_add(pause).ok()?;
    Duration::try_from(again.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// Returns the mark of a run's objects: the same in every process, and different for every run of every component.
/// Content that returns runs its hooks again, so the start time distinguishes the runs. A run that an earlier version
/// of the operator began has no start time.
pub fn mark(run: &Hooks, uid: &str) -> String {
    let attempt = run.attempts.unwrap_or(1).to_string();
    let mut hash = Sha256::new();
    for part in [uid, &run.digest, &run.event, &attempt].into_iter().chain(run.start_time.as_deref()) {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize()[..12])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::hooks::HOOK;
    use crate::hooks::hook::tests::hook;

    const EVENTS: &str = "pre-install,post-install,pre-upgrade,post-upgrade,pre-delete";

    fn record(event: Event, phase: HookPhase) -> Hooks {
        let event = event.as_str().to_owned();
        Hooks { digest: "c".to_owned(), event, phase, ..Hooks::default() }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn release<'a>(hooks: &'a [Hook], installed: bool, record: Option<&'a Hooks>) -> ReleaseHooks<'a> {
        let change = if installed { ReleaseChange::Upgrade } else { ReleaseChange::Install };
        ReleaseHooks { hooks, content: "c", change, record }
    }

    #[test]
    fn pre_hooks_run_once_per_content_and_post_hooks_follow_apply() {
        let hooks = [hook("j", &json!({HOOK: EVENTS}))];
        assert_eq!(before(release(&hooks, false, None)), Some(Event::PreInstall));
        assert_eq!(before(release(&hooks, true, None)), Some(Event::PreUpgrade));
        assert_eq!(before(release(&[], false, None)), None);
        for phase in [HookPhase::Running, HookPhase::Failed, HookPhase::Cleaning] {
            let record = record(Event::PreInstall, phase);
            assert_eq!(before(release(&hooks, false, Some(&record))), Some(Event::PreInstall), "{phase:?}");
        }
        let passed = record(Event::PreInstall, HookPhase::Succeeded);
        assert_eq!(before(release(&hooks, false, Some(&passed))), None);
        let other = Hooks { digest: "earlier".to_owned(), ..passed.clone() };
        assert_eq!(before(release(&hooks, false, Some(&other))), Some(Event::PreInstall));

        let next = before_apply(release(&hooks, false, Some(&passed))).unwrap();
        assert_eq!(
            (next.event.as_str(), next.phase, next.has_delete_hooks),
            ("post-install", HookPhase::Pending, true)
        );
        assert_eq!(before(release(&hooks, false, Some(&next))), None, "they ran");
        assert_eq!(
            before_apply(release(&hooks, false, Some(&next))),
            Some(next.clone()),
            "an apply that is tried again"
        );
        assert_eq!(after(Some(&next)), Some(Event::PostInstall));
        assert_eq!(after(Some(&Hooks { phase: HookPhase::Succeeded, ..next })), None);
        assert_eq!(after(Some(&passed)), None);
    }

    #[test]
    fn pre_install_hooks_record_whether_delete_hooks_exist() {
        let ran = |has_delete_hooks: bool| Hooks {
            has_delete_hooks,
            ..record(Event::PreInstall, HookPhase::Succeeded)
        };
        let told = |events: &str, before: bool| {
            let hooks = [hook("j", &json!({HOOK: events}))];
            before_apply(release(&hooks, false, Some(&ran(before))))
        };
        assert_eq!(told("pre-install,pre-delete", false), Some(ran(true)), "they were never known before");
        assert_eq!(told("pre-install", true), Some(ran(false)), "those were of the release before");
    }

    #[test]
    fn going_back_runs_hooks_of_its_own_and_none_of_what_failed() {
        let hooks = [hook("j", &json!({HOOK: "pre-upgrade,pre-rollback,post-rollback,pre-delete"}))];
        let failed = Hooks { digest: "failed".to_owned(), ..record(Event::PreUpgrade, HookPhase::Failed) };
        let back =
            |record| ReleaseHooks { hooks: &hooks, content: "back", change: ReleaseChange::Rollback, record };
        assert_eq!(before(back(Some(&failed))), Some(Event::PreRollback));
        let next = before_apply(back(Some(&failed))).unwrap();
        assert_eq!((next.event.as_str(), next.phase), ("post-rollback", HookPhase::Pending));
        assert_eq!((before(back(Some(&next))), after(Some(&next))), (None, Some(Event::PostRollback)));
        let over = Hooks { phase: HookPhase::Succeeded, ..next.clone() };
        assert_eq!(after(Some(&over)), None);
        assert!(!is_over(Some(&over), Event::PreDelete), "those of the removal are still to come");
        let again = ReleaseHooks { content: "back again", ..back(Some(&over)) };
        assert_eq!(before(again), Some(Event::PreRollback), "another rollback to the same release");
    }

    #[test]
    fn content_without_hooks_leaves_nothing_due_from_before() {
        let earlier = Hooks { digest: "earlier".to_owned(), ..record(Event::PostUpgrade, HookPhase::Failed) };
        assert_eq!(before_apply(release(&[], true, Some(&earlier))), None);
        let only_delete = [hook("j", &json!({HOOK: "pre-delete"}))];
        let next = before_apply(release(&only_delete, true, Some(&earlier))).unwrap();
        assert_eq!((next.phase, next.has_delete_hooks), (HookPhase::Succeeded, true));
        assert_eq!(after(Some(&next)), None);
    }

    #[test]
    fn a_removal_has_two_moments() {
        assert!(is_over(None, Event::PreDelete), "no hooks");
        let installed = record(Event::PostInstall, HookPhase::Succeeded);
        assert!(is_over(Some(&installed), Event::PreDelete), "none for the removal");
        let waiting = Hooks { has_delete_hooks: true, ..installed };
        assert!(!is_over(Some(&waiting), Event::PreDelete) && !is_over(Some(&waiting), Event::PostDelete));
        let running = record(Event::PreDelete, HookPhase::Running);
        assert!(!is_over(Some(&running), Event::PreDelete) && !is_over(Some(&running), Event::PostDelete));
        let passed = record(Event::PreDelete, HookPhase::Succeeded);
        assert!(is_over(Some(&passed), Event::PreDelete) && !is_over(Some(&passed), Event::PostDelete));
        let last = record(Event::PostDelete, HookPhase::Running);
        assert!(is_over(Some(&last), Event::PreDelete) && !is_over(Some(&last), Event::PostDelete));
    }

    #[test]
    fn a_run_goes_on_after_a_restart_and_another_try_is_another_run() {
        let begin = |record: Option<&Hooks>, content: &str, second: i64| {
            begin(record, Event::PreInstall, content, at(second))
        };
        let first = begin(None, "c", 0);
        assert_eq!(first.attempts, Some(1));
        let gone_on = begin(Some(&first), "c", 1);
        assert_eq!(mark(&gone_on, "u"), mark(&first, "u"));
        let runs = Hooks { running_uid: Some("job".to_owned()), ..first.clone() };
        assert_eq!(begin(Some(&runs), "c", 1).running_uid, runs.running_uid);
        let failed = fail(runs, "why", Timestamp::UNIX_EPOCH);
        assert_eq!(failed.running_uid, None);
        let second = begin(Some(&failed), "c", 0);
        assert_eq!(second.attempts, Some(2));
        assert_ne!(mark(&second, "u"), mark(&first, "u"));
        assert_ne!(mark(&first, "u"), mark(&first, "v"));
        assert_eq!(begin(Some(&failed), "other", 1).attempts, Some(1));
    }

    #[test]
    fn content_that_comes_back_runs_its_hooks_anew() {
        let hooks = [hook("j", &json!({HOOK: "pre-upgrade"}))];
        let run = |content: &str, record: Option<&Hooks>, at: Timestamp| {
            let release = ReleaseHooks { hooks: &hooks, content, change: ReleaseChange::Upgrade, record };
            assert_eq!(before(release), Some(Event::PreUpgrade));
            let run = begin(record, Event::PreUpgrade, content, at);
            let over = Hooks { phase: HookPhase::Succeeded, ..run.clone() };
            (mark(&run, "u"), before_apply(ReleaseHooks { record: Some(&over), ..release }))
        };
        let moment = |micros: i64| Timestamp::from_microsecond(micros).unwrap();
        let (first, record) = run("a", None, moment(0));
        let (other, record) = run("b", record.as_ref(), moment(1));
        let (again, _) = run("a", record.as_ref(), moment(2));
        let without_record = run("a", None, moment(3)).0;
        let marks = BTreeSet::from([first, other, again, without_record]);
        assert_eq!(marks.len(), 4, "an object of one run is never taken for that of another");
    }

    #[test]
    fn a_run_that_an_earlier_version_began_goes_on() {
        let old = Hooks { attempts: Some(1), ..record(Event::PreInstall, HookPhase::Running) };
        let gone_on = begin(Some(&old), Event::PreInstall, "c", at(9));
        assert_eq!((gone_on.start_time.as_ref(), mark(&gone_on, "u")), (None, mark(&old, "u")));
        assert_eq!(mark(&old, "u"), "806eb5ff06e6116b53f64afd", "as that version wrote it");
    }

    #[test]
    fn pauses_grow_and_other_content_does_not_wait() {
        let failed = |attempt: i32| {
            let run = Hooks { attempts: Some(attempt), ..begin(None, Event::PreInstall, "c", at(0)) };
            fail(run, "why", at(0))
        };
        let left = |attempt: i32, seconds: i64| {
            next_try(Some(&failed(attempt)), Event::PreInstall, "c", at(seconds))
                .map(|(left, _)| left.as_secs())
        };
        assert_eq!((left(1, 0), left(1, 29), left(1, 30)), (Some(30), Some(1), None));
        assert_eq!((left(2, 0), left(9, 0), left(99, 0)), (Some(60), Some(600), Some(600)));
        assert_eq!(next_try(Some(&failed(1)), Event::PreInstall, "other", at(0)), None);
    }
}

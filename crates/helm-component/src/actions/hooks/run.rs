//! Runs the hooks of an event, as far as possible without waiting.
//!
//! The objects of a hook carry the mark of its run, and the record of the run is written to the hub before any of
//! them is deleted. A new process finds either, and continues from there.

use std::time::Duration;

use jiff::Timestamp;
use kyma_api::{ErrorClass, FreeForm, HookPhase, Hooks, Reason};
use kyma_controller::Failure;
use kyma_helm::hooks::{self, DeletePolicy, Event, Hook, HookAction, HookState, LiveHook};
use serde_json::json;

use super::job_events::state_from_events;
use super::objects::{HookCreation, HookObject, deletion_refused};
use super::state::{HookRecords, Outcome};
use super::subscriptions::{self, mark};
use crate::pass::Pass;
use crate::plan::step::StopReason;

/// Default time limit of a hook in seconds, as in Helm.
const DEFAULT_HOOK_SECONDS: i64 = 300;

/// Maximum number of reads of one hook that other writers keep changing.
const MAX_HOOK_READS: usize = 4;

/// Hooks of one event, in the order in which they run.
struct Sequence<'h> {
    event: Event,
    hooks: Vec<&'h Hook>,
}

/// Runs the hooks of an event of the loaded release. Their wait or failure ends the pass.
pub(crate) async fn run_for_release(pass: &mut Pass<'_>, event: Event) {
    let Some(loaded) = pass.state.loaded.clone() else { return };
    let outcome = run(pass, event, &loaded.prepared.hooks, &loaded.release).await;
    pass.done.hooks.stop_reason = match outcome {
        Ok(outcome) => outcome.waiting().map(StopReason::Hook),
        Err(failure) => Some(StopReason::Failed(failure)),
    };
}

/// Runs the hooks of an event among `all` hooks of the content with this digest.
pub(crate) async fn run(
    pass: &mut Pass<'_>,
    event: Event,
    all: &[Hook],
    content: &str,
) -> Result<Outcome, Failure> {
    let record = pass.state.recorded.hooks.of_event(event);
    if let Some((left, why)) = hooks::next_try(record, event, content, Timestamp::now()) {
        return Err(Failure::new(Reason::HookFailed, why).retry_after(left));
    }
    let run = hooks::begin(record, event, content, Timestamp::now());
    let sequence = Sequence { event, hooks: hooks::of_event(all, event) };
    if sequence.hooks.is_empty() {
        let succeeded = Hooks { phase: HookPhase::Succeeded, ..run };
        *pass.state.recorded.hooks.of_event_mut(event) = Some(succeeded);
        return Ok(Outcome::Completed);
    }
    checkpoint_record(pass, event, Some(run.clone())).await?;
    if let Some(left) = subscriptions::subscribe(pass, &sequence.hooks, &mark(pass, &run)) {
        pass.done.hooks.left = Some(left);
        return Ok(Outcome::Waiting(format!("the watch that shows the results of {event} hooks")));
    }
    let outcome = run_in_order(pass, &sequence, run).await?;
    if outcome == Outcome::Completed {
        delete_succeeded(pass, &sequence).await?;
    }
    Ok(outcome)
}

/// Runs one hook after another, from the recorded progress on.
async fn run_in_order(
    pass: &mut Pass<'_>,
    sequence: &Sequence<'_>,
    mut run: Hooks,
) -> Result<Outcome, Failure> {
    if run.phase == HookPhase::Cleaning {
        return Ok(Outcome::Completed);
    }
    let event = sequence.event;
    for hook in &sequence.hooks {
        let name = hook.name();
        if run.succeeded.iter().flatten().any(|succeeded| *succeeded == name) {
            continue;
        }
        match run_hook(pass, hook, &run).await {
            Ok(HookProgress::Succeeded) => {
                run.running = None;
                run.running_uid = None;
                run.succeeded.get_or_insert_default().push(name);
                *pass.state.recorded.hooks.of_event_mut(event) = Some(run.clone());
            }
            Ok(HookProgress::Waiting { left, uid }) => {
                run.running = left.is_some().then(|| name.clone());
                run.running_uid = uid.filter(|_| left.is_some());
                pass.done.hooks.left = left;
                if run.running_uid.is_some() {
                    // The object may be gone before the next process reads it, which must know that it was created.
                    checkpoint_record(pass, event, Some(run)).await?;
                } else {
                    *pass.state.recorded.hooks.of_event_mut(event) = Some(run);
                }
                return Ok(Outcome::Waiting(format!("the {event} hook {name}")));
            }
            Ok(HookProgress::Failed(why)) => {
                return Err(record_failure(pass, sequence, hook, run, &why).await?);
            }
            // A hook that cannot succeed fails like one that ran, and is retried like one.
            Err(refused) if is_refused(event, &refused) => {
                return Err(record_failure(pass, sequence, hook, run, &refused.message).await?);
            }
            Err(failure) => {
                // The namespace may have been deleted since it was read; the next attempt creates it.
                pass.state.namespace_ready = false;
                return Err(failure);
            }
            Ok(HookProgress::Unanswered { webhook, failure }) => {
                pass.done.dead_webhook = Some(webhook);
                return Err(failure);
            }
        }
    }
    // Written to the hub before any deletion, as otherwise a new process would run the hooks again.
    run.phase = HookPhase::Cleaning;
    checkpoint_record(pass, event, Some(run)).await?;
    Ok(Outcome::Completed)
}

/// Progress of one hook.
enum HookProgress {
    Succeeded,
    /// `left`: the remaining time, if its object exists and this run created it. `uid`: that of a Job that Kubernetes
    /// deletes by itself.
    Waiting {
        left: Option<Duration>,
        uid: Option<String>,
    },
    Failed(String),
    /// A webhook did not answer its creation.
    Unanswered {
        webhook: String,
        failure: Failure,
    },
}

/// Runs one hook as far as possible without waiting.
async fn run_hook(pass: &Pass<'_>, hook: &Hook, run: &Hooks) -> Result<HookProgress, Failure> {
    let mark = mark(pass, run);
    let object = HookObject::of(pass, hook, &mark)?;
    let (hook_watches, identity) = (&pass.shared.hook_watches, hook.identity());
    let mut started = run.running.as_deref() == Some(&*hook.name());
    for _ in 0..MAX_HOOK_READS {
        let live = object.live().await?;
        // Read after the object, so that the streams' earlier reports are included.
        let state = hook_watches.hook_state(&pass.key, &mark, &identity);
        let is_lost = live.is_none() && (started || state == HookState::Running);
        let left = match &live {
            Some(live) => Some(time_left(pass, live)),
            None => is_lost.then(|| hook_watches.remaining_report_time(&pass.key, &mark, &identity)),
        };
        let overdue = left == Some(Duration::ZERO);
        let is_gone = live.is_none() && (overdue || state == HookState::Gone);
        let state = if is_gone {
            state_from_events(&pass.cluster.client, state, &identity, run).await?
        } else {
            state
        };
        match hooks::next_action(hook, live.as_ref(), &state, &mark, started, overdue) {
            HookAction::Create => match object.create().await? {
                HookCreation::NamespaceGone => return Ok(HookProgress::Succeeded),
                // The object may be gone before the next read, and the hook must not run twice.
                HookCreation::ByThisRun => started = hook.has_an_end(),
                HookCreation::ByOthers => {}
                HookCreation::Unanswered { webhook, failure } => {
                    return Ok(HookProgress::Unanswered { webhook, failure });
                }
            },
            HookAction::Replace => {
                if let Some(live) = live {
                    if let Some(owner) = object.other_owner(&live).await? {
                        let why = format!("it belongs to {owner}: rename the hook or that object");
                        return Ok(HookProgress::Failed(why));
                    }
                    object.delete(&live).await?;
                }
            }
            HookAction::Keep => {
                if let Some(live) = live.filter(|_| identity.is_namespace()) {
                    object.label_namespace(&live).await?;
                }
                return Ok(HookProgress::Succeeded);
            }
            HookAction::Refuse(why) => return Err(deletion_refused(&hook.name(), &why)),
            HookAction::Wait => {
                let made = live.as_ref().is_none_or(|live| live.mark.as_deref() == Some(&*mark));
                let uid = match live {
                    Some(live) => live.uid.clone().filter(|_| live.vanishes()),
                    None => run.running_uid.clone(),
                };
                return Ok(HookProgress::Waiting { left: left.filter(|_| made), uid });
            }
            HookAction::Succeeded => return Ok(HookProgress::Succeeded),
            HookAction::Failed(why) => return Ok(HookProgress::Failed(why)),
        }
    }
    Ok(HookProgress::Waiting { left: None, uid: None })
}

/// Records the failure, deletes the objects that the policies name, and returns the failure.
async fn record_failure(
    pass: &mut Pass<'_>,
    sequence: &Sequence<'_>,
    failed: &Hook,
    run: Hooks,
    why: &str,
) -> Result<Failure, Failure> {
    let why = format!("{} hook {}: {why}", run.event, failed.name());
    let (names, mark) = (run.succeeded.clone().unwrap_or_default(), mark(pass, &run));
    checkpoint_record(pass, sequence.event, Some(hooks::fail(run, &why, Timestamp::now()))).await?;
    // In the order in which Helm deletes them.
    if failed.goes(DeletePolicy::Failed) {
        HookObject::of(pass, failed, &mark)?.delete_own().await?;
    }
    for hook in &sequence.hooks {
        if names.contains(&hook.name()) && hook.goes(DeletePolicy::Succeeded) {
            HookObject::of(pass, hook, &mark)?.delete_own().await?;
        }
    }
    let failure = Failure::new(Reason::HookFailed, why);
    let record = pass.state.recorded.hooks.of_event(sequence.event);
    let pause = record.and_then(|record| hooks::pause(record, Timestamp::now()));
    Ok(pause.map_or(failure.clone(), |pause| failure.retry_after(pause)))
}

/// Deletes the objects that the policies name after success; then the event is over.
async fn delete_succeeded(pass: &mut Pass<'_>, sequence: &Sequence<'_>) -> Result<(), Failure> {
    let record = pass.state.recorded.hooks.of_event(sequence.event);
    let mark = record.map(|run| mark(pass, run)).unwrap_or_default();
    for hook in sequence.hooks.iter().rev() {
        if hook.goes(DeletePolicy::Succeeded) {
            HookObject::of(pass, hook, &mark)?.delete_own().await?;
        }
    }
    if let Some(record) = pass.state.recorded.hooks.of_event_mut(sequence.event) {
        record.phase = HookPhase::Succeeded;
    }
    Ok(())
}

/// Checkpoint before objects of hooks are created or deleted, and before content is applied: stores the record of an
/// event's hooks on the hub (ADR 13 and 30).
pub(super) async fn checkpoint_record(
    pass: &mut Pass<'_>,
    event: Event,
    record: Option<Hooks>,
) -> Result<(), Failure> {
    if pass.state.recorded.hooks.of_event(event) == record.as_ref() {
        return Ok(());
    }
    let mut fields = FreeForm::new();
    fields.insert(HookRecords::field(event).to_owned(), json!(record));
    pass.context.checkpoint(fields).await?;
    *pass.state.recorded.hooks.of_event_mut(event) = record;
    pass.remember();
    Ok(())
}

/// Returns the remaining time of a hook with this object.
fn time_left(pass: &Pass<'_>, live: &LiveHook) -> Duration {
    let timeouts = pass.context.resource.spec.timeouts.as_ref();
    let seconds = timeouts.and_then(|timeouts| timeouts.hook_seconds).map_or(DEFAULT_HOOK_SECONDS, i64::from);
    let age = live.created.map_or(0, |created| Timestamp::now().as_second() - created.as_second());
    Duration::from_secs(u64::try_from(seconds - age).unwrap_or_default())
}

/// Reports whether a hook cannot succeed. Tests are not retried, so a test that waits for the user has failed.
fn is_refused(event: Event, failure: &Failure) -> bool {
    let refused = [Reason::ApplyRefused, Reason::ImmutableField, Reason::ObjectTooLarge];
    match failure.class {
        _ if refused.contains(&failure.reason) => true,
        ErrorClass::Invalid => true,
        ErrorClass::Blocked => event == Event::Test,
        ErrorClass::Transient | ErrorClass::Unreachable => false,
    }
}

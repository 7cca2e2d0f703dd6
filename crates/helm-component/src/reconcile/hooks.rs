//! Steps that run a chart's hooks, each as far as possible without waiting.
//!
//! The objects of a hook carry the mark of its run, and the record of the run is written to the hub before any of
//! them is deleted. A new process finds either, and continues from there.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DynamicObject;
use kyma_api::{ErrorClass, FreeForm, HookPhase, HookPolicy, Hooks, Reason, annotations, labels};
use kyma_helm::hooks::{self, DeletePolicy, Event, Hook, HookAction, HookState, LiveHook};
use kyma_object_set::{Action, CallError, Entry, GroupKind, Guard, Identity, Mapping};
use kyma_sdk::{Content, Failure, WatchSpec};
use serde_json::json;

use super::hook_objects::{HookCreation, deletion_refused};
use super::{Pass, failure};
use crate::objects::PreparedObjects;
use crate::observe;
use crate::plan::StopReason;

/// Default time limit of a hook in seconds, as in Helm.
const DEFAULT_HOOK_SECONDS: i64 = 300;

/// Maximum number of reads of one hook that other writers keep changing.
const MAX_HOOK_READS: usize = 4;

impl Pass<'_> {
    /// Runs the hooks of an event. Their wait or failure ends the pass.
    pub(super) async fn run_hooks(&mut self, event: Event) {
        let Some(loaded) = self.state.loaded.clone() else { return };
        self.done.hooks = match self.hooks(event, &loaded.prepared, &loaded.release).await {
            Ok(None) => None,
            Ok(Some(waiting)) => Some(StopReason::Hook(waiting)),
            Err(failure) => Some(StopReason::Failed(failure)),
        };
    }

    /// Records the hooks after the apply before the content is applied.
    pub(super) async fn record_hooks(&mut self) -> Result<(), Failure> {
        let Some(loaded) = self.state.loaded.clone() else { return Ok(()) };
        let Some(due) = observe::hooks::released(self, &loaded) else { return Ok(()) };
        let event = due.change.after();
        let record = match self.context.resource.spec.hooks {
            HookPolicy::Run => hooks::before_apply(due),
            HookPolicy::Skip => hooks::record_if_disabled(due),
        };
        let stored = self.store_removal_hooks(&loaded, record.as_ref()).await?;
        self.store_record(event, record).await?;
        self.discard_removal_hooks(stored).await;
        Ok(())
    }

    pub(super) async fn hooks(
        &mut self,
        event: Event,
        prepared: &PreparedObjects,
        content: &str,
    ) -> Result<Option<String>, Failure> {
        let record = self.record_of(event);
        if let Some((left, why)) = hooks::next_try(record, event, content, Timestamp::now()) {
            return Err(Failure::new(Reason::HookFailed, why).retry_after(left));
        }
        let run = hooks::begin(record, event, content, Timestamp::now());
        let own = hooks::of_event(&prepared.hooks, event);
        if own.is_empty() {
            *self.record_mut(event) = Some(Hooks { phase: HookPhase::Succeeded, ..run });
            return Ok(None);
        }
        self.store_record(event, Some(run.clone())).await?;
        if let Some(left) = self.await_hooks(&own, &self.mark(&run)) {
            self.done.hook_left = Some(left);
            return Ok(Some(format!("the watch that shows the results of {event} hooks")));
        }
        let waiting = self.in_turn(event, &own, run).await?;
        if waiting.is_none() {
            self.clean(event, &own).await?;
        }
        Ok(waiting)
    }

    /// Runs one hook after another, from the recorded progress on; returns what it waits for.
    async fn in_turn(
        &mut self,
        event: Event,
        own: &[&Hook],
        mut run: Hooks,
    ) -> Result<Option<String>, Failure> {
        if run.phase == HookPhase::Cleaning {
            return Ok(None);
        }
        for hook in own {
            let name = hook.name();
            if run.succeeded.iter().flatten().any(|succeeded| *succeeded == name) {
                continue;
            }
            match self.run_hook(hook, &run).await {
                Ok(HookProgress::Succeeded) => {
                    run.running = None;
                    run.running_uid = None;
                    run.succeeded.get_or_insert_default().push(name);
                    *self.record_mut(event) = Some(run.clone());
                }
                Ok(HookProgress::Waiting { left, uid }) => {
                    run.running = left.is_some().then(|| name.clone());
                    run.running_uid = uid.filter(|_| left.is_some());
                    self.done.hook_left = left;
                    if run.running_uid.is_some() {
                        // The object may be gone before the next process reads it, which must know that it was
                        // created.
                        self.store_record(event, Some(run)).await?;
                    } else {
                        *self.record_mut(event) = Some(run);
                    }
                    return Ok(Some(format!("the {event} hook {name}")));
                }
                Ok(HookProgress::Failed(why)) => {
                    return Err(self.failed(event, (own, *hook), run, &why).await?);
                }
                // A hook that cannot succeed fails like one that ran, and is retried like one.
                Err(refused) if is_refused(event, &refused) => {
                    return Err(self.failed(event, (own, *hook), run, &refused.message).await?);
                }
                Err(failure) => {
                    // The namespace may have been deleted since it was read; the next attempt creates it.
                    self.state.namespace_ready = false;
                    return Err(failure);
                }
                Ok(HookProgress::Unanswered { webhook, failure }) => {
                    self.done.dead_webhook = Some(webhook);
                    return Err(failure);
                }
            }
        }
        // Written to the hub before any deletion, as otherwise a new process would run the hooks again.
        run.phase = HookPhase::Cleaning;
        self.store_record(event, Some(run)).await?;
        Ok(None)
    }

    /// Runs one hook as far as possible without waiting.
    async fn run_hook(&self, hook: &Hook, run: &Hooks) -> Result<HookProgress, Failure> {
        let mark = self.mark(run);
        let mapping = self.hook_kind(hook)?;
        let (hook_watches, identity) = (&self.shared.hook_watches, hook.identity());
        let mut started = run.running.as_deref() == Some(&*hook.name());
        for _ in 0..MAX_HOOK_READS {
            let live = self.live_hook(hook, &mapping).await?;
            // Read after the object, so that the streams' earlier reports are included.
            let state = hook_watches.hook_state(&self.key, &mark, &identity);
            let is_lost = live.is_none() && (started || state == HookState::Running);
            let left = match &live {
                Some(live) => Some(self.time_left(live)),
                None => is_lost.then(|| hook_watches.remaining_report_time(&self.key, &mark, &identity)),
            };
            let overdue = left == Some(Duration::ZERO);
            let is_gone = live.is_none() && (overdue || state == HookState::Gone);
            let state = if is_gone { self.state_from_events(state, &identity, run).await? } else { state };
            match hooks::next_action(hook, live.as_ref(), &state, &mark, started, overdue) {
                HookAction::Create => match self.create_hook(hook, &mapping, &mark).await? {
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
                        if let Some(owner) = self.other_owner(hook, &live).await? {
                            let why = format!("it belongs to {owner}: rename the hook or that object");
                            return Ok(HookProgress::Failed(why));
                        }
                        self.delete_hook(hook, &mapping, &live, &mark).await?;
                    }
                }
                HookAction::Keep => {
                    if let Some(live) = live.filter(|_| identity.is_namespace()) {
                        self.label_namespace(hook, &mapping, &live).await?;
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
    async fn failed(
        &mut self,
        event: Event,
        (own, failed): (&[&Hook], &Hook),
        run: Hooks,
        why: &str,
    ) -> Result<Failure, Failure> {
        let why = format!("{} hook {}: {why}", run.event, failed.name());
        let (names, mark) = (run.succeeded.clone().unwrap_or_default(), self.mark(&run));
        self.store_record(event, Some(hooks::fail(run, &why, Timestamp::now()))).await?;
        // In the order in which Helm deletes them.
        if failed.goes(DeletePolicy::Failed) {
            self.delete_own(failed, &mark).await?;
        }
        let succeeded = own.iter().filter(|hook| names.contains(&hook.name()));
        for hook in succeeded.filter(|hook| hook.goes(DeletePolicy::Succeeded)) {
            self.delete_own(hook, &mark).await?;
        }
        let failure = Failure::new(Reason::HookFailed, why);
        let record = self.record_of(event);
        let pause = record.and_then(|record| hooks::pause(record, Timestamp::now()));
        Ok(pause.map_or(failure.clone(), |pause| failure.retry_after(pause)))
    }

    /// Deletes the objects that the policies name after success; then the event is over.
    async fn clean(&mut self, event: Event, own: &[&Hook]) -> Result<(), Failure> {
        let mark = self.record_of(event).map(|run| self.mark(run)).unwrap_or_default();
        for hook in own.iter().rev().filter(|hook| hook.goes(DeletePolicy::Succeeded)) {
            self.delete_own(hook, &mark).await?;
        }
        if let Some(record) = self.record_mut(event) {
            record.phase = HookPhase::Succeeded;
        }
        Ok(())
    }

    /// Returns the record of an event's hooks. Tests have a record of their own, since they belong to no release.
    fn record_of(&self, event: Event) -> Option<&Hooks> {
        let recorded = &self.state.recorded;
        let record = if event == Event::Test { &recorded.tests } else { &recorded.hooks };
        record.as_ref()
    }

    fn record_mut(&mut self, event: Event) -> &mut Option<Hooks> {
        let recorded = &mut self.state.recorded;
        if event == Event::Test { &mut recorded.tests } else { &mut recorded.hooks }
    }

    async fn store_record(&mut self, event: Event, record: Option<Hooks>) -> Result<(), Failure> {
        if self.record_of(event) == record.as_ref() {
            return Ok(());
        }
        let field = if event == Event::Test { "tests" } else { "hooks" };
        let mut fields = FreeForm::new();
        fields.insert(field.to_owned(), json!(record));
        self.context.checkpoint(fields).await?;
        *self.record_mut(event) = record;
        self.remember();
        Ok(())
    }

    fn time_left(&self, live: &LiveHook) -> Duration {
        let timeouts = self.context.resource.spec.timeouts.as_ref();
        let seconds =
            timeouts.and_then(|timeouts| timeouts.hook_seconds).map_or(DEFAULT_HOOK_SECONDS, i64::from);
        let age = live.created.map_or(0, |created| Timestamp::now().as_second() - created.as_second());
        Duration::from_secs(u64::try_from(seconds - age).unwrap_or_default())
    }

    /// Watches the hooks, so that each change requeues the component. A stream must show the end of a Job or Pod
    /// before that is created: returns the time that its first list may still take.
    fn await_hooks(&self, own: &[&Hook], mark: &str) -> Option<Duration> {
        let (ending, others): (Vec<&Hook>, Vec<&Hook>) =
            own.iter().copied().partition(|hook| hook.has_an_end());
        for watch_spec in self.watch_specs(&others) {
            self.context.watch(watch_spec);
        }
        let whole = |watch_spec: WatchSpec| WatchSpec { content: Content::Whole, ..watch_spec };
        let watch_specs: Vec<WatchSpec> = self.watch_specs(&ending).into_iter().map(whole).collect();
        let awaited: BTreeSet<Identity> = ending.iter().map(|hook| hook.identity()).collect();
        let hook_watches = &self.shared.hook_watches;
        hook_watches.subscribe(&self.context.target, &self.key, mark, &watch_specs, awaited)
    }

    /// Returns the streams of hook objects of these kinds.
    fn watch_specs(&self, hooks: &[&Hook]) -> Vec<WatchSpec> {
        let kinds: BTreeSet<GroupKind> = hooks.iter().map(|hook| hook.identity().group_kind()).collect();
        let served = kinds.iter().filter_map(|kind| self.kinds.preferred(kind));
        served.map(|mapping| WatchSpec::in_kind(&mapping.resource).marked(labels::HOOK_OF)).collect()
    }

    /// Ends the subscriptions to hooks that are over.
    pub(super) fn leave_hooks(&self) {
        let recorded = &self.state.recorded;
        let records = recorded.hooks.iter().chain(&recorded.tests);
        let under_way = records.filter(|record| hooks::is_under_way(Some(*record)));
        let marks: Vec<String> = under_way.map(|record| self.mark(record)).collect();
        self.shared.hook_watches.retain(&self.context.target, &self.key, &marks);
    }

    /// Returns the mark of a run's objects.
    fn mark(&self, run: &Hooks) -> String {
        hooks::mark(run, self.context.resource.metadata.uid.as_deref().unwrap_or_default())
    }

    pub(super) fn await_namespace(&self, name: &str) {
        let Some(mapping) = self.kinds.preferred(&GroupKind::new("", "Namespace")) else { return };
        let fields = Some(format!("metadata.name={name}"));
        self.context.watch(WatchSpec { fields, ..WatchSpec::in_kind(&mapping.resource) });
    }

    pub(super) fn hook_kind(&self, hook: &Hook) -> Result<Mapping, Failure> {
        let identity = hook.identity();
        // An existing Namespace is never replaced.
        if self.shared.protection.guard(&identity) == Some(Guard::Always) && !identity.is_namespace() {
            return Err(Failure::new(Reason::Protected, format!("{identity} may not be touched by a hook")));
        }
        let missing =
            || Failure::new(Reason::DependencyMissing, format!("the kind of the hook {identity} is missing"));
        self.served.get(&hook.object.gvk()).cloned().ok_or_else(missing)
    }

    pub(super) async fn live_hook(
        &self,
        hook: &Hook,
        mapping: &Mapping,
    ) -> Result<Option<LiveHook>, Failure> {
        let identity = hook.identity();
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let found = api.get_opt(&identity.name).await;
        let found = found.map_err(|error| failure(&CallError::new(Action::Get, Some(&identity), error)))?;
        let entry = self.state.recorded.inventory.get(&identity);
        Ok(found.map(|found| live(found, &self.key.owner, entry)))
    }
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

fn live(found: DynamicObject, owner: &str, entry: Option<&Entry>) -> LiveHook {
    let metadata = &found.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|all| all.get(key));
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    LiveHook {
        mark: annotation(annotations::HOOK_RUN),
        is_own: label(labels::HOOK_OF).is_some_and(|of| of == owner),
        is_hook: annotation(hooks::HOOK).is_some(),
        deleting: metadata.deletion_timestamp.is_some(),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        uid: metadata.uid.clone(),
        recorded: entry.is_some_and(|entry| Some(&entry.uid) == metadata.uid.as_ref()),
        metadata: found.metadata,
        body: found.data,
    }
}

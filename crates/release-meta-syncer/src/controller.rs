//! Requeues Kymas on events of the hub and the targets.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::ResourceExt;
use kube_runtime::reflector::ObjectRef;
use kyma_api::hand_over::{self, Actor};
use kyma_api::visibility::Viewer;
use kyma_api::{Kyma, ModuleReleaseMeta, ModuleTemplate, Reason, names};
use kyma_connection::ensure_namespace;
use kyma_controller::{
    AccessChange, Change, DeleteGate, Failure, FeedEvent, HubResource, KymaAccess, KymaKey, ObjectEvent,
    PausedOperations, ReconcileContext, Reconciler, Runtime, Wait, WatchSpec, Watches, feed, is_local,
};
use kyma_targets::SecretKey;
use tokio::time::MissedTickBehavior;

use crate::args::Flags;
use crate::catalogue::{Catalogue, Release, Template};
use crate::copy::{Key, Kind};
use crate::names::FIELD_MANAGER;
use crate::plan::plan;
use crate::rbac::CATALOGUE_CRDS;
use crate::report::Outcome;
use crate::state::State;
use crate::target::memory::TargetState;
use crate::target::session::Session;
use crate::write::WriteContext;
use crate::{hub, observe, target::bootstrap, target::cleanup, target::connection, target::session, write};

/// Deadline for kinds whose CRDs were just installed: they are usually served within a second.
const KINDS_SERVED_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of catalogue events in one batch.
const MAX_EVENTS_PER_BATCH: usize = 1000;

/// Time between two attempts to classify deletions that the hub has not classified.
const CLASSIFICATION_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Reconciles until the process shuts down.
pub(crate) async fn run(flags: &Flags, runtime: Runtime) {
    let place: Arc<OnceLock<Arc<State>>> = Arc::default();
    let seen = Arc::clone(&place);
    let access = runtime.access.clone();
    let reconciler = Reconciler::<Kyma>::new(&runtime)
        .reaching(move |kyma| KymaAccess::known(&access, kyma).chosen.ok())
        .on_change(move |change| {
            if let Some(state) = seen.get() {
                follow_kymas(state, change);
            }
        });
    let listening = Arc::clone(&place);
    let watches = Watches::new(
        FIELD_MANAGER,
        &runtime.process,
        move |_: Option<&SecretKey>, watch_spec: &WatchSpec, event: &ObjectEvent, kymas: &[KymaKey]| {
            if let Some(state) = listening.get() {
                follow_target(state, watch_spec, event, kymas);
            }
        },
    );
    let kymas = reconciler.store();
    runtime.brake.set_target_counter(move || kymas.len());
    let state = State::new(runtime.clone(), flags, reconciler.store(), reconciler.trigger(), watches);
    let state = place.get_or_init(|| Arc::new(state));
    follow_access(state);
    let shutdown = runtime.process.shutdown.clone();
    let follow = async {
        tokio::join!(
            follow(state, Kind::Template, |catalogue, it: ModuleTemplate| catalogue
                .apply_template(Template::of(it))),
            follow(state, Kind::Release, |catalogue, it: ModuleReleaseMeta| catalogue
                .apply_release(Release::of(it))),
        )
    };
    let follow = async {
        tokio::select! {
            _ = follow => {}
            () = shutdown.cancelled() => {}
        }
    };
    let (shared, forgetting) = (Arc::clone(state), Arc::clone(state));
    let reconciler = reconciler.forgetting(move |kyma| forgetting.forget(&key_of(kyma)));
    let reconcile = Box::pin(reconciler.run(move |kyma, context| {
        let state = Arc::clone(&shared);
        async move { reconcile(&state, &kyma, &context).await }
    }));
    let access = runtime.access.clone();
    let reconcile = async {
        // Before the access Secrets are listed, every Kyma would seem to have none.
        tokio::select! {
            () = access.listed() => reconcile.await,
            () = shutdown.cancelled() => {}
        }
    };
    tokio::join!(follow, reconcile);
}

fn follow_kymas(state: &State, change: Change<'_, Kyma>) {
    match change {
        Change::Applied(kyma) => {
            state.long_names.add(&KymaKey::of(kyma).name);
            if state.conditions().differs_from(kyma) {
                state.requeue(&KymaKey::of(kyma));
            }
        }
        Change::Listed => {}
        Change::Listing => {
            state.conditions().begin_list();
            // The hub may have been restored from a backup.
            state.runtime.targets.invalidate_hub_records();
        }
        Change::Deleted(kyma) => state.forget(&key_of(kyma)),
    }
}

fn key_of(kyma: &ObjectRef<Kyma>) -> KymaKey {
    KymaKey::new(kyma.namespace.as_deref().unwrap_or_default(), &kyma.name)
}

fn follow_target(state: &State, watch_spec: &WatchSpec, event: &ObjectEvent, kymas: &[KymaKey]) {
    for kyma in kymas {
        // Without a session, this is the watch of a cleanup, which reads the target itself.
        if state.sessions.get(kyma).is_none_or(|session| session::record_event(&session, watch_spec, event)) {
            state.requeue(kyma);
        }
    }
}

fn follow_access(state: &Arc<State>) {
    let listener = Arc::clone(state);
    state.runtime.access.on_change(move |change| {
        let state = &listener;
        let mut concerned: BTreeSet<KymaKey> =
            change.secret().map(|name| state.of_secret(name)).into_iter().flatten().collect();
        if let Some(kyma) = change.kyma() {
            let namespace = state.runtime.settings.hub_namespace.clone();
            concerned.insert(KymaKey { namespace, name: state.long_names.name_of(kyma) });
        }
        if let (AccessChange::Applied(_) | AccessChange::Deleted(_), Some(name)) = (change, change.secret()) {
            state.watches.access_changed(name);
        }
        if matches!(change, AccessChange::AnyRecovered) {
            concerned.extend(state.all());
        }
        // After an outage too: what answers now has to prove that it is the same cluster.
        for kyma in &concerned {
            state.end_session(kyma);
            state.requeue(kyma);
        }
    });
}

/// Keeps one kind of the catalogue in step with the hub.
async fn follow<K: HubResource>(state: &State, kind: Kind, apply: impl Fn(&mut Catalogue, K) -> bool) {
    let health = &state.runtime.process.health;
    let word = kind.word();
    health.expect(&word);
    let mut events = pin!(feed::<K>(&state.runtime));
    // Unlike a sleep per event, an interval comes due under a steady stream of events too.
    let mut retries = tokio::time::interval(CLASSIFICATION_RETRY_INTERVAL);
    retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_pending = !state.catalogue().unclassified_deletions(kind).is_empty();
        let first = tokio::select! {
            first = events.next() => Some(first),
            _ = retries.tick(), if is_pending => None,
        };
        let is_news = match first {
            Some(Some(first)) => {
                handle_batch(first, &mut events, |event| apply_event(state, kind, &apply, event)).await
            }
            Some(None) => return,
            None => classify_deletions(state, kind).await,
        };
        if is_news && state.catalogue().is_complete() {
            state.requeue_all();
        }
    }
}

/// Asks the hub again about deletions of this kind that are not classified. Returns whether one was requested.
async fn classify_deletions(state: &State, kind: Kind) -> bool {
    let mut is_news = false;
    let deletions = state.catalogue().unclassified_deletions(kind);
    for (key, origin) in deletions {
        match hub::is_deletion_requested(state, kind, &origin).await {
            Ok(is_requested) => is_news |= state.catalogue_mut().classify_deletion(&key, is_requested),
            Err(failure) => {
                tracing::debug!(object = %key, %failure, "cannot determine whether the deletion was requested");
                // Other requests would fail as well.
                break;
            }
        }
    }
    is_news
}

/// Applies one event to the catalogue. Returns whether the catalogue changed.
async fn apply_event<K: HubResource>(
    state: &State,
    kind: Kind,
    apply: &impl Fn(&mut Catalogue, K) -> bool,
    event: FeedEvent<K>,
) -> bool {
    match event {
        FeedEvent::Applied(object) => apply(&mut state.catalogue_mut(), *object),
        FeedEvent::Deleted(name) => {
            let key = Key { kind, name };
            let origin = state.catalogue().origin(&key);
            let Some(origin) = origin else { return false };
            match hub::is_deletion_requested(state, kind, &origin).await {
                Ok(is_requested) => state.catalogue_mut().remove(&key, is_requested),
                Err(failure) => {
                    tracing::warn!(
                        object = %key, %failure,
                        "cannot determine whether the deletion was requested; copies stay until the hub answers"
                    );
                    state.catalogue_mut().remove_unclassified(&key)
                }
            }
        }
        FeedEvent::Listed(names) => {
            state.runtime.process.health.ready(&kind.word());
            state.catalogue_mut().retain_listed(kind, &names)
        }
    }
}

/// Handles this event and all that are ready, so that a release of many modules requeues each Kyma once. Returns
/// whether the catalogue changed.
async fn handle_batch<T, Applied: Future<Output = bool>>(
    first: T,
    events: &mut (impl Stream<Item = T> + Unpin),
    mut apply: impl FnMut(T) -> Applied,
) -> bool {
    let mut is_news = apply(first).await;
    for _ in 1..MAX_EVENTS_PER_BATCH {
        let Some(Some(event)) = events.next().now_or_never() else { break };
        is_news |= apply(event).await;
    }
    is_news
}

async fn reconcile(state: &State, kyma: &Kyma, context: &ReconcileContext) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    let actor = hand_over::actor(&kyma.metadata);
    if actor.excludes_operators() {
        state.end_session(&key);
        if actor == Actor::HandOver {
            kyma_controller::record_stop(&state.runtime, kyma).await?;
        }
        return Ok(Wait::Event);
    }
    if context.paused_operations().writes().is_some() {
        return Ok(Wait::Event);
    }
    let outcome = if kyma.metadata.deletion_timestamp.is_some() {
        cleanup::step(state, kyma, context.paused_operations()).await
    } else {
        sync(state, kyma, &key, context, actor).await
    };
    if let Err(failure) = &outcome {
        // These failures do not question the target's identity; after any other it is verified again.
        if !matches!(failure.reason, Reason::ApplyConflict | Reason::Paused | Reason::MassDeletion) {
            state.end_session(&key);
        }
        // Another operator wrote the Kyma or the stamp at the same time: retry at once.
        if failure.reason != Reason::ApplyConflict {
            write::report(state, kyma, &Outcome::Failed(failure)).await?;
        }
    }
    outcome
}

async fn sync(
    state: &State,
    kyma: &Kyma,
    key: &KymaKey,
    context: &ReconcileContext,
    actor: Actor,
) -> Result<Wait, Failure> {
    if actor == Actor::None {
        return Ok(Wait::Event);
    }
    if is_local(&state.runtime, kyma)? {
        return local(state, kyma).await;
    }
    if !state.catalogue().is_complete() {
        return Ok(Wait::Event);
    }
    let session = connection::open_session(state, kyma).await?;
    let before = session.memory().begin();
    let before = before.filter(|_| connection::is_fresh(state, &session));
    let mut known = None;
    let outcome = sync_target(state, kyma, &session, context.paused_operations(), before, &mut known).await;
    if let Ok(Some(written)) = &outcome {
        context.repaired(*written);
    }
    let again = match outcome {
        Ok(None) => session.memory().end_before_kinds(Instant::now()),
        Ok(Some(_)) => session.memory().end(known),
        Err(_) => session.memory().end(None),
    };
    if again {
        state.requeue(key);
    }
    match outcome? {
        Some(_) => Ok(Wait::Event),
        None => await_kinds(&session),
    }
}

/// Reports that an earlier failure is over. The hub's own Kyma reads the catalogue directly, so that nothing else is
/// written.
async fn local(state: &State, kyma: &Kyma) -> Result<Wait, Failure> {
    let reported = state.conditions().latest(kyma);
    if reported.is_some() {
        write::report(state, kyma, &Outcome::Synced { desired: 0, taken: &[], frozen: 0 }).await?;
    }
    Ok(Wait::Event)
}

/// Waits for the first list, which shows that a kind is served. Without one before the deadline, the session is
/// verified again.
fn await_kinds(session: &Session) -> Result<Wait, Failure> {
    let waited = session.memory().awaited_since().map_or(Duration::ZERO, |since| since.elapsed());
    let left = KINDS_SERVED_TIMEOUT.checked_sub(waited).map(|left| left + Duration::from_millis(100));
    let late = || Failure::new(Reason::TargetTimeout, "the target does not serve the catalogue's kinds yet");
    left.map(Wait::Answer).ok_or_else(late)
}

/// Synchronizes the target. Returns the number of writes, or `None` if the kinds are not served yet.
async fn sync_target(
    state: &State,
    kyma: &Kyma,
    session: &Session,
    paused_operations: &PausedOperations,
    before: Option<TargetState>,
    after: &mut Option<TargetState>,
) -> Result<Option<usize>, Failure> {
    let key = KymaKey::of(kyma);
    let owner = names::owner_hash(&key.namespace, &key.name);
    let namespace = state.runtime.settings.target_namespace.as_str();
    let viewer = Viewer { labels: kyma.labels(), restricted: &state.restricted };
    let desired = state.catalogue().visible_to(&viewer);
    let target = &session.connection.target;
    let mut known = if let Some(known) = before {
        known
    } else {
        write::ensure_finalizer(state, kyma).await?;
        ensure_namespace(state, target, namespace).await?;
        let crds = bootstrap::ensure_crds(target, state.runtime.operator, &owner).await?;
        connection::watch(state, &key, target)?;
        if !crds.are_established {
            return Ok(None);
        }
        let Some(copies) = observe::list_existing_objects(target, namespace, &owner, &desired).await? else {
            return Ok(None);
        };
        session.is_verified();
        TargetState { copies, crds: crds.versions }
    };
    let mut plan = plan(&desired, &known.copies, &*state.catalogue());
    if !plan.remove.is_empty() && hub::is_terminating(state, &CATALOGUE_CRDS).await? {
        plan.freeze();
    }
    let halted = paused_operations.deletes().filter(|_| !plan.remove.is_empty());
    if halted.is_some() {
        plan.remove.clear();
    }
    if !plan.is_empty() {
        let gate = DeleteGate::new(paused_operations, &state.runtime.brake, key.to_string());
        let context = WriteContext { state, target, namespace, owner: &owner, gate: &gate };
        write::carry_out(&context, &plan, &mut known.copies).await?;
    }
    *after = Some(known);
    if let Some(why) = halted {
        return Err(Failure::new(Reason::Paused, why));
    }
    let outcome = Outcome::Synced { desired: desired.len(), taken: &plan.taken, frozen: plan.frozen };
    write::report(state, kyma, &outcome).await?;
    Ok(Some(plan.apply.len() + plan.remove.len()))
}

#[cfg(test)]
mod deleted_kymas;
#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn ready_events_are_one_batch() {
        let mut events = futures::stream::iter(0..2500);
        let mut taken = 0;
        let mut bursts = Vec::new();
        while let Some(first) = events.next().await {
            let is_news = handle_batch(first, &mut events, |event| {
                taken += 1;
                ready(event == 1999)
            })
            .await;
            bursts.push((is_news, taken));
        }
        assert_eq!(bursts, [(false, 1000), (true, 2000), (false, 2500)]);
        // A pending event belongs to the next batch.
        let (sender, mut events) = futures::channel::mpsc::unbounded();
        sender.unbounded_send(true).unwrap();
        let first = events.next().await.unwrap();
        assert!(handle_batch(first, &mut events, ready).await);
        sender.unbounded_send(false).unwrap();
        drop(sender);
        let first = events.next().await.unwrap();
        assert!(!handle_batch(first, &mut events, ready).await);
        assert_eq!(events.next().await, None);
    }
}

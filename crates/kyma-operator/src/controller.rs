//! Starts the controller and requeues Kymas on events.

use std::sync::{Arc, Weak};

use kube_runtime::reflector::{ObjectRef, Store};
use kyma_api::{Kyma, ModuleConfig, ModuleReleaseMeta};
use kyma_controller::{
    AccessChange, Change, KymaAccess, KymaKey, ObjectEvent, Reconciler, Runtime, WatchSpec, Watches,
};
use kyma_targets::{SecretKey, TargetEvent};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::hub::feeds;
use crate::hub::mandatory;
use crate::process::args::KymaArgs;
use crate::process::metrics::KymaMetrics;
use crate::reconcile::reconcile;
use crate::state::{State, Triggers};
use crate::target::admission;
use crate::target::pull_secret;
use crate::target::target_kyma::{NAME, TargetKyma};

/// Reconciles Kymas until the process shuts down.
///
/// # Errors
/// If the metrics are registered already, by another kyma-operator in the same process.
pub async fn run(args: KymaArgs, runtime: Runtime) -> Result<(), kyma_controller::MetricsError> {
    let metrics = KymaMetrics::new(&runtime.process.metrics, args.per_kyma_metrics)?;
    let access = runtime.access.clone();
    let reconciler =
        Reconciler::<Kyma>::new(&runtime).reaching(move |kyma| KymaAccess::known(&access, kyma).chosen.ok());
    let releases = Reconciler::<ModuleReleaseMeta>::new(&runtime).without_selector();
    let configs = Reconciler::<ModuleConfig>::new(&runtime).without_selector();
    let (store, trigger) = (reconciler.store(), reconciler.trigger());
    let kymas = store.clone();
    runtime.brake.set_target_counter(move || kymas.len());
    let triggers = Triggers { kymas: trigger, releases: releases.trigger(), configs: configs.trigger() };
    let state = assemble(args, runtime, triggers, metrics);
    register_answer_source(&state);
    follow_access(&state);
    let events = state.runtime.targets.events();
    feeds::spawn(&state, follow_targets(Arc::clone(&state), events));
    let (hook, listed) = (Arc::clone(&state), store.clone());
    let reconciler = reconciler.on_change(move |change| follow_kymas(&hook, &listed, change));
    feeds::start(&state, &store).await;
    tokio::select! {
        () = state.runtime.access.listed() => {}
        () = state.runtime.process.shutdown.cancelled() => {}
    }
    let (shared, forgetting) = (Arc::clone(&state), Arc::clone(&state));
    let kymas = reconciler
        .forgetting(move |kyma| forgetting.forget(&key_of(kyma)))
        .run(move |kyma, context| reconcile(Arc::clone(&shared), kyma, context));
    let configs = feeds::report_on_configs(Arc::clone(&state), configs);
    tokio::join!(kymas, configs, mandatory::follow(state, releases, store));
    Ok(())
}

fn assemble(args: KymaArgs, runtime: Runtime, triggers: Triggers, metrics: KymaMetrics) -> Arc<State> {
    Arc::new_cyclic(|state: &Weak<State>| {
        let state = state.clone();
        let listener =
            move |_: Option<&SecretKey>, at: &WatchSpec, event: &ObjectEvent, kymas: &[KymaKey]| {
                let Some(state) = state.upgrade() else { return };
                for kyma in kymas {
                    follow_target(&state, kyma, at, event);
                }
            };
        let watches = Watches::new(runtime.operator.name, &runtime.process, listener);
        State::new(runtime, args, triggers, watches, metrics)
    })
}

/// Requeues a Kyma after a change on its target. Ignores the operator's own writes.
fn follow_target(state: &State, kyma: &KymaKey, at: &WatchSpec, event: &ObjectEvent) {
    let is_news = if admission::watch::is_of(at) {
        admission::watch::record_event(state, kyma, at, event)
    } else if pull_secret::watch::is_of(at) {
        pull_secret::watch::record_event(state, kyma, event)
    } else {
        record_kyma_event(state, kyma, event)
    };
    if is_news {
        state.requeue(kyma);
    }
}

/// Registers the source of the metric for each Kyma's last answer.
fn register_answer_source(state: &Arc<State>) {
    let weak_state = Arc::downgrade(state);
    state.metrics.set_answer_source(move || {
        let Some(state) = weak_state.upgrade() else { return Vec::new() };
        let sessions = state.sessions.all().into_iter();
        sessions.filter_map(|(key, session)| Some((key.name, session.target.contact().answered?))).collect()
    });
}

/// Records a watch event of a target's Kyma. Returns false if it changes nothing.
fn record_kyma_event(state: &State, kyma: &KymaKey, event: &ObjectEvent) -> bool {
    let is_ours = |object: &&kube::api::DynamicObject| object.metadata.name.as_deref() == Some(NAME);
    match event {
        ObjectEvent::Listed { objects, .. } => {
            let seen = objects.iter().find(is_ours).and_then(TargetKyma::of);
            let revision = event.revision().unwrap_or_default();
            state.record_target_event(kyma, |state| state.target.kyma.record_list(seen, revision))
        }
        // Ignore objects that the watch did not request.
        ObjectEvent::Applied(object) | ObjectEvent::Deleted(object) if !is_ours(&&**object) => false,
        ObjectEvent::Applied(object) => {
            let Some(seen) = TargetKyma::of(object) else { return false };
            state.record_target_event(kyma, |state| state.target.kyma.record_event(seen))
        }
        ObjectEvent::Deleted(object) => {
            let Some(last) = TargetKyma::of(object) else { return false };
            state.record_target_event(kyma, |state| state.target.kyma.record_deletion(&last))
        }
    }
}

/// Requeues dependent Kymas when an access Secret changes or a target answers again.
fn follow_access(state: &Arc<State>) {
    let listening = Arc::downgrade(state);
    state.runtime.access.on_change(move |change| {
        let Some(state) = listening.upgrade() else { return };
        let namespace = &state.runtime.settings.hub_namespace;
        let named = change.secret().map(|secret| state.of_secret(secret));
        let mut concerned = named.unwrap_or_else(|| state.with_secrets());
        concerned.extend(change.kyma().map(|kyma| KymaKey::new(namespace, state.long_names.name_of(kyma))));
        if matches!(change, AccessChange::Applied(_) | AccessChange::Deleted(_)) {
            for kyma in &concerned {
                state.end_session(kyma);
            }
        }
        state.requeue_all(&concerned);
        if change.secret().is_some() && change.secret() == state.args.pull_secret() {
            let open = state.sessions.all();
            state.requeue_all(open.iter().map(|(kyma, _)| kyma));
        }
    });
}

/// Requeues a Kyma at once when its target stops answering.
async fn follow_targets(state: Arc<State>, mut events: Receiver<TargetEvent>) {
    loop {
        match events.recv().await {
            Ok(TargetEvent::Suspended(place)) => {
                for kyma in state.of_secret(&place.name) {
                    state.end_session(&kyma);
                    state.requeue(&kyma);
                }
            }
            Ok(TargetEvent::Recovered(_)) => {}
            Err(RecvError::Lagged(dropped)) => suspect_all(&state, dropped),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Events of targets were dropped: ends sessions with targets that do not answer, and requeues every Kyma.
fn suspect_all(state: &State, dropped: u64) {
    tracing::warn!(dropped, "events of targets were dropped; all Kymas are requeued");
    let silent = state.sessions.all().into_iter().filter(|(_, session)| !session.target.calls_pass());
    for (kyma, _) in silent {
        state.end_session(&kyma);
    }
    state.requeue_all(&state.with_secrets());
}

/// Requeues a Kyma whose status another writer changed. Forgets a deleted one and requeues Kymas that wait for its
/// target.
fn follow_kymas(state: &State, kymas: &Store<Kyma>, change: Change<'_, Kyma>) {
    match change {
        Change::Applied(kyma) => {
            state.long_names.add(&KymaKey::of(kyma).name);
            if state.own_writes().record_event(kyma) {
                state.requeue(&KymaKey::of(kyma));
            }
            state.requeue_withdrawn();
        }
        Change::Deleted(kyma) => {
            state.forget(&key_of(kyma));
            state.requeue_all(&state.blocked());
            state.requeue_withdrawn();
        }
        Change::Listing => {
            state.own_writes().begin_list();
            // The hub may have been restored from a backup.
            state.runtime.targets.invalidate_hub_records();
        }
        Change::Listed => {
            state.own_writes().end_list();
            state.record_list(kymas.state().iter().map(|kyma| KymaKey::of(kyma)));
        }
    }
}

fn key_of(kyma: &ObjectRef<Kyma>) -> KymaKey {
    KymaKey::new(kyma.namespace.as_deref().unwrap_or_default(), &kyma.name)
}

#[cfg(test)]
mod deleted_kymas;
#[cfg(test)]
mod tests {
    use std::time::Instant;

    use kube_runtime::{reflector, watcher};
    use serde_json::json;
    use tokio::sync::broadcast;

    use super::*;
    use crate::state::tests::{kymas, unconnected};

    /// Maximum number of queued events in `kyma_targets`.
    const MAX_WAITING_EVENTS: usize = 1_024;

    #[tokio::test]
    async fn an_outage_with_more_targets_than_events_requeues_all_kymas() {
        let (state, trigger) = unconnected();
        let kymas = kymas(1_500);
        let (sender, events) = broadcast::channel(MAX_WAITING_EVENTS);
        for (kyma, secret) in &kymas {
            state.depends_on_secrets(kyma, vec![secret.clone()]);
            let place = SecretKey {
                namespace: kyma.namespace.clone(),
                name: secret.clone(),
                key: "config".to_owned(),
            };
            sender.send(TargetEvent::Suspended(place)).unwrap();
        }
        drop(sender);
        follow_targets(Arc::new(state), events).await;
        assert_eq!(trigger.waiting_count(), kymas.len());
    }

    #[tokio::test]
    async fn an_event_of_one_target_requeues_its_kymas_only() {
        let (state, trigger) = unconnected();
        for (kyma, secret) in kymas(3) {
            state.depends_on_secrets(&kyma, vec![secret]);
        }
        let (sender, events) = broadcast::channel(MAX_WAITING_EVENTS);
        let (kyma, secret) = kymas(1).remove(0);
        let place = SecretKey { namespace: kyma.namespace, name: secret, key: "config".to_owned() };
        sender.send(TargetEvent::Recovered(place.clone())).unwrap();
        sender.send(TargetEvent::Suspended(place)).unwrap();
        drop(sender);
        follow_targets(Arc::new(state), events).await;
        assert_eq!(trigger.waiting_count(), 1);
    }

    #[tokio::test]
    async fn the_first_list_of_kymas_delays_counts_of_configs() {
        let (state, _) = unconnected();
        let (store, mut writer) = reflector::store();
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "a", "namespace": "kcp-system" }, "spec": { "channel": "regular" },
        });
        let kyma: Kyma = serde_json::from_value(kyma).unwrap();
        let key = KymaKey::of(&kyma);
        for event in [watcher::Event::Init, watcher::Event::InitApply(kyma), watcher::Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        follow_kymas(&state, &store, Change::Listed);
        assert!(state.initial_kymas().remaining_wait(Instant::now()).is_some());
        state.record_decision(&key);
        follow_kymas(&state, &store, Change::Listed);
        assert!(
            state.initial_kymas().remaining_wait(Instant::now()).is_none(),
            "a later list changes nothing"
        );
    }

    #[tokio::test]
    async fn changes_of_others_between_read_and_write_requeue_the_kyma() {
        let (state, trigger) = unconnected();
        let (store, _) = reflector::store();
        let kyma = |version: &str| -> Kyma {
            let kyma = json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": { "name": "a", "namespace": "kcp-system", "uid": "u", "resourceVersion": version },
                "spec": { "channel": "regular" },
            });
            serde_json::from_value(kyma).unwrap()
        };
        state.record_write(kyma("7"));
        follow_kymas(&state, &store, Change::Applied(&kyma("7")));
        assert_eq!(trigger.waiting_count(), 0);
        state.record_write(kyma("9"));
        follow_kymas(&state, &store, Change::Applied(&kyma("8")));
        assert_eq!(trigger.waiting_count(), 1);
    }
}

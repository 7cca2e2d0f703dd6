//! Tests of the state without a hub.

use clap::Parser;
use kyma_controller::testing::unconnected_runtime;
use kyma_controller::{ObjectEvent, Operator, WatchSpec};
use kyma_targets::SecretKey;

use serde_json::json;

use super::*;
use crate::hub::config::Config;

impl State {
    /// Returns the maps and indexes that have entries of Kymas.
    pub(crate) fn filled_indexes(&self) -> Vec<&'static str> {
        let has_entries = [
            ("states", !self.kymas().is_empty()),
            ("own writes", !self.own_writes().is_empty()),
            ("watches", self.watches.count() > 0),
            ("sessions", !self.sessions.all().is_empty()),
            ("pending sessions", self.sessions.pending_count() > 0),
            ("long names", !self.long_names.is_empty()),
            ("catalogue", self.catalogue().has_subscriptions()),
            ("components", !self.components().is_empty()),
            ("counts of ModuleConfigs", !self.config_counts().is_empty()),
            ("first decisions", matches!(*self.initial_kymas(), InitialKymas::Pending { .. })),
            ("Manifests", !self.manifests().is_empty()),
            ("metrics", !self.metrics.is_empty()),
        ];
        has_entries.into_iter().filter(|(_, has_entries)| *has_entries).map(|(name, _)| name).collect()
    }
}

const OPERATOR: Operator = Operator { name: "kyma-operator", version: "0.1.0" };

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: KymaArgs,
}

/// Returns a state without a hub, and the trigger of its Kymas.
pub(crate) fn unconnected() -> (State, Trigger<ObjectRef<Kyma>>) {
    let runtime = unconnected_runtime(OPERATOR).unwrap();
    let metrics = KymaMetrics::new(&runtime.process.metrics, true).unwrap();
    let listener = |_: Option<&SecretKey>, _: &WatchSpec, _: &ObjectEvent, _: &[KymaKey]| {};
    let watches = Watches::new(OPERATOR.name, &runtime.process, listener);
    let trigger = Trigger::new();
    let triggers = Triggers { kymas: trigger.clone(), releases: Trigger::new(), configs: Trigger::new() };
    let args = Line::parse_from([OPERATOR.name]).args;
    (State::new(runtime, args, triggers, watches, metrics), trigger)
}

/// Returns Kymas with the names of their access Secrets.
pub(crate) fn kymas(count: usize) -> Vec<(KymaKey, String)> {
    let of = |number| (KymaKey::new("kcp-system", format!("kyma-{number}")), format!("access-{number}"));
    (0..count).map(of).collect()
}

#[tokio::test]
async fn secret_events_of_deleted_kymas_leave_no_entries() {
    let (state, _) = unconnected();
    for (kyma, secret) in kymas(1_001) {
        state.depends_on_secrets(&kyma, vec![secret.clone()]);
        state.set_blocked(&kyma, true);
        state.forget(&kyma);
        assert!(state.of_secret(&secret).is_empty(), "{kyma}");
        state.end_session(&kyma);
    }
    assert_eq!(state.sessions.pending_count(), 0);
    assert!(state.sessions.all().is_empty());
    assert!(state.with_secrets().is_empty() && state.blocked().is_empty());
}

#[tokio::test]
async fn only_a_pending_session_is_interrupted() {
    let (state, _) = unconnected();
    let (kyma, _) = kymas(1).remove(0);
    let pending = state.sessions.begin(&kyma);
    assert!(!pending.is_interrupted());
    state.end_session(&kyma);
    assert!(pending.is_interrupted());
    drop(pending);
    state.end_session(&kyma);
    assert_eq!(state.sessions.pending_count(), 0);
}

#[tokio::test]
async fn deletion_of_a_kyma_interrupts_its_pending_session() {
    let (state, _) = unconnected();
    let (kyma, _) = kymas(1).remove(0);
    let pending = state.sessions.begin(&kyma);
    state.forget(&kyma);
    assert!(pending.is_interrupted(), "its session would remain");
}

#[tokio::test]
async fn the_last_decision_of_the_first_list_requeues_all_configs() {
    let (state, _) = unconnected();
    for name in ["a", "b"] {
        let config = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
            "metadata": { "name": name }, "spec": { "module": "keda" },
        });
        state.configs_mut().apply(Config::from(serde_json::from_value::<ModuleConfig>(config).unwrap()));
    }
    let keys: Vec<KymaKey> = kymas(2).into_iter().map(|(kyma, _)| kyma).collect();
    let requeued = || state.triggers.configs.waiting_count();
    state.record_list(keys.clone());
    state.record_decision(&keys[0]);
    assert_eq!(requeued(), 0);
    assert!(state.initial_kymas().remaining_wait(Instant::now()).is_some());
    // A deleted Kyma is not awaited.
    state.forget(&keys[1]);
    assert_eq!(requeued(), 2);
    assert!(state.initial_kymas().remaining_wait(Instant::now()).is_none());
}

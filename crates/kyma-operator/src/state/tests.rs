//! Tests that no entries of deleted Kymas remain.

use clap::Parser;
use kyma_sdk::testing::unconnected_runtime;
use kyma_sdk::{Interest, Operator, Sighting};
use kyma_targets::SecretKey;

use super::*;

const OPERATOR: Operator = Operator { name: "kyma-operator", version: "0.1.0" };

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: KymaArgs,
}

/// Returns a state without a hub, and the trigger of its Kymas.
pub(crate) fn unconnected() -> (State, Trigger<ObjectRef<Kyma>>) {
    let runtime = unconnected_runtime(OPERATOR).unwrap();
    let metrics = KymaMetrics::new(&runtime.process.metrics, false).unwrap();
    let listener = |_: Option<&SecretKey>, _: &Interest, _: &Sighting, _: &[KymaKey]| {};
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
    assert_eq!(state.pending_sessions.count(), 0);
    assert!(state.sessions().is_empty());
    assert!(state.with_secrets().is_empty() && state.blocked().is_empty());
}

#[tokio::test]
async fn only_a_pending_session_is_interrupted() {
    let (state, _) = unconnected();
    let (kyma, _) = kymas(1).remove(0);
    let pending = state.pending_sessions.begin(&kyma);
    assert!(!pending.is_interrupted());
    state.end_session(&kyma);
    assert!(pending.is_interrupted());
    drop(pending);
    state.end_session(&kyma);
    assert_eq!(state.pending_sessions.count(), 0);
}

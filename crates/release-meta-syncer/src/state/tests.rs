//! Tests that no entries of deleted Kymas remain.

use kube_runtime::reflector;
use kyma_controller::testing::unconnected_runtime;
use kyma_controller::{ObjectEvent, Operator, WatchSpec};
use kyma_targets::SecretKey;

use super::*;

impl State {
    /// Returns the maps and indexes that have entries of Kymas.
    pub(crate) fn filled_indexes(&self) -> Vec<&'static str> {
        let has_entries = [
            ("sessions", !self.sessions.all().is_empty()),
            ("watches", self.watches.count() > 0),
            ("pending sessions", self.sessions.pending_count() > 0),
            ("long names", !self.long_names.is_empty()),
            ("Secrets", self.by_secret.lock().dependencies() > 0),
            ("conditions", !self.conditions().is_empty()),
        ];
        has_entries.into_iter().filter(|(_, has_entries)| *has_entries).map(|(name, _)| name).collect()
    }
}

const OPERATOR: Operator = Operator { name: "release-meta-syncer", version: "0.1.0" };

/// Returns a state without a hub.
pub(crate) fn unconnected() -> State {
    let runtime = unconnected_runtime(OPERATOR).unwrap();
    let listener = |_: Option<&SecretKey>, _: &WatchSpec, _: &ObjectEvent, _: &[KymaKey]| {};
    let watches = Watches::new(OPERATOR.name, &runtime.process, listener);
    let (kymas, _) = reflector::store::<Kyma>();
    State::new(runtime, &Flags::default(), kymas, Trigger::new(), watches)
}

#[tokio::test]
async fn secret_events_of_deleted_kymas_leave_no_entries() {
    let state = unconnected();
    for number in 0..1_001 {
        let (kyma, secret) =
            (KymaKey::new("kcp-system", format!("kyma-{number}")), format!("access-{number}"));
        state.depends_on_secrets(&kyma, vec![secret.clone()]);
        state.forget(&kyma);
        assert!(state.of_secret(&secret).is_empty(), "{kyma}");
        state.end_session(&kyma);
        assert!(state.sessions.get(&kyma).is_none(), "{kyma}");
    }
    assert_eq!(state.sessions.pending_count(), 0);
}

#[tokio::test]
async fn only_a_pending_session_is_interrupted() {
    let (state, kyma) = (unconnected(), KymaKey::new("kcp-system", "kyma"));
    let pending = state.sessions.begin(&kyma);
    assert!(!pending.is_interrupted());
    state.end_session(&kyma);
    assert!(pending.is_interrupted());
    drop(pending);
    state.end_session(&kyma);
    assert_eq!(state.sessions.pending_count(), 0);
}

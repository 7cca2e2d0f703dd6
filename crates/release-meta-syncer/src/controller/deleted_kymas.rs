//! Tests that no map and no index keeps entries of deleted Kymas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kyma_api::condition;
use kyma_connection::testing::unverified_connection;
use kyma_controller::testing::unconnected_context;
use serde_json::json;

use super::*;
use crate::state::tests::unconnected;

/// Number of Kymas that exist at the same time. All watch the same target.
const BATCH_SIZE: usize = 50;

/// Returns a Kyma. Every second one has a name that is longer than a label value.
fn kyma(number: usize) -> Kyma {
    let prefix = if number.is_multiple_of(2) { "k".to_owned() } else { "k".repeat(70) };
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": format!("{prefix}-{number}"), "namespace": "kcp-system", "uid": format!("uid-{number}"),
            "resourceVersion": "7",
        },
        "spec": {
            "channel": "regular", "kubeconfigSecretRef": {"name": format!("access-{number}"), "key": "config"},
        },
    });
    serde_json::from_value(kyma).unwrap()
}

/// Reconciles a Kyma without a catalogue, and opens a session, which fails at the access Secret: the hub lacks it.
async fn reconcile_unconnected(state: &State, kyma: &Kyma) {
    reconcile(state, kyma, &unconnected_context(&state.runtime)).await.unwrap();
    assert!(connection::open_session(state, kyma).await.is_err());
}

/// Records what the stages of a reconcile record about a Kyma and its target.
fn record_reconcile(state: &State, kyma: &Kyma) {
    let key = KymaKey::of(kyma);
    let access = kyma.spec.kubeconfig_secret_ref.clone().unwrap();
    state.depends_on_secrets(&key, vec![access.name.clone()]);
    let session = Session::new(unverified_connection(&state.runtime, access));
    connection::watch(state, &key, &session.connection.target).unwrap();
    state.sessions.begin(&key).complete(session).unwrap();
    let condition = json!({
        "type": condition::types::MODULE_CATALOG, "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    state.conditions().record_write(kyma, serde_json::from_value::<Condition>(condition).unwrap());
}

/// Delivers events of a watch of the target.
fn deliver_target_events(state: &State, key: &KymaKey) {
    let watch_spec = WatchSpec::in_kind(&Kind::Template.resource());
    let object = json!({
        "apiVersion": watch_spec.version, "kind": watch_spec.kind,
        "metadata": {"name": "keda-1.0.0", "uid": "u", "resourceVersion": "9"},
    });
    let object: kube::api::DynamicObject = serde_json::from_value(object).unwrap();
    for event in [
        ObjectEvent::Listed { objects: vec![object.clone()], version: "9".to_owned() },
        ObjectEvent::Applied(Box::new(object.clone())),
        ObjectEvent::Deleted(Box::new(object)),
    ] {
        follow_target(state, &watch_spec, &event, std::slice::from_ref(key));
    }
}

/// Deletes a Kyma during its reconcile, and delivers events of its target after that.
fn delete(state: &State, kyma: &Kyma) {
    follow_kymas(state, Change::Deleted(&ObjectRef::from_obj(kyma)));
    deliver_target_events(state, &KymaKey::of(kyma));
}

#[tokio::test]
async fn deleted_kymas_leave_no_entry_in_any_index() {
    let state = unconnected();
    for first in (0..1_000).step_by(BATCH_SIZE) {
        let kymas: Vec<Kyma> = (first..first + BATCH_SIZE).map(kyma).collect();
        for kyma in &kymas {
            follow_kymas(&state, Change::Applied(kyma));
            reconcile_unconnected(&state, kyma).await;
            record_reconcile(&state, kyma);
            deliver_target_events(&state, &KymaKey::of(kyma));
        }
        assert_eq!(state.filled_indexes(), ["sessions", "watches", "long names", "Secrets", "conditions"]);
        for kyma in &kymas {
            delete(&state, kyma);
        }
        assert_eq!(state.filled_indexes(), [""; 0]);
    }
}

#[tokio::test]
async fn a_reconcile_that_outlives_its_kyma_leaves_no_entry() {
    let (state, kyma) = (unconnected(), kyma(1));
    follow_kymas(&state, Change::Applied(&kyma));
    delete(&state, &kyma);
    record_reconcile(&state, &kyma);
    assert!(!state.filled_indexes().is_empty());
    // The reconciler calls this at the end of a reconcile whose object vanished.
    state.forget(&key_of(&ObjectRef::from_obj(&kyma)));
    assert_eq!(state.filled_indexes(), [""; 0]);
}

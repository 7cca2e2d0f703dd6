//! Tests that no map and no index keeps entries of deleted Kymas.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use kube_runtime::reflector::{self, store::Writer};
use kube_runtime::watcher::Event;
use kyma_api::{Reason, finalizers, labels};
use kyma_connection::access_of;
use kyma_connection::testing::unverified_connection;
use kyma_controller::Revision;
use kyma_controller::testing::unconnected_context;
use serde_json::json;

use super::*;
use crate::decision::selection::Selection;
use crate::hub::catalogue::Subscription;
use crate::hub::component::{ComponentKind, ComponentView};
use crate::hub::config::{Config, RuleRefusals, govern_all};
use crate::state::tests::unconnected;
use crate::target::session;

/// Number of Kymas that exist at the same time. All watch the same target, whose streams are limited.
const BATCH_SIZE: usize = 20;

/// A hub without an API server: its events, and the state that follows from them.
struct Hub {
    state: Arc<State>,
    store: Store<Kyma>,
    writer: Writer<Kyma>,
}

impl Hub {
    /// Returns a hub with a ModuleConfig.
    fn new() -> Self {
        let (mut state, _trigger) = unconnected();
        state.args.skr_image_pull_secret = "pull".to_owned();
        let config = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
            "metadata": {"name": "gold"}, "spec": {"module": "keda"},
        });
        state.configs_mut().apply(Config::from(serde_json::from_value::<ModuleConfig>(config).unwrap()));
        let (store, writer) = reflector::store();
        Self { state: Arc::new(state), store, writer }
    }

    fn create(&mut self, kyma: &Kyma) {
        self.writer.apply_watcher_event(&Event::Apply(kyma.clone()));
        follow_kymas(&self.state, &self.store, Change::Applied(kyma));
        self.state.components_mut().apply(component(kyma));
    }

    /// Reports a complete list of the Kymas.
    fn list(&self) {
        follow_kymas(&self.state, &self.store, Change::Listing);
        follow_kymas(&self.state, &self.store, Change::Listed);
    }

    /// Runs a reconcile, which fails at the access Secret: the hub lacks it. Records what a complete one would record.
    async fn reconcile(&self, kyma: &Kyma) {
        let context = unconnected_context(&self.state.runtime);
        reconcile(Arc::clone(&self.state), Arc::new(kyma.clone()), context).await.unwrap_err();
        record_reconcile(&self.state, kyma);
    }

    /// Deletes a Kyma during its reconcile, and delivers events of its target after that.
    fn delete(&mut self, kyma: &Kyma) {
        self.state.components_mut().delete(&component(kyma));
        self.writer.apply_watcher_event(&Event::Delete(kyma.clone()));
        follow_kymas(&self.state, &self.store, Change::Deleted(&ObjectRef::from_obj(kyma)));
        deliver_target_events(&self.state, &KymaKey::of(kyma));
    }
}

/// Returns a Kyma. Every second one has a name that is longer than a label value.
fn kyma(number: usize) -> Kyma {
    let prefix = if number.is_multiple_of(2) { "k".to_owned() } else { "k".repeat(70) };
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": format!("{prefix}-{number}"), "namespace": "kcp-system", "uid": format!("uid-{number}"),
            "resourceVersion": "7", "finalizers": [finalizers::KYMA],
            "labels": {labels::MANAGED_BY: labels::MANAGED_BY_LIFECYCLE_MANAGER},
        },
        "spec": {
            "channel": "regular", "modules": [{"name": "keda"}],
            "kubeconfigSecretRef": {"name": format!("access-{number}"), "key": "config"},
        },
        "status": {"state": "Ready", "modules": [{"name": "keda", "state": "Ready"}]},
    });
    serde_json::from_value(kyma).unwrap()
}

fn component(kyma: &Kyma) -> ComponentView {
    let name = kyma.name_any();
    let object = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {
            "name": name, "namespace": "kcp-system", "uid": format!("uid-of-{name}"), "resourceVersion": "1",
            "ownerReferences": [{
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": name, "uid": kyma.uid(),
            }],
        },
        "spec": {"module": {"name": "keda", "version": "1.0.0"}},
    });
    ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap()).unwrap()
}

/// Records what the stages of a reconcile record about a Kyma and its target.
fn record_reconcile(state: &State, kyma: &Kyma) {
    let key = KymaKey::of(kyma);
    let session = unverified_connection(&state.runtime, access_of(state, kyma).unwrap());
    session::watch(state, &key, &session.target, true).unwrap();
    state.sessions.begin(&key).complete(session).unwrap();
    {
        let mut kymas = state.kymas();
        let of_kyma = kymas.get_or_add(&key);
        of_kyma.target.pull_secret.record_copy(Revision::default(), 7_u64.into());
        of_kyma.policies.begin_apply(std::iter::empty());
        of_kyma.policies.record_undesired(["gold-lanterns-1".to_owned()]);
    }
    let selection = Selection::read(&json!(kyma.spec)).unwrap();
    let entries = govern_all(&state.configs(), &BTreeMap::new(), &selection);
    state.count_for_configs(&key, &entries);
    state.record_rule_refusals(&key, RuleRefusals::from([("gold".to_owned(), Reason::TargetForbidden)]));
    let subscription = Subscription {
        module: "keda".to_owned(),
        channel: Some("regular".to_owned()),
        versions: ["1.0.0".to_owned()].into(),
    };
    state.catalogue_mut().subscribe(&key, &[subscription]);
    state.set_awaited_kinds(&key, vec![("component.kyma-project.io".to_owned(), "HelmComponent".to_owned())]);
    state.awaits_window(&key, true);
    state.set_blocked(&key, true);
    state.record_klm_kyma(&key);
    state.record_write(kyma.clone());
    let (status, components) = (kyma.status.clone().unwrap_or_default(), state.components().of(&key));
    state.metrics.record(&key, kyma, &status, &components, Timestamp::now());
}

/// Delivers events of all watches of a target.
fn deliver_target_events(state: &State, key: &KymaKey) {
    let watch_specs = admission::watch::watch_specs(key)
        .chain([session::watch_spec(state)])
        .chain(pull_secret::watch::watch_spec(state));
    for watch_spec in watch_specs {
        let name = match watch_spec.kind.as_str() {
            "Kyma" => NAME,
            "Secret" => "pull",
            _ => "gold-lanterns-1",
        };
        let object = json!({
            "apiVersion": "v1", "kind": watch_spec.kind,
            "metadata": {"name": name, "uid": "u", "resourceVersion": "9"},
        });
        let object: kube::api::DynamicObject = serde_json::from_value(object).unwrap();
        for event in [
            ObjectEvent::Listed { objects: vec![object.clone()], version: "9".to_owned() },
            ObjectEvent::Applied(Box::new(object.clone())),
            ObjectEvent::Deleted(Box::new(object)),
        ] {
            follow_target(state, key, &watch_spec, &event);
        }
    }
}

#[tokio::test]
async fn deleted_kymas_leave_no_entry_in_any_index() {
    let mut hub = Hub::new();
    for first in (0..1_000).step_by(BATCH_SIZE) {
        let kymas: Vec<Kyma> = (first..first + BATCH_SIZE).map(kyma).collect();
        for kyma in &kymas {
            hub.create(kyma);
        }
        hub.list();
        for kyma in &kymas {
            hub.reconcile(kyma).await;
            deliver_target_events(&hub.state, &KymaKey::of(kyma));
        }
        assert!(hub.state.filled_indexes().len() > 8, "{:?}", hub.state.filled_indexes());
        for kyma in &kymas {
            hub.delete(kyma);
        }
        assert_eq!(hub.state.filled_indexes(), [""; 0]);
    }
}

#[tokio::test]
async fn first_list_counts_after_a_list_without_the_kyma() {
    let mut hub = Hub::new();
    let kyma = kyma(1);
    let key = KymaKey::of(&kyma);
    hub.create(&kyma);
    hub.list();
    let session = unverified_connection(&hub.state.runtime, access_of(&*hub.state, &kyma).unwrap());
    hub.state.forget(&key);
    session::watch(&hub.state, &key, &session.target, false).unwrap();
    deliver_target_events(&hub.state, &key);
    assert!(hub.state.target_kyma(&key).is_some());
}

#[tokio::test]
async fn a_reconcile_that_outlives_its_kyma_leaves_no_entry() {
    let mut hub = Hub::new();
    let kyma = kyma(1);
    hub.create(&kyma);
    hub.list();
    hub.delete(&kyma);
    record_reconcile(&hub.state, &kyma);
    assert!(!hub.state.filled_indexes().is_empty());
    // The reconciler calls this at the end of a reconcile whose object vanished.
    hub.state.forget(&key_of(&ObjectRef::from_obj(&kyma)));
    assert_eq!(hub.state.filled_indexes(), [""; 0]);
}

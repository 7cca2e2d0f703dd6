//! Tests that the driver keeps no entry of deleted components.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use kyma_api::condition::Condition;
use kyma_api::{HelmComponent, State, condition};
use kyma_controller::testing::unconnected_runtime;
use kyma_controller::{Failure, Rule};
use serde_json::json;

use super::*;
use crate::component::{Progress, Removal};
use crate::context::Context;
use crate::status::{Report, WriteOutcome};

/// Number of components that exist at the same time. All watch the same target.
const BATCH_SIZE: usize = 50;

struct Lanterns;

impl Component for Lanterns {
    type Resource = HelmComponent;

    const NAME: &'static str = "lanterns";
    const VERSION: &'static str = "0.1.0";
    const TARGET_RULES: &'static [Rule] = &[];

    async fn install(&self, _: &Context<HelmComponent>) -> Result<Progress, Failure> {
        Ok(Progress::ready("1.0.0"))
    }

    async fn remove(&self, _: &Context<HelmComponent>) -> Result<Removal, Failure> {
        Ok(Removal::Done)
    }
}

/// A driver without a hub, and its indexes.
struct Stage {
    driver: Driver<Lanterns>,
    by_secret: ComponentIndex<HelmComponent>,
    by_target: ComponentIndex<HelmComponent>,
}

impl Stage {
    fn new() -> Self {
        let runtime = unconnected_runtime(ComponentProgram::<Lanterns>::OPERATOR).unwrap();
        let driver = driver(Lanterns, runtime, Trigger::new());
        Self { driver, by_secret: Arc::default(), by_target: Arc::default() }
    }

    fn process_change(&self, change: Change<'_, HelmComponent>) {
        process_change(&self.driver, (&self.by_secret, &self.by_target), change);
    }

    /// Records what a reconcile records about a component that fails, and that is released.
    async fn record_reconcile(&self, component: &HelmComponent) {
        let driver = &self.driver;
        let _running = driver.status.begin_reconcile(component);
        let target = driver.runtime.access.local().acting_for("u", None);
        let watch_spec = WatchSpec::in_kind(&ApiResource::erase::<ConfigMap>(&()));
        driver.watches.subscribe(&target, &ObjectRef::from_obj(component), [watch_spec]).unwrap();
        driver.manager_failures.first_seen(component, true, Timestamp::now());
        driver.deleted_alone.insert(component);
        driver.ended.insert(component);
        let ready = Condition::new(condition::types::READY, condition::Status::False, Reason::Progressing);
        let report = Report { state: Some(State::Processing), conditions: vec![ready], ..Report::default() };
        let written = driver.status.write(component, &report, false).await.unwrap();
        assert!(matches!(written, WriteOutcome::Later(_)), "{written:?}");
    }

    /// Returns the maps and indexes that have entries of components.
    fn filled_indexes(&self) -> Vec<&'static str> {
        let driver = &self.driver;
        let has_entries = [
            ("Secrets", self.by_secret.lock().dependencies() > 0),
            ("targets", self.by_target.lock().dependencies() > 0),
            ("watches", driver.watches.count() > 0),
            ("statuses", !driver.status.is_empty()),
            ("dependencies", !driver.dependencies.is_empty()),
            ("failures", !driver.manager_failures.is_empty()),
            ("proven deletions", !driver.deleted_alone.is_empty()),
            ("released", !driver.ended.is_empty()),
        ];
        has_entries.into_iter().filter(|(_, has_entries)| *has_entries).map(|(name, _)| name).collect()
    }
}

fn component(number: usize) -> HelmComponent {
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {
            "name": format!("lantern-{number}"), "namespace": "kcp-system", "uid": format!("u-{number}"),
            "resourceVersion": "7", "generation": 1,
        },
        "spec": {
            "source": {}, "module": {"name": "lantern", "version": "1.0.0"},
            "target": {"kubeconfigSecretRef": {"name": format!("access-{number}"), "key": "config"}},
        },
        "status": {"observedGeneration": 1},
    });
    serde_json::from_value(component).unwrap()
}

#[tokio::test]
async fn deleted_components_leave_no_entry_in_the_driver() {
    let stage = Stage::new();
    for first in (0..1_000).step_by(BATCH_SIZE) {
        let components: Vec<HelmComponent> = (first..first + BATCH_SIZE).map(component).collect();
        for component in &components {
            stage.process_change(Change::Applied(component));
            stage.record_reconcile(component).await;
        }
        assert_eq!(stage.filled_indexes().len(), 8, "{:?}", stage.filled_indexes());
        for component in &components {
            stage.process_change(Change::Deleted(&ObjectRef::from_obj(component)));
        }
        assert_eq!(stage.filled_indexes(), [""; 0]);
    }
}

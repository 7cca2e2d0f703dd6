//! Metrics of the fleet's modules: number by state and reason, and time until a change is Ready.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use kyma_api::{KymaStatus, State};
use kyma_controller::{KymaKey, Metrics, MetricsError};
use parking_lot::Mutex;
use prometheus::{HistogramOpts, HistogramVec, IntGaugeVec, Opts};

use crate::hub::component::ComponentView;

/// Histogram buckets in seconds, from one second to the longest usual health timeout.
const BUCKETS: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];

/// The metrics. Labels are states, reasons, and modules of the hub's catalogue.
pub(super) struct ModuleMetrics {
    modules: IntGaugeVec,
    ready: HistogramVec,
    records: Mutex<HashMap<KymaKey, KymaRecord>>,
}

/// Last recorded state of a Kyma.
#[derive(Debug, Default)]
struct KymaRecord {
    /// State and reason, by module.
    lines: BTreeMap<String, (State, String)>,
    /// Time of the last change of each Ready component, by module.
    settled: BTreeMap<String, Timestamp>,
}

impl ModuleMetrics {
    pub(super) fn new(process: &Metrics) -> Result<Self, MetricsError> {
        let modules = IntGaugeVec::new(
            Opts::new("modules", "Modules of all Kymas by state and reason."),
            &["state", "reason"],
        )?;
        let ready = HistogramOpts::new(
            "module_ready_seconds",
            "Time from a change of a module's component until its reconciler reported it Ready.",
        );
        let ready = HistogramVec::new(ready.buckets(BUCKETS.to_vec()), &["module"])?;
        process.register(modules.clone())?;
        process.register(ready.clone())?;
        Ok(Self { modules, ready, records: Mutex::default() })
    }

    /// Records the status of a Kyma.
    pub(super) fn record(
        &self,
        key: &KymaKey,
        status: &KymaStatus,
        components: &[ComponentView],
        now: Timestamp,
    ) {
        let mut records = self.records.lock();
        let before = records.remove(key);
        for (module, took) in became_ready(before.as_ref(), components, now) {
            self.ready.with_label_values(&[module]).observe(took.as_secs_f64());
        }
        let line = |line: &kyma_api::ModuleStatus| {
            (line.name.clone(), (line.state, line.reason.clone().unwrap_or_default()))
        };
        let lines = status.modules.iter().flatten().map(line).collect();
        self.count(before.as_ref(), -1);
        // A component that failed and recovered without a change is not counted.
        let mut known = before.map(|before| before.settled).unwrap_or_default();
        known.retain(|module, _| components.iter().any(|view| view.module == *module));
        known.extend(settled(components));
        let now = KymaRecord { lines, settled: known };
        self.count(Some(&now), 1);
        records.insert(key.clone(), now);
    }

    /// Removes a deleted Kyma.
    pub(super) fn forget(&self, key: &KymaKey) {
        let gone = self.records.lock().remove(key);
        self.count(gone.as_ref(), -1);
    }

    fn count(&self, record: Option<&KymaRecord>, by: i64) {
        for (state, reason) in record.into_iter().flat_map(|record| record.lines.values()) {
            self.modules.with_label_values(&[state.as_str(), reason]).add(by);
        }
    }
}

/// Returns components whose last change is Ready, with the time of that change.
fn settled(components: &[ComponentView]) -> BTreeMap<String, Timestamp> {
    let is_ready = |view: &&ComponentView| {
        view.state == Some(State::Ready)
            && view.is_observed()
            && view.pause_condition().is_none()
            && !view.terminating
    };
    let settled = components.iter().filter(is_ready);
    settled.filter_map(|view| Some((view.module.clone(), view.applied_at?))).collect()
}

/// Returns modules that became Ready after a change and the time that took. Modules that are Ready when first seen
/// are not counted.
fn became_ready<'a>(
    before: Option<&KymaRecord>,
    components: &'a [ComponentView],
    now: Timestamp,
) -> Vec<(&'a str, Duration)> {
    let Some(before) = before else { return Vec::new() };
    let settled = settled(components);
    let news = components.iter().filter_map(|view| {
        let changed = settled.get(&view.module).filter(|at| before.settled.get(&view.module) != Some(at))?;
        Some((view.module.as_str(), Duration::try_from(now.duration_since(*changed)).unwrap_or_default()))
    });
    news.collect()
}

#[cfg(test)]
impl ModuleMetrics {
    /// Reports whether no Kyma is recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.records.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hub::component::ComponentKind;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    /// Returns a component changed at this second, in this state.
    fn component(changed: i64, state: &str) -> ComponentView {
        let object = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1,
                "ownerReferences": [{ "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                    "name": "sample", "uid": "k", "controller": true }] },
            "spec": { "module": { "name": "keda", "version": "1.0.0" } },
            "status": { "state": state, "observedGeneration": 1 },
        });
        let view = ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap());
        ComponentView { applied_at: Some(at(changed)), ..view.unwrap() }
    }

    fn status(reason: &str) -> KymaStatus {
        serde_json::from_value(
            json!({ "modules": [{ "name": "keda", "state": "Warning", "reason": reason }] }),
        )
        .unwrap()
    }

    fn seconds(process: &Metrics) -> Vec<String> {
        let text = process.render().unwrap();
        let of = |line: &&str| {
            line.starts_with("module_ready_seconds_sum") || line.starts_with("module_ready_seconds_count")
        };
        text.lines().filter(of).map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_change_is_timed_once_from_the_change_to_ready() {
        let process = Metrics::new().unwrap();
        let metrics = ModuleMetrics::new(&process).unwrap();
        let key = KymaKey::new("n", "sample");
        let record = |component: ComponentView, second: i64| {
            metrics.record(&key, &KymaStatus::default(), &[component], at(second));
        };
        record(component(0, "Ready"), 500);
        record(component(0, "Error"), 600);
        record(component(0, "Ready"), 700);
        assert!(seconds(&process).is_empty(), "nothing was changed meanwhile");
        record(component(800, "Processing"), 801);
        record(component(800, "Ready"), 812);
        record(component(800, "Ready"), 900);
        assert_eq!(seconds(&process), ["12", "1"]);
    }

    #[test]
    fn a_component_that_is_left_alone_did_not_become_ready() {
        let process = Metrics::new().unwrap();
        let metrics = ModuleMetrics::new(&process).unwrap();
        let key = KymaKey::new("n", "sample");
        let ready = |status: &str| kyma_api::ReadyView {
            status: status.to_owned(),
            reason: "Suspended".to_owned(),
            message: String::new(),
            observed_generation: None,
        };
        let running = |version: &str, status: &str| ComponentView {
            running: Some(version.to_owned()),
            ready: Some(ready(status)),
            ..component(800, "Ready")
        };
        metrics.record(&key, &KymaStatus::default(), &[component(0, "Ready")], at(500));
        metrics.record(&key, &KymaStatus::default(), &[running("0.9.0", "Unknown")], at(801));
        assert!(seconds(&process).is_empty(), "the version from before runs");
        metrics.record(&key, &KymaStatus::default(), &[running("1.0.0", "True")], at(812));
        assert_eq!(seconds(&process), ["12", "1"]);
    }

    #[test]
    fn modules_are_counted_by_state_and_reason_until_kyma_is_gone() {
        let process = Metrics::new().unwrap();
        let metrics = ModuleMetrics::new(&process).unwrap();
        let count = |reason: &str| metrics.modules.with_label_values(&["Warning", reason]).get();
        for name in ["a", "b"] {
            metrics.record(&KymaKey::new("n", name), &status("Paused"), &[], at(0));
        }
        assert_eq!(count("Paused"), 2);
        metrics.record(&KymaKey::new("n", "a"), &status("NotVisible"), &[], at(1));
        assert_eq!((count("Paused"), count("NotVisible")), (1, 1));
        metrics.forget(&KymaKey::new("n", "a"));
        metrics.forget(&KymaKey::new("n", "b"));
        assert_eq!((count("Paused"), count("NotVisible")), (0, 0));
    }
}

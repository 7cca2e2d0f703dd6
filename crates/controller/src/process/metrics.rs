//! Metrics of an operator. Labels have closed sets of values, so the number of series is bounded.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, Desc},
    proto::{MetricFamily, MetricType},
};

use kyma_api::PauseScope;

use crate::failure::Failure;

/// Metrics of one process. Cheap to clone; operators in the same process share it and differ in the label `operator`.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<MetricsInner>,
}

#[derive(Debug)]
struct MetricsInner {
    registry: Registry,
    /// Descriptions of the registered metrics.
    described: Mutex<Vec<MetricDescription>>,
    reconciles: IntCounterVec,
    seconds: HistogramVec,
    waits: HistogramVec,
    failures: IntCounterVec,
    status_writes: IntCounterVec,
    watch_restarts: IntCounterVec,
    repairs: IntCounterVec,
    missed: IntCounterVec,
    watches: IntGaugeVec,
    pauses: IntGaugeVec,
    events_dropped: IntCounterVec,
    tasks: IntGauge,
}

const EVENTS_DROPPED: &str = "Kubernetes events that were not published, because too many were queued.";

/// Result of a reconcile, as value of the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    /// Successful.
    Done,
    /// Ended with a failure.
    Failed,
}

/// Description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels, in their order.
    pub labels: Vec<String>,
    /// Its help text.
    pub help: String,
}

fn describe(collector: &impl Collector) -> Vec<MetricDescription> {
    let kinds: Vec<_> = collector.collect();
    let kind = |name: &str| {
        let family = kinds.iter().find(|family| family.name() == name);
        match family.map(MetricFamily::get_field_type) {
            Some(MetricType::COUNTER) => "counter",
            Some(MetricType::HISTOGRAM) => "histogram",
            _ => "gauge",
        }
    };
    let described = |desc: &&Desc| MetricDescription {
        name: desc.fq_name.clone(),
        kind: kind(&desc.fq_name),
        labels: desc.variable_labels.clone(),
        help: desc.help.clone(),
    };
    collector.desc().iter().map(described).collect()
}

/// Error of the registration or output of metrics.
#[derive(Debug, thiserror::Error)]
#[error("metrics: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// Returns a registry with the metrics that every operator has.
    ///
    /// # Errors
    /// Two collectors of the same name.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let buckets = vec![0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0];
        let seconds =
            HistogramOpts::new("reconcile_seconds", "Duration of reconciles.").buckets(buckets.clone());
        let waits = HistogramOpts::new(
            "reconcile_wait_seconds",
            "Time from an event to the start of the reconcile that it requested.",
        );
        let waits = waits.buckets(buckets);
        let counter =
            |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let inner = MetricsInner {
            reconciles: counter("reconciles_total", "Reconciles by result.", &["operator", "result"])?,
            seconds: HistogramVec::new(seconds, &["operator"])?,
            failures: counter(
                "reconcile_failures_total",
                "Failed reconciles by reason and class.",
                &["operator", "class", "reason"],
            )?,
            status_writes: counter("status_writes_total", "Writes of a status that changed.", &["operator"])?,
            watch_restarts: counter(
                "target_watch_restarts_total",
                "Restarted watches on targets, by cause.",
                &["operator", "cause"],
            )?,
            repairs: counter(
                "verification_repairs_total",
                "Changed objects that the periodic verification found and corrected, because no watch reported the change.",
                &["operator"],
            )?,
            missed: counter(
                "target_watch_missed_total",
                "Changes on targets that only the periodic list found, because their watch did not report them.",
                &["operator"],
            )?,
            watches: IntGaugeVec::new(
                Opts::new("target_watches", "Open watches on targets."),
                &["operator"],
            )?,
            pauses: IntGaugeVec::new(Opts::new("pauses", "Pauses in force."), &["operator", "scope"])?,
            events_dropped: counter("events_dropped_total", EVENTS_DROPPED, &["operator"])?,
            tasks: IntGauge::new("runtime_tasks", "Tasks of the process that have not ended.")?,
            waits: HistogramVec::new(waits, &["operator"])?,
            registry,
            described: Mutex::default(),
        };
        let metrics = Self { inner: Arc::new(inner) };
        metrics.register_own()?;
        Ok(metrics)
    }

    fn register_own(&self) -> Result<(), MetricsError> {
        let held = &self.inner;
        self.register(held.reconciles.clone())?;
        self.register(held.seconds.clone())?;
        self.register(held.waits.clone())?;
        self.register(held.failures.clone())?;
        self.register(held.status_writes.clone())?;
        self.register(held.watch_restarts.clone())?;
        self.register(held.repairs.clone())?;
        self.register(held.missed.clone())?;
        self.register(held.watches.clone())?;
        self.register(held.pauses.clone())?;
        self.register(held.events_dropped.clone())?;
        self.register(held.tasks.clone())?;
        Ok(())
    }

    /// Adds a collector of the operator's own. Its labels must be bounded.
    ///
    /// # Errors
    /// A collector of the same name is registered.
    pub fn register(&self, collector: impl Collector + 'static) -> Result<(), MetricsError> {
        let described = describe(&collector);
        self.inner.registry.register(Box::new(collector))?;
        self.inner.described.lock().extend(described);
        Ok(())
    }

    /// Returns all registered metrics by name, including those without series.
    pub fn described(&self) -> Vec<MetricDescription> {
        let mut described = self.inner.described.lock().clone();
        described.sort_by(|a, b| a.name.cmp(&b.name));
        described
    }

    /// Returns all metrics in Prometheus' text format.
    ///
    /// # Errors
    /// A collector returned a metric that cannot be encoded.
    pub fn render(&self) -> Result<String, MetricsError> {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let tasks = runtime.metrics().num_alive_tasks();
            self.inner.tasks.set(i64::try_from(tasks).unwrap_or(i64::MAX));
        }
        let mut out = vec![];
        TextEncoder::new().encode(&self.inner.registry.gather(), &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    pub(crate) fn reconciled(&self, operator: &str, took: Duration, result: ReconcileResult) {
        let result = match result {
            ReconcileResult::Done => "done",
            ReconcileResult::Failed => "failed",
        };
        self.inner.reconciles.with_label_values(&[operator, result]).inc();
        self.inner.seconds.with_label_values(&[operator]).observe(took.as_secs_f64());
    }

    /// Counts a failure; the driver does it for those that a reconcile returns.
    pub fn failed(&self, operator: &str, failure: &Failure) {
        let labels = [operator, failure.class.as_str(), failure.reason.as_str()];
        self.inner.failures.with_label_values(&labels).inc();
    }

    pub(crate) fn waited(&self, operator: &str, since: Duration) {
        self.inner.waits.with_label_values(&[operator]).observe(since.as_secs_f64());
    }

    /// Counts a write of a status.
    pub fn status_written(&self, operator: &str) {
        self.inner.status_writes.with_label_values(&[operator]).inc();
    }

    pub(crate) fn watch_restarted(&self, operator: &str, cause: &'static str) {
        self.inner.watch_restarts.with_label_values(&[operator, cause]).inc();
    }

    pub(crate) fn repaired(&self, operator: &str, objects: usize) {
        let objects = u64::try_from(objects).unwrap_or(u64::MAX);
        self.inner.repairs.with_label_values(&[operator]).inc_by(objects);
    }

    pub(crate) fn watch_missed(&self, operator: &str, objects: usize) {
        let objects = u64::try_from(objects).unwrap_or(u64::MAX);
        self.inner.missed.with_label_values(&[operator]).inc_by(objects);
    }

    pub(crate) fn pauses(&self, operator: &str, in_force: &[PauseScope]) {
        for scope in [PauseScope::All, PauseScope::Deletes, PauseScope::Upgrades] {
            let count = in_force.iter().filter(|held| **held == scope).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.inner.pauses.with_label_values(&[operator, scope.as_str()]).set(count);
        }
    }

    pub(crate) fn events_dropped(&self, operator: &str, events: u64) {
        self.inner.events_dropped.with_label_values(&[operator]).inc_by(events);
    }

    pub(crate) fn watches(&self, operator: &str, change: i64) {
        self.inner.watches.with_label_values(&[operator]).add(change);
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::Reason;

    use super::*;

    #[test]
    fn each_metric_is_described_before_it_has_a_series() {
        let described = Metrics::new().unwrap().described();
        let of = |name: &str| described.iter().find(|one| one.name == name).cloned().unwrap();
        let failures = of("reconcile_failures_total");
        assert_eq!(
            (failures.kind, failures.labels.join(",")),
            ("counter", "operator,class,reason".to_owned())
        );
        assert_eq!((of("reconcile_seconds").kind, of("pauses").kind), ("histogram", "gauge"));
        assert!(described.iter().all(|one| one.help.ends_with('.')), "{described:?}");
    }

    #[test]
    fn failures_are_counted_by_class_and_reason() {
        let metrics = Metrics::new().unwrap();
        metrics.failed("x", &Failure::new(Reason::AwaitingAccess, "no secret a/b"));
        metrics.reconciled("x", Duration::from_millis(3), ReconcileResult::Failed);
        let text = metrics.render().unwrap();
        let line = r#"reconcile_failures_total{class="Blocked",operator="x",reason="AwaitingAccess"} 1"#;
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("a/b"));
    }
}

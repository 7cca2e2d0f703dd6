//! What an operator counts. Labels hold only words of closed sets, so their number is bounded.

use std::{sync::Arc, time::Duration};

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector,
};

use kyma_api::PauseScope;

use crate::Failure;

/// Counters of one process. Cheap to clone; operators that share a process share it and are told apart by the
/// label `operator`.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    reconciles: IntCounterVec,
    seconds: HistogramVec,
    failures: IntCounterVec,
    status_writes: IntCounterVec,
    watch_restarts: IntCounterVec,
    repairs: IntCounterVec,
    missed: IntCounterVec,
    watches: IntGaugeVec,
    pauses: IntGaugeVec,
}

/// How a reconcile ended, as the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    /// Got through.
    Done,
    /// Ended with a failure.
    Failed,
}

/// Why the metrics could not be set up or written.
#[derive(Debug, thiserror::Error)]
#[error("metrics: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// A registry with what every operator counts.
    ///
    /// # Errors
    /// Two collectors of the same name.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let buckets = vec![0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0];
        let seconds = HistogramOpts::new("reconcile_seconds", "Duration of reconciles.").buckets(buckets);
        let counter =
            |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let inner = Inner {
            reconciles: counter(
                "reconciles_total",
                "Reconciles by how they ended.",
                &["operator", "result"],
            )?,
            seconds: HistogramVec::new(seconds, &["operator"])?,
            failures: counter(
                "reconcile_failures_total",
                "Failed reconciles by reason and class.",
                &["operator", "class", "reason"],
            )?,
            status_writes: counter(
                "status_writes_total",
                "Writes of a status that differed.",
                &["operator"],
            )?,
            watch_restarts: counter(
                "target_watch_restarts_total",
                "Watches on targets that were opened again, by cause.",
                &["operator", "cause"],
            )?,
            repairs: counter(
                "verification_repairs_total",
                "Objects that the periodic verification found changed and put right, since no watch had told.",
                &["operator"],
            )?,
            missed: counter(
                "target_watch_missed_total",
                "Changes on targets that only the periodic list found, since their watch had not told.",
                &["operator"],
            )?,
            watches: IntGaugeVec::new(
                Opts::new("target_watches", "Watches held on targets."),
                &["operator"],
            )?,
            pauses: IntGaugeVec::new(Opts::new("pauses", "Pauses in force."), &["operator", "scope"])?,
            registry,
        };
        let metrics = Self { inner: Arc::new(inner) };
        let held = &metrics.inner;
        metrics.register(held.reconciles.clone())?;
        metrics.register(held.seconds.clone())?;
        metrics.register(held.failures.clone())?;
        metrics.register(held.status_writes.clone())?;
        metrics.register(held.watch_restarts.clone())?;
        metrics.register(held.repairs.clone())?;
        metrics.register(held.missed.clone())?;
        metrics.register(held.watches.clone())?;
        metrics.register(held.pauses.clone())?;
        Ok(metrics)
    }

    /// Adds a collector of the operator's own. Its labels must be bounded.
    ///
    /// # Errors
    /// A collector of the same name is registered.
    pub fn register(&self, collector: impl Collector + 'static) -> Result<(), MetricsError> {
        Ok(self.inner.registry.register(Box::new(collector))?)
    }

    /// Everything in Prometheus' text format.
    ///
    /// # Errors
    /// A collector gave something that cannot be written.
    pub fn render(&self) -> Result<String, MetricsError> {
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

    pub(crate) fn status_written(&self, operator: &str) {
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

    pub(crate) fn watches(&self, operator: &str, change: i64) {
        self.inner.watches.with_label_values(&[operator]).add(change);
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::Reason;

    use super::*;

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

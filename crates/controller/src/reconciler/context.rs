//! The context of a reconcile: its Pauses, its slot, and whether it is a periodic verification.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::slots::Slot;
use crate::pauses::PausedOperations;
use crate::process::metrics::Metrics;

/// Context of one reconcile of one object.
#[derive(Clone, Debug)]
pub struct ReconcileContext {
    operator: &'static str,
    verifies: bool,
    /// Time of the last event that requested it.
    last_request: Option<Instant>,
    paused_operations: PausedOperations,
    metrics: Metrics,
    /// Weak, so that no copy of the context keeps the slot after the reconcile.
    slot: Weak<Slot>,
}

impl ReconcileContext {
    /// Returns the context of a reconcile without a slot.
    pub fn new(
        operator: &'static str,
        verifies: bool,
        paused_operations: PausedOperations,
        metrics: Metrics,
    ) -> Self {
        Self { operator, verifies, last_request: None, paused_operations, metrics, slot: Weak::new() }
    }

    /// Sets the time of the last event that requested it.
    pub(crate) fn with_last_request(self, last_request: Option<Instant>) -> Self {
        Self { last_request, ..self }
    }

    /// Sets the slot of the reconcile.
    pub(crate) fn in_slot(self, slot: &Arc<Slot>) -> Self {
        Self { slot: Arc::downgrade(slot), ..self }
    }

    /// Awaits `wait` without a slot of `--concurrency`, then waits for a slot again. For waits during which the reconcile
    /// itself does nothing, such as for a read of another reconcile that serves this one too. The number of reconciles
    /// without a slot is limited to 128 for each operator.
    pub async fn without_slot<T>(&self, wait: impl Future<Output = T>) -> T {
        match self.slot.upgrade() {
            Some(slot) => slot.lend(wait).await,
            None => wait.await,
        }
    }

    /// Returns the time of the last event that requested it, or `None` if only a timer did. A read that began after
    /// this time is recent enough for this reconcile, so several reconciles can share it.
    pub fn last_request(&self) -> Option<Instant> {
        self.last_request
    }

    /// Returns the operations that Pauses forbid for the object. A later Pause cancels the reconcile.
    pub fn paused_operations(&self) -> &PausedOperations {
        &self.paused_operations
    }

    /// Reports whether no reconcile succeeded for the resync period, so that cached state of targets has to be read
    /// again.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// Counts written objects as repairs if this is a verification that no event requested: a watch missed their
    /// change.
    pub fn repaired(&self, objects: usize) {
        if self.verifies && self.last_request.is_none() {
            self.metrics.repaired(self.operator, objects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_count_only_in_a_verifying_pass_without_event() {
        let metrics = Metrics::new().unwrap();
        ReconcileContext::new("x", false, PausedOperations::default(), metrics.clone()).repaired(2);
        ReconcileContext::new("x", true, PausedOperations::default(), metrics.clone())
            .with_last_request(Some(Instant::now()))
            .repaired(4);
        ReconcileContext::new("x", true, PausedOperations::default(), metrics.clone()).repaired(3);
        let text = metrics.render().unwrap();
        assert!(text.contains(r#"verification_repairs_total{operator="x"} 3"#), "{text}");
    }
}

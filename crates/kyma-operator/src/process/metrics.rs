//! Metrics of kyma-operator beside those of every operator.

mod klm;
mod last_answer;
mod modules;

use std::time::Duration;

use jiff::Timestamp;
use kyma_api::{Kyma, KymaStatus};
use kyma_controller::{KymaKey, Metrics, MetricsError};

use crate::hub::component::ComponentView;
use klm::KlmGauges;
use last_answer::LastAnswer;
use modules::ModuleMetrics;

/// Gauges for each Kyma, as in KLM, and gauges for the fleet.
pub(crate) struct KymaMetrics {
    klm: KlmGauges,
    modules: ModuleMetrics,
    /// `None` without series for each Kyma.
    last_answer: Option<LastAnswer>,
    /// Whether there are series for each Kyma.
    per_kyma: bool,
}

impl KymaMetrics {
    /// Registers all metrics.
    pub(crate) fn new(process: &Metrics, per_kyma: bool) -> Result<Self, MetricsError> {
        let last_answer = per_kyma.then(|| LastAnswer::new(process)).transpose()?;
        let (klm, modules) = (KlmGauges::new(process)?, ModuleMetrics::new(process)?);
        Ok(Self { klm, modules, last_answer, per_kyma })
    }

    /// Sets the source of the time since each cluster's last answer, by name of the Kyma.
    pub(crate) fn set_answer_source(
        &self,
        source: impl Fn() -> Vec<(String, Duration)> + Send + Sync + 'static,
    ) {
        if let Some(last_answer) = &self.last_answer {
            last_answer.set_source(source);
        }
    }

    /// Sets whether a valid maintenance policy exists.
    pub(crate) fn maintenance_policy(&self, is_read: bool) {
        self.klm.maintenance_policy(is_read);
    }

    /// Sets the number of mandatory modules.
    pub(crate) fn mandatory(&self, count: usize) {
        self.klm.mandatory(count);
    }

    /// Sets the state of a Kyma and its modules.
    pub(crate) fn record(
        &self,
        key: &KymaKey,
        kyma: &Kyma,
        status: &KymaStatus,
        components: &[ComponentView],
        now: Timestamp,
    ) {
        self.modules.record(key, status, components, now);
        if self.per_kyma {
            self.klm.record(key, kyma, status, components);
        }
    }

    /// Removes the series of a deleted Kyma.
    pub(crate) fn forget(&self, key: &KymaKey) {
        self.modules.forget(key);
        self.klm.forget(key);
    }
}

#[cfg(test)]
impl KymaMetrics {
    /// Reports whether no Kyma has series.
    pub(crate) fn is_empty(&self) -> bool {
        self.modules.is_empty() && self.klm.is_empty()
    }
}

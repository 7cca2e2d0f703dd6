//! What kyma-operator counts beside what every operator does.

mod contact;
mod klm;
mod modules;

use std::time::Duration;

use jiff::Timestamp;
use kyma_api::{Kyma, KymaStatus};
use kyma_sdk::{KymaKey, Metrics, MetricsError};

use crate::component::ComponentView;
use contact::LastAnswer;
use klm::KlmGauges;
use modules::ModuleMetrics;

/// Gauges for each Kyma, as KLM has them, and figures of the fleet as a whole.
pub(crate) struct KymaMetrics {
    klm: KlmGauges,
    modules: ModuleMetrics,
    /// Absent where there are no series for each Kyma.
    last_answer: Option<LastAnswer>,
    /// Whether there are series for each Kyma.
    per_kyma: bool,
}

impl KymaMetrics {
    /// Registers all of them with those of the process.
    pub(crate) fn new(process: &Metrics, per_kyma: bool) -> Result<Self, MetricsError> {
        let last_answer = per_kyma.then(|| LastAnswer::new(process)).transpose()?;
        let (klm, modules) = (KlmGauges::new(process)?, ModuleMetrics::new(process)?);
        Ok(Self { klm, modules, last_answer, per_kyma })
    }

    /// Where to look up how long ago the clusters of Kymas answered, by the Kyma's name.
    pub(crate) fn look_at_answers(&self, look: impl Fn() -> Vec<(String, Duration)> + Send + Sync + 'static) {
        if let Some(last_answer) = &self.last_answer {
            last_answer.look_at(look);
        }
    }

    /// Shows whether there is a maintenance policy that can be used.
    pub(crate) fn maintenance_policy(&self, is_read: bool) {
        self.klm.maintenance_policy(is_read);
    }

    /// Shows how many modules every Kyma gets.
    pub(crate) fn mandatory(&self, count: usize) {
        self.klm.mandatory(count);
    }

    /// Shows the state of a Kyma and its modules, as of now.
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

    /// The Kyma is gone, and its series with it.
    pub(crate) fn forget(&self, key: &KymaKey) {
        self.modules.forget(key);
        self.klm.forget(key);
    }
}

//! What kyma-operator counts beside what every operator does.

mod klm;
mod modules;

use jiff::Timestamp;
use kyma_api::{Kyma, KymaStatus};
use kyma_sdk::{Metrics, MetricsError};

use crate::component::ComponentView;
use crate::key::KymaKey;
use klm::KlmGauges;
use modules::ModuleMetrics;

/// Gauges for each Kyma, as KLM has them, and figures of the fleet as a whole.
pub(crate) struct KymaMetrics {
    klm: KlmGauges,
    modules: ModuleMetrics,
    /// Whether there are series for each Kyma.
    per_kyma: bool,
}

impl KymaMetrics {
    /// Registers all of them with those of the process.
    pub(crate) fn new(process: &Metrics, per_kyma: bool) -> Result<Self, MetricsError> {
        Ok(Self { klm: KlmGauges::new(process)?, modules: ModuleMetrics::new(process)?, per_kyma })
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

//! KLM's metrics that dashboards read: the state of each Kyma and module as gauges of 0 and 1.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt;
use kyma_api::{Kyma, KymaStatus, State, annotations, labels};
use kyma_sdk::{Metrics, MetricsError};
use prometheus::{GaugeVec, Opts};

use crate::key::KymaKey;

/// States of a Kyma and of a module, in KLM's order.
const KYMA_STATES: [State; 5] =
    [State::Deleting, State::Error, State::Processing, State::Ready, State::Warning];
const MODULE_STATES: [State; 6] =
    [State::Deleting, State::Error, State::Processing, State::Ready, State::Unmanaged, State::Warning];

/// The gauges; bounded by the Kymas and modules there are, and gone with them.
#[derive(Clone)]
pub(crate) struct KymaMetrics {
    kymas: GaugeVec,
    modules: GaugeVec,
    shown: Arc<Mutex<HashMap<KymaKey, Shown>>>,
}

/// What is exported for one Kyma.
#[derive(Clone, PartialEq, Eq)]
struct Shown {
    shoot: String,
    instance: String,
    state: State,
    modules: BTreeMap<String, State>,
}

impl KymaMetrics {
    /// The gauges, registered with those of the process.
    pub(crate) fn new(process: &Metrics) -> Result<Self, MetricsError> {
        let kyma = ["kyma_name", "state", "shoot", "instance_id"];
        let module = ["module_name", "kyma_name", "state", "shoot", "instance_id"];
        let kymas = GaugeVec::new(
            Opts::new("lifecycle_mgr_kyma_state", "Indicates the Status.state for a given Kyma object"),
            &kyma,
        )?;
        let modules = GaugeVec::new(
            Opts::new("lifecycle_mgr_module_state", "Indicates the Status.state for modules of Kyma"),
            &module,
        )?;
        process.register(kymas.clone())?;
        process.register(modules.clone())?;
        Ok(Self { kymas, modules, shown: Arc::default() })
    }

    /// Shows the state of a Kyma and its modules.
    pub(crate) fn record(&self, key: &KymaKey, kyma: &Kyma, status: &KymaStatus) {
        let domain = kyma.annotations().get(annotations::SKR_DOMAIN).map(String::as_str).unwrap_or_default();
        let modules = status.modules.iter().flatten();
        let now = Shown {
            shoot: domain.split('.').next().unwrap_or_default().to_owned(),
            instance: kyma.labels().get(labels::INSTANCE_ID).cloned().unwrap_or_default(),
            state: status.state.unwrap_or_default(),
            modules: modules.map(|module| (module.name.clone(), module.state)).collect(),
        };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.insert(key.clone(), now.clone());
        if before.as_ref() == Some(&now) {
            return;
        }
        if let Some(before) = before {
            self.remove(key, &before);
        }
        let set = |state: State, value: State| if state == value { 1.0 } else { 0.0 };
        for state in KYMA_STATES {
            self.kymas
                .with_label_values(&[&key.name, state.as_str(), &now.shoot, &now.instance])
                .set(set(state, now.state));
        }
        for (module, value) in &now.modules {
            for state in MODULE_STATES {
                self.modules
                    .with_label_values(&[module, &key.name, state.as_str(), &now.shoot, &now.instance])
                    .set(set(state, *value));
            }
        }
    }

    /// The Kyma is gone.
    pub(crate) fn forget(&self, key: &KymaKey) {
        let before = self.shown.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(before) = before {
            self.remove(key, &before);
        }
    }

    /// A series that is not there need not be removed.
    fn remove(&self, key: &KymaKey, shown: &Shown) {
        for state in KYMA_STATES {
            self.kymas.remove_label_values(&[&key.name, state.as_str(), &shown.shoot, &shown.instance]).ok();
        }
        for module in shown.modules.keys() {
            for state in MODULE_STATES {
                let labels = [module, key.name.as_str(), state.as_str(), &shown.shoot, &shown.instance];
                self.modules.remove_label_values(&labels).ok();
            }
        }
    }
}

//! KLM's metrics that dashboards read: the state of each Kyma and module as gauges of 0 and 1, and how many modules
//! are mandatory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use kyma_api::{Kyma, KymaStatus, State, annotations, labels};
use kyma_controller::{KymaKey, Metrics, MetricsError};
use parking_lot::Mutex;
use prometheus::{GaugeVec, IntGauge, Opts};

use crate::hub::component::ComponentView;

/// States of a Kyma and of a module, in KLM's order.
const KYMA_STATES: [State; 5] =
    [State::Deleting, State::Error, State::Processing, State::Ready, State::Warning];
const MODULE_STATES: [State; 6] =
    [State::Deleting, State::Error, State::Processing, State::Ready, State::Unmanaged, State::Warning];

/// The gauges. They have series only for existing Kymas and modules.
pub(super) struct KlmGauges {
    kymas: GaugeVec,
    modules: GaugeVec,
    mandatory: IntGauge,
    mandatory_modules: GaugeVec,
    maintenance_policy: IntGauge,
    series: Arc<Mutex<HashMap<KymaKey, KymaSeries>>>,
}

/// Exported values of one Kyma.
#[derive(Clone, PartialEq, Eq)]
struct KymaSeries {
    shoot: String,
    instance: String,
    state: State,
    modules: BTreeMap<String, State>,
    mandatory: BTreeMap<String, State>,
}

impl KlmGauges {
    /// Registers the gauges.
    pub(super) fn new(process: &Metrics) -> Result<Self, MetricsError> {
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
        let mandatory = IntGauge::new(
            "lifecycle_mgr_mandatory_modules",
            "Indicates the number of mandatory ModuleReleaseMetas",
        )?;
        let mandatory_modules = GaugeVec::new(
            Opts::new(
                "lifecycle_mgr_mandatory_module_state",
                "Indicates the Status.state for a given mandatory module",
            ),
            &["module_name", "kyma_name", "state"],
        )?;
        let maintenance_policy = IntGauge::new(
            "lifecycle_mgr_maintenance_window_config_read_success",
            "Indicates whether the maintenance policy was read successfully",
        )?;
        process.register(maintenance_policy.clone())?;
        process.register(mandatory.clone())?;
        process.register(mandatory_modules.clone())?;
        process.register(kymas.clone())?;
        process.register(modules.clone())?;
        Ok(Self { kymas, modules, mandatory, mandatory_modules, maintenance_policy, series: Arc::default() })
    }

    /// Sets whether a valid maintenance policy exists.
    pub(super) fn maintenance_policy(&self, is_read: bool) {
        self.maintenance_policy.set(i64::from(is_read));
    }

    /// Sets the number of mandatory modules.
    pub(super) fn mandatory(&self, count: usize) {
        self.mandatory.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the state of a Kyma and its modules. Mandatory modules, which its status does not list, are read from
    /// their components.
    pub(super) fn record(
        &self,
        key: &KymaKey,
        kyma: &Kyma,
        status: &KymaStatus,
        components: &[ComponentView],
    ) {
        let domain = kyma.annotations().get(annotations::SKR_DOMAIN).map(String::as_str).unwrap_or_default();
        let modules = status.modules.iter().flatten();
        let now = KymaSeries {
            shoot: domain.split('.').next().unwrap_or_default().to_owned(),
            instance: kyma.labels().get(labels::INSTANCE_ID).cloned().unwrap_or_default(),
            state: status.state.unwrap_or_default(),
            modules: modules.map(|module| (module.name.clone(), module.state)).collect(),
            mandatory: components.iter().filter(|view| view.mandatory).map(state_of).collect(),
        };
        let mut series = self.series.lock();
        let before = series.insert(key.clone(), now.clone());
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
        for (module, value) in &now.mandatory {
            for state in MODULE_STATES {
                self.mandatory_modules
                    .with_label_values(&[module, &key.name, state.as_str()])
                    .set(set(state, *value));
            }
        }
    }

    /// Removes the series of a deleted Kyma.
    pub(super) fn forget(&self, key: &KymaKey) {
        let before = self.series.lock().remove(key);
        if let Some(before) = before {
            self.remove(key, &before);
        }
    }

    /// Removes series; missing ones are ignored.
    fn remove(&self, key: &KymaKey, series: &KymaSeries) {
        for state in KYMA_STATES {
            self.kymas
                .remove_label_values(&[&key.name, state.as_str(), &series.shoot, &series.instance])
                .ok();
        }
        for module in series.modules.keys() {
            for state in MODULE_STATES {
                let labels = [module, key.name.as_str(), state.as_str(), &series.shoot, &series.instance];
                self.modules.remove_label_values(&labels).ok();
            }
        }
        for module in series.mandatory.keys() {
            for state in MODULE_STATES {
                self.mandatory_modules.remove_label_values(&[module, &key.name, state.as_str()]).ok();
            }
        }
    }
}

fn state_of(view: &ComponentView) -> (String, State) {
    let reported = view.state.unwrap_or(State::Processing);
    (view.module.clone(), if view.terminating { State::Deleting } else { reported })
}

#[cfg(test)]
impl KlmGauges {
    /// Reports whether no Kyma has series.
    pub(super) fn is_empty(&self) -> bool {
        self.series.lock().is_empty()
    }
}

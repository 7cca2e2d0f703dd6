//! Which ModuleConfigs the affected objects were made under, as those objects record it. Pure.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;
use kyma_api::{KymaStatus, Reason, annotations};
use serde_json::json;

use super::{Configs, Governed};
use crate::component::ComponentView;
use crate::resolve::Because;

/// Uids of ModuleConfigs by name.
pub(crate) type ConfigUids = BTreeMap<String, String>;

/// Returns the ModuleConfigs that an object was made under. A record that cannot be read names none.
pub(crate) fn recorded(meta: &ObjectMeta) -> ConfigUids {
    let record = meta.annotations.as_ref().and_then(|set| set.get(annotations::MODULE_CONFIGS));
    record.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Returns the annotation that records ModuleConfigs.
pub(crate) fn record(configs: &ConfigUids) -> Option<(&'static str, String)> {
    (!configs.is_empty()).then(|| (annotations::MODULE_CONFIGS, json!(configs).to_string()))
}

/// Returns the ModuleConfigs on record for each module of a Kyma, by its status and its components.
pub(crate) fn recorded_of_kyma(
    status: Option<&KymaStatus>,
    views: &BTreeMap<String, ComponentView>,
) -> BTreeMap<String, ConfigUids> {
    let mut found: BTreeMap<String, ConfigUids> = BTreeMap::new();
    for line in status.iter().flat_map(|status| status.modules.iter().flatten()) {
        found.entry(line.name.clone()).or_default().extend(line.module_configs.clone());
    }
    for view in views.values() {
        found.entry(view.module.clone()).or_default().extend(view.configs.clone());
    }
    found.retain(|_, configs| !configs.is_empty());
    found
}

/// Returns why a module is left as it is while a ModuleConfig on its record is missing.
pub(crate) fn missing(name: &str) -> Because {
    let message = format!(
        "ModuleConfig {name} is missing and stays in force, so nothing of the module is changed: create it again \
         under its name, then delete it if it is to go"
    );
    Because::warning(Reason::ModuleConfigMissing, message)
}

/// Leaves modules as they are whose ModuleConfigs are missing, and keeps those on record.
pub(crate) fn keep_under_missing(wishes: &mut [Governed], missing_configs: &BTreeMap<String, ConfigUids>) {
    for governed in wishes {
        let Some(missing_configs) = missing_configs.get(&governed.wish.name) else { continue };
        governed.wish.central.configs.extend(missing_configs.clone());
        governed.objection = missing_configs.keys().next().map(|name| missing(name));
    }
}

impl Configs {
    /// Returns what of a record is neither there nor known to be deleted.
    pub(crate) fn unaccounted(&self, recorded: &ConfigUids) -> ConfigUids {
        let is_unaccounted = |(name, uid): &(&String, &String)| {
            self.get(name).is_none() && !self.is_deleted(name, Some(uid.as_str()))
        };
        recorded.iter().filter(is_unaccounted).map(|(name, uid)| (name.clone(), uid.clone())).collect()
    }
}

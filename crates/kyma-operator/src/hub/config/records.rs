//! ModuleConfigs that were in force when an object was written, as its annotation records them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;
use kyma_api::{KymaStatus, Reason, annotations};
use serde_json::json;

use super::{Configs, EffectiveEntry};
use crate::decision::resolve::ModuleProblem;
use crate::hub::component::ComponentView;

/// Uids of ModuleConfigs by name.
pub(crate) type ConfigUids = BTreeMap<String, String>;

/// Names and uids of ModuleConfigs. Records of several objects may have different uids for one name.
pub(crate) type ConfigRecords = BTreeSet<(String, String)>;

/// Name that represents an unreadable record in place of a ModuleConfig. No ModuleConfig can have this name.
const UNREADABLE_RECORD: &str = annotations::MODULE_CONFIGS;

/// Returns the ModuleConfigs that were in force when an object was written. An unreadable record counts as one missing
/// ModuleConfig, so that the object stays unchanged.
pub(crate) fn read_record(meta: &ObjectMeta) -> ConfigUids {
    let record = meta.annotations.as_ref().and_then(|set| set.get(annotations::MODULE_CONFIGS));
    let Some(text) = record else { return ConfigUids::new() };
    serde_json::from_str(text)
        .unwrap_or_else(|_| ConfigUids::from([(UNREADABLE_RECORD.to_owned(), String::new())]))
}

/// Returns whether the name represents an unreadable record.
pub(crate) fn is_unreadable_record(name: &str) -> bool {
    name == UNREADABLE_RECORD
}

/// Returns the annotation that records ModuleConfigs.
pub(crate) fn record_annotation(configs: &ConfigUids) -> Option<(&'static str, String)> {
    (!configs.is_empty()).then(|| (annotations::MODULE_CONFIGS, json!(configs).to_string()))
}

/// Returns the ModuleConfigs on record for each module of a Kyma, by its status and its components.
pub(crate) fn records_of_kyma(
    status: Option<&KymaStatus>,
    views: &BTreeMap<String, ComponentView>,
) -> BTreeMap<String, ConfigRecords> {
    let mut found: BTreeMap<String, ConfigRecords> = BTreeMap::new();
    for line in status.iter().flat_map(|status| status.modules.iter().flatten()) {
        found.entry(line.name.clone()).or_default().extend(line.module_configs.clone());
    }
    for known in status.iter().flat_map(|status| status.mandatory_modules.iter().flatten()) {
        found.entry(known.name.clone()).or_default().extend(known.module_configs.clone());
    }
    for view in views.values() {
        found.entry(view.module.clone()).or_default().extend(view.configs.clone());
    }
    found.retain(|_, configs| !configs.is_empty());
    found
}

/// Returns the reason to keep a module unchanged while a recorded ModuleConfig is missing.
pub(crate) fn missing_config_problem(name: &str) -> ModuleProblem {
    let message = if is_unreadable_record(name) {
        format!(
            "annotation {name} of the module's component cannot be read, so the module is not changed: set it to a \
             JSON object with the uid of each ModuleConfig in force by name, or to {{}} if there is none"
        )
    } else {
        format!(
            "ModuleConfig {name} is missing but still in force, so the module is not changed: create it \
             again under this name to keep it, or create it and then delete it to end its effect"
        )
    };
    ModuleProblem::warning(Reason::ModuleConfigMissing, message)
}

/// Keeps modules unchanged whose recorded ModuleConfigs are missing, and keeps these on record.
pub(crate) fn keep_under_missing(
    entries: &mut [EffectiveEntry],
    missing_configs: &BTreeMap<String, ConfigUids>,
) {
    for effective in entries {
        let Some(missing_configs) = missing_configs.get(&effective.entry.name) else { continue };
        let Some(first) = missing_configs.keys().next() else { continue };
        effective.objection.get_or_insert_with(|| missing_config_problem(first));
        for (name, uid) in missing_configs.iter().filter(|(name, _)| !is_unreadable_record(name)) {
            effective.entry.central.configs.entry(name.clone()).or_insert_with(|| uid.clone());
        }
    }
}

impl Configs {
    /// Returns the recorded ModuleConfigs that do not exist and whose deletion was not accepted.
    pub(crate) fn missing_configs<'a>(
        &self,
        recorded: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> ConfigRecords {
        let is_missing = |(name, uid): &(&String, &String)| {
            self.get(name).is_none() && !self.is_deleted(name, Some(uid.as_str()))
        };
        recorded.into_iter().filter(is_missing).map(|(name, uid)| (name.clone(), uid.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::{MandatoryModule, ModuleStatus};

    use super::*;
    use crate::decision::selection::ModuleEntry;
    use crate::hub::component::ComponentKind;

    fn uids(uids: &[(&str, &str)]) -> ConfigUids {
        uids.iter().map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned())).collect()
    }

    fn annotated(record: &str) -> ObjectMeta {
        let annotations = BTreeMap::from([(annotations::MODULE_CONFIGS.to_owned(), record.to_owned())]);
        ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let configs = uids(&[("gold", "1"), ("zone", "2")]);
        let (_, text) = record_annotation(&configs).unwrap();
        assert_eq!(read_record(&annotated(&text)), configs);
        assert_eq!(
            (read_record(&annotated("{}")), record_annotation(&ConfigUids::new())),
            (ConfigUids::new(), None)
        );
        assert_eq!(read_record(&ObjectMeta::default()), ConfigUids::new());
    }

    #[test]
    fn an_unreadable_record_counts_as_a_missing_config() {
        for text in ["", "gold", r#"["gold"]"#, r#"{"gold": 1}"#] {
            let configs = read_record(&annotated(text));
            assert!(configs.len() == 1 && configs.keys().all(|name| is_unreadable_record(name)), "{text}");
            assert_eq!(Configs::default().missing_configs(&configs).len(), 1, "{text}");
        }
        let message = missing_config_problem(UNREADABLE_RECORD).message;
        assert!(message.starts_with(&format!("annotation {} ", annotations::MODULE_CONFIGS)), "{message}");
        assert!(message.contains("cannot be read") && message.contains("{}"), "{message}");
    }

    #[test]
    fn status_and_component_may_record_different_uids_of_a_config() {
        let line = ModuleStatus {
            name: "keda".into(),
            module_configs: uids(&[("gold", "1")]),
            ..Default::default()
        };
        let status = KymaStatus { modules: Some(vec![line]), ..KymaStatus::default() };
        let component = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "annotations": { annotations::MODULE_CONFIGS: r#"{"gold":"2"}"# },
                "ownerReferences": [{
                    "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "k", "uid": "k",
                }],
            },
            "spec": { "module": { "name": "keda", "version": "1.0.0" } },
        });
        let component = serde_json::from_value(component).unwrap();
        let view = ComponentView::of(&ComponentKind::helm(), &component).unwrap();
        let views = BTreeMap::from([("keda".to_owned(), view)]);
        let found = records_of_kyma(Some(&status), &views).remove("keda").unwrap();
        let pair = |uid: &str| ("gold".to_owned(), uid.to_owned());
        assert_eq!(found, ConfigRecords::from([pair("1"), pair("2")]));
        let mut configs = Configs::default();
        configs.accept("gold", "1");
        let missing = configs.missing_configs(found.iter().map(|(name, uid)| (name, uid)));
        assert_eq!(missing, ConfigRecords::from([pair("2")]), "only the deletion of the other is accepted");
    }

    #[test]
    fn mandatory_module_without_component_keeps_configs_on_record() {
        let warden = MandatoryModule {
            name: "warden".into(),
            module_configs: uids(&[("gold", "1")]),
            ..MandatoryModule::default()
        };
        let status = KymaStatus { mandatory_modules: Some(vec![warden]), ..KymaStatus::default() };
        let found = records_of_kyma(Some(&status), &BTreeMap::new());
        let gold = ConfigRecords::from([("gold".to_owned(), "1".to_owned())]);
        assert_eq!(found, BTreeMap::from([("warden".to_owned(), gold)]));
    }

    #[test]
    fn a_missing_config_replaces_no_objection_and_stays_on_record() {
        let rule = ModuleProblem::error(Reason::RuleViolated, "stay in channel regular");
        let effective =
            |objection| EffectiveEntry { entry: ModuleEntry::of("keda"), by: Vec::new(), objection };
        let mut entries = [effective(Some(rule.clone())), effective(None)];
        let missing = uids(&[("gold", "1"), (UNREADABLE_RECORD, "")]);
        keep_under_missing(&mut entries, &BTreeMap::from([("keda".to_owned(), missing)]));
        assert_eq!(entries[0].objection.as_ref(), Some(&rule));
        assert_eq!(entries[1].objection.as_ref().unwrap().reason, Reason::ModuleConfigMissing);
        for effective in &entries {
            assert_eq!(
                effective.entry.central.configs,
                uids(&[("gold", "1")]),
                "an unreadable record names none"
            );
        }
    }
}

//! Finds components that disappeared from the hub without a deletion request, so that their modules are removed from
//! the target. Pure.
//!
//! The garbage collector deleted the component, or a user did while kyma-operator was not running. No reconciler would
//! remove their modules from the target.

use std::collections::BTreeMap;

use kyma_api::{DeletionPolicy, KymaStatus, MandatoryModule, ModuleStatus, ResourcePolicy, State};

use crate::decision::deletion::{IgnorePolicy, stays_on_target};
use crate::hub::component::{ComponentKind, ComponentView};
use crate::hub::config::{ConfigUids, is_unreadable_record};

/// A component that the status of a Kyma records as installed, but that does not exist on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingComponent {
    /// Name of the module.
    pub(crate) module: String,
    /// Last reported version of the module.
    pub(crate) version: String,
    /// Channel of the module.
    pub(crate) channel: Option<String>,
    /// Kind of the component.
    pub(crate) kind: ComponentKind,
    /// Whether the module was installed because it is mandatory.
    pub(crate) mandatory: bool,
}

/// Returns the missing components of a Kyma. A module that the status shows as Deleting has no missing component,
/// because its removal was requested. A module that stays on the target has none either: kyma-operator writes to the
/// status that the module stays before it deletes the component, so a crash in between does not remove the module.
pub(crate) fn find(
    status: &KymaStatus,
    views: &BTreeMap<String, ComponentView>,
    ignore: IgnorePolicy,
) -> Vec<MissingComponent> {
    let without_component = status.modules.iter().flatten().filter(|line| !views.contains_key(&line.name));
    // A mandatory module that is kept unchanged also has an entry in `status.modules`. It is not removed if the user's
    // selection lacks it.
    let chosen = without_component.filter(|line| !is_mandatory(status, &line.name));
    let chosen =
        chosen.filter(|line| !stays_by_selection(status, &line.name, ignore)).filter_map(missing_component);
    chosen.chain(mandatory_without_component(status, views).map(missing_mandatory_component)).collect()
}

/// Reports whether the status records the module as mandatory.
fn is_mandatory(status: &KymaStatus, module: &str) -> bool {
    status.mandatory_modules.iter().flatten().any(|recorded| recorded.name == module)
}

/// Returns the recorded mandatory modules that have no component and whose removal was not requested.
fn mandatory_without_component<'a>(
    status: &'a KymaStatus,
    views: &'a BTreeMap<String, ComponentView>,
) -> impl Iterator<Item = &'a MandatoryModule> {
    let recorded = status.mandatory_modules.iter().flatten();
    recorded.filter(|recorded| !recorded.deleting && !views.contains_key(&recorded.name))
}

fn missing_mandatory_component(recorded: &MandatoryModule) -> MissingComponent {
    MissingComponent {
        module: recorded.name.clone(),
        version: recorded.version.clone(),
        channel: None,
        kind: ComponentKind::of_mandatory(recorded),
        mandatory: true,
    }
}

/// Returns the mandatory modules on the target, including those whose component is missing.
pub(crate) fn mandatory_modules(
    before: &KymaStatus,
    views: &BTreeMap<String, ComponentView>,
    ignore: IgnorePolicy,
) -> Vec<MandatoryModule> {
    let missing = mandatory_without_component(before, views).cloned();
    let installed = views.values().filter(|view| view.mandatory).map(|view| MandatoryModule {
        name: view.module.clone(),
        version: view.desired_version.clone().unwrap_or_default(),
        api_version: view.kind.api_version.clone(),
        kind: view.kind.kind.clone(),
        deleting: view.deletion_policy == DeletionPolicy::Delete
            || view.terminating && stays_on_target(view, ignore),
        module_configs: readable(&view.configs),
    });
    let mut modules: Vec<MandatoryModule> = installed.chain(missing).collect();
    modules.sort_by(|one, other| one.name.cmp(&other.name));
    modules
}

/// Returns the ModuleConfigs that a component records; empty if the record is unreadable.
fn readable(configs: &ConfigUids) -> ConfigUids {
    let readable = configs.iter().filter(|(name, _)| !is_unreadable_record(name));
    readable.map(|(name, uid)| (name.clone(), uid.clone())).collect()
}

fn missing_component(line: &ModuleStatus) -> Option<MissingComponent> {
    if matches!(line.state, State::Deleting | State::Unmanaged) {
        return None;
    }
    // The operator does not remove modules that a KLM Manifest installed.
    let kind = ComponentKind::of_line(line)?;
    Some(MissingComponent {
        module: line.name.clone(),
        version: line.version.clone()?,
        channel: line.channel.clone(),
        kind,
        mandatory: false,
    })
}

/// Reports whether all objects of the module stay on the target by the last selection of the user.
fn stays_by_selection(status: &KymaStatus, module: &str, ignore: IgnorePolicy) -> bool {
    let chosen = status.selection.iter().flat_map(|choice| &choice.modules);
    chosen.filter(|chosen| chosen.name == module).any(|chosen| {
        let leaves = chosen.custom_resource_policy == ResourcePolicy::Ignore && ignore == IgnorePolicy::Leave;
        leaves || !chosen.managed
    })
}

#[cfg(test)]
mod tests {
    use kyma_api::annotations;
    use serde_json::{Value, json};

    use super::*;

    fn names(lines: &Value, chosen: &Value, ignore: IgnorePolicy) -> Vec<String> {
        let status = json!({"modules": lines, "selection": {"modules": chosen}});
        let status: KymaStatus = serde_json::from_value(status).unwrap();
        find(&status, &BTreeMap::new(), ignore).into_iter().map(|missing| missing.module).collect()
    }

    fn line(name: &str, state: &str) -> Value {
        let component = json!({"apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent"});
        json!({"name": name, "state": state, "version": "1.0.0", "manifest": component})
    }

    #[test]
    fn missing_component_of_an_installed_module_is_found() {
        let lines = json!([
            line("ready", "Ready"), line("broken", "Error"), line("deleting", "Deleting"),
            line("unmanaged", "Unmanaged"), {"name": "refused", "state": "Warning"},
        ]);
        assert_eq!(names(&lines, &json!([]), IgnorePolicy::Leave), ["ready", "broken"]);
    }

    #[test]
    fn missing_mandatory_component_is_found_unless_being_removed() {
        let view = |module: &str, spec: Value| {
            let object = json!({
                "metadata": {"name": module, "namespace": "n", "uid": "u", "resourceVersion": "1",
                    "labels": {"operator.kyma-project.io/mandatory-module": "true"},
                    "annotations": { annotations::MODULE_CONFIGS: r#"{"gold":"1"}"# },
                    "ownerReferences": [{"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                        "name": "sample", "uid": "k"}]},
                "spec": spec,
            });
            ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap()).unwrap()
        };
        let module = |name: &str| json!({"name": name, "version": "1.0.0"});
        let stays = view("warden", json!({"module": module("warden")}));
        let goes = view("old", json!({"module": module("old"), "deletionPolicy": "Delete"}));
        let views = [stays, goes].map(|view| (view.module.clone(), view)).into();
        let recorded = mandatory_modules(&KymaStatus::default(), &views, IgnorePolicy::Leave);
        let status = KymaStatus { mandatory_modules: Some(recorded), ..KymaStatus::default() };
        assert!(find(&status, &views, IgnorePolicy::Leave).is_empty());

        let missing = find(&status, &BTreeMap::new(), IgnorePolicy::Leave);
        let missing: Vec<_> = missing
            .iter()
            .map(|missing| (missing.module.as_str(), missing.version.as_str(), missing.mandatory))
            .collect();
        assert_eq!(missing, [("warden", "1.0.0", true)]);
        let left = mandatory_modules(&status, &BTreeMap::new(), IgnorePolicy::Leave);
        assert_eq!(left.iter().map(|recorded| recorded.name.as_str()).collect::<Vec<_>>(), ["warden"]);
        let gold = ConfigUids::from([("gold".to_owned(), "1".to_owned())]);
        assert_eq!(left[0].module_configs, gold, "its ModuleConfigs stay on record");
    }

    #[test]
    fn mandatory_module_in_modules_is_found_only_once() {
        let recorded = json!([{"name": "warden", "version": "1.0.0",
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent"}]);
        let status = json!({"modules": [line("warden", "Warning")], "mandatoryModules": recorded});
        let status: KymaStatus = serde_json::from_value(status).unwrap();
        let missing = find(&status, &BTreeMap::new(), IgnorePolicy::Leave);
        let missing: Vec<_> =
            missing.iter().map(|missing| (missing.module.as_str(), missing.mandatory)).collect();
        assert_eq!(missing, [("warden", true)]);
    }

    #[test]
    fn a_module_that_klm_manages_has_no_missing_component() {
        let manifest = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest"});
        let lines = json!([{"name": "klms", "state": "Ready", "version": "1.0.0", "manifest": manifest}]);
        assert!(names(&lines, &json!([]), IgnorePolicy::Leave).is_empty());
    }

    #[test]
    fn a_module_left_on_the_target_has_no_missing_component() {
        let lines = json!([line("ignored", "Ready"), line("unmanaged", "Ready")]);
        let chosen = json!([
            {"name": "ignored", "customResourcePolicy": "Ignore"}, {"name": "unmanaged", "managed": false},
        ]);
        assert!(names(&lines, &chosen, IgnorePolicy::Leave).is_empty());
        assert_eq!(names(&lines, &chosen, IgnorePolicy::BlockThenRemove), ["ignored"]);
    }
}

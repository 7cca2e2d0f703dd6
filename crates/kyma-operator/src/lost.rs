//! Modules that are to go and whose component is gone although nobody ordered it (pure): garbage collection took it,
//! or somebody deleted it while kyma-operator was away. Nothing would take them off their target any more.

use std::collections::BTreeMap;

use kyma_api::{KymaStatus, ModuleStatus, ResourcePolicy, State, klm};

use crate::component::{ComponentKind, ComponentView};
use crate::deletion::IgnorePolicy;

/// A module that its Kyma's status shows as installed, without a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The module.
    pub(crate) module: String,
    /// Its version, as reported last.
    pub(crate) version: String,
    /// The channel it came from.
    pub(crate) channel: Option<String>,
    /// The kind of the component that it had.
    pub(crate) kind: ComponentKind,
}

/// The lost modules of a Kyma. A removal that was ordered is told as Deleting after the order, and what was let go of
/// with everything left in place is told so before: neither is taken for lost, wherever kyma-operator was killed.
pub(crate) fn of(
    status: &KymaStatus,
    views: &BTreeMap<String, ComponentView>,
    ignore: IgnorePolicy,
) -> Vec<Lost> {
    let without_component = status.modules.iter().flatten().filter(|line| !views.contains_key(&line.name));
    without_component.filter(|line| !is_left(status, &line.name, ignore)).filter_map(lost).collect()
}

fn lost(line: &ModuleStatus) -> Option<Lost> {
    if matches!(line.state, State::Deleting | State::Unmanaged) {
        return None;
    }
    // A Manifest of KLM is no component: what it installed is not ours to remove.
    let component = line.manifest.as_ref().filter(|object| object.kind.as_deref() != Some(klm::MANIFEST))?;
    Some(Lost {
        module: line.name.clone(),
        version: line.version.clone()?,
        channel: line.channel.clone(),
        kind: ComponentKind::new(component.api_version.clone()?, component.kind.as_deref()?),
    })
}

/// Whether the user's last choice means that everything stays on the target.
fn is_left(status: &KymaStatus, module: &str, ignore: IgnorePolicy) -> bool {
    let chosen = status.selection.iter().flat_map(|choice| &choice.modules);
    chosen.filter(|chosen| chosen.name == module).any(|chosen| {
        let leaves = chosen.custom_resource_policy == ResourcePolicy::Ignore && ignore == IgnorePolicy::Leave;
        leaves || !chosen.managed
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn names(lines: &Value, chosen: &Value, ignore: IgnorePolicy) -> Vec<String> {
        let status = json!({"modules": lines, "selection": {"modules": chosen}});
        let status: KymaStatus = serde_json::from_value(status).unwrap();
        of(&status, &BTreeMap::new(), ignore).into_iter().map(|lost| lost.module).collect()
    }

    fn line(name: &str, state: &str) -> Value {
        let component = json!({"apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent"});
        json!({"name": name, "state": state, "version": "1.0.0", "manifest": component})
    }

    #[test]
    fn what_was_installed_and_has_no_component_is_lost_unless_it_was_let_go() {
        let lines = json!([
            line("ready", "Ready"), line("broken", "Error"), line("ordered", "Deleting"),
            line("let-go", "Unmanaged"), {"name": "refused", "state": "Warning"},
        ]);
        assert_eq!(names(&lines, &json!([]), IgnorePolicy::Leave), ["ready", "broken"]);
    }

    #[test]
    fn what_klm_installed_and_was_not_handed_over_is_not_lost() {
        let manifest = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest"});
        let lines = json!([{"name": "klms", "state": "Ready", "version": "1.0.0", "manifest": manifest}]);
        assert!(names(&lines, &json!([]), IgnorePolicy::Leave).is_empty());
    }

    #[test]
    fn what_was_to_stay_on_the_target_is_not_lost() {
        let lines = json!([line("ignored", "Ready"), line("unmanaged", "Ready")]);
        let chosen = json!([
            {"name": "ignored", "customResourcePolicy": "Ignore"}, {"name": "unmanaged", "managed": false},
        ]);
        assert!(names(&lines, &chosen, IgnorePolicy::Leave).is_empty());
        assert_eq!(names(&lines, &chosen, IgnorePolicy::BlockThenRemove), ["ignored"]);
    }
}

//! Selects the policies to delete from a target. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;

use super::policy::{self, Body, Id};
use super::refusals::Refusals;
use crate::hub::config::Configs;

/// The state that decides which policies on a target are obsolete.
#[derive(Debug)]
pub(super) struct PruneScope<'a> {
    pub(super) desired: &'a BTreeMap<Id, Body>,
    pub(super) configs: &'a Configs,
    /// Modules that are installed or will be installed.
    pub(super) modules: &'a BTreeSet<&'a str>,
    /// Modules that cannot be decided on now.
    pub(super) pending: &'a BTreeSet<&'a str>,
    pub(super) refusals: &'a Refusals,
}

impl PruneScope<'_> {
    /// Reports whether to delete a policy. Earlier policies of a refused ModuleConfig stay until the target accepts
    /// their replacement.
    pub(super) fn is_obsolete(&self, id: &Id, live: &ObjectMeta) -> bool {
        !self.desired.contains_key(id)
            && !policy::module_of(live).is_some_and(|module| self.pending.contains(module))
            && !policy::stays_on_target(live, self.configs, self.modules)
            && !self.refusals.include_config_of(live)
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::{ModuleConfig, Reason, annotations, labels, names};
    use kyma_controller::Failure;
    use serde_json::json;

    use super::*;
    use crate::hub::config::Config;

    /// Returns the id and metadata of a policy of a ModuleConfig on the target.
    fn live(config: &str) -> (Id, ObjectMeta) {
        let meta = json!({
            "name": config,
            "labels": { labels::MODULE_CONFIG: names::label_value(config) },
            "annotations": {
                annotations::MODULE_CONFIGS: json!({ config: config }).to_string(),
                annotations::POLICY_OF_MODULE: "lantern",
            },
        });
        (Id { kind: policy::POLICY, name: config.to_owned() }, serde_json::from_value(meta).unwrap())
    }

    /// Returns ModuleConfigs without resourceRules.
    fn configs(names: &[&str]) -> Configs {
        let mut configs = Configs::default();
        for name in names {
            let object = json!({
                "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
                "metadata": { "name": name, "uid": name }, "spec": { "module": "lantern" },
            });
            configs.apply(Config::from(serde_json::from_value::<ModuleConfig>(object).unwrap()));
        }
        configs
    }

    fn refusals(configs: &[&str]) -> Refusals {
        let mut refusals = Refusals::default();
        for config in configs {
            refusals.add(config, Failure::new(Reason::ApplyRefused, "no")).unwrap();
        }
        refusals
    }

    fn is_obsolete(config: &str, configs: &Configs, refusals: &Refusals, pending: &[&str]) -> bool {
        let (desired, modules) = (BTreeMap::new(), BTreeSet::from(["lantern"]));
        let pending: BTreeSet<&str> = pending.iter().copied().collect();
        let (id, live) = live(config);
        let scope = PruneScope { desired: &desired, configs, modules: &modules, pending: &pending, refusals };
        scope.is_obsolete(&id, &live)
    }

    #[test]
    fn a_refusal_keeps_earlier_policies_of_its_config_only() {
        let mut configs = configs(&["refused", "edited", "deleted"]);
        configs.delete("deleted");
        let refusals = refusals(&["refused"]);
        assert!(!is_obsolete("refused", &configs, &refusals, &[]), "its replacement is not in force");
        assert!(is_obsolete("edited", &configs, &refusals, &[]), "its ModuleConfig has no such rule");
        assert!(is_obsolete("deleted", &configs, &refusals, &[]), "its ModuleConfig was deleted");
        assert!(!is_obsolete("missing", &configs, &refusals, &[]), "nothing proves that it was deleted");
        assert!(!is_obsolete("edited", &configs, &refusals, &["lantern"]), "its module is not decided on");
        assert!(is_obsolete("refused", &configs, &Refusals::default(), &[]), "the target accepted the rest");
    }

    #[test]
    fn an_edited_label_or_record_keeps_policies_of_a_refused_config() {
        let configs = configs(&["refused"]);
        let (_, meta) = live("refused");
        let refusals = refusals(&["refused"]);
        assert!(refusals.include_config_of(&ObjectMeta { labels: None, ..meta.clone() }));
        assert!(refusals.include_config_of(&ObjectMeta { annotations: None, ..meta.clone() }));
        assert!(!refusals.include_config_of(&ObjectMeta { labels: None, annotations: None, ..meta }));
        assert!(is_obsolete("refused", &configs, &Refusals::default(), &[]));
    }
}

//! Builds the policies of a module's ModuleConfigs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;
use kyma_api::{ResourceRule, annotations, labels, names};
use kyma_controller::KymaKey;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::GROUP;
use crate::hub::config::{self, Config, ConfigUids, Configs};

/// Kind of the object with the validations.
pub(super) const POLICY: &str = "ValidatingAdmissionPolicy";
/// Kind of the object that puts a policy in force.
pub(super) const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Match condition: changes of metadata are always allowed, and so are objects with a deletionTimestamp, whose
/// finalizers have to be removed.
const MATCH_CONDITION: &str = "!has(object.metadata.deletionTimestamp) && (request.operation == 'CREATE' \
    || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec)";

/// Kind and name of a policy or binding on a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub(super) kind: &'static str,
    pub(super) name: String,
}

/// Desired state of a policy or binding.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Body {
    /// Name of the ModuleConfig.
    pub(super) config: String,
    /// Body of the server-side apply.
    pub(super) object: Value,
}

/// Returns policies and bindings of all ModuleConfigs that apply to a module of a Kyma with these labels.
pub(super) fn of_module(
    configs: &Configs,
    labels: &BTreeMap<String, String>,
    module: &str,
    kyma: &KymaKey,
) -> BTreeMap<Id, Body> {
    let holding = configs.matching(module, labels).into_iter();
    holding.flat_map(|config| of_config(config, module, kyma)).collect()
}

/// Returns the names of all policies that ModuleConfigs may have for a Kyma with these labels, whatever modules it
/// has.
pub(super) fn possible_names(
    configs: &Configs,
    labels: &BTreeMap<String, String>,
    kyma: &KymaKey,
) -> BTreeSet<String> {
    let rules = configs
        .with_resource_rules(labels)
        .flat_map(|config| config.resource_rules.iter().map(move |rule| (config, rule)));
    let name = |(config, rule): (&Config, &ResourceRule)| {
        names::policy_name(&config.name, &rule.group, &rule.resource, (&kyma.namespace, &kyma.name))
    };
    rules.map(name).collect()
}

fn of_config(config: &Config, module: &str, kyma: &KymaKey) -> BTreeMap<Id, Body> {
    let mut by_resource: BTreeMap<(&str, &str), Vec<&ResourceRule>> = BTreeMap::new();
    for rule in &config.resource_rules {
        by_resource.entry((&rule.group, &rule.resource)).or_default().push(rule);
    }
    let mut made = BTreeMap::new();
    for ((group, resource), rules) in by_resource {
        let name = names::policy_name(&config.name, group, resource, (&kyma.namespace, &kyma.name));
        let mut put = |kind: &'static str, spec: Value| {
            let object = object(kind, &name, (config, module), kyma, &spec);
            made.insert(Id { kind, name: name.clone() }, Body { config: config.name.clone(), object });
        };
        put(POLICY, policy(group, resource, &rules));
        put(BINDING, json!({ "policyName": name, "validationActions": ["Deny"] }));
    }
    made
}

fn policy(group: &str, resource: &str, rules: &[&ResourceRule]) -> Value {
    let validation = |rule: &&ResourceRule| json!({ "expression": rule.expression, "message": rule.message });
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": [resource],
        }] },
        "matchConditions": [{ "name": "is-judged", "expression": MATCH_CONDITION }],
        "validations": rules.iter().map(validation).collect::<Vec<_>>(),
    })
}

fn object(kind: &str, name: &str, (config, module): (&Config, &str), kyma: &KymaKey, spec: &Value) -> Value {
    let uids = ConfigUids::from([(config.name.clone(), config.uid().to_owned())]);
    let annotations =
        config::record_annotation(&uids).map(|(name, value)| (name.to_owned(), value)).into_iter();
    let annotations = annotations.chain([
        (annotations::OWNED_BY.to_owned(), kyma.to_string()),
        (annotations::POLICY_OF_MODULE.to_owned(), module.to_owned()),
    ]);
    let annotations: BTreeMap<String, String> = annotations.collect();
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {
                labels::MANAGED_BY: labels::MANAGED_BY_KYMA,
                labels::OWNER: names::owner_hash(&kyma.namespace, &kyma.name),
                labels::MODULE_CONFIG: names::label_value(&config.name),
            },
            "annotations": annotations,
        },
        "spec": spec,
    })
}

/// Returns the module that a policy is for, if its annotation names one.
pub(super) fn module_of(live: &ObjectMeta) -> Option<&str> {
    live.annotations.as_ref()?.get(annotations::POLICY_OF_MODULE).map(String::as_str)
}

/// Reports whether to keep a policy that no present ModuleConfig makes: the module is installed, and its ModuleConfig
/// is missing without an accepted deletion.
pub(super) fn stays_on_target(live: &ObjectMeta, configs: &Configs, modules: &BTreeSet<&str>) -> bool {
    if module_of(live).is_some_and(|module| !modules.contains(module)) {
        return false;
    }
    let recorded = config::read_record(live);
    let is_unreadable = recorded.keys().any(|name| config::is_unreadable_record(name));
    if !recorded.is_empty() && !is_unreadable {
        return !configs.missing_configs(&recorded).is_empty();
    }
    // An earlier version wrote the policy without this record, or the record was edited on the target.
    let Some(label) = live.labels.as_ref().and_then(|set| set.get(labels::MODULE_CONFIG)) else {
        return is_unreadable;
    };
    let is_there = configs.names().iter().any(|name| names::label_value(name) == *label);
    !is_there && !configs.is_label_deleted(label)
}

/// Returns the fingerprint of all desired policies.
pub(super) fn fingerprint(desired: &BTreeMap<Id, Body>, missing: &BTreeMap<String, ConfigUids>) -> String {
    let objects: Vec<&Value> = desired.values().map(|body| &body.object).collect();
    hex::encode(Sha256::digest(json!([objects, missing]).to_string()))
}

#[cfg(test)]
mod tests {
    use kyma_api::{ModuleConfig, ModuleConfigSpec};

    use super::*;

    fn rule(resource: &str, expression: &str) -> ResourceRule {
        ResourceRule {
            group: "lantern.example.org".to_owned(),
            resource: resource.to_owned(),
            expression: expression.to_owned(),
            message: "no".to_owned(),
        }
    }

    fn configs(rules: Vec<ResourceRule>) -> Configs {
        let selector = json!({ "matchLabels": { "tier": "production" } });
        let spec = ModuleConfigSpec {
            module: "lantern".to_owned(),
            selector: serde_json::from_value(selector).unwrap(),
            resource_rules: Some(rules),
            ..ModuleConfigSpec::default()
        };
        let mut configs = Configs::default();
        configs.apply(Config::from(ModuleConfig::new("bright", spec)));
        configs
    }

    fn made(configs: &Configs, tier: &str, module: &str) -> BTreeMap<Id, Body> {
        let labels = BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
        of_module(configs, &labels, module, &KymaKey::new("kcp-system", "sample"))
    }

    #[test]
    fn each_resource_has_a_policy_with_its_rules_and_a_deny_binding() {
        let configs = configs(vec![rule("lanterns", "a"), rule("wicks", "b"), rule("lanterns", "c")]);
        let made = made(&configs, "production", "lantern");
        let kinds: Vec<&str> = made.keys().map(|id| id.kind).collect();
        assert_eq!(kinds, [POLICY, POLICY, BINDING, BINDING]);
        let policies: Vec<&Value> = made.values().take(2).map(|body| &body.object["spec"]).collect();
        let of = |resource: &str| {
            let is_it =
                |spec: &&&Value| spec["matchConstraints"]["resourceRules"][0]["resources"][0] == resource;
            policies.iter().find(is_it).unwrap()["validations"].as_array().unwrap().len()
        };
        assert_eq!((of("lanterns"), of("wicks")), (2, 1));
        for (id, body) in made.iter().filter(|(id, _)| id.kind == BINDING) {
            assert_eq!(body.object["spec"], json!({"policyName": id.name, "validationActions": ["Deny"]}));
        }
    }

    #[test]
    fn a_module_and_a_kyma_that_the_config_is_not_about_get_none() {
        let configs = configs(vec![rule("lanterns", "a")]);
        assert_eq!(made(&configs, "production", "lantern").len(), 2);
        assert!(made(&configs, "production", "keda").is_empty());
        assert!(made(&configs, "test", "lantern").is_empty());
    }

    #[test]
    fn a_removal_knows_the_names_of_policies_without_the_module() {
        let configs = configs(vec![rule("lanterns", "a"), rule("wicks", "b"), rule("lanterns", "c")]);
        let kyma = KymaKey::new("kcp-system", "sample");
        let names = |tier: &str| {
            let labels = BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
            possible_names(&configs, &labels, &kyma)
        };
        let made = made(&configs, "production", "lantern");
        assert_eq!(names("production"), made.into_keys().map(|id| id.name).collect::<BTreeSet<_>>());
        assert_eq!(names("production").len(), 2);
        assert!(names("test").is_empty());
        let without = self::configs(vec![]);
        assert!(possible_names(&without, &BTreeMap::new(), &kyma).is_empty());
    }

    #[test]
    fn the_fingerprint_changes_with_any_rule() {
        let of = |expression| {
            let made = made(&configs(vec![rule("lanterns", expression)]), "production", "lantern");
            fingerprint(&made, &BTreeMap::new())
        };
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("a"), fingerprint(&BTreeMap::new(), &BTreeMap::new()));
    }

    #[test]
    fn a_policy_whose_record_cannot_be_read_stays() {
        let configs_with = configs(vec![rule("lanterns", "a")]);
        let made = made(&configs_with, "production", "lantern");
        let body = made.values().next().unwrap();
        let mut live: ObjectMeta = serde_json::from_value(body.object["metadata"].clone()).unwrap();
        let set = live.annotations.get_or_insert_default();
        set.insert(annotations::MODULE_CONFIGS.to_owned(), "edited".to_owned());
        let modules = BTreeSet::from(["lantern"]);
        let mut empty = Configs::default();
        assert!(stays_on_target(&live, &empty, &modules), "nothing is known of its ModuleConfig");
        let unlabelled = ObjectMeta { labels: None, ..live.clone() };
        empty.accept("bright", "");
        assert!(!stays_on_target(&live, &empty, &modules), "the label tells whose policy it is");
        assert!(stays_on_target(&unlabelled, &empty, &modules), "nothing tells whose policy it is");
    }

    #[test]
    fn a_policy_outlives_its_config_until_the_deletion_is_accepted() {
        let configs_with = configs(vec![rule("lanterns", "a")]);
        let made = made(&configs_with, "production", "lantern");
        let meta =
            |body: &Body| serde_json::from_value::<ObjectMeta>(body.object["metadata"].clone()).unwrap();
        let live: Vec<ObjectMeta> = made.values().map(meta).collect();
        let modules = BTreeSet::from(["lantern"]);
        for live in live {
            let mut older = live.clone();
            older.annotations = None;
            let mut empty = Configs::default();
            assert!(
                stays_on_target(&live, &empty, &modules) && stays_on_target(&older, &empty, &modules),
                "nothing is known of it"
            );
            assert!(
                !stays_on_target(&live, &configs_with, &modules),
                "its ModuleConfig does not make it any more"
            );
            assert!(!stays_on_target(&older, &configs_with, &modules));
            assert!(!stays_on_target(&live, &empty, &BTreeSet::new()), "its module is gone");
            empty.accept("bright", "");
            assert!(
                !stays_on_target(&live, &empty, &modules) && !stays_on_target(&older, &empty, &modules),
                "it was deleted"
            );
        }
    }
}

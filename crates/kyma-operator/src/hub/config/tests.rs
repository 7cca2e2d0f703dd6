use std::collections::BTreeMap;

use kyma_api::Reason;
use kyma_controller::KymaKey;
use serde_json::{Value, json};

use super::*;
use crate::decision::selection::{CentralOverrides, ModuleEntry, Selection};

fn config(name: &str, spec: &Value) -> Config {
    let object = json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig",
        "metadata": { "name": name, "uid": name, "generation": 1 }, "spec": spec,
    });
    Config::from(serde_json::from_value::<ModuleConfig>(object).unwrap())
}

fn configs(specs: &[(&str, Value)]) -> Configs {
    let mut configs = Configs::default();
    for (name, spec) in specs {
        configs.apply(config(name, spec));
    }
    configs
}

fn module_entry(entry: &Value) -> ModuleEntry {
    Selection::read(&json!({ "modules": [entry] })).unwrap().entries.remove(0)
}

fn governed(specs: &[(&str, Value)], entry: &Value) -> EffectiveEntry {
    govern(&configs(specs), &BTreeMap::new(), "regular", &module_entry(entry))
}

#[test]
fn an_entry_without_configs_stays_unchanged() {
    let entry = json!({ "name": "keda", "version": "1.0.0", "values": { "a": 1 } });
    let governed = governed(&[("other", json!({ "module": "nats", "values": { "a": 2 } }))], &entry);
    assert_eq!(governed.entry, module_entry(&entry));
    assert!(governed.by.is_empty() && governed.objection.is_none());
}

#[test]
fn values_of_several_are_merged_key_by_key() {
    let specs = [
        ("a", json!({ "module": "keda", "priority": 1, "values": { "x": { "one": 1 }, "y": null } })),
        (
            "b",
            json!({ "module": "keda", "values": { "x": { "one": 0, "two": 2 }, "y": 1 },
            "overrides": { "component": { "drift": { "mode": "Warn" } } } }),
        ),
    ];
    let central = governed(&specs, &json!({ "name": "keda" })).entry.central;
    assert_eq!(json!(central.values), json!({ "x": { "one": 1, "two": 2 }, "y": null }));
    assert_eq!(json!(central.component), json!({ "drift": { "mode": "Warn" } }));
    let mandatory = configs(&specs).central(&BTreeMap::new(), "keda");
    assert_eq!(mandatory, central, "also for a module that every Kyma gets");
    assert_eq!(configs(&specs).central(&BTreeMap::new(), "nats"), CentralOverrides::default());
}

#[test]
fn config_of_all_modules_applies_unless_another_names_module() {
    let verify =
        |key: &str| json!({ "source": { "verify": { "keysSecretRef": { "name": "k", "key": key } } } });
    let signed =
        |module: &str, key: &str| json!({ "module": module, "overrides": { "component": verify(key) } });
    let specs = [("all", signed("*", "fleet")), ("zone", signed("keda", "keda"))];
    let central = |module: &str| configs(&specs).central(&BTreeMap::new(), module);
    assert_eq!(json!(central("nats").component), verify("fleet"));
    assert_eq!(json!(central("keda").component), verify("keda"), "the one that names the module wins");
    assert_eq!(json!(central("nats").own_kind), json!({}), "another kind may have no such field");
    assert_eq!(json!(central("keda").own_kind), verify("keda"));
    let weighty = [
        ("all", json!({ "module": "*", "priority": 1, "values": { "a": 1 } })),
        ("b", json!({ "module": "keda", "values": { "a": 2 } })),
    ];
    assert_eq!(json!(configs(&weighty).central(&BTreeMap::new(), "keda").values), json!({ "a": 1 }));
}

#[test]
fn config_of_all_modules_counts_as_refusing_for_one_bad_entry() {
    let rule = json!([{ "expression": "self.name != 'keda'", "message": "no keda" }]);
    let configs = configs(&[("all", json!({ "module": "*", "rules": rule }))]);
    let selection = Selection::read(&json!({ "modules": [{ "name": "keda" }, { "name": "nats" }] })).unwrap();
    let governed = govern_all(&configs, &BTreeMap::new(), &selection);
    let mut counts = CountsByConfig::default();
    counts.decided(&KymaKey::new("n", "k"), &governed);
    assert_eq!(counts.of("all").refused().count, 1);
    assert_eq!(counts.of("all").matching().count, 1);
}

#[test]
fn the_user_reads_what_to_change_and_whose_rule_it_is() {
    let rule = |message: &str| json!([{ "expression": "false", "message": message }]);
    let specs = [
        ("weak", json!({ "module": "keda", "rules": rule("ask the platform team") })),
        (
            "strong",
            json!({ "module": "keda", "priority": 1, "rules": [rule("use channel regular")[0], rule("x")[0]] }),
        ),
        ("fine", json!({ "module": "keda", "rules": [{ "expression": "true", "message": "" }] })),
    ];
    let governed = governed(&specs, &json!({ "name": "keda" }));
    assert_eq!(
        governed.objection.unwrap().message,
        "use channel regular (and 1 more); required by ModuleConfig strong of this fleet"
    );
    let refused = |name: &str| governed.by.iter().any(|(by, refuses)| by == name && *refuses);
    assert!(refused("weak") && refused("strong") && !refused("fine"), "{:?}", governed.by);
}

#[test]
fn a_selector_that_makes_no_sense_selects_nothing() {
    let near = json!({ "matchExpressions": [{ "key": "plan", "operator": "Near", "values": ["gold"] }] });
    assert!(!config("a", &json!({ "module": "keda", "selector": near })).selects(&BTreeMap::new()));
    assert!(config("a", &json!({ "module": "keda", "selector": {} })).selects(&BTreeMap::new()));
}

#[test]
fn config_that_changes_module_or_is_deleted_leaves_no_entry() {
    let mut configs = configs(&[("a", json!({ "module": "keda" }))]);
    let before = configs.apply(config("a", &json!({ "module": "nats" }))).unwrap();
    assert_eq!(before.module, "keda");
    assert!(configs.matching("keda", &BTreeMap::new()).is_empty());
    assert_eq!(configs.matching("nats", &BTreeMap::new()).len(), 1);
    assert!(configs.delete("a").is_some() && configs.delete("a").is_none());
    assert!(configs.names().is_empty());
}

#[test]
fn a_config_counts_each_kyma_once_and_shows_the_first_20() {
    let mut counts = CountsByConfig::default();
    let specs =
        [("strict", json!({ "module": "keda", "rules": [{ "expression": "self.managed", "message": "" }] }))];
    let fine = governed(&specs, &json!({ "name": "keda" }));
    let refused = governed(&specs, &json!({ "name": "keda", "managed": false }));
    let kyma = |number: usize| KymaKey::new("kcp-system", format!("kyma-{number:02}"));
    for number in (0..30).rev() {
        assert_eq!(counts.decided(&kyma(number), std::slice::from_ref(&fine)), ["strict"]);
    }
    assert!(counts.decided(&kyma(3), std::slice::from_ref(&fine)).is_empty(), "nothing new");
    assert_eq!(counts.decided(&kyma(3), &[refused]), ["strict"]);
    let strict = counts.of("strict");
    assert_eq!((strict.matching().count, strict.matching().names.len()), (30, 20));
    assert_eq!((strict.refused().count, strict.refused().names), (1, vec!["kyma-03".to_owned()]));
    for number in 0..30 {
        counts.decided(&kyma(number), &[]);
    }
    assert_eq!(counts.of("strict"), ConfigCounts::default());
}

#[test]
fn a_status_is_written_once_and_says_what_is_wrong() {
    let now = "2026-06-01T00:00:00Z".parse().unwrap();
    let fine = config("a", &json!({ "module": "keda" }));
    let status = report::next(&fine, Some(&ConfigCounts::default()), None, now).unwrap();
    assert_eq!(status.conditions.as_ref().unwrap()[0].status, "True");
    assert_eq!(report::next(&fine, Some(&ConfigCounts::default()), Some(&status), now), None);
    let bad = json!({ "module": "keda", "rules": [{ "expression": "true", "message": "" }, { "expression": "(", "message": "" }] });
    let status =
        report::next(&config("a", &bad), Some(&ConfigCounts::default()), Some(&status), now).unwrap();
    let ready = &status.conditions.as_ref().unwrap()[0];
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "ModuleConfigInvalid"));
    assert!(ready.message.starts_with("spec.rules[1] is not valid CEL: "), "{}", ready.message);
}

fn ruled() -> Config {
    let rule =
        json!({ "group": "example.org", "resource": "lanterns", "expression": "true", "message": "no" });
    config("a", &json!({ "module": "keda", "resourceRules": [rule] }))
}

#[test]
fn status_names_first_kymas_whose_targets_refuse_resource_rules() {
    let now = "2026-06-01T00:00:00Z".parse().unwrap();
    let mut counts = CountsByConfig::default();
    let reported = |counts: &CountsByConfig, current: Option<&kyma_api::ModuleConfigStatus>| {
        let status = report::next(&ruled(), Some(&counts.of("a")), current, now)?;
        let rules = status.conditions.as_ref().unwrap()[1].clone();
        assert_eq!(rules.type_, "ResourceRulesApplied");
        Some((status, (rules.status, rules.reason, rules.message)))
    };
    let (fine, condition) = reported(&counts, None).unwrap();
    assert_eq!((condition.0.as_str(), condition.1.as_str()), ("True", "Ready"));
    let kyma = |number: usize| KymaKey::new("kcp-system", format!("kyma-{number:02}"));
    let refusals = |reason| RuleRefusals::from([("a".to_owned(), reason)]);
    for number in (0..12).rev() {
        let reason = if number == 1 { Reason::TargetForbidden } else { Reason::ApplyRefused };
        assert_eq!(counts.record_rule_refusals(&kyma(number), refusals(reason)), ["a"]);
    }
    assert!(counts.record_rule_refusals(&kyma(3), refusals(Reason::ApplyRefused)).is_empty(), "no change");
    let (refused, (status, reason, message)) = reported(&counts, Some(&fine)).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ApplyRefused"));
    let begin = "targets refuse the rules on modules' objects, 12 in all: kyma-00 (ApplyRefused), kyma-01 (TargetForbidden), ";
    let end = "kyma-09 (ApplyRefused), and 2 more; condition ResourceRulesApplied of each Kyma has the cause";
    assert!(message.starts_with(begin) && message.ends_with(end), "{message}");
    assert!(reported(&counts, Some(&refused)).is_none(), "written once");
    assert_eq!(report::next(&ruled(), Some(&counts.of("b")), Some(&fine), now), None, "another's refusals");

    assert_eq!(counts.record_rule_refusals(&kyma(0), RuleRefusals::new()), ["a"], "in force by now");
    for number in 1..12 {
        assert_eq!(counts.forget(&kyma(number)).into_iter().collect::<Vec<_>>(), ["a"]);
    }
    assert_eq!(counts.of("a"), ConfigCounts::default());
    let (again, condition) = reported(&counts, Some(&refused)).unwrap();
    assert_eq!(condition.0, "True");
    let without = config("a", &json!({ "module": "keda" }));
    let status = report::next(&without, Some(&counts.of("a")), Some(&again), now).unwrap();
    assert_eq!(status.conditions.unwrap().len(), 1, "without resourceRules there is nothing to tell");
}

#[test]
fn without_counts_a_status_keeps_its_counts() {
    let now = "2026-06-01T00:00:00Z".parse().unwrap();
    let mut counts = CountsByConfig::default();
    let kyma = KymaKey::new("kcp-system", "a");
    counts.decided(&kyma, &[governed(&[("a", json!({ "module": "keda" }))], &json!({ "name": "keda" }))]);
    counts.record_rule_refusals(&kyma, RuleRefusals::from([("a".to_owned(), Reason::ApplyRefused)]));
    let before = report::next(&ruled(), Some(&counts.of("a")), None, now).unwrap();
    assert_eq!(before.matching.as_ref().unwrap().count, 1);
    assert_eq!(report::next(&ruled(), None, Some(&before), now), None, "nothing changed");

    let edited = Config { revision: (None, Some(2)), ..ruled() };
    let status = report::next(&edited, None, Some(&before), now).unwrap();
    assert_eq!((&status.matching, &status.refused), (&before.matching, &before.refused));
    let (rules, rules_before) =
        (&status.conditions.as_ref().unwrap()[1], &before.conditions.as_ref().unwrap()[1]);
    assert_eq!(rules, rules_before, "the generation of its counts stays too");
    assert_eq!((rules.status.as_str(), status.observed_generation), ("False", Some(2)));

    let new = report::next(&ruled(), None, None, now).unwrap();
    assert_eq!((new.matching, new.refused), (None, None));
    assert_eq!(new.conditions.unwrap().len(), 1, "only Ready is known");
    let zero = report::next(&ruled(), Some(&ConfigCounts::default()), Some(&before), now).unwrap();
    assert_eq!(zero.matching.unwrap().count, 0, "complete counts replace the previous ones");
}

#[test]
fn status_says_that_counts_are_incomplete() {
    let now = "2026-06-01T00:00:00Z".parse().unwrap();
    let lacks_kymas = |status: &kyma_api::ModuleConfigStatus| -> Vec<bool> {
        let conditions = status.conditions.iter().flatten();
        conditions.map(|condition| condition.message.contains("the counts lack Kymas")).collect()
    };
    let incomplete = ConfigCounts::default().mark_incomplete(true);
    let before = report::next(&ruled(), Some(&incomplete), None, now).unwrap();
    assert_eq!(lacks_kymas(&before), [true, true], "{before:?}");
    assert_eq!(report::next(&ruled(), Some(&incomplete), Some(&before), now), None, "written once");
    assert_eq!(report::next(&ruled(), None, Some(&before), now), None, "after a restart too");
    let after = report::next(&ruled(), Some(&ConfigCounts::default()), Some(&before), now).unwrap();
    assert_eq!(lacks_kymas(&after), [false, false], "{after:?}");
}

#[test]
fn a_stored_condition_of_the_former_type_is_renamed() {
    let now = "2026-06-01T00:00:00Z".parse().unwrap();
    let incomplete = ConfigCounts::default().mark_incomplete(true);
    let expected = report::next(&ruled(), Some(&incomplete), None, now).unwrap();
    let mut stored = expected.clone();
    stored.conditions.as_mut().unwrap()[1].type_ = "ResourceRules".to_owned();
    assert_eq!(report::next(&ruled(), None, Some(&stored), now).as_ref(), Some(&expected), "without counts");
    assert_eq!(report::next(&ruled(), Some(&incomplete), Some(&stored), now), Some(expected));
    let without = config("a", &json!({ "module": "keda" }));
    let status = report::next(&without, Some(&ConfigCounts::default()), Some(&stored), now).unwrap();
    assert_eq!(status.conditions.unwrap().len(), 1, "without resourceRules only Ready stays");
}

#[test]
fn refusals_by_targets_and_by_rules_do_not_replace_each_other() {
    let mut counts = CountsByConfig::default();
    let kyma = KymaKey::new("kcp-system", "a");
    let fine = governed(&[("strict", json!({ "module": "keda" }))], &json!({ "name": "keda" }));
    counts.decided(&kyma, std::slice::from_ref(&fine));
    let refusals = RuleRefusals::from([("strict".to_owned(), Reason::ApplyRefused)]);
    counts.record_rule_refusals(&kyma, refusals);
    assert_eq!(counts.decided(&kyma, &[]), ["strict"], "the module was removed");
    assert_eq!(counts.of("strict").refusing_targets().len(), 1, "the target was not asked since");
    assert_eq!(counts.of("strict").matching().count, 0);
    assert_eq!(counts.forget(&kyma).len(), 1);
    assert_eq!(counts.of("strict"), ConfigCounts::default());
}

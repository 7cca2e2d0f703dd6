use serde_json::{Value, json};

use super::*;

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn sources() -> Sources {
    let meta =
        |name: &str| json!({ "name": name, "namespace": "kcp-system", "uid": name, "resourceVersion": "1" });
    let template = |version: &str, downtime: bool| {
        read::<ModuleTemplate>(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": meta(&format!("keda-{version}")),
            "spec": { "moduleName": "keda", "version": version, "descriptor": {}, "requiresDowntime": downtime },
        }))
    };
    let release = |name: &str, spec: Value| {
        read::<ModuleReleaseMeta>(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
            "metadata": meta(name), "spec": spec,
        }))
    };
    let mut owned = meta("sample-keda-0");
    owned["labels"] = json!({ "operator.kyma-project.io/kyma-name": "sample" });
    owned["ownerReferences"] = json!([{ "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "name": "sample", "uid": "sample", "controller": true }]);
    let modules = json!([
        { "name": "keda", "state": "Warning", "version": "1.1.0", "reason": "RuleViolated",
          "lastTransitionTime": "2026-06-01T00:00:00Z", "message": "stay; required by ModuleConfig gold of this fleet" },
        { "name": "gone", "state": "Error", "reason": "ModuleReleaseMetaMissing" },
    ]);
    Sources {
        kyma: read(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": meta("sample"),
            "spec": { "channel": "regular", "modules": [{ "name": "keda" }] },
            "status": { "modules": modules, "selection": { "channel": "regular", "modules": [
                { "name": "keda", "version": "1.0.0", "customResourcePolicy": "Ignore" }, { "name": "gone" } ] } },
        })),
        templates: vec![template("1.0.0", false), template("1.1.0", true)],
        releases: vec![
            release(
                "keda",
                json!({ "moduleName": "keda", "channels": [{ "channel": "fast", "version": "1.1.0" }] }),
            ),
            release("warden", json!({ "moduleName": "warden", "mandatory": { "version": "2.0.0" } })),
        ],
        configs: vec![read(json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "ModuleConfig", "metadata": meta("gold"),
            "spec": { "module": "keda", "priority": 3, "values": { "secret": { "token": "hunter2" } },
                "overrides": { "module": { "channel": "fast" } },
                "rules": [{ "expression": "self.channel == 'regular'", "message": "stay" }],
                "resourceRules": [{ "group": "keda.example.com", "resource": "scalers", "expression": "true", "message": "no" }] },
        }))],
        components: vec![read(json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent", "metadata": owned,
            "spec": { "module": { "name": "keda", "version": "1.1.0" } }, "status": { "state": "Ready", "version": "1.0.0" },
        }))],
    }
}

fn inputs(explanation: &Explanation) -> Vec<String> {
    explanation.inputs.iter().map(|input| format!("{}: {}", input.about, input.says)).collect()
}

#[test]
fn a_decision_is_explained_by_what_it_was_made_from() {
    let all = explain(&sources());
    assert_eq!(all.iter().map(|one| one.module.as_str()).collect::<Vec<_>>(), ["keda", "gone", "warden"]);
    let keda = &all[0];
    assert_eq!(
        (keda.version.as_deref(), keda.since.as_deref()),
        (Some("1.1.0"), Some("2026-06-01T00:00:00Z"))
    );
    assert_eq!(keda.rule, Some(Reason::RuleViolated.summary()));
    assert_eq!(
        inputs(keda),
        [
            "choice: version 1.0.0, pinned, customResourcePolicy: Ignore, says the cluster's Kyma",
            "initial set: the module is in it",
            "ModuleConfig gold: priority 3; replaces channel, values.secret.token; objects; rules on its objects: 1",
            "ModuleReleaseMeta: channel fast has version 1.1.0",
            "ModuleTemplate: keda-1.1.0, requiresDowntime",
            "component: HelmComponent sample-keda-0: 1.1.0 ordered, 1.0.0 runs",
        ]
    );
    assert_eq!(
        inputs(&all[1]),
        [
            "choice: the Kyma's channel regular, says the cluster's Kyma",
            "ModuleReleaseMeta: does not exist",
            "component: does not exist",
        ]
    );
    assert_eq!(
        inputs(&all[2]),
        [
            "ModuleReleaseMeta: every Kyma gets version 2.0.0",
            "ModuleTemplate: does not exist for version 2.0.0",
            "component: does not exist",
        ]
    );
}

#[test]
fn module_on_a_silent_target_is_not_explained_as_ready() {
    let mut sources = sources();
    let status = sources.kyma.status.as_mut().unwrap();
    status.modules.as_mut().unwrap()[0].state = State::Ready;
    assert_eq!(explain(&sources)[0].state, "Ready");
    let condition = json!({
        "type": "TargetReachable", "status": "False", "reason": "TargetUnreachable", "message": "no answer",
        "lastTransitionTime": "2026-06-02T00:00:00Z",
    });
    sources.kyma.status.as_mut().unwrap().conditions = Some(vec![read(condition)]);
    let all = explain(&sources);
    let keda = &all[0];
    assert_eq!(
        (keda.state, keda.reason.as_deref(), keda.message.as_deref(), keda.since.as_deref()),
        ("Unknown", Some("TargetUnreachable"), Some("no answer"), Some("2026-06-02T00:00:00Z"))
    );
    assert_eq!((all[1].state, all[1].reason.as_deref()), ("Error", Some("ModuleReleaseMetaMissing")));
}

#[test]
fn no_value_is_ever_shown() {
    let text = serde_json::to_string(&explain(&sources())).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
}

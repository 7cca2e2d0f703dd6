use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::DynamicObject;
use kyma_api::{SecretKeyRef, crds};
use serde_json::json;

use super::*;
use crate::decision::selection::{CentralOverrides, ModuleEntry, Selection};
use crate::hub::catalogue::{Release, Subscription, Template};
use crate::hub::config::ConfigUids;

fn resolved(decision: Decision) -> ResolvedModule {
    let subscription = Subscription { module: "keda".into(), channel: None, versions: BTreeSet::new() };
    ResolvedModule { module: "keda".into(), decision, subscription, until: None, configs: ConfigUids::new() }
}

fn install(spec: Value) -> Install {
    let mut spec = spec;
    spec["descriptor"] = json!({});
    Install {
        template: Arc::new(Template {
            name: "keda-1.0.0".into(),
            namespace: "kcp-system".into(),
            generation: Some(1),
            module: Some("keda".into()),
            version: Some("1.0.0".into()),
            audience: kyma_api::visibility::Audience::default(),
            uid: String::new(),
            digest: String::new(),
            cluster_scoped: false,
            spec: Arc::new(serde_json::from_value(spec).unwrap()),
        }),
        release: Arc::new(Release {
            module: "keda".into(),
            ocm_component: Some("example.com/module/keda".into()),
            ..Release::default()
        }),
        version: "1.0.0".into(),
        channel: Some("regular".into()),
        mandatory: false,
        entry: Arc::new(ModuleEntry::of("keda")),
    }
}

struct Stage {
    installed: BTreeMap<String, ComponentView>,
    kinds: Kinds,
    entry: Arc<ModuleEntry>,
    target: TargetRef,
    identity: TargetIdentity,
    deletes_paused: Option<&'static str>,
    default_resources: BTreeSet<String>,
}

impl Stage {
    fn new(module: &Value) -> Self {
        let mut kinds = Kinds::default();
        kinds.apply(crds::helm_component());
        kinds.set_synced("component.kyma-project.io", "HelmComponent", true);
        let entry = Selection::read(&json!({ "modules": [module] })).unwrap().entries.remove(0);
        let secret = SecretKeyRef { name: "access".into(), key: "config".into() };
        let target = TargetRef { kubeconfig_secret_ref: Some(secret) };
        let cluster_uid = "uid-of-cluster".into();
        let identity = TargetIdentity { cluster_uid, epoch: Some(2), ..TargetIdentity::default() };
        Self {
            installed: BTreeMap::new(),
            kinds,
            entry: Arc::new(entry),
            target,
            identity,
            deletes_paused: None,
            default_resources: BTreeSet::new(),
        }
    }

    fn plan(&self, decision: Decision) -> Plan {
        let scope = Scope {
            kyma: &KymaKey::new("kcp-system", "sample"),
            uid: "uid-of-kyma",
            generation: 3,
            shard: 7,
            target: Some(&self.target),
            identity: Some(&self.identity),
            default_resources: &self.default_resources,
            target_namespace: "kyma-system",
            installed: &self.installed,
            kinds: &self.kinds,
            policy: &Policy::default(),
            ignore: IgnorePolicy::Leave,
            deletes_paused: self.deletes_paused,
        };
        let decision = match decision {
            Decision::Install(install) => {
                Decision::Install(Install { entry: Arc::clone(&self.entry), ..install })
            }
            other => other,
        };
        plan(&scope, &[resolved(decision)])
    }

    /// Installs the plan's first component, as the API server would return it.
    fn have(&mut self, plan: &Plan, change: impl FnOnce(&mut Value)) {
        let mut body = plan.components[0].body.clone();
        let meta = body["metadata"].clone();
        body["metadata"]["uid"] = json!("uid-of-component");
        body["metadata"]["resourceVersion"] = json!("1");
        body["metadata"]["managedFields"] = json!([{
            "manager": "kyma-operator", "operation": "Apply", "apiVersion": body["apiVersion"],
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:metadata": {
                "f:annotations": fields(&meta["annotations"]),
                "f:labels": fields(&meta["labels"]),
                "f:finalizers": { "v:\"component.kyma-project.io/finalizer\"": {} },
                "f:ownerReferences": { "k:{\"uid\":\"uid-of-kyma\"}": {} },
            }, "f:spec": fields(&body["spec"]) },
        }]);
        change(&mut body);
        let object: DynamicObject = serde_json::from_value(body).unwrap();
        let view = ComponentView::of(&ComponentKind::helm(), &object).unwrap();
        self.installed.insert("keda".into(), view);
    }
}

/// Returns the field set of an object, each field as a leaf.
fn fields(object: &Value) -> Value {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(|name| (format!("f:{name}"), json!({})))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn i85_component_is_module_spec_overlaid_by_kyma_operator() {
    let stage = Stage::new(
        &json!({ "name": "keda", "values": { "a": 1 }, "customResourcePolicy": "Ignore", "controller": "c" }),
    );
    let plan = stage.plan(Decision::Install(install(json!({
        "data": { "apiVersion": "example.com/v1", "kind": "Sample", "metadata": { "name": "sample" } },
        "manager": { "group": "apps", "version": "v1", "kind": "Deployment", "name": "m", "namespace": "n" },
        "associatedResources": [{ "group": "example.com", "version": "v1", "kind": "Sample" }],
        "managedResources": [{ "group": "example.com", "kind": "Other" }],
        "dependsOn": [{ "module": "istio" }],
        "component": { "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "spec": { "suspend": false, "deletionPolicy": "Delete", "target": { "kubeconfigSecretRef": { "name": "evil" } },
                "userValues": { "b": 2 }, "overrides": { "c": 3 } } },
    }))));
    insta::assert_json_snapshot!(plan.components[0].body);
}

#[test]
fn a_module_of_another_kind_is_named_to_those_that_depend_on_it() {
    let mut stage = Stage::new(&json!({ "name": "keda" }));
    let depends_on =
        json!([{ "module": "istio", "ready": "true" }, { "module": "keda" }, { "module": "none" }]);
    let template = json!({ "dependsOn": depends_on });
    let first = stage.plan(Decision::Install(install(template.clone())));
    assert_eq!(first.components[0].body["spec"]["dependsOn"], depends_on);
    stage.have(&first, |_| {});
    let keda = stage.installed["keda"].clone();
    let widget = ComponentKind::new("example.com/v1", "Widget");
    let istio = ComponentView { kind: widget, name: "kyma-istio".into(), ..keda };
    stage.installed.insert("istio".into(), istio);
    let second = stage.plan(Decision::Install(install(template)));
    let named = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "name": "kyma-istio" });
    let resolved =
        json!([{ "component": named, "ready": "true" }, { "module": "keda" }, { "module": "none" }]);
    assert_eq!(second.components[0].body["spec"]["dependsOn"], resolved);
}

#[test]
fn an_author_may_not_take_over_what_belongs_to_others() {
    let stage = Stage::new(&json!({ "name": "keda" }));
    let helm = |adopt: &str| {
        install(json!({ "component": { "apiVersion": "component.kyma-project.io/v1alpha1",
            "kind": "HelmComponent", "spec": { "adopt": adopt } } }))
    };
    let passed =
        |adopt| stage.plan(Decision::Install(helm(adopt))).components[0].body["spec"]["adopt"].clone();
    assert_eq!(passed("Always"), Value::Null, "its default stands");
    assert_eq!((passed("Unowned"), passed("Never")), (json!("Unowned"), json!("Never")));
    assert!(withheld(&helm("Always")).is_some() && withheld(&helm("Never")).is_none(), "and it is told");
    let own_kind = json!({ "component": { "apiVersion": "example.com/v1", "kind": "Widget", "spec": { "adopt": "Always" } } });
    assert_eq!(withheld(&install(own_kind)), None, "another kind means what it likes by it");
}

#[test]
fn central_config_overrides_module_and_user_but_not_operator() {
    let mut stage = Stage::new(&json!({ "name": "keda", "values": { "a": 1 } }));
    let component = json!({
        "drift": { "mode": "Warn" }, "adopt": "Always", "release": { "name": "mine" },
        "deletionPolicy": "Delete", "target": { "kubeconfigSecretRef": { "name": "other" } },
    });
    let central = CentralOverrides {
        configs: ConfigUids::new(),
        values: serde_json::from_value(json!({ "a": 2 })).unwrap(),
        component: serde_json::from_value(component).unwrap(),
        ..CentralOverrides::default()
    };
    stage.entry = Arc::new(ModuleEntry { central, ..(*stage.entry).clone() });
    let plan = stage.plan(Decision::Install(install(json!({
        "component": { "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "spec": { "adopt": "Never", "release": { "name": "theirs", "namespace": "n" } } },
    }))));
    let spec = &plan.components[0].body["spec"];
    assert_eq!((&spec["userValues"], &spec["overrides"]), (&json!({ "a": 1 }), &json!({ "a": 2 })));
    assert_eq!((&spec["drift"], &spec["adopt"]), (&json!({ "mode": "Warn" }), &json!("Always")));
    assert_eq!(spec["release"], json!({ "name": "mine", "namespace": "n" }));
    assert_eq!((&spec["deletionPolicy"], &spec["target"]), (&json!("Orphan"), &json!(stage.target)));
}

#[test]
fn i86_i87_equal_component_is_not_rewritten_until_edited() {
    let mut stage = Stage::new(&json!({ "name": "keda" }));
    let first = stage.plan(Decision::Install(install(json!({}))));
    stage.have(&first, |_| {});
    assert!(stage.plan(Decision::Install(install(json!({})))).components.is_empty());
    stage.have(&first, |body| body["spec"]["module"]["version"] = json!("6.6.6"));
    assert_eq!(stage.plan(Decision::Install(install(json!({})))).components.len(), 1, "edited by hand");
    stage.have(&first, |body| body["metadata"]["labels"]["someone"] = json!("else"));
    assert!(
        stage.plan(Decision::Install(install(json!({})))).components.is_empty(),
        "a label of others is theirs"
    );
}

#[test]
fn removal_is_an_order_and_letting_go_is_none() {
    let mut stage = Stage::new(&json!({ "name": "keda" }));
    let first = stage.plan(Decision::Install(install(json!({}))));
    stage.have(&first, |_| {});
    let policy = |plan: Plan| plan.deletions.iter().map(|deletion| deletion.policy).collect::<Vec<_>>();
    assert_eq!(
        policy(stage.plan(Decision::Remove { reason: DeletionReason::Disabled, problem: None })),
        [DeletionPolicy::Delete]
    );
    assert_eq!(policy(stage.plan(Decision::Unmanage)), [DeletionPolicy::Orphan]);
    let problem = ModuleProblem::warning(Reason::NotVisible, "");
    assert!(stage.plan(Decision::Keep(problem)).deletions.is_empty(), "frozen");
    stage.have(&first, |body| {
        body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        body["spec"]["deletionPolicy"] = json!("Delete");
    });
    assert!(
        stage.plan(Decision::Remove { reason: DeletionReason::Disabled, problem: None }).deletions.is_empty(),
        "given once"
    );
    let desired_again = stage.plan(Decision::Install(install(json!({}))));
    assert_eq!(
        (desired_again.withdrawals.len(), desired_again.components.len()),
        (1, 0),
        "taken back, then made anew"
    );
    let problem = ModuleProblem::error(Reason::ChannelUnknown, "");
    assert_eq!(
        stage.plan(Decision::Keep(problem)).withdrawals.len(),
        1,
        "desired again, though not as it is asked for"
    );
}

#[test]
fn e13_component_with_blocked_removal_changes_only_its_version() {
    let mut stage =
        Stage::new(&json!({ "name": "keda", "values": { "a": 1 }, "customResourcePolicy": "Ignore" }));
    let first = stage.plan(Decision::Install(install(json!({}))));
    stage.have(&first, |body| {
        body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        body["spec"]["deletionPolicy"] = json!("Delete");
    });
    let newer = Install { version: "1.1.0".into(), ..install(json!({})) };
    let plan = stage.plan(Decision::UpgradeDuringRemoval(newer));
    assert!(plan.changes_target() && plan.deletions.is_empty() && plan.components.is_empty());
    let fields = json!({
        "module": { "name": "keda", "version": "1.1.0", "channel": "regular" },
        "source": { "ocm": { "component": "example.com/module/keda", "version": "1.1.0" } },
    });
    assert_eq!(json!(plan.upgrades[0].fields), fields);
}

#[test]
fn a_pause_holds_back_every_order_and_says_so() {
    let mut stage = Stage::new(&json!({ "name": "keda" }));
    let first = stage.plan(Decision::Install(install(json!({}))));
    stage.have(&first, |_| {});
    stage.deletes_paused = Some("Pause p is in force");
    let removal = Decision::Remove { reason: DeletionReason::Disabled, problem: None };
    for decision in [removal, Decision::Unmanage] {
        let plan = stage.plan(decision);
        assert!(plan.deletions.is_empty());
        assert_eq!(plan.blocked["keda"].reason, Reason::Paused);
    }
}

#[test]
fn a_kind_that_cannot_be_used_blocks_its_module_only() {
    let stage = Stage::new(&json!({ "name": "keda" }));
    let other = json!({ "component": { "apiVersion": "example.com/v1", "kind": "Widget" } });
    let blocked = stage.plan(Decision::Install(install(other)));
    assert_eq!(blocked.blocked["keda"].reason, Reason::ComponentGroupNotAllowed);
    let mut no_source = install(json!({}));
    no_source.release = Arc::new(Release { module: "keda".into(), ..Release::default() });
    assert_eq!(stage.plan(Decision::Install(no_source)).blocked["keda"].reason, Reason::SourceMissing);
    let unsynced = Stage { kinds: Kinds::default(), ..Stage::new(&json!({ "name": "keda" })) };
    assert_eq!(
        unsynced.plan(Decision::Install(install(json!({})))).blocked["keda"].reason,
        Reason::ComponentCrdMissing
    );
}

#[test]
fn a_component_above_the_size_limit_is_refused() {
    let stage = Stage::new(&json!({ "name": "keda" }));
    let large = "x".repeat(1024 * 1024);
    let data = json!({ "data": { "apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": { "x": large } } });
    let plan = stage.plan(Decision::Install(install(data)));
    assert_eq!(plan.blocked["keda"].reason, Reason::ObjectTooLarge);
    assert!(plan.components.is_empty());
}

#[test]
fn fingerprint_is_independent_of_key_order_and_identity() {
    let one = json!({ "kind": "A", "metadata": { "name": "n", "uid": "u", "labels": { "a": "1", "b": "2" } }, "spec": {} });
    let two =
        json!({ "spec": {}, "metadata": { "labels": { "b": "2", "a": "1" }, "name": "m" }, "kind": "B" });
    assert_eq!(owned_fields::fingerprint_of_apply(&one), owned_fields::fingerprint_of_apply(&two));
}

#[test]
fn recreated_component_has_deletion_request_and_target_uid() {
    let stage = Stage::new(&json!({"name": "keda"}));
    let plan = stage.plan(Decision::FinishRemoval(install(json!({})), DeletionReason::KymaDeleted));
    let body = &plan.missing_components[0].body;
    assert_eq!(body["spec"]["deletionPolicy"], "Delete");
    let annotations = &body["metadata"]["annotations"];
    assert_eq!(annotations["component.kyma-project.io/deletion-kyma-uid"], "uid-of-kyma");
    assert_eq!(annotations[kyma_api::annotations::TARGET_UID], "uid-of-cluster");
    let halted = Stage { deletes_paused: Some("stop"), ..Stage::new(&json!({"name": "keda"})) };
    let plan = halted.plan(Decision::FinishRemoval(install(json!({})), DeletionReason::KymaDeleted));
    assert!(plan.missing_components.is_empty());
    assert_eq!(plan.blocked["keda"].reason, Reason::Paused);
}

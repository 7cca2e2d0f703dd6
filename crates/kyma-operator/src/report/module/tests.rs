use std::collections::BTreeSet;
use std::sync::Arc;

use kyma_api::Upgrade;
use kyma_api::component::DeletionReason;
use serde_json::{Value, json};

use super::*;
use crate::decision::selection::ModuleEntry;
use crate::hub::catalogue::{Release, Subscription, Template};
use crate::hub::component::ComponentKind;
use crate::hub::config::ConfigUids;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn install() -> Install {
    let spec = json!({
        "descriptor": {},
        "data": { "apiVersion": "example.com/v1", "kind": "Sample", "metadata": { "name": "sample" } },
    });
    Install {
        template: Arc::new(Template {
            name: "keda-1.1.0".into(),
            namespace: "kcp-system".into(),
            generation: Some(3),
            module: None,
            version: None,
            audience: kyma_api::visibility::Audience::default(),
            uid: String::new(),
            digest: String::new(),
            cluster_scoped: false,
            spec: Arc::new(serde_json::from_value(spec).unwrap()),
        }),
        release: Arc::new(Release {
            ocm_component: Some("example.com/module/keda".into()),
            ..Release::default()
        }),
        version: "1.1.0".into(),
        channel: Some("fast".into()),
        mandatory: false,
        entry: Arc::new(ModuleEntry::of("keda")),
    }
}

/// Returns a component applied at second 0, with this status.
fn view(status: &Value) -> ComponentView {
    let object = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {
            "name": "sample-keda", "namespace": "kcp-system", "uid": "u", "resourceVersion": "1", "generation": 2,
            "ownerReferences": [{
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "name": "sample", "uid": "k",
            }],
            "managedFields": [{
                "manager": "kyma-operator", "operation": "Apply", "time": at(0).to_string(), "fieldsV1": {},
            }],
        },
        "spec": { "module": { "name": "keda", "version": "1.0.0", "channel": "regular" } },
        "status": status,
    });
    ComponentView::of(&ComponentKind::helm(), &serde_json::from_value(object).unwrap()).unwrap()
}

fn line_of(
    decision: Decision,
    view: Option<&ComponentView>,
    now: Timestamp,
) -> (Option<Line>, Option<Timestamp>) {
    line_after(decision, view, now, &before())
}

/// Returns the previous line.
fn before() -> ModuleStatus {
    ModuleStatus {
        name: "keda".into(),
        ocm_component_name: Some("example.com/module/keda".into()),
        version: Some("0.9.0".into()),
        channel: Some("regular".into()),
        ..ModuleStatus::default()
    }
}

fn line_after(
    decision: Decision,
    view: Option<&ComponentView>,
    now: Timestamp,
    before: &ModuleStatus,
) -> (Option<Line>, Option<Timestamp>) {
    let subscription =
        Subscription { module: "keda".into(), channel: Some("fast".into()), versions: BTreeSet::new() };
    let resolved = ResolvedModule {
        module: "keda".into(),
        decision,
        subscription,
        until: None,
        configs: ConfigUids::new(),
    };
    let outcome = outcome(&resolved, view, now, before);
    (line(&outcome), next_change(&outcome))
}

fn outcome<'a>(
    resolved: &'a ResolvedModule,
    view: Option<&'a ComponentView>,
    now: Timestamp,
    before: &'a ModuleStatus,
) -> Outcome<'a> {
    Outcome {
        resolved,
        view,
        blocked: None,
        failure: None,
        missed: false,
        ignore: IgnorePolicy::Leave,
        before: Some(before),
        now,
        deadline: SignedDuration::from_secs(120),
    }
}

fn ready() -> Value {
    json!({ "state": "Ready", "observedGeneration": 2, "version": "1.0.0" })
}

/// Returns a component with requested version 2.0.0 and running version 1.0.0.
fn behind(state: &str, ready: &str, reason: &str) -> ComponentView {
    let condition =
        json!({"type": "Ready", "status": ready, "reason": reason, "message": "spec.suspend is true"});
    let status = json!({
        "state": state, "observedGeneration": 2, "version": "1.0.0", "conditions": [condition],
    });
    ComponentView { desired_version: Some("2.0.0".to_owned()), ..view(&status) }
}

#[test]
fn paused_or_suspended_component_reports_its_installed_version() {
    let to = || Decision::Install(Install { version: "2.0.0".into(), ..install() });
    let reported = |view: &ComponentView| {
        let line = line_of(to(), Some(view), at(9)).0.unwrap();
        (
            line.status.state,
            line.reason,
            line.status.version.unwrap(),
            line.status.message.unwrap_or_default(),
        )
    };
    let waits = "version 2.0.0 waits: spec.suspend is true";
    for reason in [Reason::Suspended, Reason::Paused, Reason::SkipReconciliation] {
        let expected = (State::Warning, reason, "1.0.0".to_owned(), waits.to_owned());
        for state in ["Ready", "Processing"] {
            assert_eq!(reported(&behind(state, "Unknown", reason.as_str())), expected);
        }
    }
    let failed = reported(&behind("Error", "Unknown", "Suspended"));
    assert_eq!((failed.0, failed.2.as_str()), (State::Error, "1.0.0"), "what is worse stays");
    let runs = ComponentView { running: Some("2.0.0".into()), ..behind("Ready", "Unknown", "Paused") };
    assert_eq!((reported(&runs).0, reported(&runs).2.as_str()), (State::Ready, "2.0.0"), "nothing waits");
    let new = ComponentView { running: None, ..behind("Processing", "Unknown", "Suspended") };
    assert_eq!((reported(&new).0, reported(&new).1), (State::Warning, Reason::Suspended));
    let works = reported(&behind("Processing", "False", "Progressing"));
    assert_eq!((works.0, works.2.as_str()), (State::Processing, "2.0.0"), "it is being upgraded");
}

#[test]
fn a_change_of_a_halted_component_is_reported_as_waiting() {
    let reported = |reason: &str, acted_on: Option<i64>| {
        let ready = json!({"type": "Ready", "status": "Unknown", "reason": reason, "message": "why"});
        let reachable = json!({"type": "TargetReachable", "status": "True", "observedGeneration": acted_on});
        let status = json!({
            "state": "Ready", "observedGeneration": 2, "version": "1.0.0", "conditions": [ready, reachable],
        });
        let install = Decision::Install(Install { version: "1.0.0".into(), ..install() });
        let line = line_of(install, Some(&view(&status)), at(9)).0.unwrap();
        (line.status.state, line.status.message)
    };
    let waits = (State::Warning, Some("a change of the module waits: why".to_owned()));
    let runs = (State::Ready, None);
    for reason in ["Paused", "SkipReconciliation"] {
        assert_eq!(reported(reason, Some(1)), waits, "{reason}");
        assert_eq!(reported(reason, Some(2)), runs, "{reason}");
    }
    assert_eq!(reported("Suspended", Some(0)), waits);
    assert_eq!(reported("Suspended", Some(1)), runs, "it was suspended, and nothing else");
    assert_eq!(reported("Paused", None), runs, "its reconciler does not tell");
    assert_eq!(reported("Progressing", Some(2)), runs);
}

fn removed() -> Decision {
    Decision::Remove { reason: DeletionReason::Disabled, problem: None }
}

#[test]
fn installed_module_names_component_template_default_resource() {
    let (line, due) = line_of(Decision::Install(install()), Some(&view(&with_default())), at(0));
    let status = serde_json::to_value(line.unwrap().status).unwrap();
    assert_eq!(
        status,
        json!({
            "name": "keda", "state": "Ready", "version": "1.1.0", "channel": "fast", "maintenance": false,
            "ocmComponentName": "example.com/module/keda", "fqdn": "example.com/module/keda",
            "manifest": { "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": { "name": "sample-keda", "namespace": "kcp-system" } },
            "resource": { "apiVersion": "example.com/v1", "kind": "Sample",
                "metadata": { "name": "sample", "namespace": "kyma-system" } },
            "defaultResourceCreated": true,
            "template": { "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
                "metadata": { "name": "keda-1.1.0", "namespace": "kcp-system", "generation": 3 } },
        })
    );
    assert_eq!(due, None);
}

/// Returns the status of a Ready component that created its default CR.
fn with_default() -> Value {
    let mut status = ready();
    status["resource"] = json!({
        "apiVersion": "example.com/v1", "kind": "Sample", "namespace": "kyma-system", "name": "sample", "uid": "d",
    });
    status
}

#[test]
fn a_default_resource_is_named_only_while_it_exists() {
    let named = |status: &Value| {
        let line = line_of(Decision::Install(install()), Some(&view(status)), at(0)).0.unwrap();
        line.status.resource.is_some()
    };
    assert!(named(&with_default()));
    assert!(!named(&ready()), "its reconciler reports none");
    let mut gone = with_default();
    gone["resource"]["absent"] = json!(true);
    assert!(!named(&gone));
    assert!(line_of(Decision::Install(install()), None, at(0)).0.unwrap().status.resource.is_none());
}

#[test]
fn i81_to_i83_cluster_scoped_default_resource_has_no_namespace() {
    let template: ModuleTemplate = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": { "name": "keda-1.1.0", "annotations": { "operator.kyma-project.io/is-cluster-scoped": "true" } },
        "spec": { "descriptor": {}, "data": {
            "apiVersion": "example.com/v1", "kind": "Sample", "metadata": { "name": "sample", "namespace": "kyma-system" },
        } },
    }))
    .unwrap();
    let install = Install { template: Arc::new(Template::from(template)), ..install() };
    let mut status = with_default();
    status["resource"]["namespace"] = Value::Null;
    let line = line_of(Decision::Install(install), Some(&view(&status)), at(0)).0.unwrap();
    let named = line.status.resource.unwrap().metadata.unwrap();
    assert_eq!((named.name.as_deref(), named.namespace), (Some("sample"), None));
}

#[test]
fn an_upgrade_that_waits_for_approval_is_told_beside_what_runs() {
    let wait = UpgradeWait::Approval { version: "1.2.0".into(), since: at(5), deadline: Some(at(9)) };
    let line = line_of(Decision::Await(Some(install()), wait), Some(&view(&ready())), at(7)).0.unwrap();
    assert_eq!(
        (line.status.state, line.reason, line.status.maintenance),
        (State::Ready, Reason::Ready, false)
    );
    let pending = line.status.pending_upgrade.unwrap();
    assert_eq!((pending.version.as_str(), pending.since.0), ("1.2.0", at(5)));
    assert!(
        line.status
            .message
            .unwrap()
            .contains("set upgrade.approved to it; without approval it is installed on")
    );
}

#[test]
fn pause_keeps_pending_upgrade_and_refused_downgrade_clears_it() {
    let mut install = install();
    let upgrade = Upgrade { mode: UpgradeMode::Manual, ..Upgrade::default() };
    install.entry = Arc::new(ModuleEntry { upgrade, ..ModuleEntry::of("keda") });
    let pending = PendingUpgrade { version: "1.2.0".into(), since: crate::report::time(at(5)) };
    let before = ModuleStatus { pending_upgrade: Some(pending.clone()), ..ModuleStatus::default() };
    let after = |reason| {
        let decision = Decision::KeepVersion(install.clone(), ModuleProblem::warning(reason, "so"));
        line_after(decision, Some(&view(&ready())), at(7), &before).0.unwrap().status.pending_upgrade
    };
    assert_eq!(after(Reason::Paused), Some(pending.clone()));
    assert_eq!(after(Reason::DowngradeRefused), None);
}

#[test]
fn component_without_reconciler_is_reported_only_at_deadline() {
    let unseen = view(&json!({ "state": "Ready", "observedGeneration": 1 }));
    let (line, due) = line_of(Decision::Install(install()), Some(&unseen), at(119));
    let line = line.unwrap();
    assert_eq!((line.status.state, line.reason), (State::Processing, Reason::Progressing));
    assert_eq!(due, Some(at(120)));
    let (line, due) = line_of(Decision::Install(install()), Some(&unseen), at(120));
    let line = line.unwrap();
    assert_eq!((line.status.state, line.reason), (State::Error, Reason::NoReconciler));
    assert_eq!(due, None, "from then on its status is the event");
}

#[test]
fn a_refused_change_shows_what_is_installed_and_why_it_stays() {
    let problem = ModuleProblem::warning(Reason::DowngradeRefused, "too old");
    let kept = Install { version: "1.0.0".into(), channel: Some("regular".into()), ..install() };
    for decision in [Decision::KeepVersion(kept, problem.clone()), Decision::Keep(problem)] {
        let line = line_of(decision, Some(&view(&ready())), at(0)).0.unwrap();
        assert_eq!((line.status.state, line.reason), (State::Warning, Reason::DowngradeRefused));
        assert_eq!(line.status.version.as_deref(), Some("1.0.0"));
        assert_eq!(line.status.channel.as_deref(), Some("regular"));
        assert_eq!(line.status.message.as_deref(), Some("too old"));
        assert!(line.status.manifest.is_some());
    }
}

#[test]
fn a_refused_module_has_an_entry_too() {
    let problem = ModuleProblem::error(Reason::NotVisible, "beta");
    let line = line_of(Decision::Refuse(problem), None, at(0)).0.unwrap();
    assert_eq!((line.status.state, line.status.channel.as_deref()), (State::Error, Some("fast")));
    assert_eq!((line.status.version, line.status.manifest), (None, None));
}

#[test]
fn removed_module_shows_blocker_of_its_component_until_gone() {
    let blocked = json!({ "state": "Deleting", "observedGeneration": 2, "conditions": [
        { "type": "Ready", "status": "False", "reason": "DeletionBlocked", "message": "1 Sample is left" },
    ]});
    let ordered = ComponentView { deletion_policy: DeletionPolicy::Delete, ..view(&blocked) };
    let line = line_of(removed(), Some(&ordered), at(0)).0.unwrap();
    assert_eq!(line.status.state, State::Deleting);
    let not_ordered = line_of(removed(), Some(&view(&ready())), at(0)).0.unwrap();
    assert_eq!(not_ordered.status.state, State::Warning, "held back, the order was not given");
    assert_eq!(line.status.message.as_deref(), Some("1 Sample is left"));
    assert!(line_of(removed(), None, at(0)).0.is_none());
}

#[test]
fn module_counts_as_deleting_only_by_request_or_ignore_policy() {
    let state = |view: &ComponentView| line_of(removed(), Some(view), at(0)).0.unwrap().status.state;
    let going = ComponentView { terminating: true, ..view(&ready()) };
    assert_eq!(state(&going), State::Warning, "somebody else deleted the component");
    assert_eq!(
        state(&ComponentView { deletion_policy: DeletionPolicy::Delete, ..going.clone() }),
        State::Deleting
    );
    assert_eq!(state(&ComponentView { resource_policy: ResourcePolicy::Ignore, ..going }), State::Deleting);
}

#[test]
fn module_whose_component_vanished_unrequested_keeps_its_status() {
    let component = TrackedObject { kind: Some("HelmComponent".into()), ..TrackedObject::default() };
    let before = ModuleStatus { manifest: Some(component), ..before() };
    let subscription = Subscription { module: "keda".into(), channel: None, versions: BTreeSet::new() };
    let resolved = ResolvedModule {
        module: "keda".into(),
        decision: removed(),
        subscription,
        until: None,
        configs: ConfigUids::new(),
    };
    let line = line(&Outcome { missed: true, ..outcome(&resolved, None, at(0), &before) }).unwrap().status;
    assert_eq!((line.state, line.version, line.manifest), (State::Warning, before.version, before.manifest));
}

#[test]
fn e17_component_with_foreign_finalizers_names_them() {
    let held = ComponentView {
        terminating: true,
        deletion_policy: DeletionPolicy::Delete,
        held_by: vec!["example.com/a".into(), "example.com/b".into()],
        ..view(&ready())
    };
    let line = line_of(removed(), Some(&held), at(0)).0.unwrap();
    assert_eq!(line.status.state, State::Deleting);
    let message = line.status.message.unwrap();
    assert_eq!(
        message,
        "waiting as other finalizers are present on component sample-keda: example.com/a, example.com/b"
    );
}

#[test]
fn an_unmanaged_module_keeps_its_version_and_no_references() {
    let line = line_of(Decision::Unmanage, None, at(0)).0.unwrap();
    assert_eq!((line.status.state, line.status.version.as_deref()), (State::Unmanaged, Some("0.9.0")));
    assert_eq!((line.status.manifest, line.status.resource, line.status.template), (None, None, None));
}

#[test]
fn a_mandatory_module_has_no_entry() {
    let mandatory = Install { mandatory: true, ..install() };
    assert!(line_of(Decision::Install(mandatory), Some(&view(&ready())), at(0)).0.is_none());
}

#[test]
fn a_refused_request_of_an_author_is_reported_on_a_ready_module() {
    let mut install = install();
    let mut template = (*install.template).clone();
    let spec = json!({ "descriptor": {}, "component": { "apiVersion": "component.kyma-project.io/v1alpha1",
        "kind": "HelmComponent", "spec": { "adopt": "Always" } } });
    template.spec = Arc::new(serde_json::from_value(spec).unwrap());
    install.template = Arc::new(template);
    let line = line_of(Decision::Install(install), Some(&view(&ready())), at(0)).0.unwrap();
    assert_eq!(line.status.state, State::Ready);
    assert!(line.status.message.unwrap().contains("adopt: Always"));
}

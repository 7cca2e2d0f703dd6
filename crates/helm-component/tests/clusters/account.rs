//! Components that impersonate a ServiceAccount of the target: in every request, and never beyond its rights.

mod asked;

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::annotations;
use serde_json::{Value, json};
use testbed::{AuditEvent, until, until_access};

use crate::chart::push;
use crate::failures::told_once;
use crate::hooks::{borrowed, config, job};
use crate::rollback::deployment;
use crate::take_over::{adoption, content, installed};
use crate::world::{DEADLINE, World, apply_yaml, ready_of, world};
use asked::{asked, assert_always_as, has_done};

/// Time before the third retry, as retries follow after 5, 15 and 35 s.
const BEFORE_A_LOOK: Duration = Duration::from_secs(25);
/// Time in which three retries happen.
const LOOKS: Duration = Duration::from_mins(4);

const CRD: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: permits.accounts.example.org}
spec:
  group: accounts.example.org
  names: {kind: Permit, plural: permits}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

fn files(more: &[(String, String)]) -> Vec<(String, String)> {
    [config("main", ""), job("migrate", "helm.sh/hook: pre-install", "")]
        .into_iter()
        .chain(more.iter().cloned())
        .collect()
}

fn spec(source: &Value, name: &str, account: Option<&str>) -> Value {
    let mut spec = json!({
        "source": source, "values": {"level": "low"},
        "release": {"name": name, "namespace": name, "createNamespace": true},
    });
    if let Some(account) = account {
        spec["serviceAccountName"] = account.into();
    }
    spec
}

async fn bind(world: &World, account: &str, namespace: &str, role: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{namespace}-{account}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    });
    apply_yaml(&world.target.client()?, &binding.to_string()).await
}

/// Applies a version that never becomes ready, and waits until it is rolled back.
async fn is_rolled_back(
    world: &World,
    files: &[(String, String)],
    spec: impl Fn(&Value) -> Value,
) -> Result<()> {
    let unready = [files, &[deployment("web", "unready")]].concat();
    let source = push(world, "accounts", "1.2.0", &borrowed(&unready)).await?;
    world.apply("accounts", spec(&source)).await?;
    // The release fails only after 10 s, and a hook runs before the rollback.
    world.ready_within(DEADLINE * 2, "accounts", "False", "RolledBack").await?;
    Ok(())
}

async fn edit_is_put_right(world: &World) -> Result<()> {
    let main = Api::<ConfigMap>::namespaced(world.target.client()?, "accounts");
    let edit = json!({"data": {"level": "edited"}});
    main.patch("main", &PatchParams::default(), &Patch::Merge(edit)).await?;
    until("the edit is put right", DEADLINE, || async {
        let found = main.get("main").await?.data.unwrap_or_default();
        Ok(found.get("level").is_some_and(|level| level == "low").then_some(()))
    })
    .await
}

/// Verbs and resources that a component needs from its creation to its removal.
const DEEDS: [(&str, &str); 12] = [
    ("create", "namespaces"),
    ("create", "jobs"),
    ("delete", "jobs"),
    ("patch", "configmaps"),
    ("delete", "configmaps"),
    ("patch", "customresourcedefinitions"),
    ("patch", "permits"),
    ("delete", "permits"),
    ("patch", "deployments"),
    ("delete", "deployments"),
    ("create", "secrets"),
    ("delete", "secrets"),
];

#[tokio::test]
async fn from_birth_to_removal_a_component_acts_as_its_account() -> Result<()> {
    let world =
        World::start_with(&["--require-service-account", "--service-account-namespace=tenants"]).await?;
    let more = [
        ("crds/permits.yaml".to_owned(), CRD.to_owned()),
        job("bye", "helm.sh/hook: post-delete, helm.sh/hook-delete-policy: hook-succeeded", ""),
        job("backup", "helm.sh/hook: pre-rollback", ""),
    ];
    let both = [more.as_slice(), &[config("extra", "")]].concat();
    let source = push(&world, "accounts", "1.0.0", &borrowed(&files(&both))).await?;
    let mark = world.target.audit()?.mark()?;
    world.apply("accounts", spec(&source, "accounts", None)).await?;
    let refused = world.ready("accounts", "False", "ServiceAccountMissing").await?;
    assert_eq!(asked(&world, mark)?, [], "nothing is sent");

    bind(&world, "installer", "tenants", "cluster-admin").await?;
    let resource = json!({
        "apiVersion": "accounts.example.org/v1", "kind": "Permit",
        "metadata": {"name": "first", "namespace": "accounts"},
    });
    let with = |source: &Value| {
        let mut spec = spec(source, "accounts", Some("installer"));
        spec["resource"] = resource.clone();
        spec["release"]["history"] = json!({"max": 2});
        spec["rollback"] = json!({"mode": "OnFailure"});
        spec["timeouts"] = json!({"healthSeconds": 10});
        spec
    };
    world.apply("accounts", with(&source)).await?;
    world.ready("accounts", "True", "Ready").await?;
    let source = push(&world, "accounts", "1.1.0", &borrowed(&files(&more))).await?;
    world.apply("accounts", with(&source)).await?;
    until("what is left over is pruned", DEADLINE, || async {
        Ok(world.on_target("v1", "ConfigMap", "accounts", "extra").await?.is_none().then_some(()))
    })
    .await?;
    edit_is_put_right(&world).await?;
    world.ready("accounts", "True", "Ready").await?;
    is_rolled_back(&world, &files(&more), with).await?;
    world.delete("accounts", "Delete").await?;
    world.gone("accounts").await?;

    let events = asked(&world, mark)?;
    let account = "system:serviceaccount:tenants:installer";
    assert_always_as(account, refused.metadata.uid.as_deref().context("a uid")?, &events);
    for (verb, resource) in DEEDS {
        assert!(has_done(&events, account, verb, resource), "{verb} {resource}: {events:#?}");
    }
    let is_backup = |event: &&AuditEvent| event.resource == "jobs" && event.name == "backup";
    let of_backup: Vec<AuditEvent> = events.iter().filter(is_backup).cloned().collect();
    assert!(has_done(&of_backup, account, "create", "jobs"), "the hook of the way back: {of_backup:#?}");
    Ok(())
}

#[tokio::test]
async fn where_a_flag_alone_names_the_account_it_is_always_that_one() -> Result<()> {
    let world = World::start_with(&[
        "--require-service-account",
        "--default-service-account=installer",
        "--service-account-namespace=tenants",
    ])
    .await?;
    bind(&world, "installer", "tenants", "cluster-admin").await?;
    let source = push(&world, "silent", "1.0.0", &borrowed(&files(&[]))).await?;
    let mark = world.target.audit()?.mark()?;
    world.apply("silent", spec(&source, "silent", None)).await?;
    let component = world.ready("silent", "True", "Ready").await?;
    assert_eq!(component.spec.service_account_name, None);
    world.delete("silent", "Delete").await?;
    world.gone("silent").await?;

    let events = asked(&world, mark)?;
    let account = "system:serviceaccount:tenants:installer";
    assert_always_as(account, component.metadata.uid.as_deref().context("a uid")?, &events);
    for (verb, resource) in [("create", "jobs"), ("patch", "configmaps"), ("delete", "configmaps")] {
        assert!(has_done(&events, account, verb, resource), "{verb} {resource}: {events:#?}");
    }
    Ok(())
}

const NARROW: &str = "system:serviceaccount:kyma-system:narrow";

/// Creates a role with these rules and binds an account to it, all under one name. Waits until the apiserver allows
/// the given verb.
async fn grant(world: &World, name: &str, rules: &Value, right: (&str, &str, &str)) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    apply_yaml(&world.target.client()?, &role.to_string()).await?;
    bind(world, name, "kyma-system", name).await?;
    until_allowed(world, name, right).await
}

/// Waits until the target allows an account of kyma-system a verb on a resource of a group.
async fn until_allowed(world: &World, name: &str, (verb, group, resource): (&str, &str, &str)) -> Result<()> {
    let attributes = ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        verb: Some(verb.to_owned()),
        namespace: Some(name.to_owned()),
        ..ResourceAttributes::default()
    };
    let user = format!("system:serviceaccount:kyma-system:{name}");
    until_access(&world.target.client()?, &user, attributes, true).await
}

/// Waits until the component reports that the account may not do this.
async fn forbidden(world: &World, what: &str) -> Result<()> {
    let found = world.ready("narrow", "False", "TargetForbidden").await?;
    let (_, _, message) = ready_of(&found).context("Ready")?;
    assert!(message.contains(what) && message.contains(NARROW), "{message}");
    Ok(())
}

/// CVE-2026-41050: hooks, prune and the namespace are limited by the account's rights like everything else.
#[tokio::test]
async fn what_an_account_may_not_do_is_not_done() -> Result<()> {
    let world = world().await?;
    let extra = [config("extra", "")];
    let source = push(world, "narrow", "1.0.0", &borrowed(&files(&extra))).await?;
    let mut spec = spec(&source, "narrow", Some("narrow"));
    let there = |kind: &'static str, name: &'static str| async move {
        let version = if kind == "Job" { "batch/v1" } else { "v1" };
        anyhow::Ok(world.on_target(version, kind, "narrow", name).await?.is_some())
    };
    world.apply("narrow", spec.clone()).await?;
    forbidden(world, "create Namespace narrow").await?;
    assert!(!there("Namespace", "narrow").await?);

    let rule = |groups: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [groups], "resources": resources, "verbs": verbs});
    let reads = rule("*", &["*"], &["get", "list"]);
    let mut rules = vec![reads, rule("", &["namespaces"], &["create"])];
    grant(world, "narrow", &json!(rules), ("create", "", "namespaces")).await?;
    spec["values"]["level"] = json!("hook");
    world.apply("narrow", spec.clone()).await?;
    forbidden(world, "creating Job.batch narrow/migrate").await?;
    assert!(!there("Job", "migrate").await?);

    rules.push(rule("batch", &["jobs"], &["create", "delete"]));
    grant(world, "narrow", &json!(rules), ("create", "batch", "jobs")).await?;
    spec["values"]["level"] = json!("apply");
    world.apply("narrow", spec.clone()).await?;
    forbidden(world, "applying ConfigMap narrow/").await?;
    assert!(!there("ConfigMap", "main").await?);

    rules.push(rule("", &["configmaps"], &["create", "patch"]));
    grant(world, "narrow", &json!(rules), ("patch", "", "configmaps")).await?;
    spec["values"]["level"] = json!("ready");
    world.apply("narrow", spec.clone()).await?;
    world.ready("narrow", "True", "Ready").await?;

    let source = push(world, "narrow", "1.1.0", &borrowed(&files(&[]))).await?;
    spec["source"] = source;
    world.apply("narrow", spec).await?;
    forbidden(world, "deleting ConfigMap narrow/extra").await?;
    assert!(there("ConfigMap", "extra").await?);

    world.delete("narrow", "Delete").await?;
    forbidden(world, "deleting ConfigMap narrow/").await?;
    assert!(there("ConfigMap", "main").await?);
    // If an account has lost its rights, another account, or none, lets the removal continue.
    let other = json!({"spec": {"serviceAccountName": null}});
    world.components()?.patch("narrow", &PatchParams::default(), &Patch::Merge(other)).await?;
    world.gone("narrow").await?;
    assert!(!there("ConfigMap", "main").await? && !there("ConfigMap", "extra").await?);
    Ok(())
}

#[tokio::test]
async fn an_account_that_may_list_nothing_removes_what_it_made() -> Result<()> {
    let world = world().await?;
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: blind}\n";
    let source = world.push("blind", "1.0.0", manifest).await?;
    let rule =
        |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
    let rules = [rule("namespaces", &["create"]), rule("configmaps", &["get", "create", "patch", "delete"])];
    grant(world, "blind", &json!(rules), ("delete", "", "configmaps")).await?;
    let release = json!({"namespace": "blind", "createNamespace": true});
    let spec = json!({"source": source, "release": release, "serviceAccountName": "blind"});
    world.apply("blind", spec).await?;
    world.ready("blind", "True", "Ready").await?;
    world.delete("blind", "Delete").await?;
    world.gone("blind").await?;
    assert!(world.on_target("v1", "ConfigMap", "blind", "blind").await?.is_none());
    Ok(())
}

/// Returns `Some` once a component is Ready.
async fn is_ready(world: &World, name: &str) -> Result<Option<()>> {
    let ready = ready_of(&world.components()?.get(name).await?);
    Ok(ready.is_some_and(|(status, ..)| status == "True").then_some(()))
}

#[tokio::test]
async fn granted_right_is_noticed_soon_and_at_once_on_request() -> Result<()> {
    let world = world().await?;
    let source = push(world, "grants", "1.0.0", &borrowed(&files(&[]))).await?;
    let mark = world.target.audit()?.mark()?;
    let mut uids = vec![];
    for name in ["granted", "urged"] {
        world.apply(name, spec(&source, name, Some(name))).await?;
        let refused = world.ready(name, "False", "TargetForbidden").await?;
        uids.push(refused.metadata.uid.context("a uid")?);
    }
    for name in ["granted", "urged"] {
        bind(world, name, "kyma-system", "cluster-admin").await?;
    }
    until_allowed(world, "urged", ("create", "", "namespaces")).await?;
    // Requests a reconcile as kymactl does, before the operator retries by itself.
    let asked_for = json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: "now"}}});
    world.components()?.patch("urged", &PatchParams::default(), &Patch::Merge(asked_for)).await?;
    // The namespace is the first object; those that follow may take longer on a busy machine.
    until("the requested reconcile creates the namespace", BEFORE_A_LOOK, || {
        world.on_target("v1", "Namespace", "", "urged")
    })
    .await?;
    world.ready("urged", "True", "Ready").await?;
    until("the other is Ready by itself", LOOKS, || is_ready(world, "granted")).await?;

    let events = asked(world, mark)?;
    for uid in uids {
        let refused = events.iter().filter(|event| event.user_agent.contains(&uid) && event.code == 403);
        let refused = refused.filter(|event| event.is_write()).count();
        assert!((1..=4).contains(&refused), "{refused} tries");
    }
    told_once(world, "granted", "TargetForbidden").await?;
    told_once(world, "urged", "TargetForbidden").await
}

#[tokio::test]
async fn account_without_secret_list_adopts_by_marks_on_objects() -> Result<()> {
    let world = world().await?;
    let source = installed(world, "listless", "level=high").await?;
    let before = content(world, "listless").await?;
    let verbs = ["get", "list", "create", "patch", "delete"];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "listless"},
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": verbs},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs},
        ],
    });
    apply_yaml(&world.target.client()?, &role.to_string()).await?;
    bind(world, "listless", "kyma-system", "listless").await?;
    let spec = json!({
        "source": source, "values": {"level": "high"}, "hooks": "Skip", "serviceAccountName": "listless",
        "release": {"name": "listless", "namespace": "listless"},
    });
    world.apply("listless", spec).await?;
    until("it is Ready", LOOKS, || is_ready(world, "listless")).await?;
    let found = adoption(&world.components()?.get("listless").await?).context("adopted")?;
    assert_eq!((found.from, found.revision), (vec!["Helm".to_owned()], None), "the record is not read");
    assert_eq!(content(world, "listless").await?, before, "and nothing changes");
    Ok(())
}

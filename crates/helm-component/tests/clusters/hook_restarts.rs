//! Hooks whose operator process ends while they run, with different things recorded by then.

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use kyma_api::{HookPhase, Hooks};
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark, Cluster, until};

use crate::chart::push;
use crate::hooks::{USER, borrowed, config, job, level, pod, story, until_waiting, wished};
use crate::unkept::is_denied;
use crate::world::{DEADLINE, World, apply_yaml};

/// Story of [`three_hooks`] if each runs once.
const ONCE: [&str; 7] = [
    "+ Job first",
    "+ Pod second",
    "+ Job third",
    "- Job third",
    "- Pod second",
    "- Job first",
    "+ ConfigMap main",
];

fn hook(weight: &str) -> String {
    format!(
        "helm.sh/hook: pre-install, helm.sh/hook-weight: \"{weight}\", helm.sh/hook-delete-policy: hook-succeeded"
    )
}

/// Returns a chart with hooks, the second of which runs until a test ends it.
fn three_hooks() -> [(String, String); 4] {
    [
        config("main", ""),
        job("first", &hook("1"), ""),
        pod("second", &hook("2")),
        job("third", &hook("3"), ""),
    ]
}

/// Returns the names of hooks that were created since the mark, one for each creation.
fn created(world: &World, mark: AuditMark, namespace: &str) -> Result<Vec<String>> {
    let mut events = world.target.audit()?.since(mark)?;
    events.retain(|event| {
        let is_hook = matches!(event.resource.as_str(), "jobs" | "pods");
        is_hook && event.namespace == namespace && event.user == USER && event.code == 201
    });
    Ok(events.into_iter().map(|event| event.name).collect())
}

async fn hooks_of(world: &World, name: &str) -> Result<Hooks> {
    let found = world.components()?.get(name).await?;
    found.status.and_then(|status| status.hooks).context("a record of hooks")
}

/// Makes a cluster refuse requests that match this rule, unless the expression holds.
async fn refuse_unless(client: &Client, name: &str, rule: &Value, expression: &str) -> Result<()> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "not now"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    apply_yaml(client, &policy.to_string()).await?;
    apply_yaml(client, &binding.to_string()).await
}

async fn refuse_no_more(client: &Client, name: &str) -> Result<()> {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until the cluster has refused a matching request.
async fn until_refused(
    cluster: &Cluster,
    mark: AuditMark,
    is_it: impl Fn(&AuditEvent) -> bool,
) -> Result<()> {
    until("it is refused", DEADLINE, || async {
        let events = cluster.audit()?.since(mark)?;
        let is_refused = events.iter().any(|event| matches!(event.code, 403 | 422) && is_it(event));
        Ok(is_refused.then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_new_process_goes_on_with_the_hook_and_runs_none_twice() -> Result<()> {
    // With one worker, a hook that blocked it would stop all other components.
    let mut world = World::start_with(&["--concurrency=1"]).await?;
    while_one_runs(&mut world).await?;
    before_the_hub_knows_that_it_runs(&mut world).await?;
    while_they_are_cleaned(&mut world).await
}

async fn while_one_runs(world: &mut World) -> Result<()> {
    let source = push(world, "going", "1.0.0", &borrowed(&three_hooks())).await?;
    let mark = world.target.audit()?.mark()?;
    world.apply("going", wished(&source, "going", "low")).await?;
    until_waiting(world, "going", "waiting for the pre-install hook Pod going/second").await?;
    let plain = push(world, "meanwhile", "1.0.0", &borrowed(&[config("main", "")])).await?;
    world.apply("meanwhile", wished(&plain, "meanwhile", "low")).await?;
    world.ready("meanwhile", "True", "Ready").await?;

    world.restart_operator().await?;
    let world: &World = world;
    assert_eq!(level(world, "going").await?, None, "what comes after the hooks waits for them");
    world.end_pod("going", "second", "Succeeded").await?;
    world.ready("going", "True", "Ready").await?;
    assert_eq!(story(world, mark, "going", |event| event.user == USER)?, ONCE);
    assert_eq!(created(world, mark, "going")?, ["first", "second", "third"]);

    // No hook runs again when drift is corrected, or in another process.
    let mark = world.target.audit()?.mark()?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "going");
    let edit = json!({"data": {"level": "edited"}});
    maps.patch("main", &PatchParams::default(), &Patch::Merge(edit)).await?;
    let written = || story(world, mark, "going", |event| event.user == USER);
    // The target shows a change shortly before its audit log does.
    until("the edit is put right and recorded", DEADLINE, || async {
        let is_right = level(world, "going").await? == Some(json!("low"));
        Ok((is_right && !written()?.is_empty()).then_some(()))
    })
    .await?;
    assert_eq!(written()?, ["+ ConfigMap main"]);
    Ok(())
}

/// Restarts the operator when only the object itself shows that the hook was created.
async fn before_the_hub_knows_that_it_runs(world: &mut World) -> Result<()> {
    let name = "unheard";
    let files = [config("main", ""), pod("second", &hook("0"))];
    let source = push(world, name, "1.0.0", &borrowed(&files)).await?;
    let (hub, components) = (world.hub.client()?, world.components()?);
    let rule = json!({
        "apiGroups": ["component.kyma-project.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["helmcomponents/status"],
    });
    let unreported = "!has(object.status) || !has(object.status.hooks) || !has(object.status.hooks.running)";
    refuse_unless(&hub, name, &rule, unreported).await?;
    let running = json!({"status": {"hooks": {"running": "probe"}}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let is_refused = async || {
        let patched = components.patch_status("going", &dry_run, &Patch::Merge(&running)).await;
        is_denied(&patched)
    };
    until("the hub refuses it", DEADLINE, || async { Ok(is_refused().await.then_some(())) }).await?;

    let (on_hub, on_target) = (world.hub.audit()?.mark()?, world.target.audit()?.mark()?);
    world.apply(name, wished(&source, name, "low")).await?;
    until_refused(&world.hub, on_hub, |event| {
        event.resource == "helmcomponents/status" && event.name == name
    })
    .await?;
    world.operator.kill();
    let hooks = hooks_of(world, name).await?;
    assert_eq!((hooks.phase, hooks.running), (HookPhase::Running, None));
    assert_eq!(created(world, on_target, name)?, ["second"]);

    refuse_no_more(&hub, name).await?;
    until("the hub takes it", DEADLINE, || async { Ok((!is_refused().await).then_some(())) }).await?;
    world.restart_operator().await?;
    until_waiting(world, name, "waiting for the pre-install hook Pod unheard/second").await?;
    world.end_pod(name, "second", "Succeeded").await?;
    world.ready(name, "True", "Ready").await?;
    let told = story(world, on_target, name, |event| event.user == USER)?;
    assert_eq!(told, ["+ Pod second", "- Pod second", "+ ConfigMap main"]);
    assert_eq!(created(world, on_target, name)?, ["second"]);
    Ok(())
}

/// Restarts the operator when all hooks have run and some of their objects are deleted.
async fn while_they_are_cleaned(world: &mut World) -> Result<()> {
    let name = "halfway";
    let source = push(world, name, "1.0.0", &borrowed(&three_hooks())).await?;
    let mark = world.target.audit()?.mark()?;
    world.apply(name, wished(&source, name, "low")).await?;
    until_waiting(world, name, "waiting for the pre-install hook Pod halfway/second").await?;
    let target = world.target.client()?;
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["pods"]});
    let is_another = "request.namespace != 'halfway' || request.name != 'second'";
    refuse_unless(&target, name, &rule, is_another).await?;
    let pods: Api<Pod> = Api::namespaced(target.clone(), name);
    let dry_run = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let is_refused = async || is_denied(&pods.delete("second", &dry_run).await);
    until("the target refuses it", DEADLINE, || async { Ok(is_refused().await.then_some(())) }).await?;

    world.end_pod(name, "second", "Succeeded").await?;
    until_refused(&world.target, mark, |event| {
        event.user == USER && event.verb == "delete" && event.resource == "pods" && event.namespace == name
    })
    .await?;
    world.operator.kill();
    assert_eq!(hooks_of(world, name).await?.phase, HookPhase::Cleaning);
    assert_eq!(story(world, mark, name, |event| event.user == USER)?, ONCE[..4]);

    refuse_no_more(&target, name).await?;
    until("the target takes it", DEADLINE, || async { Ok((!is_refused().await).then_some(())) }).await?;
    world.restart_operator().await?;
    world.ready(name, "True", "Ready").await?;
    assert_eq!(story(world, mark, name, |event| event.user == USER)?, ONCE);
    assert_eq!(created(world, mark, name)?, ["first", "second", "third"]);
    Ok(())
}

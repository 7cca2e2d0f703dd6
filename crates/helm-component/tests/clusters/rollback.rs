//! Rollback to the release that was Ready, compared with Helm's, and through restarts.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, annotations};
use serde_json::{Value, json};
use testbed::until;

use crate::chart::{packed, push};
use crate::failures::told_once;
use crate::hooks::{Story, USER, borrowed, config, job, level, pod, story, wished};
use crate::restart::{at_rest, of_the_operator};
use crate::world::{DEADLINE, HUB_NAMESPACE, World, condition_of, ready_of, world};

/// Returns a Deployment whose Pods never become ready if `outcome` is `unready`.
pub(crate) fn deployment(name: &str, outcome: &str) -> (String, String) {
    let text = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: {{app: \
         {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}, testbed/outcome: {outcome}}}}}\n    spec: \
         {{containers: [{{name: main, image: example.org/main:1}}]}}\n"
    );
    (format!("templates/{name}-deployment.yaml"), text)
}

fn with_rollback(source: &Value, name: &str, level: &str) -> Value {
    let mut spec = wished(source, name, level);
    spec["rollback"] = json!({"mode": "OnFailure"});
    spec["timeouts"] = json!({"healthSeconds": 5});
    spec
}

fn hooks_of_rollback() -> Vec<(String, String)> {
    let hook = |events: &str, weight: &str, policy: &str| {
        format!(
            "helm.sh/hook: \"{events}\", helm.sh/hook-weight: \"{weight}\", helm.sh/hook-delete-policy: \"{policy}\""
        )
    };
    vec![
        config("settings", &hook("pre-rollback", "-10", "before-hook-creation")),
        job("backup", &hook("pre-rollback", "-5", "before-hook-creation,hook-succeeded"), ""),
        job("also", &hook("pre-rollback", "-5", "hook-succeeded"), ""),
        job("notify", &hook("post-rollback", "2", "hook-succeeded,hook-failed"), ""),
        job("first", &hook("post-rollback", "1", "before-hook-creation"), ""),
    ]
}

/// Returns two versions of one chart; the second one has one object more and never becomes ready.
fn versions() -> [Vec<(String, String)>; 2] {
    let both = |outcome: &str| {
        let mut files = vec![config("main", ""), deployment("web", outcome)];
        files.extend(hooks_of_rollback());
        files
    };
    let mut second = both("unready");
    second.push(config("added", ""));
    [both("ready"), second]
}

async fn by_helm(world: &World, archives: [&Path; 2]) -> Result<Story> {
    let [first, second] = archives.map(|path| path.to_str().unwrap_or_default());
    world.helm("back-helm", &["install", "rel", first, "--create-namespace"]).await?;
    world.helm("back-helm", &["upgrade", "rel", second, "--set", "level=high"]).await?;
    let mark = world.target.audit()?.mark()?;
    world.helm("back-helm", &["rollback", "rel", "1"]).await?;
    story(world, mark, "back-helm", |event| event.user_agent.starts_with("Helm/"))
}

#[tokio::test]
async fn unready_release_is_rolled_back_as_helm_does() -> Result<()> {
    let world = world().await?;
    let [first, second] = versions();
    let archives = ["1.0.0", "1.1.0"].map(|version| world.scratch(&format!("back-{version}.tgz")));
    for (path, (version, files)) in archives.iter().zip([("1.0.0", &first), ("1.1.0", &second)]) {
        std::fs::write(path, packed("back", version, &borrowed(files))?)?;
    }
    let helms = by_helm(world, [&archives[0], &archives[1]]).await?;
    ensure!(helms.len() > 6, "{helms:?}");

    let source = push(world, "back", "1.0.0", &borrowed(&first)).await?;
    world.apply("back", with_rollback(&source, "back", "low")).await?;
    let ready = world.ready("back", "True", "Ready").await?;
    let kept = condition_of(&ready, "RollbackAvailable").context("RollbackAvailable")?;
    assert_eq!((&*kept.0, &*kept.2), ("True", "1.0.0"));
    is_kept_safely(world, &ready).await?;

    let mark = world.target.audit()?.mark()?;
    let source = push(world, "back", "1.1.0", &borrowed(&second)).await?;
    world.apply("back", with_rollback(&source, "back", "high")).await?;
    let back = world.ready("back", "False", "RolledBack").await?;
    let (_, _, message) = ready_of(&back).context("Ready")?;
    // If the timeout is noticed after 10 s, the cause follows the object.
    let begins = "1.1.0 failed (HealthTimeout: not ready within 5 s: Deployment.apps back/web";
    assert!(message.starts_with(begins), "{message}");
    assert!(message.contains("), and 1.0.0 is installed again"), "{message}");
    assert_eq!(level(world, "back").await?, Some(json!("low")));
    assert!(
        world.on_target("v1", "ConfigMap", "back", "added").await?.is_none(),
        "what is not wanted is pruned"
    );
    let told = story(world, mark, "back", |event| event.user == USER)?;
    // The upgrade created its two objects, in any order.
    let way_back = told.get(told.len() - helms.len()..).context("a shorter story than Helm's")?;
    assert_eq!(way_back, helms);
    let mut forth = told[..told.len() - helms.len()].to_vec();
    forth.sort();
    assert_eq!(forth, ["+ ConfigMap added", "+ ConfigMap main"]);

    // Other values are another release, which is tried at once and ends the rollback if it works.
    let source = push(world, "back", "1.2.0", &borrowed(&first)).await?;
    world.apply("back", with_rollback(&source, "back", "higher")).await?;
    let ready = world.ready("back", "True", "Ready").await?;
    assert_eq!(ready.status.and_then(|status| status.failed_revision), None);
    assert_eq!(level(world, "back").await?, Some(json!("higher")));
    told_once(world, "back", "RolledBack").await
}

/// Checks that the Secret belongs to the component, and that its metadata reveals nothing of the release.
async fn is_kept_safely(world: &World, component: &HelmComponent) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let of = |secret: &&Secret| {
        secret.owner_references().iter().any(|owner| Some(&owner.uid) == component.metadata.uid.as_ref())
    };
    let all = secrets.list(&ListParams::default()).await?.items;
    let kept: Vec<&Secret> = all.iter().filter(of).collect();
    ensure!(kept.len() == 1, "{} Secrets", kept.len());
    assert_eq!(kept[0].type_.as_deref(), Some("component.kyma-project.io/release"));
    Ok(())
}

/// The process is killed while a hook of the rollback waits, and the registry has lost both versions.
#[tokio::test]
async fn restart_resumes_rollback_and_leaves_failed_revision_alone() -> Result<()> {
    let mut world = World::start().await?;
    let failing = {
        let (path, text) = job("check", "helm.sh/hook: pre-upgrade", "activeDeadlineSeconds: 1");
        let pods = "  template:\n    metadata: {labels: {testbed/outcome: unready}}\n";
        (path, text.replace("  template:\n", pods))
    };
    let good = [config("main", ""), pod("gate", "helm.sh/hook: pre-rollback")];
    let source = push(&world, "resumed", "1.0.0", &borrowed(&good)).await?;
    world.apply("resumed", with_rollback(&source, "resumed", "low")).await?;
    world.ready("resumed", "True", "Ready").await?;
    let bad = [config("main", ""), failing];
    let source = push(&world, "resumed", "1.1.0", &borrowed(&bad)).await?;
    world.apply("resumed", with_rollback(&source, "resumed", "high")).await?;
    let components = world.components()?;
    until("the hook of the way back is awaited", DEADLINE, || async {
        let ready = ready_of(&components.get("resumed").await?);
        let waits = |message: &str| message.contains("waiting for the pre-rollback hook Pod resumed/gate");
        Ok(ready.is_some_and(|(_, _, message)| waits(&message)).then_some(()))
    })
    .await?;
    let mark = world.target.audit()?.mark()?;
    world.operator.kill();
    world.registry.process().kill();
    std::fs::remove_dir_all(world.scratch("artifacts"))?;
    world.restart_operator().await?;
    world.end_pod("resumed", "gate", "Succeeded").await?;
    let back = world.ready("resumed", "False", "RolledBack").await?;
    let (_, _, message) = ready_of(&back).context("Ready")?;
    assert!(
        message.starts_with("1.1.0 failed (HookFailed: pre-upgrade hook Job.batch resumed/check"),
        "{message}"
    );
    assert_eq!(level(&world, "resumed").await?, Some(json!("low")));
    let told = story(&world, mark, "resumed", |event| event.user == USER)?;
    assert!(
        told.iter().all(|line| line == "+ ConfigMap main"),
        "the hook of the way back ran once: {told:?}"
    );

    another_process_writes_nothing(&mut world).await?;
    let mark = world.target.audit()?.mark()?;
    let since = back.status.and_then(|status| status.failed_revision).context("a record")?;
    request(&world, "resumed").await?;
    let again = until("what failed was tried again on request", DEADLINE, || async {
        let status = world.components()?.get("resumed").await?.status.unwrap_or_default();
        Ok(status.failed_revision.filter(|record| record.attempts > since.attempts && !record.retrying))
    })
    .await?;
    assert_ne!(again.reason, "HookFailed", "the registry is gone");
    world.ready("resumed", "False", "RolledBack").await?;
    let writes = story(&world, mark, "resumed", |event| event.user == USER)?;
    assert!(
        writes.iter().all(|line| line == "+ ConfigMap main"),
        "no hook for what cannot be had: {writes:?}"
    );
    Ok(())
}

async fn another_process_writes_nothing(world: &mut World) -> Result<()> {
    at_rest(world).await?;
    let marks = [world.hub.audit()?.mark()?, world.target.audit()?.mark()?];
    world.restart_operator().await?;
    until("the new process watches the target", DEADLINE, || async {
        let seen = of_the_operator(&world.target, marks[1])?;
        Ok(seen.iter().any(|event| event.verb == "watch" && event.code == 200).then_some(()))
    })
    .await?;
    at_rest(world).await?;
    for (cluster, mark) in [&world.hub, &world.target].into_iter().zip(marks) {
        let events = of_the_operator(cluster, mark)?;
        let writes: Vec<&str> =
            events.iter().filter(|event| event.is_write()).map(|event| event.uri.as_str()).collect();
        assert_eq!(writes, Vec::<&str>::new(), "{}", cluster.name());
    }
    Ok(())
}

async fn request(world: &World, name: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: Timestamp::now().to_string()}}});
    world.components()?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn refused_release_is_rolled_back_and_crds_keep_their_versions() -> Result<()> {
    let world = world().await?;
    let crd = |versions: &[&str]| {
        let all: Vec<String> = versions
            .iter()
            .enumerate()
            .map(|(number, name)| {
                let storage = number == 0;
                format!(
                    "  - {{name: {name}, served: true, storage: {storage}, schema: {{openAPIV3Schema: {{type: object, \
                     x-kubernetes-preserve-unknown-fields: true}}}}}}\n"
                )
            })
            .collect();
        let text = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: \
             notes.back.example.org}}\nspec:\n  group: back.example.org\n  names: {{kind: Note, plural: notes}}\n  scope: \
             Namespaced\n  versions:\n{}",
            all.concat()
        );
        ("crds/notes.yaml".to_owned(), text)
    };
    let source = push(world, "declined", "1.0.0", &borrowed(&[config("main", ""), crd(&["v1"])])).await?;
    world.apply("declined", with_rollback(&source, "declined", "low")).await?;
    world.ready("declined", "True", "Ready").await?;
    let odd = "apiVersion: v1\nkind: Service\nmetadata: {name: odd}\nspec: {ports: [{port: 0}]}\n";
    let files =
        [config("main", ""), crd(&["v1", "v1beta1"]), ("templates/odd.yaml".to_owned(), odd.to_owned())];
    let source = push(world, "declined", "1.1.0", &borrowed(&files)).await?;
    world.apply("declined", with_rollback(&source, "declined", "high")).await?;
    let back = world.ready("declined", "False", "RolledBack").await?;
    let (_, _, message) = ready_of(&back).context("Ready")?;
    assert!(message.starts_with("1.1.0 failed (ApplyRefused: "), "{message}");
    assert_eq!(level(world, "declined").await?, Some(json!("low")), "what was sent of it is taken back");
    let kind = "CustomResourceDefinition";
    let crd = world.on_target("apiextensions.k8s.io/v1", kind, "", "notes.back.example.org").await?;
    let versions = crd.context("the CRD")?.data["spec"]["versions"].as_array().map(Vec::len);
    assert_eq!(versions, Some(2), "a CRD never goes back to fewer versions");
    Ok(())
}

/// A failed release may be many times larger. The rollback restores the former one as it was, so no prune needs a
/// confirmation.
#[tokio::test]
async fn what_failed_and_was_much_larger_is_taken_back_as_a_whole() -> Result<()> {
    let world = world().await?;
    let small = vec![config("main", ""), deployment("web", "ready")];
    let source = push(world, "outgrown", "1.0.0", &borrowed(&small)).await?;
    world.apply("outgrown", with_rollback(&source, "outgrown", "low")).await?;
    world.ready("outgrown", "True", "Ready").await?;
    let mut large = vec![config("main", ""), deployment("web", "unready")];
    large.extend((0..8).map(|number| config(&format!("added-{number}"), "")));
    let source = push(world, "outgrown", "1.1.0", &borrowed(&large)).await?;
    world.apply("outgrown", with_rollback(&source, "outgrown", "high")).await?;
    world.ready("outgrown", "False", "RolledBack").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "outgrown");
    let ours = ListParams::default().labels("component.kyma-project.io/owner");
    let left: Vec<String> = maps.list(&ours).await?.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["main"]);
    Ok(())
}

/// The spec goes back by an edit: objects of a refused release are not taken for the installed ones.
#[tokio::test]
async fn a_spec_that_goes_back_brings_back_what_a_refused_one_changed() -> Result<()> {
    let world = world().await?;
    let source = push(world, "by-hand", "1.0.0", &borrowed(&[config("main", "")])).await?;
    world.apply("by-hand", wished(&source, "by-hand", "low")).await?;
    world.ready("by-hand", "True", "Ready").await?;
    let odd = "apiVersion: v1\nkind: Service\nmetadata: {name: odd}\nspec: {ports: [{port: 0}]}\n";
    let files = [config("main", ""), ("templates/odd.yaml".to_owned(), odd.to_owned())];
    let refused = push(world, "by-hand", "1.1.0", &borrowed(&files)).await?;
    world.apply("by-hand", wished(&refused, "by-hand", "high")).await?;
    world.ready("by-hand", "False", "ApplyRefused").await?;
    assert_eq!(level(world, "by-hand").await?, Some(json!("high")), "part of it is there");
    world.apply("by-hand", wished(&source, "by-hand", "low")).await?;
    world.ready("by-hand", "True", "Ready").await?;
    assert_eq!(level(world, "by-hand").await?, Some(json!("low")));
    Ok(())
}

#[tokio::test]
async fn rollback_target_is_stored_only_while_rollback_is_requested() -> Result<()> {
    let world = world().await?;
    let source = push(world, "plain-back", "1.0.0", &borrowed(&[config("main", "")])).await?;
    world.apply("plain-back", wished(&source, "plain-back", "low")).await?;
    let ready = world.ready("plain-back", "True", "Ready").await?;
    assert!(condition_of(&ready, "RollbackAvailable").is_none());
    world.apply("plain-back", with_rollback(&source, "plain-back", "low")).await?;
    until_kept(world, "plain-back", "True").await?;
    is_kept_safely(world, &ready).await?;
    world.apply("plain-back", wished(&source, "plain-back", "low")).await?;
    until_kept(world, "plain-back", "Unknown").await?;
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let owner = kyma_api::names::owner_hash(HUB_NAMESPACE, "plain-back");
    let left = secrets.get(&format!("helm-component-release-{owner}-1")).await?;
    assert!(left.data.unwrap_or_default().is_empty());
    Ok(())
}

async fn until_kept(world: &World, name: &str, status: &str) -> Result<()> {
    let components = world.components()?;
    until(&format!("RollbackAvailable is {status}"), DEADLINE, || async {
        let kept = condition_of(&components.get(name).await?, "RollbackAvailable");
        Ok(kept.is_some_and(|(is, _, _)| is == status).then_some(()))
    })
    .await
}

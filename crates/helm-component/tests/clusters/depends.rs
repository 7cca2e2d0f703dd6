//! Components that wait for other components, or for kinds of the target.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, labels};
use kyma_controller::ResourceVersion;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::{crd_is_served, until};
use tokio::task::JoinHandle;

use crate::chart::push;
use crate::failures::told_once;
use crate::world::{DEADLINE, HUB_NAMESPACE, World, apply_yaml, condition_of, ready_of, world};

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: link}\ndata: {version: one}\n";
/// Length of the chain.
const LINKS: usize = 20;
/// Returns the time that waiting for an event may take: a second on an idle machine (`TEST_FULL=1`), and on a busy
/// one less than polling each link would take.
fn slack() -> Duration {
    let quiet = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    Duration::from_secs(if quiet { 1 } else { 15 })
}

/// Returns the spec of a component in a namespace of its own on the target, with these dependencies.
fn spec(name: &str, source: &Value, depends_on: &Value) -> Value {
    json!({
        "source": source, "release": {"namespace": name}, "dependsOn": depends_on, "deletionPolicy": "Delete",
    })
}

fn component(name: &str) -> Value {
    json!({"component": {"name": name}})
}

pub(crate) async fn says(world: &World, name: &str, type_: &str, reason: &str) -> Result<String> {
    let components = world.components()?;
    until(&format!("{name}: {type_} says {reason}"), DEADLINE, || async {
        let told = condition_of(&components.get(name).await?, type_);
        Ok(told.filter(|(_, told, _)| told == reason).map(|(_, _, message)| message))
    })
    .await
    .with_context(|| world.operator.log_end(30))
}

/// Returns the version in a component's ConfigMap, if that exists.
async fn version(world: &World, name: &str) -> Result<Option<String>> {
    let map = world.on_target("v1", "ConfigMap", name, "link").await?;
    Ok(map.and_then(|map| map.data["data"]["version"].as_str().map(str::to_owned)))
}

async fn end(world: &World, names: &[&str]) -> Result<()> {
    for name in names {
        world.components()?.delete(name, &DeleteParams::default()).await?;
    }
    try_join_all(names.iter().map(|name| world.gone(name))).await?;
    Ok(())
}

/// When components became Ready, and the order in which they were removed.
#[derive(Default)]
struct ComponentEvents {
    ready: HashMap<String, Instant>,
    gone: Vec<String>,
}

struct ComponentWatch {
    seen: Arc<Mutex<ComponentEvents>>,
    task: JoinHandle<()>,
}

impl ComponentWatch {
    fn start(world: &World) -> Result<Self> {
        let seen = Arc::new(Mutex::new(ComponentEvents::default()));
        let noted = Arc::clone(&seen);
        let events = watcher(world.components()?, watcher::Config::default());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(events.into_stream());
            while let Some(event) = events.next().await {
                let mut seen = noted.lock();
                match event {
                    // The first list may contain changes that came before the watch.
                    Ok(Event::Apply(component) | Event::InitApply(component)) if is_ready(&component) => {
                        seen.ready.entry(component.name_any()).or_insert_with(Instant::now);
                    }
                    Ok(Event::Delete(component)) => seen.gone.push(component.name_any()),
                    _ => {}
                }
            }
        });
        Ok(Self { seen, task })
    }

    fn ready(&self, name: &str) -> Option<Instant> {
        self.seen.lock().ready.get(name).copied()
    }

    fn gone(&self, prefix: &str) -> Vec<String> {
        self.seen.lock().gone.iter().filter(|name| name.starts_with(prefix)).cloned().collect()
    }
}

impl Drop for ComponentWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn is_ready(component: &HelmComponent) -> bool {
    ready_of(component).is_some_and(|(status, _, _)| status == "True")
}

/// Returns the time until a component without dependencies is Ready: the median of five with this prefix.
async fn part(world: &World, watched: &ComponentWatch, source: &Value, prefix: &str) -> Result<Duration> {
    let mut parts = vec![];
    for number in 0..5 {
        let name = format!("{prefix}-{number}");
        let asked = Instant::now();
        world.apply(&name, spec(&name, source, &json!([]))).await?;
        world.ready(&name, "True", "Ready").await?;
        let ready = until("the watch saw it", DEADLINE, || async { Ok(watched.ready(&name)) }).await?;
        parts.push(ready - asked);
    }
    parts.sort_unstable();
    Ok(parts[2])
}

#[tokio::test]
async fn dependency_chain_adds_no_delay_and_is_removed_in_reverse() -> Result<()> {
    let world = world().await?;
    let source = world.push("link", "1.0.0", MANIFEST).await?;
    let watched = ComponentWatch::start(world)?;
    let part_before = part(world, &watched, &source, "solo").await?;
    let names: Vec<String> = (0..LINKS).map(|number| format!("chain-{number:02}")).collect();
    for (before, name) in names.iter().zip(&names[1..]).rev() {
        world.apply(name, spec(name, &source, &json!([component(before)]))).await?;
    }
    for (before, name) in names.iter().zip(&names[1..]) {
        let message = says(world, name, "Ready", "DependencyNotReady").await?;
        assert!(message.starts_with(&format!("HelmComponent {before} ")), "{message}");
    }
    let begin = Instant::now();
    world.apply(&names[0], spec(&names[0], &source, &json!([]))).await?;
    let last = &names[LINKS - 1];
    let deadline = DEADLINE + part_before * u32::try_from(LINKS)?;
    let end = until("all are Ready", deadline, || async { Ok(watched.ready(last)) }).await?;
    // Tests that began meanwhile slow the machine down.
    let part = part_before.max(part(world, &watched, &source, "solo-after").await?);
    let moments: Vec<Instant> = names.iter().filter_map(|name| watched.ready(name)).collect();
    assert_eq!(moments.len(), LINKS);
    assert!(moments.is_sorted(), "each after the one it depends on");
    let mut steps: Vec<Duration> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable();
    let (total, parts) = (end - begin, part * u32::try_from(LINKS)?);
    println!(
        "chain of {LINKS}: {total:?}; its parts: {LINKS} x {part:?} = {parts:?}; beyond them {:?}; \
         from Ready to Ready: {:?} at least, {:?} in the middle, {:?} at most",
        total.saturating_sub(parts),
        steps[0],
        steps[steps.len() / 2],
        steps[steps.len() - 1],
    );
    ensure!(total <= parts + slack(), "{total:?} is too long for {LINKS} parts of {part:?}");
    let mut versions = vec![];
    for name in &names {
        let map = world.on_target("v1", "ConfigMap", name, "link").await?.context("the ConfigMap")?;
        versions.push(ResourceVersion::of(&map.metadata).context("a version")?);
    }
    assert!(versions.is_sorted(), "in order on the target: {versions:?}");
    let components = world.components()?;
    let params = DeleteParams::default();
    try_join_all(names.iter().map(|name| components.delete(name, &params))).await?;
    // They go one after another.
    for name in names.iter().rev() {
        world.gone(name).await?;
    }
    let all = until("all went", DEADLINE, || async {
        let gone = watched.gone("chain-");
        Ok((gone.len() == LINKS).then_some(gone))
    })
    .await?;
    let reversed: Vec<String> = names.iter().rev().cloned().collect();
    assert_eq!(all, reversed);
    assert_eq!(version(world, &names[0]).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_circle_is_refused_with_its_path_and_healed_by_one_change() -> Result<()> {
    let world = world().await?;
    let source = world.push("ring", "1.0.0", MANIFEST).await?;
    world.apply("ring-a", spec("ring-a", &source, &json!([component("ring-b")]))).await?;
    world.apply("ring-b", spec("ring-b", &source, &json!([component("ring-a")]))).await?;
    world.apply("ring-self", spec("ring-self", &source, &json!([component("ring-self")]))).await?;
    for (name, path) in [
        ("ring-a", "ring-a -> ring-b -> ring-a"),
        ("ring-b", "ring-b -> ring-a -> ring-b"),
        ("ring-self", "ring-self -> ring-self"),
    ] {
        assert_eq!(says(world, name, "DependenciesReady", "DependencyCycle").await?, path);
        assert_eq!(says(world, name, "Ready", "DependencyCycle").await?, path);
        assert_eq!(version(world, name).await?, None);
    }
    world.apply("ring-b", spec("ring-b", &source, &json!([]))).await?;
    world.ready("ring-b", "True", "Ready").await?;
    world.ready("ring-a", "True", "Ready").await?;
    told_once(world, "ring-a", "DependencyCycle").await?;
    end(world, &["ring-a", "ring-b", "ring-self"]).await
}

#[tokio::test]
async fn lost_dependency_keeps_objects_and_delays_the_upgrade() -> Result<()> {
    let world = world().await?;
    let source = world.push("pair", "1.0.0", MANIFEST).await?;
    let newer = world.push("pair", "2.0.0", &MANIFEST.replace("one", "two")).await?;
    let missing = json!({"ocm": {"component": "example.org/module/pair", "version": "9.9.9"}});
    world.apply("pair-base", spec("pair-base", &source, &json!([]))).await?;
    let needs = json!([component("pair-base")]);
    world.apply("pair-top", spec("pair-top", &source, &needs)).await?;
    world.ready("pair-top", "True", "Ready").await?;
    world.apply("pair-base", spec("pair-base", &missing, &json!([]))).await?;
    let lost = says(world, "pair-top", "DependenciesReady", "DependencyLost").await?;
    assert_eq!(lost, "HelmComponent pair-base is not Ready");
    world.ready("pair-top", "True", "Ready").await?;
    let maps = crate::world::api(&world.target.client()?, "v1", "ConfigMap", Some("pair-top")).await?.0;
    let edit = Patch::Merge(json!({"data": {"version": "mine"}}));
    maps.patch("link", &PatchParams::default(), &edit).await?;
    until("drift is put right all the same", DEADLINE, || async {
        Ok((version(world, "pair-top").await?.as_deref() == Some("one")).then_some(()))
    })
    .await?;
    world.apply("pair-top", spec("pair-top", &newer, &needs)).await?;
    world.ready("pair-top", "False", "DependencyNotReady").await?;
    assert_eq!(version(world, "pair-top").await?.as_deref(), Some("one"));
    world.apply("pair-base", spec("pair-base", &source, &json!([]))).await?;
    world.ready("pair-top", "True", "Ready").await?;
    assert_eq!(version(world, "pair-top").await?.as_deref(), Some("two"));
    says(world, "pair-top", "DependenciesReady", "Succeeded").await?;
    let components = world.components()?;
    components.delete("pair-base", &DeleteParams::default()).await?;
    let blocked = says(world, "pair-base", "Ready", "DeletionBlocked").await?;
    assert!(blocked.contains("HelmComponent pair-top"), "{blocked}");
    assert_eq!(version(world, "pair-base").await?.as_deref(), Some("one"));
    end(world, &["pair-top"]).await?;
    world.gone("pair-base").await?;
    assert_eq!(version(world, "pair-base").await?, None);
    Ok(())
}

/// A dependency on an API version that the hub does not serve blocks no other component, and can be corrected.
#[tokio::test]
async fn a_kind_is_followed_in_whichever_named_version_the_hub_serves() -> Result<()> {
    let world = world().await?;
    let source = world.push("levered", "1.0.0", MANIFEST).await?;
    let on = |version: &str| {
        let lever = json!({"apiVersion": version, "kind": "ConfigMap", "name": "lever"});
        json!([{"component": lever, "ready": "data['on'] == 'yes'"}])
    };
    world.apply("lever-typo", spec("lever-typo", &source, &on("v2"))).await?;
    says(world, "lever-typo", "Ready", "DependencyNotReady").await?;
    let components = world.components()?;
    until("it is told as not served", DEADLINE, || async {
        let told = ready_of(&components.get("lever-typo").await?);
        Ok(told.filter(|(_, _, message)| message.contains("the hub does not serve it")))
    })
    .await?;
    world.apply("lever-right", spec("lever-right", &source, &on("v1"))).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let lever = json!({"metadata": {"name": "lever"}, "data": {"on": "yes"}});
    maps.create(&PostParams::default(), &serde_json::from_value(lever)?).await?;
    world.ready("lever-right", "True", "Ready").await?;
    world.ready("lever-typo", "True", "Ready").await?;
    end(world, &["lever-typo", "lever-right"]).await
}

#[tokio::test]
async fn a_component_that_is_let_go_waits_for_nobody() -> Result<()> {
    let world = world().await?;
    let source = world.push("loose", "1.0.0", MANIFEST).await?;
    world.apply("loose-base", spec("loose-base", &source, &json!([]))).await?;
    world.apply("loose-top", spec("loose-top", &source, &json!([component("loose-base")]))).await?;
    world.ready("loose-top", "True", "Ready").await?;
    world.delete("loose-base", "Orphan").await?;
    world.gone("loose-base").await?;
    assert_eq!(version(world, "loose-base").await?.as_deref(), Some("one"));
    let components = world.components()?;
    until("what was let go is told as gone", DEADLINE, || async {
        let told = condition_of(&components.get("loose-top").await?, "DependenciesReady");
        let gone = told.filter(|(_, _, message)| message == "HelmComponent loose-base does not exist");
        Ok(gone.filter(|(_, reason, _)| reason == "DependencyLost"))
    })
    .await?;
    end(world, &["loose-top"]).await
}

#[tokio::test]
async fn a_module_of_the_same_kyma_and_an_expression_are_waited_for() -> Result<()> {
    let world = world().await?;
    let source = world.push("meshed", "1.0.0", MANIFEST).await?;
    let gate =
        json!({"module": "mesh", "ready": "metadata.labels['gate'] == 'open' && status.state == 'Ready'"});
    let labelled = |name: &'static str, labels: Value| async move {
        let labels = Patch::Merge(json!({"metadata": {"labels": labels}}));
        world.components()?.patch(name, &PatchParams::default(), &labels).await?;
        anyhow::Ok(())
    };
    let suspended = |name: &str, depends_on: &Value| {
        let mut spec = spec(name, &source, depends_on);
        spec["suspend"] = json!(true);
        spec
    };
    world.apply("mesh-app", suspended("mesh-app", &json!([gate]))).await?;
    labelled("mesh-app", json!({labels::KYMA_NAME: "k", labels::MODULE_NAME: "app"})).await?;
    world.apply("mesh-app", spec("mesh-app", &source, &json!([gate]))).await?;
    let message = says(world, "mesh-app", "Ready", "DependencyNotReady").await?;
    assert_eq!(message, "module mesh is not enabled in this Kyma");
    world.apply("mesh", suspended("mesh", &json!([]))).await?;
    labelled("mesh", json!({labels::KYMA_NAME: "k", labels::MODULE_NAME: "mesh"})).await?;
    world.apply("mesh", spec("mesh", &source, &json!([]))).await?;
    world.ready("mesh", "True", "Ready").await?;
    let components = world.components()?;
    until("the expression lacks the label", DEADLINE, || async {
        let told = ready_of(&components.get("mesh-app").await?);
        Ok(told.filter(|(_, _, message)| message.contains("reads a field that the component lacks")))
    })
    .await?;
    assert_eq!(version(world, "mesh-app").await?, None);
    labelled("mesh", json!({"gate": "open"})).await?;
    world.ready("mesh-app", "True", "Ready").await?;
    assert_eq!(version(world, "mesh-app").await?.as_deref(), Some("one"));
    Ok(())
}

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: example.org/shop:1}]}
";
const ROUTE: &str = "apiVersion: shop.example.org/v1\nkind: VirtualService\nmetadata: {name: shop}\n";
const ROUTES: &str = "virtualservices.shop.example.org";
const CRD: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: virtualservices.shop.example.org}
spec:
  group: shop.example.org
  names: {kind: VirtualService, plural: virtualservices}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

#[tokio::test]
async fn a_kind_that_is_missing_comes_goes_and_comes_again() -> Result<()> {
    let world = world().await?;
    let target = world.target.client()?;
    let files = [("templates/shop.yaml", DEPLOYMENT), ("templates/route.yaml", ROUTE)];
    let source = push(world, "shop", "1.0.0", &files).await?;
    let kind = json!([{"api": {"group": "shop.example.org", "kind": "VirtualService"}}]);
    world.apply("shop", spec("shop", &source, &kind)).await?;
    let missing = says(world, "shop", "DependenciesReady", "DependencyMissing").await?;
    assert!(missing.contains("VirtualService.shop.example.org"), "{missing}");
    let deployments: Api<Deployment> = Api::namespaced(target.clone(), "shop");
    until("the Deployment is Available", DEADLINE, || async {
        let status = deployments.get_opt("shop").await?.and_then(|found| found.status);
        Ok(status.and_then(|status| status.available_replicas).filter(|available| *available > 0))
    })
    .await?;
    for round in ["added", "added again"] {
        apply_yaml(&target, CRD).await?;
        crd_is_served(&target, ROUTES).await?;
        let served = Instant::now();
        until("the VirtualService is there", DEADLINE, || async {
            world.on_target("shop.example.org/v1", "VirtualService", "shop", "shop").await
        })
        .await?;
        println!("CRD {round}: its object was there {:?} after it was served", served.elapsed());
        ensure!(served.elapsed() < slack(), "{:?}", served.elapsed());
        says(world, "shop", "DependenciesReady", "Succeeded").await?;
        world.ready("shop", "True", "Ready").await?;
        if round == "added" {
            told_once(world, "shop", "DependencyMissing").await?;
        }
        let crds: Api<CustomResourceDefinition> = Api::all(target.clone());
        crds.delete(ROUTES, &DeleteParams::default()).await?;
        let lost = says(world, "shop", "DependenciesReady", "DependencyMissing").await?;
        assert!(lost.contains("VirtualService.shop.example.org"), "{lost}");
        // A CRD that is applied again while it is being deleted would still go.
        until("the CRD is gone", DEADLINE, || async {
            Ok(crds.get_opt(ROUTES).await?.is_none().then_some(()))
        })
        .await?;
    }
    end(world, &["shop"]).await
}

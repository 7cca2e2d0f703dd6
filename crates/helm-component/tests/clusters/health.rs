//! Health of objects, as a component reports it and as the target shows it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use futures::{Stream, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use kyma_api::HelmComponent;
use serde_json::{Value, json};
use testbed::until;

use crate::world::{DEADLINE, World, api, apply_yaml, condition_of, ready_of, world};

const LAMPS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.light.example.org}
spec:
  group: light.example.org
  names: {kind: Lamp, plural: lamps}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn lamp(name: &str) -> String {
    format!("apiVersion: light.example.org/v1\nkind: Lamp\nmetadata: {{name: {name}}}\nspec: {{watt: 5}}\n")
}

fn lit_when(current: &str) -> Value {
    json!({"expressions": [{
        "apiVersion": "light.example.org/v1", "kind": "Lamp", "current": current,
        "failed": "self.status.phase == 'Broken'", "inProgress": "status.phase == 'Warming'",
    }]})
}

async fn wish(world: &World, name: &str, more: Value) -> Result<()> {
    let source = world.push(name, "1.0.0", &lamp(name)).await?;
    let mut spec = json!({"source": source, "release": {"namespace": name}});
    spec.as_object_mut().context("a map")?.extend(more.as_object().context("a map")?.clone());
    world.apply(name, spec).await
}

async fn lamps(world: &World, namespace: &str) -> Result<Api<DynamicObject>> {
    Ok(api(&world.target.client()?, "light.example.org/v1", "Lamp", Some(namespace)).await?.0)
}

/// Creates the kind and two components, each with a lamp and a health expression of its own.
async fn two_lamps(world: &World, names: [&str; 2]) -> Result<()> {
    kind_of_lamps(world).await?;
    for (name, phase) in names.into_iter().zip(["Lit", "Dark"]) {
        waits_for_lamp(world, name, phase).await?;
    }
    Ok(())
}

async fn kind_of_lamps(world: &World) -> Result<()> {
    apply_yaml(&world.target.client()?, LAMPS).await?;
    testbed::crd_is_served(&world.target.client()?, "lamps.light.example.org").await
}

/// Creates a component, and waits until it waits for this phase of its lamp.
async fn waits_for_lamp(world: &World, name: &str, phase: &str) -> Result<()> {
    wish(world, name, json!({"health": lit_when(&format!("status.phase == '{phase}'"))})).await?;
    let awaited = format!("Lamp.light.example.org {name}/{name}");
    // Before that the component may not have read the target, or not know the kind yet.
    until(&format!("{name} waits for its lamp"), DEADLINE, || async {
        let told = ready_of(&world.components()?.get(name).await?);
        Ok(told.filter(|(_, reason, message)| reason == "Progressing" && message.contains(&awaited)))
    })
    .await?;
    Ok(())
}

async fn set_phase(world: &World, name: &str, phase: &str) -> Result<()> {
    let status = json!({"status": {"phase": phase}});
    let lamps = lamps(world, name).await?;
    lamps.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

#[tokio::test]
async fn objects_of_one_kind_use_health_expression_of_their_component() -> Result<()> {
    let world = world().await?;
    two_lamps(world, ["lantern", "glow"]).await?;
    for name in ["lantern", "glow"] {
        set_phase(world, name, "Lit").await?;
    }
    world.ready("lantern", "True", "Ready").await?;
    world.ready("glow", "False", "Progressing").await?;
    set_phase(world, "glow", "Dark").await?;
    world.ready("glow", "True", "Ready").await?;

    set_phase(world, "lantern", "Broken").await?;
    let broken = world.ready("lantern", "False", "Unhealthy").await?;
    let (_, reason, message) = condition_of(&broken, "Healthy").context("Healthy")?;
    assert_eq!(reason, "Unhealthy");
    assert_eq!(message, "Lamp.light.example.org lantern/lantern (health.expressions[0].failed is true)");
    set_phase(world, "lantern", "Warming").await?;
    world.ready("lantern", "False", "Progressing").await?;
    set_phase(world, "lantern", "Lit").await?;
    world.ready("lantern", "True", "Ready").await?;

    // Nothing changes on the target, so no watch event arrives.
    wish(world, "glow", json!({"health": lit_when("status.phase == 'Lit'")})).await?;
    world.ready("glow", "False", "Progressing").await?;
    wish(world, "glow", json!({"health": lit_when("has(status.phase)")})).await?;
    world.ready("glow", "True", "Ready").await?;
    wish(world, "glow", json!({})).await?;
    world.ready("glow", "True", "Ready").await?;
    Ok(())
}

/// Returns the reasons of all conditions that were written, up to this version of the component.
async fn reasons_until(
    events: impl Stream<Item = kube::Result<WatchEvent<HelmComponent>>>,
    last: &HelmComponent,
) -> Result<BTreeSet<String>> {
    let mut events = std::pin::pin!(events);
    let mut reasons = BTreeSet::new();
    while let Some(event) = tokio::time::timeout(DEADLINE, events.try_next()).await?? {
        let component = match event {
            WatchEvent::Modified(component) => component,
            WatchEvent::Bookmark(_) => continue,
            other => bail!("{other:?}"),
        };
        let status = component.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        reasons.extend(conditions.iter().map(|condition| condition.reason.clone()));
        if component.resource_version() == last.resource_version() {
            return Ok(reasons);
        }
    }
    bail!("the watch ended")
}

#[tokio::test]
async fn a_failure_that_is_over_before_it_has_lasted_is_never_told() -> Result<()> {
    let world = World::start_with(&["--unhealthy-after-seconds=3600"]).await?;
    kind_of_lamps(&world).await?;
    waits_for_lamp(&world, "flicker", "Lit").await?;
    set_phase(&world, "flicker", "Lit").await?;
    let first = world.ready("flicker", "True", "Ready").await?.resource_version().context("a version")?;
    let only = WatchParams::default().fields("metadata.name=flicker");
    let events = world.components()?.watch(&only, &first).await?;

    set_phase(&world, "flicker", "Broken").await?;
    world.ready("flicker", "False", "Progressing").await?;
    set_phase(&world, "flicker", "Lit").await?;
    let last = world.ready("flicker", "True", "Ready").await?;
    let reasons = reasons_until(events, &last).await?;
    assert!(reasons.contains("Progressing") && !reasons.contains("Unhealthy"), "{reasons:?}");
    Ok(())
}

#[tokio::test]
async fn a_manager_of_a_kind_with_an_expression_is_healthy_by_it() -> Result<()> {
    let world = world().await?;
    two_lamps(world, ["candle", "match"]).await?;
    let manager = json!({"group": "light.example.org", "version": "v1", "kind": "Lamp", "name": "candle"});
    wish(world, "candle", json!({"manager": manager, "health": lit_when("status.phase == 'Lit'")})).await?;
    world.ready("candle", "False", "Progressing").await?;
    set_phase(world, "candle", "Lit").await?;
    world.ready("candle", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn invalid_health_expression_stops_component_before_any_write() -> Result<()> {
    let world = world().await?;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: spark}\n";
    let source = world.push("spark", "1.0.0", map).await?;
    let expressions =
        json!([{"apiVersion": "light.example.org/v1", "kind": "Lamp", "current": "status.phase =="}]);
    let spec =
        json!({"source": source, "release": {"namespace": "spark"}, "health": {"expressions": expressions}});
    world.apply("spark", spec).await?;
    let component = world.ready("spark", "False", "SpecInvalid").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    assert!(message.starts_with("spec.health.expressions[0].current is not valid CEL"), "{message}");
    assert!(world.on_target("v1", "Namespace", "", "spark").await?.is_none());
    world.apply("spark", json!({"source": source, "release": {"namespace": "spark"}})).await?;
    world.ready("spark", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn a_job_that_succeeded_and_went_by_itself_is_not_run_again() -> Result<()> {
    let world = world().await?;
    let manifest = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: flare}\nspec:\n  ttlSecondsAfterFinished: 1\n  template:\n    \
        spec: {restartPolicy: Never, containers: [{name: main, image: example.org/main:1}]}\n---\napiVersion: v1\nkind: \
        ConfigMap\nmetadata: {name: flare}\n";
    let source = world.push("flare", "1.0.0", manifest).await?;
    world.apply("flare", json!({"source": source, "release": {"namespace": "flare"}})).await?;
    world.ready("flare", "True", "Ready").await?;
    let client = world.target.client()?;
    let (jobs, maps) =
        (Api::<Job>::namespaced(client.clone(), "flare"), Api::<ConfigMap>::namespaced(client, "flare"));
    // A Job that went before the operator saw its end would be run again.
    let components = world.components()?;
    until("that it did its work is on record", DEADLINE, || async {
        let status = components.get("flare").await?.status.unwrap_or_default();
        let mut jobs = status.entries()?.into_iter().filter(|entry| entry.kind == "Job");
        Ok(jobs.next().is_some_and(|entry| entry.finished).then_some(()))
    })
    .await?;
    until("the Job went", DEADLINE, || async { Ok(jobs.get_opt("flare").await?.is_none().then_some(())) })
        .await?;
    // Once this drift is corrected, a whole pass has found the Job missing.
    maps.delete("flare", &DeleteParams::default()).await?;
    until("the map is back", DEADLINE, || async { Ok(maps.get_opt("flare").await?) }).await?;
    world.ready("flare", "True", "Ready").await?;
    assert!(jobs.get_opt("flare").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_claim_whose_class_waits_for_a_pod_holds_nothing_up() -> Result<()> {
    let world = world().await?;
    let classes = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: late}\nprovisioner: \
        example.org/none\nvolumeBindingMode: WaitForFirstConsumer\n---\napiVersion: storage.k8s.io/v1\nkind: \
        StorageClass\nmetadata: {name: early}\nprovisioner: example.org/none\nvolumeBindingMode: Immediate\n";
    apply_yaml(&world.target.client()?, classes).await?;
    for (name, class) in [("wick", "late"), ("wax", "early")] {
        let claim = format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{storageClassName: {class}, \
             accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
        );
        let source = world.push(name, "1.0.0", &claim).await?;
        world.apply(name, json!({"source": source, "release": {"namespace": name}})).await?;
    }
    world.ready("wick", "True", "Ready").await?;
    world.ready("wax", "False", "Progressing").await?;
    Ok(())
}

#[tokio::test]
async fn what_holds_up_a_workload_is_named_after_a_while() -> Result<()> {
    let world = world().await?;
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: beacon}\nspec:\n  selector: {matchLabels: {app: \
        beacon}}\n  template:\n    metadata: {labels: {app: beacon}}\n    spec: {nodeSelector: {none: such}, containers: [{name: \
        main, image: example.org/main:1}]}\n";
    let source = world.push("beacon", "1.0.0", manifest).await?;
    world.apply("beacon", json!({"source": source, "release": {"namespace": "beacon"}})).await?;
    let components = world.components()?;
    let message = until("the cause is told", DEADLINE, || async {
        let ready = ready_of(&components.get("beacon").await?);
        Ok(ready.map(|(_, _, message)| message).filter(|message| message.contains("PodScheduled")))
    })
    .await?;
    assert!(message.starts_with("waiting for Deployment.apps beacon/beacon (Pod beacon-"), "{message}");
    assert!(message.ends_with(": PodScheduled is False: Unschedulable)"), "{message}");
    Ok(())
}

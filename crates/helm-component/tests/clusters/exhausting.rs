//! Expressions about objects of one target that run to the limit of their evaluation, while a component of another
//! target is installed.

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kyma_controller::Settings;
use serde_json::json;
use testbed::{crd_is_served, until};

use crate::world::{ACCESS, DEADLINE, HUB_NAMESPACE, World, api, apply_yaml, notes, ready_of, world};

/// Number of components with exhausting expressions. Each has a kind of its own, so each has a watch of its own: more
/// than the threads on which a process evaluates expressions.
const COMPONENTS: usize = 6;
/// Number of objects of each of these components, each with an evaluation to the limit.
const OBJECTS: usize = 4;
/// Access Secret of the target of these components, and prefix of their names.
const EXHAUSTING: &str = "exhausting";
/// Component of the other target.
const OTHER: &str = "beside-exhausting";
/// Label of an object whose evaluation runs to the limit.
const EXHAUSTS: &str = "exhausts";

/// Creates an access Secret that leads to the world's target: another target, as the operator sees it.
async fn create_access(world: &World) -> Result<()> {
    let kubeconfig = world.target.kubeconfig_for_service_account("kube-system", "modules").await?;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": EXHAUSTING, "labels": {"operator.kyma-project.io/kyma-name": "test"}},
        "stringData": {"config": kubeconfig},
    }))?;
    Api::namespaced(world.hub.client()?, HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
    Ok(())
}

fn group(name: &str) -> String {
    format!("{name}.example.org")
}

async fn serve_notes(world: &World, name: &str) -> Result<()> {
    let (client, group) = (world.target.client()?, group(name));
    apply_yaml(&client, &notes(&group)).await?;
    crd_is_served(&client, &format!("notes.{group}")).await
}

/// Applies a component with Notes of its own group, whose health is this expression, for the target of an access
/// Secret.
async fn apply(world: &World, secret: &str, name: &str, current: &str) -> Result<()> {
    let api_version = format!("{}/v1", group(name));
    let note = |number: usize| {
        format!("---\napiVersion: {api_version}\nkind: Note\nmetadata: {{name: note-{number}}}\n")
    };
    let manifest: String = (0..OBJECTS).map(note).collect();
    let expressions = json!([{"apiVersion": api_version, "kind": "Note", "current": current}]);
    let spec = json!({
        "source": world.push(name, "1.0.0", &manifest).await?,
        "release": {"namespace": name},
        "health": {"expressions": expressions},
    });
    world.apply_for(secret, name, spec).await
}

/// Changes all Notes of a component, so that the evaluation for each runs to the limit.
async fn exhaust(world: &World, name: &str) -> Result<()> {
    let api_version = format!("{}/v1", group(name));
    let (objects, _) = api(&world.target.client()?, &api_version, "Note", Some(name)).await?;
    let label = json!({"metadata": {"labels": {EXHAUSTS: "true"}}});
    for number in 0..OBJECTS {
        let label = Patch::Merge(&label);
        objects.patch(&format!("note-{number}"), &PatchParams::default(), &label).await?;
    }
    Ok(())
}

/// Waits until the condition Ready of a component has this status and a message with these words.
async fn until_ready_says(
    world: &World,
    name: &str,
    status: &str,
    words: &str,
    deadline: Duration,
) -> Result<()> {
    let components = world.components()?;
    until(&format!("{name} is Ready={status} with {words:?}"), deadline, || async {
        let ready = ready_of(&components.get(name).await?);
        Ok(ready.filter(|(is, _, message)| is == status && message.contains(words)).map(drop))
    })
    .await
}

#[tokio::test]
async fn exhausting_expressions_leave_another_target_its_deadline() -> Result<()> {
    let world = world().await?;
    create_access(world).await?;
    let names: Vec<String> = (0..COMPONENTS).map(|number| format!("{EXHAUSTING}-{number}")).collect();
    let all = || names.iter().map(String::as_str);
    try_join_all(all().chain([OTHER]).map(|name| serve_notes(world, name))).await?;
    let loops = "[0,0,0,0,0,0,0,0].all(a,".repeat(15) + "true" + &")".repeat(15);
    let exhausting = format!("!('{EXHAUSTS}' in metadata.labels) || {loops}");
    try_join_all(all().map(|name| apply(world, EXHAUSTING, name, &exhausting))).await?;
    try_join_all(all().map(|name| world.ready(name, "True", "Ready"))).await?;

    tokio::try_join!(
        try_join_all(all().map(|name| exhaust(world, name))),
        apply(world, ACCESS, OTHER, "has(metadata.uid)"),
    )?;
    // A reconcile that is cancelled at its deadline would make the component Ready later.
    let deadline = Settings::for_command(HUB_NAMESPACE, "kyma-system").reconcile_deadline;
    until_ready_says(world, OTHER, "True", "", deadline).await?;
    let says = all().map(|name| until_ready_says(world, name, "False", "would take too long", DEADLINE));
    try_join_all(says).await?;
    Ok(())
}

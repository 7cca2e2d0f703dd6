//! A new process finds everything as it should be, and changes nothing.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kyma_api::HelmComponent;
use serde_json::json;
use testbed::{AuditEvent, AuditMark, Cluster, until, until_quiet};

use crate::chart::push;
use crate::guard;
use crate::injection;
use crate::module::manifest;
use crate::source::{config, repaired};
use crate::world::{DEADLINE, World};

/// Time without requests after which the operator is at rest; longer than its first pass over a target may take.
const REST: Duration = Duration::from_secs(12);

#[tokio::test]
async fn a_restarted_operator_writes_nothing() -> Result<()> {
    let mut world = World::start().await?;
    bring_three(&world).await?;
    passes_ask_for_no_kinds(&world).await?;
    at_rest(&world).await?;

    let marks = [world.hub.audit()?.mark()?, world.target.audit()?.mark()?];
    world.restart_operator().await?;
    let watches = |kind: &'static str| {
        move |event: &AuditEvent| event.verb == "watch" && event.resource == kind && event.code == 200
    };
    until("the new process watches the target", DEADLINE, || async {
        let seen = of_the_operator(&world.target, marks[1])?;
        let all = ["deployments", "configmaps", "secrets"].map(watches);
        Ok(all.iter().all(|watched| seen.iter().any(watched)).then_some(()))
    })
    .await?;
    at_rest(&world).await?;
    for (cluster, mark) in [&world.hub, &world.target].into_iter().zip(marks) {
        let events = of_the_operator(cluster, mark)?;
        let writes: Vec<String> = events
            .iter()
            .filter(|event| event.is_write())
            .map(|event| format!("{} {}", event.verb, event.uri))
            .collect();
        assert_eq!(writes, Vec::<String>::new(), "{}", cluster.name());
    }
    remembers_what_is_left_over(&mut world).await?;
    injected_by_the_new_process(&world).await?;
    repaired_without_its_render(&world).await?;
    world.file_server.put("plain.yaml", config("plain", "another"));
    assert_eq!(
        repaired(&world, "plain", "plain").await?,
        "low",
        "what is installed, not what lies there now"
    );
    Ok(())
}

/// Creates three components with different kinds of sources.
async fn bring_three(world: &World) -> Result<()> {
    injection::create(world, "registry", "deployer", "{\"auths\": {}}").await?;
    let content = format!("{}---{}", manifest("desk", "low"), injection::manifest("registry"));
    let source = world.push("desk", "1.0.0", &content).await?;
    let resource = json!({
        "apiVersion": "test.example.org/v1", "kind": "Desk", "metadata": {"name": "default"},
    });
    let spec = json!({
        "source": source, "module": {"name": "deployer", "version": "1.0.0"}, "resource": resource,
        "release": {"namespace": "desk-system"},
    });
    world.apply("desk", spec).await?;
    let template = r#"
apiVersion: v1
kind: Secret
metadata: {name: random}
stringData: {kinds: "{{ len .Capabilities.APIVersions }}", password: "{{ randAlphaNum 16 }}"}
"#;
    let source = push(world, "random", "1.0.0", &[("templates/secret.yaml", template)]).await?;
    world.apply("random", json!({"source": source, "release": {"namespace": "random"}})).await?;
    let url = world.file_server.put("plain.yaml", config("plain", "low"));
    world
        .apply("plain", json!({"source": {"manifests": {"url": url}}, "release": {"namespace": "plain"}}))
        .await?;
    for component in ["desk", "random", "plain"] {
        world.ready(component, "True", "Ready").await?;
    }
    Ok(())
}

/// Checks that passes without changes do not repeat discovery on hub or target, and that OpenAPI is never
/// requested.
async fn passes_ask_for_no_kinds(world: &World) -> Result<()> {
    let names: Vec<String> = (0..10).map(|number| format!("still-{number}")).collect();
    for name in &names {
        let url = world.file_server.put(&format!("{name}.yaml"), config(name, "low"));
        let spec = json!({"source": {"manifests": {"url": url}}, "release": {"namespace": name}});
        world.apply(name, spec).await?;
    }
    for name in &names {
        world.ready(name, "True", "Ready").await?;
    }
    at_rest(world).await?;
    let clusters = [&world.hub, &world.target];
    let marks = [world.hub.audit()?.mark()?, world.target.audit()?.mark()?];
    for round in 1..=3 {
        for name in &names {
            // This changes only the generation, and the status reports when that was observed.
            let touch = json!({"spec": {"timeouts": {"healthSeconds": 300 + round}}});
            world.components()?.patch(name, &PatchParams::default(), &Patch::Merge(touch)).await?;
        }
        for name in &names {
            world.ready(name, "True", "Ready").await?;
        }
    }
    for (cluster, mark) in clusters.into_iter().zip(marks) {
        let mut asked = of_the_operator(cluster, mark)?;
        asked.retain(asks_for_kinds);
        assert_eq!(asked, [], "{}", cluster.name());
        let mut ever = of_the_operator(cluster, AuditMark::default())?;
        ever.retain(|event| event.uri.starts_with("/openapi"));
        assert_eq!(ever, [], "{}", cluster.name());
    }
    let before = of_the_operator(&world.target, AuditMark::default())?;
    assert!(before.iter().any(asks_for_kinds), "the log tells of it where it happens");
    Ok(())
}

fn asks_for_kinds(event: &AuditEvent) -> bool {
    let places = ["/api", "/version", "/openapi"];
    event.resource.is_empty() && places.iter().any(|place| event.uri.starts_with(place))
}

/// Checks that a new process prunes what the former one was not allowed to, once that is confirmed.
async fn remembers_what_is_left_over(world: &mut World) -> Result<()> {
    bring_shrunk(world, 5).await?;
    world.ready("shrunk", "True", "Ready").await?;
    bring_shrunk(world, 2).await?;
    let stopped = world.ready("shrunk", "False", "PruneGuard").await?;
    let counted =
        |component: &HelmComponent| Some(component.status.as_ref()?.prune_baseline.as_ref()?.object_count);
    assert_eq!(counted(&stopped), Some(5), "what the next process does not count anew");
    world.restart_operator().await?;
    guard::confirm(world, "shrunk").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "shrunk");
    let ours = ListParams::default().labels("component.kyma-project.io/owner");
    let components = world.components()?;
    until("what is left over is gone, and counted no more", DEADLINE, || async {
        let is_over = counted(&components.get("shrunk").await?).is_none();
        Ok((is_over && maps.list(&ours).await?.items.len() == 2).then_some(()))
    })
    .await
}

async fn bring_shrunk(world: &World, maps: usize) -> Result<()> {
    let map = |number: usize| config(&format!("shrunk-{number}"), "low");
    let content = (0..maps).map(map).collect::<Vec<_>>().join("---\n");
    let url = world.file_server.put(&format!("shrunk-{maps}.yaml"), content);
    let spec = json!({"source": {"manifests": {"url": url}}, "release": {"namespace": "shrunk"}});
    world.apply("shrunk", spec).await
}

/// Checks that the new process still knows which of the hub's Secrets the component uses, though it has not loaded
/// the content.
async fn injected_by_the_new_process(world: &World) -> Result<()> {
    let content = injection::docker_config("hush-again");
    injection::change(world, "registry", &json!({"stringData": {injection::KEY: content}})).await?;
    injection::until_content(world, "a change on the hub arrives", "desk-system", &content).await
}

/// Checks that drift is corrected though the chart has to be rendered again, and that its random password stays.
async fn repaired_without_its_render(world: &World) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(world.target.client()?, "random");
    let value = |secret: &Secret, key: &str| secret.data.as_ref().and_then(|data| data.get(key).cloned());
    let before = secrets.get("random").await?;
    let edit = json!({"stringData": {"kinds": "edited"}});
    secrets.patch("random", &PatchParams::default(), &Patch::Merge(edit)).await?;
    let after = until("the edit is put right", DEADLINE, || async {
        let found = secrets.get("random").await?;
        Ok((value(&found, "kinds") == value(&before, "kinds")).then_some(found))
    })
    .await?;
    assert!(value(&before, "password").is_some());
    assert_eq!(value(&after, "password"), value(&before, "password"));
    Ok(())
}

/// Waits until the operator has sent no requests to hub and target for a while, apart from routine.
pub(crate) async fn at_rest(world: &World) -> Result<()> {
    let clusters = [&world.hub, &world.target];
    until_quiet(&clusters, REST, DEADLINE * 2, |event| is_of_the_operator(event) && !event.is_routine()).await
}

fn is_of_the_operator(event: &AuditEvent) -> bool {
    let accounts =
        ["system:serviceaccount:kcp-system:helm-component", "system:serviceaccount:kube-system:modules"];
    accounts.contains(&event.user.as_str())
}

/// Returns the operator's requests since the mark, by the accounts that only it uses.
pub(crate) fn of_the_operator(cluster: &Cluster, mark: AuditMark) -> Result<Vec<AuditEvent>> {
    Ok(cluster.audit()?.since(mark)?.into_iter().filter(is_of_the_operator).collect())
}

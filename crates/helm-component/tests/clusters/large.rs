//! A component of 2,000 objects, with a pass deadline shorter than they need.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kyma_api::HelmComponent;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use testbed::{AuditEvent, AuditMark, until, until_quiet};

use crate::world::{World, ready_of};

const OBJECTS: usize = 2_000;
/// Number of objects that stay: more than half, so that the prune guard does not stop the prune.
const KEPT: usize = 1_100;
const DEADLINE: Duration = Duration::from_mins(10);
/// Time without requests after which the operator is at rest.
const REST: Duration = Duration::from_secs(12);

fn manifest(objects: usize, value: &str) -> String {
    let map = |number: usize| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one-of-many-{number:04}}}\ndata: {{v: '{value}'}}\n"
        )
    };
    (0..objects).map(map).collect()
}

#[tokio::test]
async fn two_thousand_objects_are_one_component() -> Result<()> {
    let mut world = World::start_with(&["--reconcile-deadline=8s"]).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "large");
    let mut step = Step::begin(&world)?;
    apply(&world, OBJECTS, "one").await?;
    let component = ready(&world).await?;
    step.ends(&world, "installed")?;
    let status = component.status.context("a status")?;
    let entries = status.entries()?.len();
    ensure!(entries == OBJECTS, "{entries}");
    let bytes = serde_json::to_vec(&status)?.len();
    println!("status: {bytes} bytes");
    ensure!(bytes <= 512 << 10, "{bytes}");

    at_rest(&world).await?;
    let mut step = Step::begin(&world)?;
    world.restart_operator().await?;
    step.until_watched(&world).await?;
    at_rest(&world).await?;
    ensure!(step.ends(&world, "started again")? == [0, 0], "a new process wrote");

    let edit = json!({"data": {"v": "edited"}});
    maps.patch("one-of-many-0007", &PatchParams::default(), &Patch::Merge(edit)).await?;
    until("the edit is put right", DEADLINE, || async {
        let found = maps.get("one-of-many-0007").await?;
        Ok((found.data.unwrap_or_default()["v"] == "one").then_some(()))
    })
    .await?;
    at_rest(&world).await?;
    ensure!(step.ends(&world, "one object repaired")?[1] == 1, "more than the object was sent");

    apply(&world, KEPT, "two").await?;
    ready(&world).await?;
    let listed = maps.list(&ListParams::default().labels("component.kyma-project.io/owner")).await?.items;
    ensure!(listed.len() == KEPT, "{}", listed.len());
    let is_new = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["v"] == "two");
    ensure!(listed.iter().all(is_new), "an object is of the old content");
    step.ends(&world, "upgraded, 900 of them removed")?;

    world.delete("large", "Delete").await?;
    let components = world.components()?;
    until("the component is gone", DEADLINE, || async {
        Ok(components.get_opt("large").await?.is_none().then_some(()))
    })
    .await?;
    step.ends(&world, "removed")?;
    let left = maps.list(&ListParams::default().labels("component.kyma-project.io/owner")).await?.items;
    ensure!(left.is_empty(), "{}", left.len());
    Ok(())
}

#[tokio::test]
async fn more_objects_than_status_holds_are_refused_before_any_write() -> Result<()> {
    let world = crate::world::world().await?;
    let mark = world.target.audit()?.mark()?;
    // Uses random names: others would be compressed so well that all objects of a manifest fit.
    let name =
        |number: u32| [number, !number].map(|half| hex::encode(Sha256::digest(half.to_le_bytes()))).concat();
    let map =
        |number| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}}}\n", name(number));
    let url = world.file_server.put("too-many.yaml", (0..4_900).map(map).collect::<String>());
    let spec = json!({"source": {"manifests": {"url": url}}, "release": {"namespace": "too-many"}});
    world.apply("too-many", spec).await?;
    let component = world.ready("too-many", "False", "InventoryTooLarge").await?;
    let (_, _, message) = ready_of(&component).context("Ready")?;
    ensure!(message.starts_with("the record of 4900 objects would take "), "{message}");
    ensure!(message.contains(" bytes packed, more than 491520"), "{message}");
    let sent = world.target.audit()?.since(mark)?;
    let sent: Vec<_> =
        sent.iter().filter(|event| event.is_write() && event.namespace == "too-many").collect();
    ensure!(sent.is_empty(), "{sent:?}");
    Ok(())
}

async fn apply(world: &World, objects: usize, value: &str) -> Result<()> {
    let url = world.file_server.put(&format!("large-{value}.yaml"), manifest(objects, value));
    let spec = json!({"source": {"manifests": {"url": url}}, "release": {"namespace": "large"}});
    world.apply("large", spec).await
}

async fn ready(world: &World) -> Result<HelmComponent> {
    let components = world.components()?;
    let waited = until("large is Ready", DEADLINE, || async {
        let component = components.get("large").await?;
        let is_ready = ready_of(&component).is_some_and(|(status, ..)| status == "True");
        Ok(is_ready.then_some(component))
    });
    let waited = waited.await;
    let seen = components.get("large").await?.status.and_then(|status| status.conditions);
    waited.with_context(|| format!("{seen:#?}\n{}", world.operator.log_end(30)))
}

pub(crate) async fn at_rest(world: &World) -> Result<()> {
    let clusters = [&world.hub, &world.target];
    until_quiet(&clusters, REST, DEADLINE, |event| is_of_the_operator(event) && !event.is_routine()).await
}

fn is_of_the_operator(event: &AuditEvent) -> bool {
    let accounts =
        ["system:serviceaccount:kcp-system:helm-component", "system:serviceaccount:kube-system:modules"];
    accounts.contains(&event.user.as_str())
}

/// A step of the test: its duration, and the operator's requests meanwhile.
pub(crate) struct Step {
    since: Instant,
    marks: [AuditMark; 2],
}

impl Step {
    pub(crate) fn begin(world: &World) -> Result<Self> {
        let marks = [world.hub.audit()?.mark()?, world.target.audit()?.mark()?];
        Ok(Self { since: Instant::now(), marks })
    }

    fn asked(&self, world: &World) -> Result<[Vec<AuditEvent>; 2]> {
        let of = |events: Vec<AuditEvent>| events.into_iter().filter(is_of_the_operator).collect();
        let [hub, target] = self.marks;
        Ok([of(world.hub.audit()?.since(hub)?), of(world.target.audit()?.since(target)?)])
    }

    /// Waits until the operator watches ConfigMaps on the target.
    pub(crate) async fn until_watched(&self, world: &World) -> Result<()> {
        let watches = |event: &AuditEvent| event.verb == "watch" && event.resource == "configmaps";
        until("ConfigMaps are watched", DEADLINE, || async {
            Ok(self.asked(world)?[1].iter().any(watches).then_some(()))
        })
        .await
    }

    /// Prints the step, returns the writes on hub and target, and begins the next step.
    #[expect(clippy::print_stdout, reason = "what was measured is told")]
    pub(crate) fn ends(&mut self, world: &World, what: &str) -> Result<[usize; 2]> {
        let seconds = self.since.elapsed().as_secs_f64();
        let asked = self.asked(world)?;
        let writes = |events: &Vec<AuditEvent>| {
            events.iter().filter(|event| event.is_write() && !event.is_lease_renewal()).count()
        };
        let written = [writes(&asked[0]), writes(&asked[1])];
        println!(
            "{what}: {seconds:.1} s; hub {} requests, {} writes; target {} requests, {} writes",
            asked[0].len(),
            written[0],
            asked[1].len(),
            written[1],
        );
        *self = Self::begin(world)?;
        Ok(written)
    }
}

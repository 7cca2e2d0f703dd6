//! Pauses: every operator stops within five seconds, also after a restart, and continues afterwards.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::catalogue;
use e2e::fleet::{Fleet, LANTERN};
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options, TARGET_NAMESPACE, is_of_an_operator};
use e2e::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, ModuleStatus, Pause, State, condition};
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark, until_or_why};
use tokio::time::Instant;

const EAST: &str = "east";
const WEST: &str = "west";
/// Deadline for every operator to stop.
const OBEYED: Duration = Duration::from_secs(5);
/// Maximum number of rounds in which operators may stop late.
const ROUNDS: usize = 5;
const DEADLINE: Duration = Duration::from_mins(2);
/// Name of the Pause of everything.
const WORLD: &str = "world";

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_kyma_stands_still_and_continues_afterwards() {
    scenario().await.unwrap();
}

async fn scenario() -> Result<()> {
    let options = Options { targets: 2, audit: true, ..Options::default() };
    let mut landscape = Landscape::start(options).await?;
    let world = World::build(&landscape).await?;

    world.upgrades_wait(&landscape).await?;
    world.removals_wait_where_the_selector_says(&landscape).await?;
    let marks = world.everything_waits(&landscape).await?;
    for operator in ["kyma-operator", "helm-component", "release-meta-syncer"] {
        landscape.kill_and_restart(operator).await?;
    }
    landscape.until_at_rest().await?;
    nothing_was_written(&landscape, &marks)?;
    world.everything_goes_on(&landscape).await?;
    landscape.stop().await
}

struct World {
    hub: Client,
}

impl World {
    /// Creates two Kymas, one of them with a label, and waits until they are Ready.
    async fn build(landscape: &Landscape) -> Result<Self> {
        let fleet = Fleet::new(landscape)?;
        fleet.publish().await?;
        for (name, target) in [EAST, WEST].iter().zip(landscape.targets()) {
            fleet.join(name, target).await?;
        }
        let world = Self { hub: landscape.hub().client()? };
        world.edit(EAST, json!({"metadata": {"labels": {"region": "eu"}}})).await?;
        for name in [EAST, WEST] {
            fleet.until_installed(name).await?;
        }
        landscape.until_at_rest().await?;
        Ok(world)
    }

    async fn upgrades_wait(&self, landscape: &Landscape) -> Result<()> {
        self.pause("freeze", json!({"scope": "Upgrades", "reason": "quarter's end"})).await?;
        self.assign("1.1.0").await?;
        let held = self.module(WEST, |module| module.state == State::Warning).await?;
        ensure!(held.version.as_deref() == Some("1.0.0"), "{held:?}");
        ensure!(held.message.as_deref() == Some("Pause freeze is in force: quarter's end"), "{held:?}");
        landscape.until_at_rest().await?;
        self.resume("freeze").await?;
        for name in [EAST, WEST] {
            self.module(name, |module| {
                module.version.as_deref() == Some("1.1.0") && module.state == State::Ready
            })
            .await?;
        }
        Ok(())
    }

    /// Both users disable one module; only the Kyma that the Pause selects keeps it.
    async fn removals_wait_where_the_selector_says(&self, landscape: &Landscape) -> Result<()> {
        let marks = landscape.marks()?;
        let selector = json!({"matchLabels": {"region": "eu"}});
        self.pause("keep", json!({"scope": "Deletes", "selector": selector})).await?;
        for name in [EAST, WEST] {
            choose(landscape, name, &["harbour", "greeting"]).await?;
        }
        self.until_modules(WEST, &["harbour", "greeting"]).await?;
        let held =
            self.module(EAST, |module| module.message.as_deref() == Some("Pause keep is in force")).await?;
        ensure!(held.version.as_deref() == Some("1.1.0"), "{held:?}");
        landscape.until_at_rest().await?;
        let events = landscape.targets()[0].audit()?.since(marks[1])?;
        let deletes: Vec<&AuditEvent> = events
            .iter()
            .filter(|event| is_of_an_operator(event) && event.verb.starts_with("delete"))
            .collect();
        ensure!(deletes.is_empty(), "deleted on the target of {EAST}: {deletes:?}");
        self.resume("keep").await?;
        self.until_modules(EAST, &["harbour", "greeting"]).await
    }

    /// Creates a Pause of everything, then all kinds of work; returns the positions in the audit logs once the
    /// Pause is obeyed.
    async fn everything_waits(&self, landscape: &Landscape) -> Result<Vec<AuditMark>> {
        self.pause_everything(landscape).await?;
        self.until_recorded(landscape, WORLD).await?;
        let marks = landscape.marks()?;
        choose(landscape, EAST, &["harbour"]).await?;
        self.assign("1.0.0").await?;
        let deployments: Api<Deployment> =
            Api::namespaced(landscape.targets()[1].client()?, TARGET_NAMESPACE);
        deployments.delete("harbour-pier", &DeleteParams::default()).await?;
        self.kymas().delete(WEST, &DeleteParams::default()).await?;
        landscape.until_at_rest().await?;
        nothing_was_written(landscape, &marks)?;
        Ok(marks)
    }

    /// Creates the Pause of everything, again and again until all obey it within `OBEYED`: if the machine was busy in
    /// one round, the next one passes.
    async fn pause_everything(&self, landscape: &Landscape) -> Result<()> {
        let mut late = Vec::new();
        for _ in 0..ROUNDS {
            landscape.until_at_rest().await?;
            let paused = Instant::now();
            self.pause(WORLD, json!({"reason": "incident 7"})).await?;
            self.until_all_say("Unknown", "Paused").await?;
            let took = paused.elapsed();
            if took < OBEYED {
                return Ok(());
            }
            late.push(took);
            self.resume(WORLD).await?;
            self.until_all_say("True", "Ready").await?;
        }
        bail!("obeyed by all only after {late:?}")
    }

    /// Waits until every operator has the Pause on record, as it does once the Pause is in force. Not all of them
    /// report it in a condition Ready.
    async fn until_recorded(&self, landscape: &Landscape, pause: &str) -> Result<()> {
        let records: Api<ConfigMap> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        until_or_why(&format!("every operator records Pause {pause}"), DEADLINE, || async {
            for operator in landscape.operators() {
                let record = records.get_opt(&format!("pauses-{}", operator.name())).await?;
                let data = record.and_then(|record| record.data).unwrap_or_default();
                if !data.get("pauses").is_some_and(|pauses| pauses.contains(pause)) {
                    return Ok(Err(format!("{} has {data:?}", operator.name())));
                }
            }
            Ok(Ok(()))
        })
        .await
    }

    async fn everything_goes_on(&self, landscape: &Landscape) -> Result<()> {
        self.resume(WORLD).await?;
        self.until_modules(EAST, &["harbour"]).await?;
        until_or_why(&format!("{WEST} is gone"), DEADLINE, || async {
            let kyma = self.kymas().get_opt(WEST).await?;
            Ok(kyma.map_or(Ok(()), |kyma| Err(format!("{:?}", kyma.status))))
        })
        .await?;
        landscape.until_at_rest().await
    }

    /// Waits until every Kyma and component has the condition Ready with this status and reason.
    async fn until_all_say(&self, status: &str, reason: &str) -> Result<()> {
        let components: Api<HelmComponent> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        until_or_why(&format!("all say {reason}"), DEADLINE, || async {
            let kymas = self.kymas().list(&ListParams::default()).await?.items.into_iter();
            let kymas = kymas.map(|kyma| (kyma.name_any(), kyma.status.and_then(|status| status.conditions)));
            let components = components.list(&ListParams::default()).await?.items.into_iter();
            let components =
                components.map(|found| (found.name_any(), found.status.and_then(|status| status.conditions)));
            let others = kymas.chain(components).filter(|(_, conditions)| {
                let ready =
                    condition::get(conditions.as_deref().unwrap_or_default(), condition::types::READY);
                ready.is_none_or(|ready| ready.status != status || ready.reason != reason)
            });
            let others: Vec<String> = others.map(|(name, _)| name).collect();
            Ok(if others.is_empty() { Ok(()) } else { Err(others.join(", ")) })
        })
        .await
    }

    async fn pause(&self, name: &str, spec: Value) -> Result<()> {
        let pause = Pause::new(name, serde_json::from_value(spec)?);
        self.pauses().create(&PostParams::default(), &pause).await?;
        wait::until(&format!("Pause {name} holds"), self.pauses(), name, |pause: Option<&Pause>| {
            let conditions = pause.and_then(|pause| pause.status.as_ref()?.conditions.as_deref());
            let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
            ready.is_some_and(|ready| ready.status == "True")
        })
        .await?;
        Ok(())
    }

    async fn resume(&self, name: &str) -> Result<()> {
        self.pauses().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn assign(&self, version: &str) -> Result<()> {
        catalogue::assign(self.hub.clone(), LANTERN, version).await
    }

    async fn edit(&self, name: &str, change: Value) -> Result<()> {
        self.kymas().patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// Waits until the lantern of a Kyma is in this state.
    async fn module(&self, name: &str, wanted: impl Fn(&ModuleStatus) -> bool) -> Result<ModuleStatus> {
        until_or_why(&format!("{LANTERN} of {name}"), DEADLINE, || async {
            let status = self.kymas().get(name).await?.status.unwrap_or_default();
            let found = status.modules.into_iter().flatten().find(|module| module.name == LANTERN);
            let found = found.context("the module has a status")?;
            Ok(if wanted(&found) { Ok(found) } else { Err(format!("{found:?}")) })
        })
        .await
    }

    async fn until_modules(&self, name: &str, wanted: &[&str]) -> Result<()> {
        until_or_why(&format!("{name} has {wanted:?}"), DEADLINE, || async {
            let status = self.kymas().get(name).await?.status.unwrap_or_default();
            let modules = status.modules.as_deref().unwrap_or_default();
            let mut found: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
            found.sort_unstable();
            let mut wanted = wanted.to_vec();
            wanted.sort_unstable();
            let is_ready = status.state == Some(State::Ready);
            Ok(if is_ready && found == wanted { Ok(()) } else { Err(format!("{modules:?}")) })
        })
        .await
    }

    fn kymas(&self) -> Api<Kyma> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }

    fn pauses(&self) -> Api<Pause> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

/// The user of a target selects exactly these modules.
async fn choose(landscape: &Landscape, kyma: &str, modules: &[&str]) -> Result<()> {
    let position = usize::from(kyma == WEST);
    let target = landscape.targets()[position].client()?;
    let kymas: Api<Kyma> = Api::namespaced(target, TARGET_NAMESPACE);
    let held = kymas.get("default").await?.spec.modules.unwrap_or_default();
    let kept: Vec<Value> = held
        .iter()
        .filter(|module| modules.contains(&module.name.as_str()))
        .map(|module| json!(module))
        .collect();
    ensure!(kept.len() == modules.len(), "{modules:?} are not all among {held:?}");
    let chosen = Patch::Merge(json!({"spec": {"modules": kept}}));
    kymas.patch("default", &PatchParams::default(), &chosen).await?;
    Ok(())
}

/// No operator wrote anything except status and events.
fn nothing_was_written(landscape: &Landscape, marks: &[AuditMark]) -> Result<()> {
    for (cluster, mark) in landscape.clusters().into_iter().zip(marks) {
        let events = cluster.audit()?.since(*mark)?;
        let writes = events.iter().filter(|event| is_of_an_operator(event) && event.is_write());
        let writes = writes.filter(|event| !event.uri.contains("/status") && event.resource != "events");
        let lines: Vec<String> =
            writes.map(|event| format!("{} {} {}", event.user_agent, event.verb, event.uri)).collect();
        ensure!(lines.is_empty(), "written on {}:\n{}", cluster.name(), lines.join("\n"));
    }
    Ok(())
}

//! Installs one chart at a time with helm and with a HelmComponent in turn, each uninstalled before the next.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::api::{DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, InventoryEntry, State};
use serde_json::{Value, json};
use testbed::until;
use tokio::time::timeout;

use super::current::is_current;
use super::{Outcome, Row};
use crate::helm::Helm;
use crate::inputs::charts::{self, Chart};
use crate::landscape::{HUB_NAMESPACE, Landscape, Options};
use crate::remains::clear;
use crate::snapshot::{self, Snapshot};
use crate::wait;

/// Namespace that each chart is installed into.
const NAMESPACE: &str = "bench";
/// Name of the access Secret.
const ACCESS: &str = "bench";

/// Minimum number of charts.
const MIN_CHARTS: f64 = 14.0;

/// Timeout of the HelmComponent, equal to helm's.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// Result for a chart.
enum Measurement {
    /// Mean seconds of both.
    Both { our: f64, peer: f64 },
    /// Helm's error: the chart does not count.
    FailedByHelm(String),
    /// The object that is not current although helm does not wait for it.
    FailedByComponent(String),
}

/// State shared by both sides.
struct Bench {
    landscape: Landscape,
    hub: Client,
    target: Client,
    helm: Helm,
    /// The target with nothing installed.
    before: Snapshot,
    /// Charts measured so far.
    number: Cell<u32>,
}

/// Installs every chart of the test inputs that `helm install --wait` can, `rounds` times by each side.
///
/// # Errors
/// The landscape does not start, or helm-component does not install a chart that helm can.
pub async fn install(rounds: u32) -> Result<Outcome> {
    let inputs =
        testbed::inputs("third-party charts")?.context("without test inputs there is nothing to measure")?;
    let bench = Bench::start().await?;
    let mut rows = Vec::new();
    let (mut skipped, mut stricter) = (serde_json::Map::new(), serde_json::Map::new());
    let (mut ours, mut peers) = (0.0, 0.0);
    for chart in charts::all(&inputs)? {
        match Box::pin(bench.measure(&chart, rounds)).await? {
            Measurement::Both { our, peer } => {
                ours += our;
                peers += peer;
                rows.push(Row::beside(chart.name, our, "s", peer));
            }
            Measurement::FailedByHelm(reason) => {
                skipped.insert(chart.name, Value::String(reason));
            }
            Measurement::FailedByComponent(reason) => {
                stricter.insert(chart.name, Value::String(reason));
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of charts")]
    let charts = rows.len() as f64;
    rows.push(Row::beside("in total", ours, "s", peers));
    rows.push(Row::at_least("charts that helm installs", charts, "charts", MIN_CHARTS));
    bench.landscape.stop().await?;
    let setup = json!({
        "rounds": rounds, "helm": "install --wait --no-hooks", "skipped": skipped,
        "ready by helm's rules, not by ours": stricter,
    });
    Ok(Outcome::new("install", &setup, rows))
}

impl Bench {
    async fn start() -> Result<Self> {
        let landscape =
            Landscape::start(Options { targets: 1, directory: None, audit: false, ..Options::default() })
                .await?;
        let (hub, target) = (landscape.hub().client()?, landscape.targets()[0].client()?);
        let helm = Helm::new(&landscape.targets()[0], &landscape.directory().join("helm"))?;
        let secret = landscape.access_secret(ACCESS, &landscape.targets()[0]).await?;
        Api::namespaced(hub.clone(), HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
        let before = snapshot::take(&target).await?;
        Ok(Self { landscape, hub, target, helm, before, number: Cell::new(0) })
    }

    /// Measures both sides in turn.
    async fn measure(&self, chart: &Chart, rounds: u32) -> Result<Measurement> {
        let repository = self.helm.push(chart, self.landscape.registry().address()).await?;
        let (mut ours, mut peers) = (0.0, 0.0);
        // Helm decides whether the chart counts, and this unmeasured run warms the apiserver for both.
        if let Err(reason) = self.by_helm(chart).await? {
            return Ok(Measurement::FailedByHelm(reason));
        }
        for round in 0..rounds {
            // The second side finds warmer caches, so the order alternates.
            let ours_first = (round + self.number.get()).is_multiple_of(2);
            for turn in [ours_first, !ours_first] {
                if turn {
                    match Box::pin(self.by_component(chart, &repository)).await? {
                        Ok(our) => ours += our,
                        Err(reason) => return Ok(Measurement::FailedByComponent(reason)),
                    }
                } else {
                    match self.by_helm(chart).await? {
                        Ok(peer) => peers += peer,
                        Err(reason) => return Ok(Measurement::FailedByHelm(reason)),
                    }
                }
            }
        }
        self.number.set(self.number.get() + 1);
        Ok(Measurement::Both { our: ours / f64::from(rounds), peer: peers / f64::from(rounds) })
    }

    /// Returns helm's seconds or its error; uninstalls the chart again.
    async fn by_helm(&self, chart: &Chart) -> Result<Result<f64, String>> {
        let took = self.helm.install(chart, NAMESPACE).await;
        self.helm.uninstall(NAMESPACE).await?;
        clear(&self.target, &self.before).await?;
        Ok(took.map(|took| took.as_secs_f64()).map_err(|reason| reason.to_string()))
    }

    /// Returns the component's seconds or what it waits for; uninstalls the chart again.
    async fn by_component(&self, chart: &Chart, repository: &str) -> Result<Result<f64, String>> {
        let took = Box::pin(self.install(chart, repository)).await?;
        Box::pin(self.uninstall()).await?;
        clear(&self.target, &self.before).await?;
        Ok(took.map(|took| took.as_secs_f64()))
    }

    /// Measures from the component's creation until it is Ready and all objects are current for `helm --wait`.
    async fn install(&self, chart: &Chart, repository: &str) -> Result<Result<Duration, String>> {
        let (name, version) = chart.identity()?;
        let component: HelmComponent = serde_json::from_value(json!({
            "apiVersion": "component.kyma-project.io/v1alpha1",
            "kind": "HelmComponent",
            "metadata": {"name": "bench"},
            "spec": {
                "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{ACCESS}"), "key": "config"}},
                "source": {"chart": {"url": format!("{repository}/{name}"), "version": version}},
                "release": {"name": "bench", "namespace": NAMESPACE, "createNamespace": true},
                "values": chart.values,
                "hooks": "Skip",
                "deletionPolicy": "Delete",
            },
        }))?;
        let start = Instant::now();
        self.components().create(&PostParams::default(), &component).await?;
        let is_ready = |component: Option<&HelmComponent>| {
            let status = component.and_then(|component| component.status.as_ref());
            status.is_some_and(|status| status.state == Some(State::Ready))
        };
        let ready = timeout(READY_TIMEOUT, await_condition(self.components(), "bench", is_ready));
        let Ok(ready) = ready.await else { return Ok(Err(self.last_words().await?)) };
        let ready = ready?.context("a component that is Ready exists")?;
        let took = start.elapsed();
        let inventory = ready.status.map(|status| status.entries()).transpose()?.unwrap_or_default();
        if self.current(&inventory).await?.is_some() {
            return Ok(Ok(took));
        }
        let what = format!("{} is current", chart.name);
        until(&what, Duration::from_mins(1), || self.current(&inventory)).await?;
        Ok(Ok(start.elapsed()))
    }

    /// Returns the component's Ready condition.
    async fn last_words(&self) -> Result<String> {
        let status = self.components().get("bench").await?.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        Ok(ready.map(|ready| ready.message).unwrap_or_default())
    }

    /// Returns `Some` if every object of the inventory is current.
    async fn current(&self, inventory: &[InventoryEntry]) -> Result<Option<()>> {
        for entry in inventory {
            let kind = GroupVersionKind::gvk(&entry.group, &entry.version, &entry.kind);
            let (resource, _) = kube::discovery::pinned_kind(&self.target, &kind).await?;
            let objects: Api<DynamicObject> = match &entry.namespace {
                Some(namespace) => Api::namespaced_with(self.target.clone(), namespace, &resource),
                None => Api::all_with(self.target.clone(), &resource),
            };
            if !is_current(&serde_json::to_value(objects.get(&entry.name).await?)?) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    async fn uninstall(&self) -> Result<()> {
        let found = self.components().get("bench").await?;
        self.components().delete("bench", &DeleteParams::default()).await?;
        let uid = found.uid().context("a stored object has a uid")?;
        wait::until("the component is gone", self.components(), "bench", is_deleted(&uid)).await?;
        Ok(())
    }

    fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

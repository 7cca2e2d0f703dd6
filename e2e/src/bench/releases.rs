//! Many releases of one small chart on one target, at 0 replicas, as in Flux's published benchmark
//! (fluxcd/flux-benchmark): by helm-component, by a bare loop that writes the same objects, by helm-component again
//! with stored renders, and by `helm install` in a loop, one after the other on the same two API servers.

mod apart;
mod bare;
mod footprint;
mod restart;
mod upgrade;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, PostParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use kyma_api::{HelmComponent, State};
use serde_json::{Value, json};
use testbed::{AuditEvent, AuditMark};

use super::{Outcome, Row};
use crate::helm::{self, Helm};
use crate::inputs::charts::{self, Chart};
use crate::landscape::{HUB_NAMESPACE, Landscape, Options, asks};
pub(super) use footprint::Footprint;
pub use upgrade::upgrade;

/// The chart of Flux's benchmark.
const CHART: &str = "podinfo";
/// Name of the access Secret.
const ACCESS: &str = "bench";
/// The measured operator.
const OPERATOR: &str = "helm-component";
const OTHER_OPERATORS: [&str; 3] = ["kyma-operator", "release-meta-syncer", "greeting-component"];
/// Concurrent requests of the bare loop: helm-component's limit for one target.
const MAX_IN_FLIGHT: usize = 8;
/// Maximum time relative to the bare loop: of an installation without rendering, and of a removal.
const MAX_TIME_RATIO: f64 = 1.0 / 0.7;
/// Maximum memory of the operator and its child processes, in MiB.
const MAX_MEMORY_MIB: f64 = 200.0;
/// Minimum number of releases for the second row and the bare loop: API servers have bursts of own work, such as
/// garbage collection, which dominate smaller samples.
const MIN_MEASURED_RELEASES: usize = 500;
/// Maximum average time of one release.
const MAX_TIME_PER_RELEASE: Duration = Duration::from_secs(3);

/// State shared by all sides.
struct Bench {
    landscape: Landscape,
    hub: Client,
    target: Client,
    helm: Helm,
    chart: Chart,
    repository: String,
}

/// Installs `count` releases by each side, and restarts helm-component with its own releases.
///
/// # Errors
/// The landscape does not start, or a side does not finish.
pub async fn releases(count: usize) -> Result<Outcome> {
    let mut bench = Bench::start().await?;
    let mut rows = bench.by_us(count).await?;
    rows.extend(restart::measure(&mut bench).await?);
    bench.landscape.kill(OPERATOR)?;
    let rounds = MIN_MEASURED_RELEASES.div_ceil(count.max(1));
    let (mut apart, mut removed, mut bare) = (0.0, 0.0, 0.0);
    let mut removal_requests = Vec::new();
    for first in (0..rounds).map(|round| round * count) {
        // In halves, since existing objects make each release slower: API servers check all Services for a new one.
        let half = first + count / 2;
        bare += bare::write(&bench, first..half).await?;
        let measured = apart::measure(&mut bench, count).await?;
        (apart, removed) = (apart + measured.installed, removed + measured.removed);
        removal_requests = measured.removal_requests;
        bare += bare::write(&bench, half..first + count).await?;
    }
    let each = f64::from(u32::try_from(rounds)?);
    let (apart, removed, bare) = (apart / each, removed / each, bare / each);
    let mut bare_removed = 0.0;
    for first in (0..rounds).map(|round| round * count) {
        bare_removed += bare::remove(&bench, first..first + count).await? / each;
    }
    let peer = bench.by_helm(count).await?;
    bench.landscape.stop().await?;
    let ours = rows.first().context("the time of our side")?.value;
    let mut all = vec![
        Row::beside(format!("{count} releases Ready, beside helm install"), ours, "s", peer),
        Row::at_most("as many without rendering", apart, "s", bare * MAX_TIME_RATIO),
        Row::plain("a bare loop that writes the same", bare, "s"),
        Row::at_most(format!("{count} releases removed"), removed, "s", bare_removed * MAX_TIME_RATIO),
        Row::plain("a bare loop that deletes the same", bare_removed, "s"),
    ];
    all.append(&mut rows.split_off(1));
    all.append(&mut removal_requests);
    let setup = json!({
        "count": count, "chart": format!("{CHART}, without its tests"), "replicas": 0, "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "helm": "install, without --wait, as many at a time as there are cores", "bare loop": format!("{MAX_IN_FLIGHT} at a time, half of it before the second row, half after"),
        "second row": "removed and installed again, with renders that are kept", "rounds": format!("{rounds}, of which second row, bare loops and removal are the mean"),
        "goals of the second row and of the removal": "1/0.7 of the bare loop",
    });
    Ok(Outcome::new("releases", &setup, all))
}

impl Bench {
    async fn start() -> Result<Self> {
        let inputs = testbed::inputs("third-party charts")?
            .context("without test inputs there is nothing to measure")?;
        let landscape = Landscape::start(Options { targets: 1, audit: true, ..Options::default() }).await?;
        let (hub, target) = (landscape.hub().client()?, landscape.targets()[0].client()?);
        let helm = Helm::new(&landscape.targets()[0], &landscape.directory().join("helm"))?;
        let mut all = charts::all(&inputs)?.into_iter();
        let chart = all.find(|chart| chart.name.starts_with(CHART)).context("the chart podinfo")?;
        let path = landscape.directory().join("chart");
        // podinfo's tests have random names, so renders with them could not be reused.
        helm::copy(&chart.path, &path, &|file| file.ends_with("templates/tests"))?;
        let chart = Chart { path, values: json!({"replicaCount": 0}), ..chart };
        let repository = helm.push(&chart, landscape.registry().address()).await?;
        let secret = landscape.access_secret(ACCESS, &landscape.targets()[0]).await?;
        Api::namespaced(hub.clone(), HUB_NAMESPACE).create(&PostParams::default(), &secret).await?;
        // Stopped: they also watch components.
        for other in OTHER_OPERATORS {
            landscape.kill(other)?;
        }
        let bench = Self { landscape, hub, target, helm, chart, repository };
        for side in ["ours", "bare", apart::SIDE, "helm"] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": side}}))?;
            Api::all(bench.target.clone()).create(&PostParams::default(), &namespace).await?;
        }
        Ok(bench)
    }

    /// Returns rows with the seconds until all are Ready, processor seconds of rendering, and memory.
    async fn by_us(&self, count: usize) -> Result<Vec<Row>> {
        // Not measured: this release pulls the chart and opens the target, as the compared sides have done.
        self.create(&component(&self.source()?, "first", self.values(), "ours")?).await?;
        self.until_ready("first", 1, Duration::from_mins(1)).await?;
        let operator = self.landscape.operator(OPERATOR)?;
        let footprint = Footprint::begin(operator.id())?;
        let marks = self.landscape.marks()?;
        let start = Instant::now();
        self.create_all("ours", count).await?;
        self.until_ready("ours", count, deadline(count)?).await?;
        let took = start.elapsed().as_secs_f64();
        let used = footprint.end().await?;
        let mut rows = vec![
            Row::plain("ours", took, "s"),
            Row::plain("rendering, spread over all cores", used.seconds.children / cores()?, "s"),
            Row::plain("processor time of the operator itself", used.seconds.own, "s"),
            Row::at_most("most memory, child processes included", used.most_mib, "MiB", MAX_MEMORY_MIB),
            Row::plain("memory of the operator alone at the end", used.own_mib, "MiB"),
        ];
        self.landscape.until_at_rest().await?;
        rows.extend(self.requests(&marks, count, "release")?);
        Ok(rows)
    }

    /// Creates this many releases in a namespace, a few at a time.
    async fn create_all(&self, namespace: &str, count: usize) -> Result<()> {
        let source = self.source()?;
        let names = stream::iter((0..count).map(|number| format!("{namespace}-{number:05}")));
        let created = names.map(|name| async {
            let name = name;
            self.create(&component(&source, &name, self.values(), namespace)?).await
        });
        created.buffer_unordered(MAX_IN_FLIGHT).try_collect::<Vec<()>>().await.map(drop)
    }

    /// Removes the components of a side, a few at a time, and waits until they are deleted.
    async fn remove_all(&self, side: &str, deadline: Duration) -> Result<()> {
        let components = &self.components();
        let listed = components.list_metadata(&ListParams::default()).await?.items.into_iter();
        let names = listed.map(|component| component.name_any()).filter(|name| name.starts_with(side));
        let removed = stream::iter(names)
            .map(|name| async move { components.delete(&name, &DeleteParams::default()).await.map(drop) });
        removed.buffer_unordered(MAX_IN_FLIGHT).try_collect::<Vec<()>>().await?;
        let components = Api::<PartialObjectMeta<HelmComponent>>::namespaced(self.hub.clone(), HUB_NAMESPACE);
        until_gone(components, |name| name.starts_with(side), deadline).await
    }

    /// Returns the operators' requests to each cluster since the marks, divided by the number of releases or removals.
    fn requests(&self, marks: &[AuditMark], count: usize, divided_by: &str) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (cluster, mark) in self.landscape.clusters().into_iter().zip(marks) {
            let asked: Vec<AuditEvent> = cluster.audit()?.since(*mark)?.into_iter().filter(asks).collect();
            let (writes, reads): (Vec<_>, Vec<_>) = asked.iter().partition(|event| event.is_write());
            for (what, events) in [("writes", writes), ("reads", reads)] {
                let each = f64::from(u32::try_from(events.len())?) / f64::from(u32::try_from(count)?);
                rows.push(Row::plain(
                    format!("{}: {what} for each {divided_by}", cluster.name()),
                    each,
                    "requests",
                ));
            }
        }
        Ok(rows)
    }

    async fn by_helm(&self, count: usize) -> Result<f64> {
        let start = Instant::now();
        let names = stream::iter((0..count).map(|number| format!("helm-{number:05}")));
        let at_a_time = std::thread::available_parallelism()?.get();
        names
            .map(|name| async move { self.helm.install_as(&self.chart, &name, "helm").await })
            .buffer_unordered(at_a_time)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(start.elapsed().as_secs_f64())
    }

    async fn create(&self, component: &HelmComponent) -> Result<()> {
        self.components().create(&PostParams::default(), component).await?;
        Ok(())
    }

    /// Waits until this many components of a side are Ready.
    async fn until_ready(&self, side: &str, count: usize, deadline: Duration) -> Result<()> {
        let mut ready = BTreeSet::new();
        let changes = watcher(self.components(), watcher::Config::default()).default_backoff();
        let mut changes = pin!(changes.applied_objects());
        let waiting = async {
            while let Some(component) = changes.next().await {
                // The watcher lists again after an error.
                let Ok(component) = component else { continue };
                let is_ready =
                    component.status.as_ref().is_some_and(|status| status.state == Some(State::Ready));
                let name = component.name_any();
                if is_ready && name.starts_with(side) && ready.insert(name) && ready.len() == count {
                    return Ok(());
                }
            }
            bail!("the watch of the components ended")
        };
        let ended = tokio::time::timeout(deadline, waiting).await;
        ended.with_context(|| format!("{} of {count} are Ready after {deadline:?}", ready.len()))?
    }

    /// Returns the chart's source for a component.
    fn source(&self) -> Result<Value> {
        let (name, version) = self.chart.identity()?;
        Ok(json!({"chart": {"url": format!("{}/{name}", self.repository), "version": version}}))
    }

    fn values(&self) -> &Value {
        &self.chart.values
    }

    fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

/// Returns one release.
fn component(source: &Value, name: &str, values: &Value, namespace: &str) -> Result<HelmComponent> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "component.kyma-project.io/v1alpha1",
        "kind": "HelmComponent",
        "metadata": {"name": name, "namespace": HUB_NAMESPACE},
        "spec": {
            "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{ACCESS}"), "key": "config"}},
            "source": source,
            "release": {"name": name, "namespace": namespace},
            "values": values,
            "deletionPolicy": "Delete",
        },
    }))?)
}

/// Waits until no object with an awaited name exists. This is a watch: repeated lists would take processor time from
/// what is measured.
async fn until_gone<K>(
    objects: Api<PartialObjectMeta<K>>,
    is_awaited: impl Fn(&str) -> bool,
    deadline: Duration,
) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + 'static,
{
    let mut left = BTreeSet::new();
    let mut changes = pin!(watcher(objects, watcher::Config::default()).default_backoff());
    let waiting = async {
        while let Some(change) = changes.next().await {
            // The watcher lists again after an error.
            let Ok(change) = change else { continue };
            let is_listed = !matches!(change, Event::Init | Event::InitApply(_));
            match change {
                Event::Init => left.clear(),
                Event::InitApply(object) | Event::Apply(object) => {
                    let name = object.name_any();
                    if is_awaited(&name) {
                        left.insert(name);
                    }
                }
                Event::Delete(object) => drop(left.remove(&object.name_any())),
                Event::InitDone => {}
            }
            if is_listed && left.is_empty() {
                return Ok(());
            }
        }
        bail!("the watch of the removed objects ended")
    };
    let ended = tokio::time::timeout(deadline, waiting).await;
    ended.with_context(|| format!("objects are left after {deadline:?}: {left:?}"))?
}

/// Returns the timeout for this many releases.
fn deadline(count: usize) -> Result<Duration> {
    Ok(MAX_TIME_PER_RELEASE.saturating_mul(u32::try_from(count)?).max(Duration::from_mins(1)))
}

fn cores() -> Result<f64> {
    let cores = std::thread::available_parallelism()?.get();
    Ok(f64::from(u32::try_from(cores)?))
}

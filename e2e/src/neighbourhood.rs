//! Effect of unhealthy targets on healthy ones and on the operator.
//!
//! All targets lead to one kube-apiserver: for an operator each access Secret is a separate target, with its own
//! connections, budget and circuit breaker. Targets that may be unhealthy have a proxy with faults.

mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, condition};
use serde_json::json;
use testbed::{Access, Answer, RequestMatcher, ScriptedServer, free_address, until};

use crate::landscape::{HUB_NAMESPACE, Landscape, Options, secret_with};
use crate::net::{FileServer, TcpProxy};

pub use resources::OperatorResources;

/// The tested operator.
pub const OPERATOR: &str = "helm-component";
/// Label of the components and Secrets of one round.
const ROUND_LABEL: &str = "neighbourhood.example.org/round";
/// Maximum number of concurrent writes.
const MAX_PARALLEL_WRITES: usize = 8;
/// Timeout of a round.
const ROUND_DEADLINE: Duration = Duration::from_mins(5);

/// Fault of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Accepts connections and requests but does not answer.
    Silent,
    /// Refuses connections.
    Refusing,
    /// Answers after ten seconds: long, but within every deadline.
    Slow,
    /// Never ends an answer.
    Oversized,
    /// Answers with a server error.
    Failing,
}

impl Fault {
    const ALL: [Self; 5] = [Self::Silent, Self::Refusing, Self::Slow, Self::Oversized, Self::Failing];
}

/// Proxy of a target that may be unhealthy.
enum TargetProxy {
    ScriptedServer(Box<ScriptedServer>, Box<Answer>),
    TcpProxy(TcpProxy),
}

/// A target.
struct Neighbour {
    name: String,
    access: Access,
    proxy: Option<TargetProxy>,
    /// Fault of the proxy.
    fault: Option<Fault>,
}

/// Times from request to Ready on healthy targets, and the operator's peak resources.
#[derive(Debug)]
pub struct Round {
    /// Until new components were Ready.
    pub installed: Vec<Duration>,
    /// Until changes of their content were Ready.
    pub changed: Vec<Duration>,
    /// Peak resources of the operator.
    pub peak: OperatorResources,
    /// Number of unhealthy components by reason.
    pub bad: BTreeMap<String, usize>,
}

/// All targets, with a running operator.
pub struct Neighbourhood {
    landscape: Landscape,
    hub: Client,
    file_server: FileServer,
    all: Vec<Neighbour>,
}

impl Neighbourhood {
    /// Starts `good` healthy targets and `bad` targets that may be unhealthy, with each fault in turn.
    ///
    /// # Errors
    /// A process does not start.
    pub async fn start(good: usize, bad: usize) -> Result<Self> {
        let file_server = FileServer::start().await?;
        let options = Options { targets: 1, plain_http: vec![file_server.address()], ..Options::default() };
        let landscape = Landscape::start(options).await?;
        let target = &landscape.targets()[0];
        let access = landscape.access(target).await?;
        let mut all = Vec::new();
        for number in 0..bad {
            let fault = Fault::ALL[number % Fault::ALL.len()];
            let name = format!("bad-{number:02}");
            let (access, proxy) = if let Some(answer) = answer(fault) {
                let scripted = ScriptedServer::in_front_of(target).await?;
                (
                    scripted.access_of(&access),
                    TargetProxy::ScriptedServer(Box::new(scripted), Box::new(answer)),
                )
            } else {
                let upstream = target.url().trim_start_matches("https://");
                let proxy = TcpProxy::new(upstream, free_address()?);
                (access.at(format!("https://{}", proxy.address()), target.ca()), TargetProxy::TcpProxy(proxy))
            };
            all.push(Neighbour { name, access, proxy: Some(proxy), fault: Some(fault) });
        }
        let good = (0..good).map(|number| format!("good-{number:02}"));
        all.extend(good.map(|name| Neighbour { name, access: access.clone(), proxy: None, fault: None }));
        let hub = landscape.hub().client()?;
        let neighbourhood = Self { landscape, hub, file_server, all };
        neighbourhood.misbehave(false).await?;
        Ok(neighbourhood)
    }

    /// Creates a component on each target at the same time. Once those on healthy targets are Ready, changes the
    /// content of these. Afterwards removes all of them, and no target is unhealthy.
    ///
    /// # Errors
    /// A component on a healthy target does not become Ready, or one on an unhealthy target does that is not only slow.
    pub async fn round(&self, name: &str, bad: bool) -> Result<Round> {
        self.misbehave(bad).await?;
        let contents = ["one", "two"].map(|value| self.content(value));
        self.grant(name).await?;
        let work = async {
            let installed = self.until_ready(name, 1, self.install(name, &contents[0])).await?;
            let changed = self.until_ready(name, 2, self.change(name, &contents[1])).await?;
            anyhow::Ok((installed, changed))
        };
        let ((installed, changed), peak) = resources::during(&self.landscape, work).await?;
        let reasons = if bad { self.reasons(name).await? } else { BTreeMap::new() };
        self.misbehave(false).await?;
        self.release(name).await?;
        self.landscape.check()?;
        Ok(Round { installed, changed, peak, bad: reasons })
    }

    /// Returns the operator's present resources.
    ///
    /// # Errors
    /// The operator has ended.
    pub async fn resources(&self) -> Result<OperatorResources> {
        resources::read(&self.landscape).await
    }

    /// Stops everything.
    ///
    /// # Errors
    /// An operator does not stop.
    pub async fn stop(self) -> Result<()> {
        self.landscape.stop().await
    }

    async fn misbehave(&self, bad: bool) -> Result<()> {
        for neighbour in &self.all {
            match &neighbour.proxy {
                None => {}
                Some(TargetProxy::ScriptedServer(scripted, answer)) => {
                    scripted.clear();
                    if bad {
                        scripted.always(RequestMatcher::any(), answer.as_ref().clone());
                    }
                }
                Some(TargetProxy::TcpProxy(proxy)) => {
                    proxy.close();
                    if !bad {
                        until("the proxy is open", ROUND_DEADLINE, || async { Ok(proxy.open().await.ok()) })
                            .await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the address of content with this value.
    fn content(&self, value: &str) -> String {
        let maps = ["a", "b", "c", "d", "e"].map(|name| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
                .to_string()
        });
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"},
            "spec": {"ports": [{"port": 80}]}});
        self.file_server.put(&format!("{value}.yaml"), format!("{}\n---\n{service}\n", maps.join("\n---\n")))
    }

    /// Creates an access Secret of this round for each target, so that nothing is cached.
    async fn grant(&self, round: &str) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let secrets = &secrets;
        stream::iter(&self.all)
            .map(|neighbour| async move {
                let mut secret = secret_with(&format!("{round}-{}", neighbour.name), &neighbour.access)?;
                secret.labels_mut().insert(ROUND_LABEL.to_owned(), round.to_owned());
                secrets.create(&PostParams::default(), &secret).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(MAX_PARALLEL_WRITES)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    /// Creates the components and returns the times of the requests. Components on targets that may be unhealthy come
    /// first, so that they have the operator to themselves.
    async fn install(&self, round: &str, url: &str) -> Result<BTreeMap<String, Instant>> {
        let components = &self.components();
        let asked = stream::iter(&self.all).map(|neighbour| async move {
            let name = format!("{round}-{}", neighbour.name);
            let component = serde_json::from_value(json!({
                "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
                "metadata": {"name": name, "namespace": HUB_NAMESPACE, "labels": {ROUND_LABEL: round}},
                "spec": {
                    "target": {"kubeconfigSecretRef": {"name": format!("kubeconfig-{name}"), "key": "config"}},
                    "source": {"manifests": {"url": url}},
                    "release": {"namespace": name},
                    "deletionPolicy": "Orphan",
                },
            }))?;
            let start = Instant::now();
            components.create(&PostParams::default(), &component).await?;
            anyhow::Ok((name, start))
        });
        asked.buffered(MAX_PARALLEL_WRITES).try_collect().await
    }

    async fn change(&self, round: &str, url: &str) -> Result<BTreeMap<String, Instant>> {
        let components = self.components();
        let patch = Patch::Merge(json!({"spec": {"source": {"manifests": {"url": url}}}}));
        let asked = stream::iter(self.good()).map(|neighbour| {
            let (components, patch) = (&components, &patch);
            async move {
                let name = format!("{round}-{}", neighbour.name);
                let start = Instant::now();
                components.patch(&name, &PatchParams::default(), patch).await?;
                anyhow::Ok((name, start))
            }
        });
        asked.buffered(MAX_PARALLEL_WRITES).try_collect().await
    }

    /// Returns the time from request to Ready in this generation, for each component on a healthy target.
    async fn until_ready(
        &self,
        round: &str,
        generation: i64,
        asking: impl Future<Output = Result<BTreeMap<String, Instant>>>,
    ) -> Result<Vec<Duration>> {
        let wanted: BTreeSet<String> =
            self.good().map(|neighbour| format!("{round}-{}", neighbour.name)).collect();
        let config = watcher::Config::default().labels(&format!("{ROUND_LABEL}={round}"));
        let mut changes = pin!(watcher(self.components(), config).default_backoff().applied_objects());
        let seen = async {
            let mut ready = BTreeMap::new();
            while let Some(component) = changes.try_next().await? {
                let name = component.name_any();
                let is_it = wanted.contains(&name) && component.metadata.generation == Some(generation);
                if is_it && is_ready(&component) {
                    ready.entry(name).or_insert_with(Instant::now);
                }
                if ready.len() == wanted.len() {
                    return Ok(ready);
                }
            }
            bail!("the watch of the components ended")
        };
        let both = async { tokio::try_join!(asking, seen) };
        let ended = tokio::time::timeout(ROUND_DEADLINE, both).await;
        let (asked, ready) = ended.context("the good ones are not Ready")??;
        let took = |name: &String| {
            let start = asked.get(name).context("it was not requested")?;
            Ok(ready.get(name).context("it was not seen")?.saturating_duration_since(*start))
        };
        wanted.iter().map(took).collect()
    }

    /// Returns the number of components on unhealthy targets by reason.
    async fn reasons(&self, round: &str) -> Result<BTreeMap<String, usize>> {
        let mut reasons = BTreeMap::new();
        for neighbour in self.all.iter().filter(|neighbour| neighbour.proxy.is_some()) {
            let name = format!("{round}-{}", neighbour.name);
            let component = self.components().get(&name).await?;
            // A slow target answers every call, so a component there is Ready after some of them.
            let may_be_ready = neighbour.fault == Some(Fault::Slow);
            ensure!(may_be_ready || !is_ready(&component), "{name} is Ready on a target that is bad");
            let status = component.status.unwrap_or_default();
            let ready =
                condition::get(status.conditions.as_deref().unwrap_or_default(), condition::types::READY);
            let reason = ready.map_or_else(|| "none yet".to_owned(), |ready| ready.reason.clone());
            *reasons.entry(reason).or_default() += 1;
        }
        Ok(reasons)
    }

    async fn release(&self, round: &str) -> Result<()> {
        let of_round = kube::api::ListParams::default().labels(&format!("{ROUND_LABEL}={round}"));
        let components = self.components();
        components.delete_collection(&DeleteParams::default(), &of_round).await?;
        until("the components are gone", ROUND_DEADLINE, || async {
            Ok(components.list_metadata(&of_round).await?.items.is_empty().then_some(()))
        })
        .await?;
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        secrets.delete_collection(&DeleteParams::default(), &of_round).await?;
        Ok(())
    }

    fn good(&self) -> impl Iterator<Item = &Neighbour> {
        self.all.iter().filter(|neighbour| neighbour.proxy.is_none())
    }

    fn components(&self) -> Api<HelmComponent> {
        Api::namespaced(self.hub.clone(), HUB_NAMESPACE)
    }
}

/// Returns the answer of a target with this fault; `None` if it refuses connections.
fn answer(fault: Fault) -> Option<Answer> {
    match fault {
        Fault::Silent => Some(Answer::silence()),
        Fault::Refusing => None,
        Fault::Slow => Some(Answer::delayed(Duration::from_secs(10))),
        Fault::Oversized => Some(Answer::endless()),
        Fault::Failing => Some(Answer::failure(500, "InternalError", "it fails")),
    }
}

/// Reports whether the current generation is Ready.
fn is_ready(component: &HelmComponent) -> bool {
    let conditions = component.status.as_ref().and_then(|status| status.conditions.as_deref());
    let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
    ready.is_some_and(|ready| {
        ready.status == "True" && ready.observed_generation == component.metadata.generation
    })
}

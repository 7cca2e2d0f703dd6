//! Sends many generated objects to the hub of running operators.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, ModuleConfig, ModuleReleaseMeta, ModuleTemplate, Pause, Watcher};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::generator::{GeneratedObject, ObjectGenerator};
use super::schema::Kind;
use super::sentinel;
use crate::landscape::{HUB_NAMESPACE, Landscape};

/// Maximum number of concurrent requests.
const MAX_PARALLEL_REQUESTS: usize = 16;
/// Deadline for the operators to report on all objects.
const DEADLINE: Duration = Duration::from_mins(2);
/// Reasons that no object may cause: unexpected failures and passes without an end.
const FORBIDDEN_REASONS: [&str; 2] = ["Internal", "DeadlineExceeded"];

/// Minimum share of objects of each kind that the API accepts: operators never see refused ones.
pub const MIN_STORED_SHARE: f64 = 0.5;

/// Results for the objects of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Taken by the API.
    pub stored: usize,
    /// Refused by the API.
    pub refused: usize,
    /// Given a condition by an operator.
    pub conditions: usize,
}

impl ObjectCounts {
    /// Returns the share of accepted objects.
    pub fn share(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts")]
        let [stored, sent] = [self.stored, self.stored + self.refused].map(|count| count as f64);
        stored / sent.max(1.0)
    }
}

/// The hub of a landscape, to which objects are sent.
pub struct ObjectLoad<'a> {
    landscape: &'a Landscape,
    hub: Client,
    generator: ObjectGenerator,
    sent: usize,
    /// Results by kind.
    pub counts: BTreeMap<String, ObjectCounts>,
    /// The longest time until operators reported on a regular object.
    pub slowest: Duration,
}

impl<'a> ObjectLoad<'a> {
    /// Creates a generator with this seed for the hub of a landscape.
    ///
    /// # Errors
    /// A client for the hub cannot be created.
    pub fn new(landscape: &'a Landscape, seed: u64) -> Result<Self> {
        let hub = landscape.hub().client()?;
        let (counts, slowest) = (BTreeMap::new(), Duration::ZERO);
        Ok(Self { landscape, hub, generator: ObjectGenerator::new(seed), sent: 0, counts, slowest })
    }

    /// Sends objects of a kind. Each must be refused by the API or get its condition, if its kind has one; and
    /// operators must still run and report on new objects.
    ///
    /// # Errors
    /// An object got neither, the API failed, or an operator ended, panicked, or reported an unexpected failure.
    pub async fn send(&mut self, kind: &Kind, count: usize) -> Result<()> {
        let name = kind.resource.kind.clone();
        let generated: Vec<GeneratedObject> =
            (self.sent..self.sent + count).map(|number| self.generator.object(kind, number)).collect();
        self.sent += count;
        let api: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &kind.resource);
        let stored = futures::stream::iter(generated.iter().map(|generated| create(&api, generated)));
        let stored: Vec<Option<String>> = stored
            .buffer_unordered(MAX_PARALLEL_REQUESTS)
            .try_collect()
            .await
            .with_context(|| name.clone())?;
        let stored: HashSet<String> = stored.into_iter().flatten().collect();
        let counts = self.counts.entry(name.clone()).or_default();
        counts.stored += stored.len();
        counts.refused += count - stored.len();
        if let Some(condition) = kind.condition {
            counts.conditions += stored.len();
            all_have(&api, condition, stored).await?;
        }
        if name == "Pause" {
            // Deleted before the next chunk, which also tests their deletion.
            self.sweep(kind).await?;
        }
        let reaction = sentinel::measure_reaction(&self.hub, self.sent)
            .await
            .with_context(|| format!("after {name}s"))?;
        self.slowest = self.slowest.max(reaction);
        self.check_operators().await.with_context(|| format!("after {name}s"))
    }

    /// Deletes all objects of a kind.
    ///
    /// # Errors
    /// The hub refuses a deletion.
    pub async fn sweep(&self, kind: &Kind) -> Result<()> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &kind.resource);
        loop {
            let page = api.list(&ListParams::default().limit(500)).await?;
            if page.items.is_empty() {
                return Ok(());
            }
            let parts = page.items.chunks(page.items.len().div_ceil(MAX_PARALLEL_REQUESTS));
            futures::future::try_join_all(parts.map(|part| sentinel::sweep(&api, part))).await?;
        }
    }

    async fn check_operators(&self) -> Result<()> {
        self.landscape.check()?;
        for operator in self.landscape.operators() {
            let log = std::fs::read_to_string(operator.log())?;
            let panicked = log.lines().find(|line| line.contains("panicked at"));
            ensure!(panicked.is_none(), "{} {}", operator.name(), panicked.unwrap_or_default());
            let metrics = self.landscape.metrics(operator.name()).await?;
            for reason in FORBIDDEN_REASONS {
                let wanted = format!("reason=\"{reason}\"");
                let counts =
                    metrics.lines().find(|line| line.contains("failures_total{") && line.contains(&wanted));
                ensure!(counts.is_none(), "{}: {}", operator.name(), counts.unwrap_or_default());
            }
        }
        Ok(())
    }
}

/// Returns the name if the object is stored; `None` if the API refuses it.
async fn create(api: &Api<DynamicObject>, generated: &GeneratedObject) -> Result<Option<String>> {
    let object: DynamicObject = serde_json::from_value(generated.object.clone())?;
    match api.create(&PostParams::default(), &object).await {
        Ok(stored) => {
            readable(&serde_json::to_value(stored)?)?;
            Ok(Some(generated.name.clone()))
        }
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => Ok(None),
        Err(error) => Err(error).with_context(|| generated.object.to_string()),
    }
}

/// Fails if the Rust types cannot read an object that the API server stored: operators would never see it.
fn readable(stored: &Value) -> Result<()> {
    fn parse<K: DeserializeOwned>(stored: &Value) -> serde_json::Result<()> {
        K::deserialize(stored).map(drop)
    }
    let read = match stored["kind"].as_str().unwrap_or_default() {
        "HelmComponent" => parse::<HelmComponent>(stored),
        "Kyma" => parse::<Kyma>(stored),
        "ModuleConfig" => parse::<ModuleConfig>(stored),
        "ModuleReleaseMeta" => parse::<ModuleReleaseMeta>(stored),
        "ModuleTemplate" => parse::<ModuleTemplate>(stored),
        "Pause" => parse::<Pause>(stored),
        "Watcher" => parse::<Watcher>(stored),
        other => bail!("there is no type for kind {other}"),
    };
    read.with_context(|| format!("our types cannot read {stored}"))
}

/// Waits until each of these objects has the condition.
async fn all_have(api: &Api<DynamicObject>, condition: &str, mut missing: HashSet<String>) -> Result<()> {
    let waiting = async {
        let changes = watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects();
        let mut changes = pin!(changes);
        while !missing.is_empty() {
            let Some(object) = changes.try_next().await? else { bail!("the watch ended") };
            if has(&object, condition) {
                missing.remove(&object.name_any());
            }
        }
        Ok(())
    };
    if let Ok(done) = tokio::time::timeout(DEADLINE, waiting).await {
        return done;
    }
    let name = missing.iter().next().cloned().unwrap_or_default();
    let one = serde_json::to_value(api.get_opt(&name).await?)?;
    bail!("{} objects have no condition {condition}, such as {one}", missing.len())
}

/// Reports whether the condition is about the current generation.
fn has(object: &DynamicObject, condition: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    let held = conditions.into_iter().flatten().find(|held| held["type"] == condition);
    held.is_some_and(|held| {
        let seen = held["observedGeneration"].as_i64();
        held["reason"].as_str().is_some_and(|reason| !reason.is_empty())
            && seen.is_none_or(|seen| Some(seen) == object.metadata.generation)
            && !matches!(held["status"], Value::Null)
    })
}

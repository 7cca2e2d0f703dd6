//! Time from sending a write to the first write that it causes, measured by watches.

use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{Stream, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use kyma_api::{HelmComponent, Kyma, State};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::quantile::quantile;
use super::{Outcome, Row};
use crate::catalogue;
use crate::fleet::{Fleet, KYMAS, LANTERN};
use crate::landscape::{HUB_NAMESPACE, Landscape, Options, TARGET_NAMESPACE};

/// Goal for the 99th percentile in milliseconds.
const MAX_P99_MILLISECONDS: f64 = 300.0;
/// Resync interval, so long that no reaction comes from a resync.
const RESYNC: &str = "24h";
/// Timeout of one reaction.
const REACTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures `tries` reactions of each sort, one after the other.
///
/// # Errors
/// The landscape does not start, or a reaction is lost.
pub async fn react(tries: u32) -> Result<Outcome> {
    let flags = vec![format!("--resync={RESYNC}")];
    let landscape = Landscape::start(Options { targets: 2, flags, ..Options::default() }).await?;
    Fleet::new(&landscape)?.install().await?;
    let hub = landscape.hub().client()?;
    let target = landscape.targets()[0].client()?;
    let mut rows = Vec::new();
    rows.extend(summary("edit of the target's Kyma", &kyma_edits(&hub, &target, tries).await?));
    rows.extend(summary("drift on the target", &drift(&target, tries).await?));
    rows.extend(summary("ModuleReleaseMeta on the hub", &assignments(&hub, tries).await?));
    landscape.stop().await?;
    Ok(Outcome::new("react", &json!({"tries": tries, "kymas": 2, "modules": 3, "resync": RESYNC}), rows))
}

/// Measures a user's change of a value in the target's Kyma, until the module's component on the hub has it.
async fn kyma_edits(hub: &Client, target: &Client, tries: u32) -> Result<Vec<f64>> {
    let kymas: Api<Kyma> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
    let components: Api<HelmComponent> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let mut seen = pin!(changes(components));
    let mut times = Vec::new();
    for number in 0..tries {
        // Pods of a rollout would compete with the next try.
        let notice = format!("number {number}");
        let modules = json!([
            {"name": LANTERN},
            {"name": "harbour", "values": {"replicas": 3, "notice": notice}},
            {"name": "greeting"},
        ]);
        let edit = Patch::Merge(json!({"spec": {"modules": modules}}));
        let start = Instant::now();
        kymas.patch("default", &PatchParams::default(), &edit).await?;
        let wanted = |component: &HelmComponent| {
            let values = serde_json::to_value(&component.spec.user_values).unwrap_or_default();
            component.name_any().starts_with(KYMAS[0]) && values["notice"] == json!(notice)
        };
        let reached = first(&mut seen, wanted).await;
        reached.with_context(|| format!("edit {number} of the target's Kyma"))?;
        times.push(milliseconds(start));
    }
    Ok(times)
}

/// Measures an edit of a module's object, until the operator corrects it.
async fn drift(target: &Client, tries: u32) -> Result<Vec<f64>> {
    let settings: Api<ConfigMap> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
    let brightness = |found: &ConfigMap| found.data.as_ref().and_then(|data| data.get("brightness").cloned());
    let mut seen = pin!(changes(settings.clone()));
    let mut times = Vec::new();
    for number in 0..tries {
        let wrong = format!("wrong {number}");
        let edit = Patch::Merge(json!({"data": {"brightness": wrong}}));
        let start = Instant::now();
        settings.patch("lantern-settings", &PatchParams::default(), &edit).await?;
        first(&mut seen, |found| brightness(found).as_deref() == Some(&wrong)).await?;
        let reached = first(&mut seen, |found| brightness(found).as_deref() == Some("80")).await;
        reached.with_context(|| format!("drift {number}"))?;
        times.push(milliseconds(start));
    }
    Ok(times)
}

/// Measures a channel that moves back and forth, until the Kyma's status reports or clears the refused downgrade.
async fn assignments(hub: &Client, tries: u32) -> Result<Vec<f64>> {
    catalogue::assign(hub.clone(), LANTERN, "1.1.0").await?;
    let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let state = |kyma: &Kyma| {
        let status = kyma.status.clone().unwrap_or_default();
        let lantern = status.modules.into_iter().flatten().find(|module| module.name == LANTERN);
        lantern.map(|module| (module.version.unwrap_or_default(), module.state))
    };
    let mut seen = pin!(changes(kymas));
    let ready = ("1.1.0".to_owned(), State::Ready);
    first(&mut seen, |kyma| kyma.name_any() == KYMAS[0] && state(kyma).as_ref() == Some(&ready)).await?;
    let mut times = Vec::new();
    for number in 0..tries {
        let (version, wanted) =
            if number % 2 == 0 { ("1.0.0", State::Warning) } else { ("1.1.0", State::Ready) };
        let start = Instant::now();
        catalogue::assign(hub.clone(), LANTERN, version).await?;
        let reached = |kyma: &Kyma| {
            kyma.name_any() == KYMAS[0] && state(kyma).is_some_and(|(_, state)| state == wanted)
        };
        first(&mut seen, reached).await.with_context(|| format!("assignment {number}"))?;
        times.push(milliseconds(start));
    }
    Ok(times)
}

fn changes<K>(api: Api<K>) -> impl Stream<Item = Result<K, watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, watcher::Config::default()).default_backoff().applied_objects()
}

/// Waits until the object matches.
async fn first<K>(
    seen: &mut (impl Stream<Item = Result<K, watcher::Error>> + Unpin),
    wanted: impl Fn(&K) -> bool,
) -> Result<()> {
    let waiting = async {
        while let Some(object) = seen.try_next().await? {
            if wanted(&object) {
                return Ok(());
            }
        }
        bail!("the watch ended");
    };
    tokio::time::timeout(REACTION_TIMEOUT, waiting).await.context("a reaction was lost")?
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

fn summary(name: &str, times: &[f64]) -> [Row; 3] {
    [
        Row::plain(format!("{name}: p50"), quantile(times, 0.5), "ms"),
        Row::at_most(format!("{name}: p99"), quantile(times, 0.99), "ms", MAX_P99_MILLISECONDS),
        Row::plain(format!("{name}: max"), quantile(times, 1.0), "ms"),
    ]
}

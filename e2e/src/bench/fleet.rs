//! Work of kyma-operator for a large fleet without target clusters: all Kymas lead to one port that refuses
//! connections.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{Kyma, Reason};
use serde_json::json;
use testbed::{Access, AuditEvent, AuditMark, Credentials, until_or_why};
use tokio::net::TcpSocket;

use super::releases::Footprint;
use super::{Outcome, Row};
use crate::landscape::{HUB_NAMESPACE, Landscape, Options, secret_with};

/// The measured operator.
const OPERATOR: &str = "kyma-operator";
const OTHER_OPERATORS: [&str; 3] = ["helm-component", "release-meta-syncer", "greeting-component"];
/// Maximum number of concurrent writes to the hub.
const MAX_PARALLEL_WRITES: usize = 16;
/// Number of access Secrets that are changed, each once.
const CHANGED_SECRETS: usize = 100;
/// The changed annotation of access Secrets.
const ANNOTATION: &str = "bench.kyma-project.io/changed";
/// Deadline for all Kymas to be tried, per Kyma, in addition to [`MIN_DEADLINE`].
const DEADLINE_PER_KYMA: Duration = Duration::from_millis(100);
/// Deadline for the operator to start and to read changed Secrets.
const MIN_DEADLINE: Duration = Duration::from_mins(2);
/// Duration of the measurement of processor time without Secret events. Retries of unreachable targets are part of
/// it, so it is subtracted from the time with Secret events.
const BASELINE_DURATION: Duration = Duration::from_secs(30);

/// Creates `kymas` Kymas whose access Secrets lead to a port that refuses connections, starts kyma-operator, and
/// measures the time until each Kyma was tried, memory, and processor time per changed access Secret.
///
/// # Errors
/// The landscape does not start, or a Kyma is not tried in time.
pub async fn fleet(kymas: usize) -> Result<Outcome> {
    ensure!(kymas > 0, "at least one Kyma");
    let mut landscape = Landscape::start(Options { audit: true, ..Options::default() }).await?;
    for operator in OTHER_OPERATORS.into_iter().chain([OPERATOR]) {
        landscape.kill(operator)?;
    }
    let hub = landscape.hub().client()?;
    let (access, _port) = refusing_access(&landscape)?;
    create_all(&hub, &access, kymas).await?;

    let start = Instant::now();
    landscape.start_again(OPERATOR).await?;
    let startup = Footprint::begin(landscape.operator(OPERATOR)?.id())?;
    until_tried(&hub, kymas).await?;
    let tried = start.elapsed().as_secs_f64();
    let startup = startup.end().await?;

    let before = idle_share(&landscape).await?;
    let (seconds, took) = change_secrets(&landscape, &hub, kymas.min(CHANGED_SECRETS)).await?;
    let after = idle_share(&landscape).await?;
    let changed = f64::from(u32::try_from(kymas.min(CHANGED_SECRETS))?);
    // Pauses between retries grow, so the share of the time in between is close to the mean.
    let baseline = f64::midpoint(before, after) * took;
    let memory = Footprint::begin(landscape.operator(OPERATOR)?.id())?.end().await?.own_mib;
    landscape.stop().await?;

    let rows = vec![
        Row::plain("until each Kyma was tried once", tried, "s"),
        Row::plain("processor time until then", startup.seconds.own, "s"),
        Row::plain("most memory until then", startup.most_mib, "MiB"),
        Row::plain("memory at the end", memory, "MiB"),
        Row::plain("processor time per Secret event", (seconds - baseline) * 1000.0 / changed, "ms"),
        Row::plain("the same with retries of other Kymas", seconds * 1000.0 / changed, "ms"),
        Row::plain("processor share of retries, before events", before * 100.0, "%"),
        Row::plain("processor share of retries, after events", after * 100.0, "%"),
    ];
    let setup = json!({
        "kymas": kymas, "changed secrets": kymas.min(CHANGED_SECRETS),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "targets are": "one loopback port that refuses connections",
        "tried": format!("condition {} with reason {}", types::TARGET_REACHABLE, Reason::TargetUnreachable.as_str()),
        "Secret event": "a changed annotation; handled when the operator has read the Secret",
    });
    Ok(Outcome::new("fleet", &setup, rows))
}

/// Returns access to a port that refuses connections, with the socket that reserves it without listening.
fn refusing_access(landscape: &Landscape) -> Result<(Access, TcpSocket)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into()).context("cannot reserve a port")?;
    let address = socket.local_addr()?;
    let access = Access {
        url: format!("https://{address}"),
        ca: landscape.hub().ca().to_owned(),
        cluster: "refusing".to_owned(),
        user: "hub".to_owned(),
        credentials: Credentials::Token("unused".to_owned()),
    };
    Ok((access, socket))
}

/// Creates the access Secrets and the Kymas, a few at a time.
async fn create_all(hub: &Client, access: &Access, kymas: usize) -> Result<()> {
    let bar = progress(kymas, "Kymas created")?;
    let created = (0..kymas).map(|number| {
        let bar = &bar;
        async move {
            create(hub, access, &name(number)).await?;
            bar.inc(1);
            anyhow::Ok(())
        }
    });
    stream::iter(created).buffer_unordered(MAX_PARALLEL_WRITES).try_collect::<Vec<()>>().await?;
    bar.finish_and_clear();
    Ok(())
}

async fn create(hub: &Client, access: &Access, name: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    secrets.create(&PostParams::default(), &secret_with(name, access)?).await?;
    let kyma: Kyma = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": name},
        "spec": {"channel": "regular"},
    }))?;
    let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    kymas
        .create(&PostParams::default(), &kyma)
        .await
        .with_context(|| format!("cannot create Kyma {name}"))?;
    Ok(())
}

/// Waits until the status of each Kyma reports its target as unreachable.
async fn until_tried(hub: &Client, kymas: usize) -> Result<()> {
    let bar = progress(kymas, "Kymas tried")?;
    let api: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let mut tried = BTreeSet::new();
    let mut changes = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    let waiting = async {
        while let Some(change) = changes.next().await {
            // A failed watch is retried until the deadline.
            let Ok(kyma) = change else { continue };
            if is_unreachable(&kyma) && tried.insert(kyma.name_any()) {
                bar.inc(1);
                if tried.len() == kymas {
                    return Ok(());
                }
            }
        }
        bail!("the watch of the Kymas ended")
    };
    let deadline = MIN_DEADLINE + DEADLINE_PER_KYMA.saturating_mul(u32::try_from(kymas)?);
    let ended = tokio::time::timeout(deadline, waiting).await;
    bar.finish_and_clear();
    ended.with_context(|| format!("{} of {kymas} were tried after {deadline:?}", tried.len()))?
}

fn is_unreachable(kyma: &Kyma) -> bool {
    let conditions = kyma.status.as_ref().and_then(|status| status.conditions.as_deref());
    condition::get(conditions.unwrap_or_default(), types::TARGET_REACHABLE)
        .is_some_and(|held| held.reason == Reason::TargetUnreachable.as_str())
}

/// Changes access Secrets and waits until the operator has read each. Returns the processor seconds of the operator
/// and the seconds that passed.
async fn change_secrets(landscape: &Landscape, hub: &Client, count: usize) -> Result<(f64, f64)> {
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let bar = progress(count, "Secrets changed and read")?;
    let mark = landscape.hub().audit()?.mark()?;
    let footprint = Footprint::begin(landscape.operator(OPERATOR)?.id())?;
    let start = Instant::now();
    let change = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: "once"}}}));
    let patches = (0..count).map(|number| {
        let (secrets, change) = (&secrets, &change);
        async move {
            let name = secret_name(&name(number));
            secrets.patch_metadata(&name, &PatchParams::default(), change).await?;
            anyhow::Ok(())
        }
    });
    stream::iter(patches).buffer_unordered(MAX_PARALLEL_WRITES).try_collect::<Vec<()>>().await?;
    until_or_why("the operator has read each changed Secret", MIN_DEADLINE, || async {
        let read = read_secrets(landscape, mark, count)?;
        bar.set_position(u64::try_from(read)?);
        Ok(if read == count { Ok(()) } else { Err(format!("it has read {read} of {count}")) })
    })
    .await?;
    let took = start.elapsed().as_secs_f64();
    let used = footprint.end().await?;
    bar.finish_and_clear();
    Ok((used.seconds.own, took))
}

/// Returns how many of the changed access Secrets the operator has read after their change.
fn read_secrets(landscape: &Landscape, mark: AuditMark, count: usize) -> Result<usize> {
    let operator = format!("system:serviceaccount:{HUB_NAMESPACE}:{OPERATOR}");
    let names: BTreeSet<String> = (0..count).map(|number| secret_name(&name(number))).collect();
    let events = landscape.hub().audit()?.since(mark)?;
    let events = || events.iter().filter(|event| event.resource == "secrets" && names.contains(&event.name));
    let changed: BTreeMap<&str, Timestamp> = events()
        .filter(|event| event.verb == "patch")
        .map(|event| (event.name.as_str(), event.received))
        .collect();
    let is_read_after_change = |event: &&AuditEvent| {
        let changed = changed.get(event.name.as_str());
        event.verb == "get" && event.user == operator && changed.is_some_and(|time| *time < event.received)
    };
    let read: BTreeSet<&str> =
        events().filter(is_read_after_change).map(|event| event.name.as_str()).collect();
    Ok(read.len())
}

/// Returns the operator's processor time without Secret events, as a share of one core.
async fn idle_share(landscape: &Landscape) -> Result<f64> {
    let footprint = Footprint::begin(landscape.operator(OPERATOR)?.id())?;
    let start = Instant::now();
    tokio::time::sleep(BASELINE_DURATION).await;
    let took = start.elapsed().as_secs_f64();
    Ok(footprint.end().await?.seconds.own / took)
}

fn progress(length: usize, what: &'static str) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}")?;
    Ok(ProgressBar::new(u64::try_from(length)?).with_style(style).with_message(what))
}

fn name(number: usize) -> String {
    format!("fleet-{number:05}")
}

/// Returns the name of a Kyma's access Secret, as [`secret_with`] chooses it.
fn secret_name(kyma: &str) -> String {
    format!("kubeconfig-{kyma}")
}

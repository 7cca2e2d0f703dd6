//! kyma-operator and release-meta-syncer each write their own part of one Kyma's status.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::landscape::{HUB_NAMESPACE, Landscape};
use e2e::wait;
use futures::TryStreamExt;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kyma_api::Kyma;
use serde_json::{Value, json};
use testbed::AuditMark;

use crate::{condition, create, is, kymas};

const KYMA: &str = "crossing";
/// Number of status writes by both operators together; `WRITES_IN_FULL` with `TEST_FULL=1`.
const WRITES: usize = 200;
const WRITES_IN_FULL: usize = 1000;
const DEADLINE: Duration = Duration::from_mins(2);

/// Edits the Kyma's spec, which makes both operators write at once, since conditions contain the observed
/// generation. Checks that every version of the Kyma has all conditions.
pub(crate) async fn run(landscape: &Landscape) -> Result<()> {
    let target = landscape.bare_target("crossing").await?;
    create(landscape, KYMA, &target).await?;
    landscape.until_at_rest().await?;
    let hub = landscape.hub().client()?;
    let before = kymas(&hub).get(KYMA).await?;
    let expected = conditions(&before)?;
    ensure!(expected.contains_key("Ready") && expected.contains_key("ModuleCatalog"), "{expected:?}");

    let mark = landscape.hub().audit()?.mark()?;
    let version = before.metadata.resource_version.context("a stored Kyma has a resourceVersion")?;
    let seen = tokio::spawn(versions(kymas(&hub), version));
    let is_full = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    let wanted = if is_full { WRITES_IN_FULL } else { WRITES };
    let generation = edit_until_written(landscape, mark, wanted).await?;
    let both_have_seen = |kyma: Option<&Kyma>| {
        is(kyma, |kyma| {
            ["Ready", "ModuleCatalog"]
                .iter()
                .all(|type_| condition(kyma, type_)["observedGeneration"] == generation)
        })
    };
    wait::until("both have seen the last edit", kymas(&hub), KYMA, both_have_seen).await?;
    let last = json!({"metadata": {"labels": {"test": "last"}}});
    kymas(&hub).patch(KYMA, &PatchParams::default(), &Patch::Merge(last)).await?;

    let versions =
        tokio::time::timeout(DEADLINE, seen).await.context("the watch shows the last write")???;
    ensure!(versions.len() > wanted, "only {} versions were seen", versions.len());
    for kyma in &versions {
        let found = conditions(kyma)?;
        let version = kyma.metadata.resource_version.as_deref().unwrap_or_default();
        ensure!(found == expected, "at {version}: {found:?} instead of {expected:?}");
        let state = kyma.status.as_ref().and_then(|status| status.state);
        ensure!(state == Some(kyma_api::State::Ready), "at {version} the state is {state:?}");
    }
    Ok(())
}

/// Edits the spec until the operators have made `wanted` status writes, each of them at least a quarter. Returns
/// the last generation.
async fn edit_until_written(landscape: &Landscape, mark: AuditMark, wanted: usize) -> Result<i64> {
    let kymas = kymas(&landscape.hub().client()?);
    let started = Instant::now();
    let mut number = 0;
    loop {
        let mut generation = 0;
        for _ in 0..50 {
            number += 1;
            let channel = if number % 2 == 0 { "regular" } else { "fast" };
            let edit = Patch::Merge(json!({"spec": {"channel": channel}}));
            let edited = kymas.patch(KYMA, &PatchParams::default(), &edit).await?;
            generation = edited.metadata.generation.unwrap_or_default();
        }
        let written = writes(landscape, mark)?;
        let all = written.values().sum::<usize>();
        if all >= wanted && written.len() == 2 && written.values().all(|own| *own >= wanted / 4) {
            return Ok(generation);
        }
        ensure!(started.elapsed() < DEADLINE, "after {number} edits only: {written:?}");
    }
}

/// Returns the number of each operator's writes to the Kyma's status.
fn writes(landscape: &Landscape, mark: AuditMark) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    let events = landscape.hub().audit()?.since(mark)?;
    let accounts = format!("system:serviceaccount:{HUB_NAMESPACE}:");
    let written = events.iter().filter(|event| {
        event.resource == "kymas/status" && event.name == KYMA && event.is_write() && event.code == 200
    });
    for operator in written.filter_map(|event| event.user.strip_prefix(&accounts)) {
        *counts.entry(operator.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// Returns every version of the Kyma after this one, up to the one with the label `test`.
async fn versions(kymas: Api<Kyma>, from: String) -> Result<Vec<Kyma>> {
    let mut seen = Vec::new();
    let only = WatchParams::default().fields(&format!("metadata.name={KYMA}"));
    let mut stream = Box::pin(kymas.watch(&only, &from).await?);
    while let Some(event) = stream.try_next().await? {
        let WatchEvent::Modified(kyma) = event else { continue };
        let is_last = kyma.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("test"));
        seen.push(kyma);
        if is_last {
            break;
        }
    }
    Ok(seen)
}

/// Returns status, reason and lastTransitionTime of each condition by type, which must not change.
fn conditions(kyma: &Kyma) -> Result<BTreeMap<String, [Value; 3]>> {
    let conditions =
        serde_json::to_value(kyma.status.as_ref().and_then(|status| status.conditions.as_ref()))?;
    let all = conditions.as_array().context("the Kyma has conditions")?;
    let fields_by_type = |held: &Value| {
        let parts = ["status", "reason", "lastTransitionTime"].map(|field| held[field].clone());
        (held["type"].as_str().unwrap_or_default().to_owned(), parts)
    };
    Ok(all.iter().map(fields_by_type).collect())
}

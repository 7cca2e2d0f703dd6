//! The brake: deletions on too many targets stop, are reported, stay stopped after a restart, and continue after a
//! user confirms them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::fleet::Fleet;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options};
use e2e::wait;
use futures::StreamExt;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use kyma_api::{HelmComponent, Kyma, Pause, PauseScope, labels};
use testbed::until_or_why;

/// Name of the Pause that kyma-operator creates.
const PAUSE: &str = "brake-kyma-operator";
/// Modules of each Kyma that helm-component installs.
const HELM_MODULES: usize = 2;
const DEADLINE: Duration = Duration::from_mins(3);

/// With `TEST_FULL=1` twelve targets and the default limits of the operators.
struct Size {
    targets: usize,
    limit: usize,
    flags: Vec<String>,
}

impl Size {
    fn of_this_run() -> Self {
        if std::env::var_os("TEST_FULL").is_some_and(|value| value == "1") {
            return Self { targets: 12, limit: 10, flags: Vec::new() };
        }
        let flags = ["--brake-targets=1", "--brake-percent=0"].map(str::to_owned).to_vec();
        Self { targets: 3, limit: 1, flags }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mass_deletion_stops_until_a_person_says_that_it_is_meant() {
    scenario(Size::of_this_run()).await.unwrap();
}

async fn scenario(size: Size) -> Result<()> {
    let options = Options { targets: size.targets, flags: size.flags, ..Options::default() };
    let mut landscape = Landscape::start(options).await?;
    let hub = landscape.hub().client()?;
    let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let pauses: Api<Pause> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let names: Vec<String> = (0..size.targets).map(|number| format!("kyma-{number}")).collect();
    let fleet = Fleet::new(&landscape)?;
    fleet.publish().await?;
    for (name, target) in names.iter().zip(landscape.targets()) {
        fleet.join(name, target).await?;
    }
    for name in &names {
        fleet.until_installed(name).await?;
    }

    kymas.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let made = wait::until("the brake holds", pauses.clone(), PAUSE, |pause: Option<&Pause>| pause.is_some());
    let pause = made.await?.context("the Pause exists")?;
    ensure!(pause.spec.scope == PauseScope::Deletes, "{:?}", pause.spec);
    ensure!(pause.spec.operators == ["kyma-operator"], "{:?}", pause.spec);
    let untouched = until_stopped(&hub, size.targets - size.limit).await?;

    landscape.kill_and_restart("kyma-operator").await?;
    for kyma in kymas.list(&ListParams::default()).await? {
        Fleet::new(&landscape)?.until_reason(&kyma.name_any(), "Paused").await?;
    }
    let still = until_stopped(&hub, size.targets - size.limit).await?;
    ensure!(still == untouched, "{untouched} Kymas had lost nothing, after a restart {still}");

    let asked = confirm_deletions(&hub).await?;
    ensure!(asked.contains_key(PAUSE), "{asked:?}");
    landscape.stop().await
}

/// Waits until the remaining Kymas report that they are halted. Returns how many of them are complete, at least
/// `least`: others may have been halted in the middle.
async fn until_stopped(hub: &Client, least: usize) -> Result<usize> {
    let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let components: Api<HelmComponent> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    until_or_why("all Kymas stand still", DEADLINE, || async {
        let left = kymas.list(&ListParams::default()).await?.items;
        let is_paused = |kyma: &&Kyma| {
            let conditions = kyma.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|held| held.type_ == "Ready" && held.reason == "Paused")
        };
        let paused = left.iter().filter(is_paused).count();
        let standing = components.list(&ListParams::default()).await?.items.into_iter();
        let standing = standing.filter(|component| component.metadata.deletion_timestamp.is_none());
        let mut modules: BTreeMap<String, usize> = BTreeMap::new();
        for component in standing {
            let kyma = component.labels().get(labels::KYMA_NAME).cloned().unwrap_or_default();
            *modules.entry(kyma).or_default() += 1;
        }
        let untouched = modules.values().filter(|modules| **modules == HELM_MODULES).count();
        ensure!(untouched >= least, "only {untouched} Kymas have lost nothing");
        let summary = || format!("{untouched} have lost nothing; {paused} of {} say Paused", left.len());
        Ok(if paused == left.len() { Ok(untouched) } else { Err(summary()) })
    })
    .await
}

/// Confirms each operator's brake until all deletions are done. Returns the uids of the brake's Pauses.
async fn confirm_deletions(hub: &Client) -> Result<BTreeMap<String, Option<String>>> {
    let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let pauses: Api<Pause> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let mut asked = BTreeMap::new();
    let gone = Box::pin(async {
        let gone = kube::runtime::watcher(kymas.clone(), watcher::Config::default()).default_backoff();
        let mut gone = pin!(gone);
        loop {
            if kymas.list_metadata(&ListParams::default()).await?.items.is_empty() {
                return anyhow::Ok(());
            }
            gone.next().await;
        }
    });
    let answer = Box::pin(async {
        let made = kube::runtime::watcher(pauses.clone(), watcher::Config::default()).default_backoff();
        let mut made = pin!(made.applied_objects());
        while let Some(pause) = made.next().await {
            // The watch begins again after an error.
            let Ok(pause) = pause else { continue };
            let (name, uid) = (pause.name_any(), pause.uid());
            match asked.insert(name.clone(), uid.clone()) {
                None => drop(pauses.delete(&name, &DeleteParams::default()).await?),
                // Its status changed at the same time.
                Some(same) if same == uid => {}
                Some(_) => bail!("{name} holds what a person confirmed"),
            }
        }
        Ok(())
    });
    tokio::time::timeout(DEADLINE, async {
        tokio::select! {
            gone = gone => gone,
            answer = answer => answer,
        }
    })
    .await
    .context("Kymas are left")??;
    Ok(asked)
}

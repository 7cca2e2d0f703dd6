//! The brake: a deletion on too many targets stops, says so, survives a restart, and goes on once a person says that
//! it is meant.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::fleet::Fleet;
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options, TARGET_NAMESPACE};
use e2e::wait;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, Pause, PauseScope};
use testbed::until_or_why;

/// The Pause that kyma-operator makes for itself.
const PAUSE: &str = "brake-kyma-operator";
const DEADLINE: Duration = Duration::from_mins(3);

/// With `TEST_FULL=1` twelve targets and the limits that operators have by default.
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
    story(Size::of_this_run()).await.unwrap();
}

async fn story(size: Size) -> Result<()> {
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
    until_left(&kymas, &landscape, size.targets - size.limit).await?;

    landscape.kill_and_restart("kyma-operator").await?;
    for kyma in kymas.list(&ListParams::default()).await? {
        Fleet::new(&landscape)?.until_reason(&kyma.name_any(), "Paused").await?;
    }
    until_left(&kymas, &landscape, size.targets - size.limit).await?;

    pauses.delete(PAUSE, &DeleteParams::default()).await?;
    until_left(&kymas, &landscape, 0).await?;
    ensure!(pauses.get_opt(PAUSE).await?.is_none(), "the brake holds what a person said is meant");
    landscape.stop().await
}

/// Waits until exactly so many Kymas are left, each with all its modules on its target, and says so.
async fn until_left(kymas: &Api<Kyma>, landscape: &Landscape, count: usize) -> Result<()> {
    until_or_why(&format!("{count} Kymas are left"), DEADLINE, || async {
        let left = kymas.list(&ListParams::default()).await?.items;
        let is_paused = |kyma: &&Kyma| {
            let conditions = kyma.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|held| held.type_ == "Ready" && held.reason == "Paused")
        };
        let paused = left.iter().filter(is_paused).count();
        ensure!(left.len() >= count, "only {} Kymas are left", left.len());
        let told = || format!("{} are left, {paused} of them say Paused", left.len());
        Ok(if left.len() == count && paused == count { Ok(()) } else { Err(told()) })
    })
    .await?;
    let mut untouched = 0;
    for target in landscape.targets() {
        let copies: Api<Kyma> = Api::namespaced(target.client()?, TARGET_NAMESPACE);
        let is_there = match copies.get_opt("default").await {
            Ok(found) => found.is_some_and(|kyma| kyma.metadata.deletion_timestamp.is_none()),
            // Its CRD has gone with it.
            Err(kube::Error::Api(status)) if status.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        untouched += usize::from(is_there);
    }
    ensure!(untouched == count, "{untouched} of {count} targets still have their Kyma");
    Ok(())
}

//! The main job with deployed operators: from a Kyma on the hub to modules on two targets, with upgrade, drift,
//! removal, restarts and a crash.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::demo::Scenario;
use e2e::fleet::{Fleet, KYMAS};
use e2e::landscape::{HUB_NAMESPACE, Landscape, Options, asks};
use e2e::remains::has_kyma;
use e2e::snapshot::{self, Difference, Key, Snapshot};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kyma_api::{HelmComponent, State};
use testbed::AuditEvent;

const DEADLINE: Duration = Duration::from_secs(90);
const OPERATORS: [&str; 4] = ["kyma-operator", "helm-component", "release-meta-syncer", "greeting-component"];

#[tokio::test(flavor = "multi_thread")]
async fn the_main_job_from_install_to_removal() {
    scenario().await.unwrap();
}

async fn scenario() -> Result<()> {
    let options = Options { targets: 2, audit: true, ..Options::default() };
    let mut landscape = Landscape::start(options).await?;
    let before = {
        let quiet = |_: &str| {};
        let scenario = Scenario::new(&landscape, &quiet)?;
        scenario.publish().await.context("publish")?;
        let before = scenario.install().await.context("install")?;
        scenario.upgrade().await.context("upgrade")?;
        scenario.refuse_downgrade().await.context("downgrade")?;
        scenario.correct_drift().await.context("drift")?;
        before
    };
    restarts_write_nothing(&mut landscape).await.context("restart")?;
    let first = installed(&landscape).await?;
    {
        let quiet = |_: &str| {};
        let scenario = Scenario::new(&landscape, &quiet)?;
        scenario.disable_in_use().await.context("disable")?;
        scenario.delete_kyma(&before).await.context("delete")?;
    }
    a_killed_installation_ends_in_the_same_state(&mut landscape, &first).await.context("kill")?;
    landscape.stop().await
}

/// Each operator is killed and restarted, and writes nothing.
async fn restarts_write_nothing(landscape: &mut Landscape) -> Result<()> {
    landscape.until_at_rest().await?;
    let marks = landscape.marks()?;
    for operator in OPERATORS {
        landscape.kill_and_restart(operator).await?;
    }
    landscape.until_at_rest().await?;
    for (cluster, mark) in landscape.clusters().into_iter().zip(marks) {
        let events = cluster.audit()?.since(mark)?;
        let written: Vec<String> =
            events.iter().filter(|event| asks(event) && event.is_write()).map(line).collect();
        ensure!(written.is_empty(), "restarts wrote to {}: {written:#?}", cluster.name());
    }
    for name in KYMAS {
        Fleet::new(landscape)?.until_state(name, State::Ready).await?;
    }
    Ok(())
}

/// Without release-meta-syncer, and with the other operators killed during the installation, the target gets the
/// same objects.
async fn a_killed_installation_ends_in_the_same_state(
    landscape: &mut Landscape,
    first: &Snapshot,
) -> Result<()> {
    let syncer = landscape.operator("release-meta-syncer")?;
    syncer.terminate()?;
    testbed::until("release-meta-syncer ends", DEADLINE, || async { Ok(syncer.exited()) }).await?;
    Fleet::new(landscape)?.create(KYMAS[1]).await?;
    let hub = landscape.hub().client()?;
    let target = landscape.targets()[1].client()?;
    let components: Api<HelmComponent> = Api::namespaced(hub, HUB_NAMESPACE);
    let of_kyma = kyma_api::names::label_selector(kyma_api::labels::KYMA_NAME, KYMAS[1]);
    until_some("kyma-operator has created a component", components, &of_kyma).await?;
    landscape.kill_and_restart("kyma-operator").await?;
    let owned: Api<ConfigMap> = Api::namespaced(target, "kyma-system");
    until_some("helm-component has put something on the target", owned, kyma_api::labels::OWNER).await?;
    landscape.kill_and_restart("helm-component").await?;
    landscape.kill_and_restart("greeting-component").await?;
    Fleet::new(landscape)?.until_state(KYMAS[1], State::Ready).await?;
    let landscape = &*landscape;
    // Kubernetes adds its own objects some time after the operators' ones.
    testbed::until_or_why("the second installation equals the first", DEADLINE, || async {
        let found: Vec<String> = snapshot::differences(first, &installed(landscape).await?)
            .into_iter()
            .filter_map(essential)
            .map(|difference| difference.to_string())
            .collect();
        Ok(if found.is_empty() { Ok(()) } else { Err(format!("{found:#?}")) })
    })
    .await?;
    gone_without_syncer(landscape).await
}

async fn until_some<K>(what: &str, api: Api<K>, labels: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let wanted = ListParams::default().labels(labels);
    let some = || async { Ok((!api.list(&wanted).await?.items.is_empty()).then_some(())) };
    testbed::until(what, DEADLINE, some).await
}

/// Returns the difference without values that differ between installations: identities, times, addresses, and names
/// that depend on the time or the Kyma.
fn essential(difference: Difference) -> Option<Difference> {
    match difference {
        Difference::Added(ref key) | Difference::Removed(ref key) => {
            (!comes_and_goes(key)).then_some(difference)
        }
        Difference::Changed(key, paths) => {
            let paths: Vec<String> = paths.into_iter().filter(|path| !is_incidental(path)).collect();
            (!comes_and_goes(&key) && !paths.is_empty()).then_some(Difference::Changed(key, paths))
        }
    }
}

fn is_incidental(path: &str) -> bool {
    let parts = [
        "/metadata/uid",
        "/metadata/creationTimestamp",
        "/metadata/ownerReferences",
        "/spec/clusterIP",
        "/metadata/labels/component.kyma-project.io~1owner",
        "/metadata/annotations/deployment.kubernetes.io~1revision",
        // The stamp names the Kyma, and the operators that contacted the target.
        "/data/kymaUid",
        "/data/version.",
    ];
    parts.iter().any(|part| path.starts_with(part))
}

/// A Kyma without release-meta-syncer's finalizer is deleted without it.
async fn gone_without_syncer(landscape: &Landscape) -> Result<()> {
    let kymas = Fleet::new(landscape)?.kymas();
    let uid = kymas.get(KYMAS[1]).await?.metadata.uid.context("a stored Kyma has a uid")?;
    kymas.delete(KYMAS[1], &DeleteParams::default()).await?;
    tokio::time::timeout(DEADLINE, await_condition(kymas, KYMAS[1], is_deleted(&uid))).await??;
    let components: Api<HelmComponent> = Api::namespaced(landscape.hub().client()?, HUB_NAMESPACE);
    let of_kyma = kyma_api::names::label_selector(kyma_api::labels::KYMA_NAME, KYMAS[1]);
    let wanted = ListParams::default().labels(&of_kyma);
    let left = components.list(&wanted);
    ensure!(left.await?.items.is_empty(), "components outlived their Kyma");
    let target = landscape.targets()[1].client()?;
    ensure!(!has_kyma(target).await?, "the target's Kyma must be gone");
    Ok(())
}

async fn installed(landscape: &Landscape) -> Result<Snapshot> {
    snapshot::take(&landscape.targets()[1].client()?).await
}

/// Reports whether a kind has generated names, or belongs to the catalogue, which only release-meta-syncer copies.
fn comes_and_goes(key: &Key) -> bool {
    let catalogue = ["moduletemplates", "modulereleasemetas"];
    let kinds = [
        ("", "Endpoints"),
        ("", "Pod"),
        ("apps", "ReplicaSet"),
        ("apps", "ControllerRevision"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("networking.k8s.io", "IPAddress"),
        ("operator.kyma-project.io", "ModuleTemplate"),
        ("operator.kyma-project.io", "ModuleReleaseMeta"),
    ];
    kinds.iter().any(|(group, kind)| key.is(group, kind))
        || (key.is("apiextensions.k8s.io", "CustomResourceDefinition")
            && catalogue.iter().any(|name| key.name.starts_with(name)))
}

fn line(event: &AuditEvent) -> String {
    format!("{} {} {}", event.user_agent, event.verb, event.uri)
}

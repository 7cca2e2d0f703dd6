//! A restart loses nothing, and writes nothing that is up to date.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, Resource, ResourceExt};
use kyma_api::State;
use serde_json::json;
use testbed::until;

use crate::access::reachable;
use crate::configs::{counts, is_in_force};
use crate::landscape::{Landscape, SOON, is_ready, modules, remote, until_remote};
use crate::lifecycle::choose;
use crate::mandatory::left_alone;

/// Creates a ModuleConfig, and waits until the operator knows it: it would otherwise change components that already
/// exist.
async fn configures(landscape: &Landscape) -> Result<()> {
    landscape.config("counted", &json!({ "module": "keda", "values": { "replicas": 1 } })).await?;
    landscape.until_config("it is in force", "counted", is_in_force).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_changes_nothing_and_goes_on_where_it_was() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("restart").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    configures(&landscape).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}, {name: nobody}]").await?;
    landscape.report_ready("keda").await?;
    let is_settled =
        |kyma: &kyma_api::Kyma| modules(kyma) == ["keda Ready 1.0.0 regular", "nobody Warning - regular"];
    landscape.until_kyma("one module Ready, one refused", "sample", is_settled).await?;
    until_remote(&target, "the target shows it", is_settled).await?;
    landscape.until_config("the Kyma is counted", "counted", |status| counts(status) == (1, 0)).await?;
    // The first start writes it beside all reconciles.
    let records: Api<ConfigMap> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    until("the record of the brake", SOON, || async {
        Ok(records.get_opt("brake-kyma-operator").await?.map(drop))
    })
    .await?;
    landscape.stop().await?;

    let (on_hub, on_target) = (landscape.hub.audit()?.mark()?, target.audit()?.mark()?);
    landscape.run().await?;
    // The upgrade shows that the new process works.
    landscape.module("keda", &[("regular", "1.1.0")]).await?;
    landscape
        .until_component("the upgrade after the restart", "keda", |component| {
            component.spec.module.as_ref().is_some_and(|module| module.version == "1.1.0")
        })
        .await?;
    let user = landscape.user();
    let writes = |events: Vec<testbed::AuditEvent>| -> Vec<String> {
        let ours =
            events.into_iter().filter(|event| event.is_write() && event.user.ends_with(":kyma-operator"));
        ours.filter(|event| event.group != "events.k8s.io")
            .map(|event| format!("{} {} {}", event.verb, event.resource, event.name))
            .collect()
    };
    // Writes are logged after the answer, which is later than their effect.
    let hub = until("the hub's record of two writes", SOON, || async {
        let events = landscape.hub.audit()?.since(on_hub)?.into_iter();
        let written = writes(events.filter(|event| event.user == user).collect());
        Ok((written.len() > 1).then_some(written))
    })
    .await?;
    // The fencing generation is recorded before the first request. The ModuleConfig keeps its counts.
    assert!(hub[0] == "patch kymas/status sample" && hub[1].starts_with("patch helmcomponents"), "{hub:?}");
    let target_writes = writes(target.audit()?.since(on_target)?);
    let mut told = target_writes.iter().filter(|write| *write != "patch configmaps kyma-target-stamp");
    assert!(told.all(|write| write.starts_with("patch kymas/status")), "{target_writes:?}");
    landscape
        .until_kyma("the upgrade is reported", "sample", |kyma| {
            kyma.status.as_ref().and_then(|status| status.state) == Some(State::Warning)
                && modules(kyma)[0] == "keda Processing 1.1.0 regular"
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_resumed_after_a_restart_creates_nothing_on_target() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("emptied").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("Ready", "sample", is_ready).await?;
    landscape.stop().await?;

    landscape.kymas()?.delete("sample", &DeleteParams::default()).await?;
    // Everything is already removed except the hub's finalizer.
    let gone = DeleteParams::default();
    let finalizers = json!({ "metadata": { "finalizers": null } });
    remote(&target)?.patch("default", &PatchParams::default(), &Patch::Merge(&finalizers)).await?;
    remote(&target)?.delete("default", &gone).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(target.client()?);
    let name = "kymas.operator.kyma-project.io";
    let uid = crds.get(name).await?.uid().context("a stored CRD has a uid")?;
    crds.delete(name, &gone).await?;
    tokio::time::timeout(SOON, await_condition(crds, name, is_deleted(&uid))).await??;
    let stamps: Api<ConfigMap> = Api::namespaced(target.client()?, "kyma-system");
    stamps.delete("kyma-target-stamp", &gone).await?;

    let mark = target.audit()?.mark()?;
    landscape.run().await?;
    let ordered = landscape
        .until_component("the removal is ordered", "keda", |it| it.meta().deletion_timestamp.is_some());
    landscape.let_component_go(&ordered.await?.name_any()).await?;
    landscape.until_kyma_is_gone("sample").await?;
    let events = target.audit()?.since(mark)?.into_iter();
    let writes = events.filter(|event| event.is_write() && event.user.ends_with(":kyma-operator"));
    let writes: Vec<String> =
        writes.map(|event| format!("{} {} {}", event.verb, event.resource, event.name)).collect();
    assert_eq!(writes, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_keeps_counts_of_a_kyma_until_target_is_reachable() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("counted").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    configures(&landscape).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("Ready", "sample", is_ready).await?;
    landscape.until_config("the Kyma is counted", "counted", |status| counts(status) == (1, 0)).await?;
    // Its decision is awaited too, although it is never counted.
    left_alone(&landscape, "skipped").await?;
    landscape.stop().await?;

    landscape.rotate("sample", "no kubeconfig").await?;
    choose(&target, json!([])).await?;
    landscape.run().await?;
    let is_unreachable = |kyma: &kyma_api::Kyma| reachable(kyma) == "False AccessInvalid";
    landscape.until_kyma("the target is unreachable", "sample", is_unreachable).await?;
    landscape.config("counted", &json!({ "module": "keda", "values": { "replicas": 2 } })).await?;
    let is_updated = |status: &kyma_api::ModuleConfigStatus| status.observed_generation == Some(2);
    landscape.until_config("its change is reported", "counted", is_updated).await?;
    let status = landscape.configs()?.get("counted").await?.status.context("a status")?;
    assert_eq!(counts(&status), (1, 0), "the Kyma without a decision stays counted");

    landscape.rotate("sample", &kubeconfig).await?;
    landscape.until_config("the decision changes counts", "counted", |status| counts(status) == (0, 0)).await
}

//! Targets that are silent or gone.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use kyma_api::{DeletionPolicy, State};

use crate::landscape::{Landscape, SOON, modules, remote, until_remote};

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_stops_is_reported_and_one_that_comes_back_goes_on() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("silent").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    let state = |kyma: &kyma_api::Kyma| kyma.status.as_ref().and_then(|status| status.state);
    landscape.until_kyma("Ready", "sample", |kyma| state(kyma) == Some(State::Ready)).await?;

    target.stop();
    let down =
        landscape.until_kyma("the Kyma says so", "sample", |kyma| state(kyma) == Some(State::Error)).await?;
    assert_eq!(modules(&down), ["keda Ready 1.0.0 regular"], "what is known of modules stays");
    let component = landscape.until_component("the component stays", "keda", |_| true).await?;
    assert!(component.metadata.deletion_timestamp.is_none());
    target.start_again().await?;
    landscape
        .until_kyma("Ready again, by itself", "sample", |kyma| state(kyma) == Some(State::Ready))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_kyma_whose_access_is_gone_long_enough_lets_go_of_everything() -> Result<()> {
    let landscape = Landscape::start(&["--cluster-gone-after=2s"]).await?;
    let (target, kubeconfig) = landscape.target("gone").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    until_remote(&target, "the target's Kyma is born", |_| true).await?;

    let secrets: Api<Secret> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    secrets.delete("sample-access", &DeleteParams::default()).await?;
    landscape.kymas()?.delete("sample", &DeleteParams::default()).await?;
    let ordered = landscape
        .until_component("first an order", "keda", |component| {
            component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    let started = std::time::Instant::now();
    landscape
        .until_component("then, after the time, it is taken back", "keda", |component| {
            component.spec.deletion_policy == DeletionPolicy::Orphan
        })
        .await?;
    assert!(started.elapsed() >= Duration::from_secs(1), "not before the time");
    landscape.let_component_go(&ordered.name_any()).await?;
    let kymas = landscape.kymas()?;
    testbed::until("the Kyma is gone", SOON, || async {
        Ok(kymas.get_opt("sample").await?.is_none().then_some(()))
    })
    .await?;
    assert!(remote(&target)?.get_opt("default").await?.is_some(), "the target is as it was");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_one_kyma_lets_go_of_is_taken_by_the_next() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("handed-over").await?;
    landscape.secret("first", &kubeconfig).await?;
    landscape.kyma("first", "[]").await?;
    until_remote(&target, "the first has it", |kyma| {
        kyma.annotations().values().any(|owner| owner.ends_with("/first"))
    })
    .await?;
    landscape.secret("second", &kubeconfig).await?;
    landscape.kyma("second", "[]").await?;
    let state = |kyma: &kyma_api::Kyma| kyma.status.as_ref().and_then(|status| status.state);
    landscape.until_kyma("the second waits", "second", |kyma| state(kyma) == Some(State::Error)).await?;
    landscape.kymas()?.delete("first", &DeleteParams::default()).await?;
    landscape.until_kyma("the second has it", "second", |kyma| state(kyma) == Some(State::Ready)).await?;
    until_remote(&target, "and is shown", |kyma| {
        kyma.annotations().values().any(|owner| owner.ends_with("/second"))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kyma_that_goes_with_its_crd_orders_nothing() -> Result<()> {
    let landscape = Landscape::start_on("hub-without-crd", &[]).await?;
    let (target, kubeconfig) = landscape.target("survivor").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    until_remote(&target, "the target's Kyma is born", |_| true).await?;

    let crds: Api<CustomResourceDefinition> = Api::all(landscape.hub.client()?);
    crds.delete("kymas.operator.kyma-project.io", &DeleteParams::default()).await?;
    testbed::until("the CRD and with it the Kyma are gone", SOON, || async {
        Ok(crds.get_opt("kymas.operator.kyma-project.io").await?.is_none().then_some(()))
    })
    .await?;
    let component = landscape.until_component("its component", "keda", |_| true).await?;
    assert_eq!(component.spec.deletion_policy, DeletionPolicy::Orphan, "nobody ordered a removal");
    assert!(!component.annotations().contains_key(kyma_api::annotations::DELETION_REASON));
    assert!(remote(&target)?.get_opt("default").await?.is_some(), "the target is as it was");
    Ok(())
}

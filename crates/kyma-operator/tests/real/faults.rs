//! Targets that do not answer or no longer exist.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use http::Response;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{DeletionPolicy, HelmComponent, Kyma, State, finalizers};
use serde_json::json;
use testbed::{Body, Cluster, InterceptedRequest, ScriptedServer, rounds};

use crate::landscape::{Landscape, SOON, is_ready, modules, remote, until_remote};
use crate::lifecycle::choose;

/// A finalizer of another controller.
const THEIRS: &str = "example.com/theirs";

#[tokio::test(flavor = "multi_thread")]
async fn stopped_target_is_reported_and_work_resumes_on_its_return() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("silent").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    let state = |kyma: &Kyma| kyma.status.as_ref().and_then(|status| status.state);
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
async fn e02_e08_deleted_kyma_waits_for_module_until_access_is_lost() -> Result<()> {
    rounds(gone_while_it_is_deleted).await
}

async fn gone_while_it_is_deleted() -> Result<()> {
    let mut landscape = Landscape::start(&["--cluster-gone-after=2s"]).await?;
    let (target, kubeconfig) = landscape.target("gone").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    let plain = is_installed_without_default_resource(&landscape).await?;
    until_remote(&target, "the target's Kyma is born", |kyma| modules(kyma).len() == 2).await?;
    let blocked = is_blocked(&landscape, &target).await?;

    landscape.kymas()?.delete("sample", &DeleteParams::foreground()).await?;
    // The garbage collector may delete the components before kyma-operator requests their removal.
    let is_ordered = |it: &HelmComponent| {
        it.metadata.deletion_timestamp.is_some() && it.spec.deletion_policy == DeletionPolicy::Delete
    };
    for module in ["keda", "nats"] {
        landscape.until_component("an order", module, is_ordered).await?;
    }
    target.stop();
    let waiting = landscape
        .until_kyma("the Kyma waits for its target", "sample", |kyma| reason(kyma).starts_with("Target"))
        .await?;
    assert_eq!(waiting.status.as_ref().and_then(|status| status.state), Some(State::Deleting));
    for component in landscape.components()?.list(&ListParams::default()).await? {
        assert_eq!(component.spec.deletion_policy, DeletionPolicy::Delete, "silence is no answer");
    }

    let secrets: Api<Secret> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    let started = std::time::Instant::now();
    secrets.delete("sample-access", &DeleteParams::default()).await?;
    for module in ["keda", "nats"] {
        landscape
            .until_component("after the time the order is taken back", module, |component| {
                component.spec.deletion_policy == DeletionPolicy::Orphan
            })
            .await?;
    }
    assert!(started.elapsed() >= Duration::from_secs(1), "not before the time");
    landscape.let_component_go(&blocked).await?;
    is_held_by_another(&landscape, &plain).await?;
    target.start_again().await?;
    assert!(remote(&target)?.get_opt("default").await?.is_some(), "the target is as it was");
    landscape.stop().await
}

/// Installs a module with a default resource, and `nats` without one. Returns the component of `nats`.
async fn is_installed_without_default_resource(landscape: &Landscape) -> Result<String> {
    landscape
        .apply(
            "{apiVersion: operator.kyma-project.io/v1beta2, kind: ModuleTemplate, metadata: {name: nats-1.0.0}, \
             spec: {moduleName: nats, version: 1.0.0, descriptor: {}}}",
        )
        .await?;
    landscape.release("nats", "channels: [{channel: regular, version: 1.0.0}]").await?;
    landscape.kyma("sample", "[{name: keda}, {name: nats}]").await?;
    let component = landscape.until_component("its component", "nats", |_| true).await?;
    assert!(component.spec.resource.is_none());
    let both = json!({ "metadata": { "finalizers": [finalizers::COMPONENT, THEIRS] } });
    let components = landscape.components()?;
    components.patch(&component.name_any(), &PatchParams::default(), &Patch::Merge(&both)).await?;
    for module in ["keda", "nats"] {
        landscape.report_ready(module).await?;
    }
    let ready = landscape.until_kyma("both are Ready", "sample", is_ready).await?;
    let entries = ready.status.and_then(|status| status.modules).unwrap_or_default();
    assert!(entries.iter().all(|entry| entry.resource.is_some() == (entry.name == "keda")), "{entries:?}");
    Ok(component.name_any())
}

/// The user disables `keda`, and a custom resource of the user blocks the removal. Returns its component.
async fn is_blocked(landscape: &Landscape, target: &Cluster) -> Result<String> {
    choose(target, json!([{ "name": "nats" }])).await?;
    let ordered = landscape
        .until_component("its removal", "keda", |component| component.metadata.deletion_timestamp.is_some())
        .await?;
    let message = "delete these first: Sample default/mine";
    let status = json!({ "status": {
        "state": "Deleting", "observedGeneration": ordered.metadata.generation,
        "conditions": [{ "type": "Ready", "status": "False", "reason": "DeletionBlocked", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    }});
    let components = landscape.components()?;
    components.patch_status(&ordered.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    let shown = |kyma: &Kyma| {
        let entries = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
        let mut told = entries.filter(|entry| entry.state == State::Deleting);
        told.any(|entry| entry.message.as_deref() == Some(message))
    };
    let blocked = landscape.until_kyma("the hub shows what blocks", "sample", shown).await?;
    assert_eq!(blocked.status.and_then(|status| status.state), Some(State::Processing));
    until_remote(target, "so does the target", shown).await?;
    Ok(ordered.name_any())
}

/// The reconciler removes its finalizer, and another controller's finalizer keeps the component and the Kyma.
async fn is_held_by_another(landscape: &Landscape, component: &str) -> Result<()> {
    let held = json!({ "metadata": { "finalizers": [THEIRS] } });
    landscape.components()?.patch(component, &PatchParams::default(), &Patch::Merge(&held)).await?;
    let named = |kyma: &Kyma| {
        let mut entries = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
        entries.any(|entry| entry.message.as_deref().is_some_and(|said| said.ends_with(THEIRS)))
    };
    landscape.until_kyma("the finalizer is named", "sample", named).await?;
    landscape.let_component_go(component).await?;
    landscape.until_kyma_is_gone("sample").await
}

/// Starts a hub that is its own target with keda installed. Returns keda's component.
async fn is_installed(landscape: &Landscape) -> Result<HelmComponent> {
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    landscape.report_ready("keda").await?;
    landscape.until_kyma("Ready", "sample", is_ready).await?;
    landscape.until_component("its component", "keda", |_| true).await
}

/// The other finalizer is removed from a component that was deleted without a request; a new component removes the
/// module.
async fn is_made_anew(landscape: &Landscape, first: &HelmComponent) -> Result<HelmComponent> {
    landscape.let_component_go(&first.name_any()).await?;
    let is_anew = |it: &HelmComponent| it.uid() != first.uid() && it.metadata.deletion_timestamp.is_some();
    let anew = landscape.until_component("one made anew is to go", "keda", is_anew).await?;
    assert_eq!(anew.spec.deletion_policy, DeletionPolicy::Delete);
    Ok(anew)
}

/// The module is disabled although no component has the deletion request yet; it is still removed.
async fn is_removed_all_the_same(landscape: &Landscape, first: &HelmComponent) -> Result<()> {
    let line =
        |kyma: &Kyma| kyma.status.iter().flat_map(|status| status.modules.iter().flatten()).next().cloned();
    let is_told = |kyma: &Kyma| line(kyma).is_some_and(|line| line.state == State::Warning);
    landscape.until_kyma("nothing is told as ordered that is not", "sample", is_told).await?;
    let anew = is_made_anew(landscape, first).await?;
    landscape
        .until_kyma("its removal is told", "sample", |kyma| {
            line(kyma).is_some_and(|line| line.state == State::Deleting)
        })
        .await?;
    landscape.let_component_go(&anew.name_any()).await?;
    landscape.until_kyma("it is gone", "sample", |kyma| line(kyma).is_none()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn module_deselected_during_unrequested_deletion_is_removed() -> Result<()> {
    let mut landscape = Landscape::start(&["--local-kyma=sample"]).await?;
    let first = is_installed(&landscape).await?;
    goes_without_an_order(&landscape.components()?, &first.name_any()).await?;
    landscape.choose("sample", json!([])).await?;
    is_removed_all_the_same(&landscape, &first).await?;
    landscape.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_module_is_removed_if_component_goes_before_request() -> Result<()> {
    let mut landscape = Landscape::start(&["--local-kyma=sample"]).await?;
    let proxy = late_orders(&landscape).await?;
    landscape.run_behind(&proxy).await?;
    let first = is_installed(&landscape).await?;
    landscape.choose("sample", json!([])).await?;
    landscape.until_component("it was let go", "keda", |it| it.finalizers() == [THEIRS]).await?;
    is_removed_all_the_same(&landscape, &first).await?;
    landscape.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_request_for_orphaned_component_goes_to_a_new_one() -> Result<()> {
    let mut landscape = Landscape::start(&["--local-kyma=sample"]).await?;
    let proxy = late_orders(&landscape).await?;
    landscape.run_behind(&proxy).await?;
    let first = is_installed(&landscape).await?;

    landscape.kymas()?.delete("sample", &DeleteParams::default()).await?;
    landscape.until_component("it was let go", "keda", |it| it.finalizers() == [THEIRS]).await?;
    let anew = is_made_anew(&landscape, &first).await?;
    assert!(landscape.kymas()?.get_opt("sample").await?.is_some(), "the Kyma waits for it");
    landscape.let_component_go(&anew.name_any()).await?;
    landscape.until_kyma_is_gone("sample").await?;
    landscape.stop().await
}

/// Returns a proxy to the hub that delays the first deletion request until garbage collection has deleted the
/// component and its reconciler has removed its finalizer.
async fn late_orders(landscape: &Landscape) -> Result<ScriptedServer> {
    let (components, is_first) = (landscape.components()?, Arc::new(AtomicBool::new(true)));
    let between = move |passing: InterceptedRequest| {
        let (components, is_first) = (components.clone(), Arc::clone(&is_first));
        let answer = async move {
            let name = passing.received().path.rsplit('/').next().unwrap_or_default().to_owned();
            let orders = passing.received().method == "PATCH"
                && String::from_utf8_lossy(passing.body()).contains(r#""deletionPolicy":"Delete""#);
            if orders && is_first.swap(false, Ordering::Relaxed) {
                goes_without_an_order(&components, &name).await.map_err(io::Error::other)?;
            }
            passing.onward().await
        };
        Box::pin(answer) as futures::future::BoxFuture<'static, io::Result<Response<Body>>>
    };
    ScriptedServer::with(Arc::new(between), &landscape.hub).await
}

/// A component is deleted, its reconciler removes its finalizer, and another controller's finalizer keeps it.
async fn goes_without_an_order(components: &Api<HelmComponent>, name: &str) -> Result<()> {
    let params = PatchParams::default();
    let held = json!({ "metadata": { "finalizers": [finalizers::COMPONENT, THEIRS] } });
    components.patch(name, &params, &Patch::Merge(&held)).await?;
    components.delete(name, &DeleteParams::default()).await?;
    let let_go = json!({ "metadata": { "finalizers": [THEIRS] } });
    components.patch(name, &params, &Patch::Merge(&let_go)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_kyma_waits_for_a_component_whose_crd_is_going() -> Result<()> {
    let mut landscape = Landscape::start_on("hub-loses-a-kind", &["--local-kyma=sample"]).await?;
    let component = is_installed(&landscape).await?;
    landscape.kymas()?.delete("sample", &DeleteParams::default()).await?;
    // Without this record the module would count as lost, and its removal would wait for the kind to return.
    let is_recorded = |kyma: &Kyma| {
        let modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
        modules.map(|module| module.state).eq([State::Deleting])
    };
    landscape.until_kyma("its removal is recorded", "sample", is_recorded).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(landscape.hub.client()?);
    crds.delete("helmcomponents.component.kyma-project.io", &DeleteParams::default()).await?;
    landscape.stop().await?;
    landscape.run().await?;
    // A finalizer removed from here on was removed without the component.
    landscape.apply("{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {name: other}, spec: {channel: regular}}").await?;
    landscape.until_kyma("another one is looked at", "other", |kyma| kyma.status.is_some()).await?;
    assert!(landscape.kymas()?.get_opt("sample").await?.is_some(), "its component is still there");
    landscape.let_component_go(&component.name_any()).await?;
    landscape.until_kyma_is_gone("sample").await?;
    landscape.stop().await
}

fn reason(kyma: &Kyma) -> &str {
    let conditions = kyma.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    condition::get(conditions, types::READY).map_or("", |held| held.reason.as_str())
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
    let state = |kyma: &Kyma| kyma.status.as_ref().and_then(|status| status.state);
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

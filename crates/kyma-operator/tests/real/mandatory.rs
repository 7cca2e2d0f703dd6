//! Installation and removal of mandatory modules.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{
    DeletionPolicy, HelmComponent, Kyma, ModuleReleaseMeta, State, annotations, finalizers, labels,
};
use serde_json::json;
use testbed::until;

use crate::landscape::{Landscape, SOON, is_left_alone, is_ready, modules};

#[tokio::test(flavor = "multi_thread")]
async fn e19_e20_i110_to_i116_mandatory_module_follows_release_meta() -> Result<()> {
    let landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    landscape.mandatory_module("warden", "1.0.0").await?;
    left_alone(&landscape, "skipped").await?;
    let kyma = landscape.kyma("sample", "[]").await?;
    let component = landscape.until_component("it comes unasked", "warden", |_| true).await?;
    let labelled = |name: &str| component.labels().get(name).map(String::as_str);
    assert_eq!((labelled(labels::MANDATORY_MODULE), labelled(labels::CHANNEL)), (Some("true"), None));
    let owners = component.owner_references();
    assert!(owners.len() == 1 && Some(&owners[0].uid) == kyma.uid().as_ref(), "{owners:?}");
    landscape.report_ready("warden").await?;
    let kyma = landscape.until_kyma("the Kyma is Ready", "sample", is_ready).await?;
    assert_eq!(modules(&kyma), [""; 0], "nobody asked for it");
    until_metrics(&landscape, "both gauges", |text| {
        text.contains("lifecycle_mgr_mandatory_modules 1\n")
            && text.contains(&state("warden", "Ready", 1))
            && text.contains(&state("warden", "Processing", 0))
    })
    .await?;

    landscape.mandatory_module("warden", "1.1.0").await?;
    landscape
        .until_component("the module is upgraded", "warden", |component| version(component) == "1.1.0")
        .await?;
    let all = landscape.components()?.list(&ListParams::default()).await?;
    assert_eq!(all.items.len(), 1, "the Kyma with the label skip-reconciliation gets none: {:?}", all.items);
    is_withdrawn(&landscape).await?;
    until_metrics(&landscape, "the gauges vanish", |text| {
        text.contains("lifecycle_mgr_mandatory_modules 0\n") && !text.contains("module_name=\"warden\"")
    })
    .await
}

/// Creates a Kyma that is skipped and reports that.
pub(crate) async fn left_alone(landscape: &Landscape, name: &str) -> Result<()> {
    let labels = format!("{{{}: 'true'}}", labels::SKIP_RECONCILIATION);
    landscape
        .apply(&format!(
            "{{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {{name: {name}, labels: {labels}}}, \
             spec: {{channel: regular}}}}"
        ))
        .await?;
    landscape.until_kyma("it is left alone", name, is_left_alone).await.map(drop)
}

/// The release meta is deleted: the module is removed first, then the release meta.
async fn is_withdrawn(landscape: &Landscape) -> Result<()> {
    let releases = releases(landscape)?;
    until_held(&releases).await?;
    releases.delete("warden", &DeleteParams::default()).await?;
    let ordered = landscape
        .until_component("its removal is ordered", "warden", |component| {
            component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    assert_eq!(ordered.spec.deletion_policy, DeletionPolicy::Delete);
    assert_eq!(
        ordered.annotations().get(annotations::DELETION_REASON).map(String::as_str),
        Some("Withdrawn")
    );
    landscape
        .until_kyma("its end is shown", "sample", |kyma| modules(kyma) == ["warden Deleting 1.1.0 -"])
        .await?;
    assert!(is_held(&releases.get("warden").await?), "the release meta waits for the component");
    landscape.let_component_go(&ordered.name_any()).await?;
    until("the release meta is gone", SOON, || async {
        Ok(releases.get_opt("warden").await?.is_none().then_some(()))
    })
    .await?;
    landscape.until_kyma("nothing is left of it", "sample", |kyma| modules(kyma).is_empty()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn i71_to_i74_mandatory_or_unknown_module_in_spec_is_a_warning() -> Result<()> {
    let landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    landscape.mandatory_module("warden", "1.0.0").await?;
    landscape.kyma("sample", "[]").await?;
    landscape.report_ready("warden").await?;
    landscape.until_kyma("it is Ready", "sample", is_ready).await?;
    for module in ["warden", "nobody"] {
        landscape.choose("sample", json!([{ "name": module }])).await?;
        let warned = landscape
            .until_kyma("a warning", "sample", |kyma| {
                modules(kyma) == [format!("{module} Warning - regular")]
            })
            .await?;
        assert_eq!(warned.status.and_then(|status| status.state), Some(State::Warning));
        landscape.choose("sample", json!([])).await?;
        landscape.until_kyma("it is Ready again", "sample", is_ready).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mandatory_module_stays_if_release_meta_vanished_or_changed() -> Result<()> {
    let landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    for module in ["vanished", "changed"] {
        landscape.mandatory_module(module, "1.0.0").await?;
    }
    landscape.kyma("sample", "[]").await?;
    for module in ["vanished", "changed"] {
        landscape.report_ready(module).await?;
    }
    let releases = releases(&landscape)?;
    let mut landscape = landscape;
    // The operator does not see the deletion: it is stopped, and the finalizer is removed by hand.
    landscape.stop().await?;
    let bare = json!({ "metadata": { "finalizers": null } });
    releases.patch("vanished", &PatchParams::default(), &Patch::Merge(&bare)).await?;
    releases.delete("vanished", &DeleteParams::default()).await?;
    until("the release meta without finalizer is gone", SOON, || async {
        Ok(releases.get_opt("vanished").await?.is_none().then_some(()))
    })
    .await?;
    landscape.run().await?;
    let by_channel =
        json!({ "spec": { "mandatory": null, "channels": [{ "channel": "regular", "version": "1.0.0" }] } });
    releases.patch("changed", &PatchParams::default(), &Patch::Merge(&by_channel)).await?;
    landscape
        .until_kyma("both stay, with a warning", "sample", |kyma| {
            modules(kyma) == ["changed Warning 1.0.0 -", "vanished Warning 1.0.0 -"]
        })
        .await?;
    for module in ["vanished", "changed"] {
        landscape
            .until_component("it is untouched", module, |component| {
                component.metadata.deletion_timestamp.is_none()
                    && component.spec.deletion_policy == DeletionPolicy::Orphan
            })
            .await?;
    }
    until("the changed release meta has no finalizer", SOON, || async {
        Ok(releases.get("changed").await.map(|release| (!is_held(&release)).then_some(()))?)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crd_that_goes_withdraws_no_mandatory_module() -> Result<()> {
    let landscape = Landscape::start_on("swept", &["--mode=single-cluster"]).await?;
    landscape.mandatory_module("warden", "1.0.0").await?;
    landscape.kyma("sample", "[]").await?;
    let component = landscape.until_component("it comes unasked", "warden", |_| true).await?;
    let releases = releases(&landscape)?;
    until_held(&releases).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(landscape.hub.client()?);
    let crd = kyma_api::crds::module_release_meta().name_any();
    crds.delete(&crd, &DeleteParams::default()).await?;
    until("the release meta and the CRD are gone", SOON, || async {
        Ok(crds.get_opt(&crd).await?.is_none().then_some(()))
    })
    .await?;
    let left = landscape.components()?.get(&component.name_any()).await?;
    assert!(left.metadata.deletion_timestamp.is_none(), "nobody ordered its removal");
    assert_eq!(left.spec.deletion_policy, DeletionPolicy::Orphan);
    Ok(())
}

fn releases(landscape: &Landscape) -> Result<Api<ModuleReleaseMeta>> {
    Ok(Api::namespaced(landscape.hub.client()?, &landscape.namespace))
}

/// Waits until the release meta has its finalizer, which is added independently of the Kyma's reconcile.
async fn until_held(releases: &Api<ModuleReleaseMeta>) -> Result<()> {
    until("the release meta has a finalizer", SOON, || async {
        Ok(releases.get("warden").await.map(|release| is_held(&release).then_some(()))?)
    })
    .await
}

fn is_held(release: &ModuleReleaseMeta) -> bool {
    release.finalizers().iter().any(|name| name == finalizers::MANDATORY_MODULE)
}

fn version(component: &HelmComponent) -> &str {
    component.spec.module.as_ref().map_or("", |module| module.version.as_str())
}

fn state(module: &str, state: &str, value: u8) -> String {
    format!(
        "lifecycle_mgr_mandatory_module_state{{kyma_name=\"sample\",module_name=\"{module}\",state=\"{state}\"}} {value}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_mandatory_component_is_removed_with_its_kyma() -> Result<()> {
    let mut landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    let lost = loses_its_component(&mut landscape).await?;
    landscape.kymas()?.delete("sample", &DeleteParams::default()).await?;
    landscape.run().await?;
    is_removed_by_one_made_anew(&landscape, &lost).await?;
    landscape.until_kyma_is_gone("sample").await?;
    landscape.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_mandatory_component_is_removed_with_release_meta() -> Result<()> {
    let mut landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    let lost = loses_its_component(&mut landscape).await?;
    let releases = releases(&landscape)?;
    releases.delete("warden", &DeleteParams::default()).await?;
    landscape.run().await?;
    is_removed_by_one_made_anew(&landscape, &lost).await?;
    until("the release meta is gone", SOON, || async {
        Ok(releases.get_opt("warden").await?.is_none().then_some(()))
    })
    .await?;
    landscape.stop().await
}

/// A recorded mandatory module loses its component without a request while kyma-operator is stopped.
async fn loses_its_component(landscape: &mut Landscape) -> Result<HelmComponent> {
    landscape.mandatory_module("warden", "1.0.0").await?;
    landscape.kyma("sample", "[]").await?;
    landscape.report_ready("warden").await?;
    let is_on_record = |kyma: &Kyma| {
        let known = kyma.status.as_ref().and_then(|status| status.mandatory_modules.as_deref());
        known.is_some_and(|known| known.iter().any(|known| known.name == "warden" && !known.deleting))
    };
    landscape.until_kyma("it is on record", "sample", is_on_record).await?;
    until_held(&releases(landscape)?).await?;
    let first = landscape.until_component("its component", "warden", |_| true).await?;
    landscape.stop().await?;
    landscape.components()?.delete(&first.name_any(), &DeleteParams::default()).await?;
    landscape.let_component_go(&first.name_any()).await?;
    Ok(first)
}

async fn is_removed_by_one_made_anew(landscape: &Landscape, lost: &HelmComponent) -> Result<()> {
    let is_anew = |it: &HelmComponent| it.uid() != lost.uid() && it.metadata.deletion_timestamp.is_some();
    let anew = landscape.until_component("one made anew is to go", "warden", is_anew).await?;
    assert_eq!(anew.spec.deletion_policy, DeletionPolicy::Delete);
    landscape.let_component_go(&anew.name_any()).await
}

async fn until_metrics(landscape: &Landscape, what: &str, is: impl Fn(&str) -> bool) -> Result<()> {
    let is = &is;
    until(what, SOON, || async { Ok(is(&landscape.metrics()?).then_some(())) }).await
}

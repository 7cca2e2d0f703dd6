//! The life of a Kyma, from the first contact with its target to its deletion.

use std::iter;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{DeletionPolicy, HelmComponent, Kyma, State, annotations, labels};
use serde_json::json;
use testbed::{Cluster, rounds};

use crate::landscape::{Landscape, SOON, has_finalizer, modules, remote, until_remote};

#[tokio::test(flavor = "multi_thread")]
async fn e14_i22_i23_i27_i30_i33_i41_to_i46_i86_i87_kyma_lifecycle() -> Result<()> {
    rounds(one_life).await
}

async fn one_life() -> Result<()> {
    let mut landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("lifecycle").await?;
    landscape.module("keda", &[("regular", "1.0.0"), ("fast", "1.1.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;

    is_born(&landscape, &target).await?;
    is_upgraded_and_not_downgraded(&landscape, &target).await?;
    is_disabled(&landscape, &target).await?;
    ends(&landscape, &target).await?;
    is_told_as_by_klm(&landscape).await?;
    landscape.stop().await
}

/// Creation: the target's Kyma starts from the hub's selection, the component from the target's.
async fn is_born(landscape: &Landscape, target: &Cluster) -> Result<()> {
    let born = until_remote(target, "the target's Kyma is born", |kyma| {
        kyma.labels().contains_key(labels::WATCHED_BY)
    })
    .await?;
    let names = |kyma: &Kyma| {
        let modules = kyma.spec.modules.iter().flatten();
        modules.map(|module| module.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&born), ["keda"], "it starts with what the hub's Kyma lists");
    let namespaces: Api<Namespace> = Api::all(target.client()?);
    let namespace = namespaces.get("kyma-system").await?;
    for label in ["istio-injection", "namespaces.warden.kyma-project.io/validate"] {
        assert_eq!(namespace.labels().get(label).map(String::as_str), Some("enabled"), "{label}");
    }
    let component = landscape.until_component("the component", "keda", |_| true).await?;
    assert_eq!(component.spec.deletion_policy, DeletionPolicy::Orphan);
    let source = serde_json::to_value(&component.spec)?;
    assert_eq!(
        source["source"]["ocm"],
        json!({ "component": "example.com/module/keda", "version": "1.0.0" })
    );
    assert_eq!(source["resource"]["metadata"]["namespace"], "kyma-system");
    assert_eq!(source["target"]["kubeconfigSecretRef"], json!({ "name": "sample-access", "key": "config" }));
    landscape.report_ready("keda").await?;
    let ready = landscape
        .until_kyma("the Kyma is Ready", "sample", |kyma| {
            kyma.status.as_ref().and_then(|status| status.state) == Some(State::Ready)
        })
        .await?;
    assert_eq!(modules(&ready), ["keda Ready 1.0.0 regular"]);
    assert!(has_finalizer(&ready));
    let shown = until_remote(target, "the status is shown on the target", |kyma| {
        modules(kyma) == ["keda Ready 1.0.0 regular"]
    })
    .await?;
    let entries = shown.status.and_then(|status| status.modules).unwrap_or_default();
    let entry = entries.first().context("an entry")?;
    assert_eq!(entry.manifest, None, "what exists only on the hub is not shown");
    is_reset(landscape, &component).await
}

/// An edited component is corrected at once.
async fn is_reset(landscape: &Landscape, component: &HelmComponent) -> Result<()> {
    let edit = Patch::Merge(json!({ "spec": { "module": { "version": "6.6.6" } } }));
    landscape.components()?.patch(&component.name_any(), &PatchParams::default(), &edit).await?;
    landscape
        .until_component("the edit is put right", "keda", |component| version_of(component) == Some("1.0.0"))
        .await?;
    landscape.report_ready("keda").await
}

/// The user switches the channel: upgrade.
async fn is_upgraded_and_not_downgraded(landscape: &Landscape, target: &Cluster) -> Result<()> {
    choose(target, json!([{ "name": "keda", "channel": "fast" }])).await?;
    let upgraded = landscape
        .until_component("the upgrade", "keda", |component| version_of(component) == Some("1.1.0"))
        .await?;
    assert_eq!(upgraded.labels().get(labels::CHANNEL).map(String::as_str), Some("fast"));
    landscape.report_ready("keda").await?;
    let hub = landscape
        .until_kyma("the upgraded module is Ready", "sample", |kyma| {
            modules(kyma) == ["keda Ready 1.1.0 fast"]
        })
        .await?;
    let own = hub.spec.modules.unwrap_or_default();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].channel, None, "what the target's user chose is not written into the hub's spec");

    // The downgrade is refused.
    choose(target, json!([{ "name": "keda", "channel": "regular" }])).await?;
    let refused = landscape
        .until_kyma("the downgrade is refused", "sample", |kyma| modules(kyma) == ["keda Warning 1.1.0 fast"])
        .await?;
    assert_eq!(refused.status.as_ref().and_then(|status| status.state), Some(State::Warning));
    let entries = refused.status.and_then(|status| status.modules).unwrap_or_default();
    let message = entries[0].message.clone().unwrap_or_default();
    assert!(message.contains("ignore channel skew (from fast to regular)"), "{message}");
    landscape
        .until_component("the installed version stays", "keda", |component| {
            version_of(component) == Some("1.1.0")
        })
        .await?;
    Ok(())
}

/// Disabling: a deletion request, then the status entry is removed with the component.
async fn is_disabled(landscape: &Landscape, target: &Cluster) -> Result<()> {
    choose(target, json!([])).await?;
    let ordered = landscape
        .until_component("the removal is ordered", "keda", |component| {
            component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    assert_eq!(ordered.spec.deletion_policy, DeletionPolicy::Delete);
    assert_eq!(ordered.annotations().get(annotations::DELETION_REASON).map(String::as_str), Some("Disabled"));
    landscape
        .until_kyma("the module is Deleting", "sample", |kyma| modules(kyma) == ["keda Deleting 1.1.0 fast"])
        .await?;
    landscape.let_component_go(&ordered.name_any()).await?;
    landscape.until_kyma("nothing is left of the module", "sample", |kyma| modules(kyma).is_empty()).await?;
    Ok(())
}

/// Deletion: components first, then the objects on the target, the finalizer last.
async fn ends(landscape: &Landscape, target: &Cluster) -> Result<()> {
    choose(target, json!([{ "name": "keda", "channel": "fast" }])).await?;
    let again = landscape
        .until_component("the component is back", "keda", |component| {
            component.metadata.deletion_timestamp.is_none()
        })
        .await?;
    landscape.report_ready("keda").await?;
    // The record as an operator of an earlier version wrote it.
    let before = fencing_generation_of(landscape).await?;
    let stored = json!({ "status": { "target": { "turn": before, "fencingGeneration": null } } });
    landscape.kymas()?.patch_status("sample", &PatchParams::default(), &Patch::Merge(&stored)).await?;
    landscape.kymas()?.delete("sample", &DeleteParams::default()).await?;
    let ordered = landscape
        .until_component("the removal is ordered", "keda", |component| {
            component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    assert_eq!(ordered.uid(), again.uid());
    assert_eq!(
        ordered.annotations().get(annotations::DELETION_REASON).map(String::as_str),
        Some("KymaDeleted")
    );
    let after = landscape.kymas()?.get("sample").await?.status.and_then(|status| status.target);
    let after = after.context("a target on record")?;
    assert_ne!(after.fencing_generation, before, "a removal is ordered in a fencing generation of its own");
    assert!(!after.is_deprecated_turn, "the deprecated field is replaced");
    assert!(
        remote(target)?.get_opt("default").await?.is_some(),
        "the target is untouched while components are left"
    );
    landscape.let_component_go(&ordered.name_any()).await?;
    landscape.until_kyma_is_gone("sample").await?;
    let crds: Api<CustomResourceDefinition> = Api::all(target.client()?);
    testbed::until("the operator's CRD and the Kyma are gone from the target", SOON, || async {
        Ok(crds.get_opt("kymas.operator.kyma-project.io").await?.is_none().then_some(()))
    })
    .await
}

/// The events of a Kyma are those of KLM.
async fn is_told_as_by_klm(landscape: &Landscape) -> Result<()> {
    let born = ("RemoteInstallation", "Kyma was installed to SKR");
    let steps = ["SetKcpKymaStateDeleting", "DeleteManifests", "DeleteSkrKyma", "DropKymaFinalizer"];
    let expected: Vec<_> = iter::once(born).chain(steps.map(|step| (step, "Success"))).collect();
    let events: Api<Event> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    testbed::until_or_why("KLM's events", SOON, || async {
        let mut told = events.list(&ListParams::default()).await?.items;
        told.retain(|event| {
            let regarding = event.regarding.clone().unwrap_or_default();
            let is_about_it = (regarding.kind.as_deref(), regarding.name.as_deref());
            is_about_it == (Some("Kyma"), Some("sample")) && event.type_.as_deref() == Some("Normal")
        });
        told.sort_by(|one, other| one.event_time.cmp(&other.event_time));
        let said = |event: &Event| {
            let reason = event.reason.clone()?;
            expected
                .iter()
                .any(|(word, _)| *word == reason)
                .then(|| (reason, event.note.clone().unwrap_or_default()))
        };
        let said: Vec<_> = told.iter().filter_map(said).collect();
        let same =
            said.iter().map(|(reason, note)| (reason.as_str(), note.as_str())).eq(expected.iter().copied());
        Ok(if same { Ok(()) } else { Err(format!("{said:?}")) })
    })
    .await
}

async fn fencing_generation_of(landscape: &Landscape) -> Result<Option<String>> {
    let kyma = landscape.kymas()?.get("sample").await?;
    Ok(kyma.status.and_then(|status| status.target?.fencing_generation))
}

pub(crate) async fn choose(target: &Cluster, modules: serde_json::Value) -> Result<()> {
    let spec = json!({ "spec": { "modules": modules } });
    remote(target)?.patch("default", &PatchParams::default(), &Patch::Merge(&spec)).await?;
    Ok(())
}

fn version_of(component: &HelmComponent) -> Option<&str> {
    component.spec.module.as_ref().map(|module| module.version.as_str())
}

/// The garbage collector deletes objects of a missing owner, as after a restore of the hub.
#[tokio::test(flavor = "multi_thread")]
async fn a_kyma_deleted_by_the_garbage_collector_removes_nothing() -> Result<()> {
    let landscape = Landscape::start(&[]).await?;
    let (target, kubeconfig) = landscape.target("collected").await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("sample", &kubeconfig).await?;
    landscape.kyma("sample", "[{name: keda}]").await?;
    let component = landscape.until_component("keda", "keda", |_| true).await?;
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
        "uid": "00000000-0000-0000-0000-000000000000" });
    let reference = json!({ "metadata": { "ownerReferences": [owner] } });
    landscape.kymas()?.patch("sample", &PatchParams::default(), &Patch::Merge(&reference)).await?;
    let waits = |kyma: &Kyma| {
        let mut conditions = kyma.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.reason == "DeletionUnconfirmed")
    };
    landscape.until_kyma("it waits for a confirmation", "sample", waits).await?;
    let held = landscape.components()?.get(&component.name_any()).await?;
    assert_eq!(held.metadata.deletion_timestamp, None);
    let leaves = json!({ "metadata": { "annotations": { annotations::DELETION_CONFIRMED: "false" } } });
    landscape.kymas()?.patch("sample", &PatchParams::default(), &Patch::Merge(&leaves)).await?;
    landscape.until_kyma_is_gone("sample").await?;
    until_remote(&target, "the target keeps its Kyma", |_| true).await.map(drop)
}

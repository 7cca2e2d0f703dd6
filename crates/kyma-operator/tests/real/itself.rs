//! A hub that also manages itself: nothing is copied onto it, and none of its own objects is deleted.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::component::DeletionReason;
use kyma_api::{DeletionPolicy, HelmComponent, Kyma, ModuleReleaseMeta, ModuleTemplate, annotations, labels};
use serde_json::json;
use testbed::rounds;

use crate::landscape::{Landscape, has_finalizer, is_ready, modules, until_remote};

#[tokio::test(flavor = "multi_thread")]
async fn local_kyma_lives_and_ends_beside_one_with_remote_target() -> Result<()> {
    let landscape = Landscape::start(&["--local-kyma=itself"]).await?;
    let (target, kubeconfig) = landscape.target("beside").await?;
    landscape.secret("other", &kubeconfig).await?;
    let stays = start(&landscape).await?;
    let remote =
        until_remote(&target, "the other's target has its Kyma", |kyma| kyma.spec.modules.is_some()).await?;

    changes_its_modules(&landscape).await?;
    ends(&landscape).await?;
    assert_eq!(ours(&landscape).await?, stays);
    landscape
        .until_component("the other's component is untouched", "nats", |component| {
            component.metadata.deletion_timestamp.is_none()
        })
        .await?;
    until_remote(&target, "so is its target", |kyma| kyma.uid() == remote.uid()).await?;
    assert_only_its_own_writes(&landscape)
}

#[tokio::test(flavor = "multi_thread")]
async fn i02_i03_kyma_in_single_cluster_does_not_affect_other_kymas() -> Result<()> {
    rounds(one_beside_another).await
}

#[tokio::test(flavor = "multi_thread")]
async fn local_kyma_with_another_target_is_refused_with_a_reason() -> Result<()> {
    let mut landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    landscape.module("keda", &[("regular", "1.0.0")]).await?;
    landscape.secret("labelled", &landscape.hub.kubeconfig()).await?;
    // The operator may see the Kyma before the Secret, so modules are selected after the refusal.
    landscape.kyma("labelled", "[]").await?;
    landscape
        .until_kyma("its Secret is refused", "labelled", |kyma| is_refused(kyma, "AccessInvalid"))
        .await?;
    landscape.kyma("recorded", "[]").await?;
    landscape.until_kyma("a first contact", "recorded", is_ready).await?;
    let record = json!({"status": {"target": {"clusterUid": "another-cluster", "epoch": 1, "fencingGeneration": null}}});
    let kymas = landscape.kymas()?;
    kymas.patch_status("recorded", &PatchParams::default(), &Patch::Merge(&record)).await?;
    for (kyma, reason) in [("labelled", "AccessInvalid"), ("recorded", "TargetChanged")] {
        landscape.choose(kyma, json!([{ "name": "keda" }])).await?;
        landscape.until_kyma("it is refused", kyma, |kyma| is_refused(kyma, reason)).await?;
    }
    let components: Api<HelmComponent> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    assert!(components.list(&ListParams::default()).await?.items.is_empty());
    kymas.delete("labelled", &DeleteParams::default()).await?;
    landscape
        .until_kyma("its deletion is refused too", "labelled", |kyma| {
            kyma.metadata.deletion_timestamp.is_some() && has_finalizer(kyma)
        })
        .await?;
    let secrets: Api<Secret> = Api::namespaced(landscape.hub.client()?, &landscape.namespace);
    let all = secrets.list(&ListParams::default()).await?;
    let labelled = |secret: &&Secret| secret.labels().contains_key(labels::KYMA_NAME);
    for secret in all.iter().filter(labelled) {
        secrets.delete(&secret.name_any(), &DeleteParams::default()).await?;
    }
    landscape.until_kyma_is_gone("labelled").await?;
    landscape.stop().await
}

/// Reports whether the operator refused the target of this generation of the Kyma for this reason.
fn is_refused(kyma: &Kyma, reason: &str) -> bool {
    let mut conditions = kyma.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| {
        condition.type_ == "TargetReachable"
            && condition.status == "False"
            && condition.reason == reason
            && condition.observed_generation == kyma.metadata.generation
    })
}

async fn one_beside_another() -> Result<()> {
    let mut landscape = Landscape::start(&["--mode=single-cluster"]).await?;
    let stays = start(&landscape).await?;
    landscape.report_ready("nats").await?;
    let other = landscape
        .until_kyma("the other is Ready", "other", |kyma| modules(kyma) == ["nats Ready 1.0.0 regular"])
        .await?;

    changes_its_modules(&landscape).await?;
    ends(&landscape).await?;
    assert_eq!(ours(&landscape).await?, stays);
    let after = landscape.kymas()?.get("other").await?;
    assert_eq!((after.uid(), modules(&after)), (other.uid(), modules(&other)));
    assert_only_its_own_writes(&landscape)?;
    landscape.stop().await
}

/// Creates two Kymas with one module each. Returns the objects that must exist at the end.
async fn start(landscape: &Landscape) -> Result<BTreeSet<String>> {
    for module in ["keda", "nats", "serverless"] {
        landscape.module(module, &[("regular", "1.0.0")]).await?;
    }
    landscape.kyma("itself", "[{name: keda}]").await?;
    landscape.kyma("other", "[{name: nats}]").await?;
    let component = landscape.until_component("the local component", "keda", |_| true).await?;
    assert_eq!(component.spec.target, None, "its target is the hub");
    assert_eq!(component.labels().get(labels::SHARD).map(String::as_str), Some("0"));
    landscape.until_component("the other component", "nats", |_| true).await?;
    landscape.report_ready("keda").await?;
    let ready = landscape.until_kyma("the local Kyma is Ready", "itself", is_ready).await?;
    assert!(has_finalizer(&ready));
    let status = ready.status.unwrap_or_default();
    let recorded = status.target.clone().unwrap_or_default();
    let namespaces: Api<Namespace> = Api::all(landscape.hub.client()?);
    let hub = namespaces.get("kube-system").await?;
    assert_eq!(Some(recorded.cluster_uid), hub.uid(), "the hub is recorded like any target");
    assert!(status.selection.is_none(), "{status:?}");
    let types: Vec<_> =
        status.conditions.iter().flatten().map(|condition| condition.type_.as_str()).collect();
    assert!(!types.contains(&"TargetReachable"), "there is no way to the target that could break: {types:?}");
    Ok(ours(landscape).await?.into_iter().filter(|name| name != "Kyma itself").collect())
}

/// The user selects modules in the hub's own Kyma.
async fn changes_its_modules(landscape: &Landscape) -> Result<()> {
    landscape.choose("itself", json!([{ "name": "serverless" }])).await?;
    end_of_component(landscape, "keda", DeletionReason::Disabled).await?;
    landscape.until_component("the new choice", "serverless", |_| true).await?;
    landscape.report_ready("serverless").await?;
    landscape
        .until_kyma("the new choice is Ready", "itself", |kyma| {
            modules(kyma) == ["serverless Ready 1.0.0 regular"]
        })
        .await?;
    Ok(())
}

async fn ends(landscape: &Landscape) -> Result<()> {
    landscape.kymas()?.delete("itself", &DeleteParams::default()).await?;
    end_of_component(landscape, "serverless", DeletionReason::KymaDeleted).await?;
    landscape.until_kyma_is_gone("itself").await
}

/// The reconciler finds a valid deletion request and removes its finalizer.
async fn end_of_component(landscape: &Landscape, module: &str, why: DeletionReason) -> Result<()> {
    let ordered = landscape
        .until_component("its removal is ordered", module, |component| {
            component.metadata.deletion_timestamp.is_some()
        })
        .await?;
    assert_eq!(ordered.spec.deletion_policy, DeletionPolicy::Delete);
    assert_eq!(
        ordered.annotations().get(annotations::DELETION_REASON).map(String::as_str),
        Some(why.as_str())
    );
    landscape.let_component_go(&ordered.name_any()).await
}

/// Returns all objects on the hub that a Kyma's deletion must keep, by kind and name; for CRDs with the uid.
async fn ours(landscape: &Landscape) -> Result<BTreeSet<String>> {
    let client = landscape.hub.client()?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let templates: Api<ModuleTemplate> = Api::namespaced(client.clone(), &landscape.namespace);
    let releases: Api<ModuleReleaseMeta> = Api::namespaced(client, &landscape.namespace);
    let all = ListParams::default();
    // Another test installs KLM's CRD of Manifests on this hub.
    let names: BTreeSet<String> = kyma_api::crds::all().iter().map(ResourceExt::name_any).collect();
    let ours = |crd: &&CustomResourceDefinition| names.contains(&crd.name_any());
    let mut found: BTreeSet<String> = crds
        .list(&all)
        .await?
        .iter()
        .filter(ours)
        .map(|crd| format!("CRD {} {}", crd.name_any(), crd.uid().unwrap_or_default()))
        .collect();
    found.extend(templates.list(&all).await?.iter().map(|one| format!("ModuleTemplate {}", one.name_any())));
    found
        .extend(releases.list(&all).await?.iter().map(|one| format!("ModuleReleaseMeta {}", one.name_any())));
    found.extend(landscape.kymas()?.list(&all).await?.iter().map(|one| format!("Kyma {}", one.name_any())));
    assert!(found.iter().any(|name| name.starts_with("CRD helmcomponents")), "{found:?}");
    Ok(found)
}

/// The operator may write only its Kymas and components, events, and the brake's record on the hub.
fn assert_only_its_own_writes(landscape: &Landscape) -> Result<()> {
    let ours = landscape.asked()?.into_iter().filter(testbed::AuditEvent::is_write);
    let wrote: BTreeSet<String> = ours
        .map(|event| {
            assert!(event.namespace == landscape.namespace, "{event:?}");
            format!("{} {}", event.verb, event.resource)
        })
        .collect();
    let expected = [
        "patch kymas",
        "patch kymas/status",
        "patch helmcomponents",
        "delete helmcomponents",
        "patch configmaps",
        "create events",
        "patch events",
    ];
    let more: Vec<_> = wrote.iter().filter(|one| !expected.contains(&one.as_str())).collect();
    assert!(more.is_empty() && wrote.contains("delete helmcomponents"), "{wrote:?}");
    Ok(())
}

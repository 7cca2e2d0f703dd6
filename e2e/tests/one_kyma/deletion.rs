//! Deletes a Kyma with foreground propagation while its user has an object of a module.

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::fleet::LANTERN;
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE, apply_all};
use e2e::remains::has_kyma;
use e2e::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use kube::runtime::conditions::is_deleted;
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, Kyma, names};
use serde_json::json;
use testbed::Cluster;

use crate::{create, is, kymas};

const KYMA: &str = "pier";
const USERS: &str =
    "{apiVersion: demo.example.com/v1, kind: Lantern, metadata: {name: mine, namespace: default}}";

/// Checks that the component waits for the user's object and then takes all of the module with it. Kubernetes'
/// garbage collector runs: it must not delete the component earlier.
pub(crate) async fn run(landscape: &Landscape, fresh: &Cluster) -> Result<()> {
    let (hub, target) = (landscape.hub().client()?, fresh.client()?);
    catalogue::push(landscape, &catalogue::module_directory("lantern/1.0.0")).await?;
    catalogue::assign(hub.clone(), LANTERN, "1.0.0").await?;
    create(landscape, KYMA, fresh).await?;
    let choice = Patch::Merge(json!({"spec": {"modules": [{"name": LANTERN}]}}));
    let shown: Api<Kyma> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
    shown.patch("default", &PatchParams::default(), &choice).await?;
    let is_ready = |kyma: Option<&Kyma>| is(kyma, |kyma| kyma["status"]["modules"][0]["state"] == "Ready");
    wait::until("the module is Ready", kymas(&hub), KYMA, is_ready).await?;
    apply_all(&target, "kubectl", USERS).await?;

    let deployments: Api<Deployment> = Api::namespaced(target.clone(), TARGET_NAMESPACE);
    let operator = deployments.get("lantern-operator").await?.metadata.uid.context("a uid")?;
    let uid = kymas(&hub).get(KYMA).await?.metadata.uid.context("a uid")?;
    kymas(&hub).delete(KYMA, &DeleteParams::foreground()).await?;
    let says = |kyma: Option<&Kyma>| {
        is(kyma, |kyma| {
            let entry = &kyma["status"]["modules"][0];
            kyma["status"]["state"] == "Deleting"
                && entry["state"] == "Deleting"
                && entry["message"].as_str().is_some_and(|message| message.contains("Lantern default/mine"))
        })
    };
    wait::until("the hub says what it waits for", kymas(&hub), KYMA, says).await?;
    wait::until("so does the target", shown, "default", says).await?;
    landscape.until_at_rest().await?;
    let components: Api<HelmComponent> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    ensure!(
        components.get_opt(&names::component_name(KYMA, LANTERN)).await?.is_some(),
        "the component waits"
    );
    ensure!(
        deployments.get("lantern-operator").await?.metadata.uid == Some(operator),
        "the operator serves on"
    );

    let (lanterns, _) =
        pinned_kind(&target, &GroupVersionKind::gvk("demo.example.com", "v1", "Lantern")).await?;
    let lanterns: Api<DynamicObject> = Api::namespaced_with(target.clone(), "default", &lanterns);
    lanterns.delete("mine", &DeleteParams::default()).await?;
    wait::until("the Kyma is gone", kymas(&hub), KYMA, is_deleted(&uid)).await?;
    ensure!(
        deployments.get_opt("lantern-operator").await?.is_none(),
        "the module is removed, not left behind"
    );
    ensure!(!has_kyma(target).await?, "the target's Kyma must be gone");
    let access = landscape.access_secret(KYMA, fresh).await?.name_any();
    Api::<Secret>::namespaced(hub, HUB_NAMESPACE).delete(&access, &DeleteParams::default()).await?;
    Ok(())
}

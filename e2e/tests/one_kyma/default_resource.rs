//! The user deletes the default CR of a module whose component is of a kind of its own.

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE};
use e2e::wait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::conditions::is_deleted;
use kube::{Api, ResourceExt};
use kyma_api::Kyma;
use serde_json::{Value, json};

use crate::{create, is, kymas};

const KYMA: &str = "parlour";
const MODULE: &str = "greeting";
/// Name of the default CR, a ConfigMap.
const RESOURCE: &str = "greeting-default";

/// Checks that the default CR is created and named in the status, and that neither the next reconciles nor the next
/// version create it again after its deletion.
pub(crate) async fn run(landscape: &Landscape) -> Result<()> {
    let (hub, target) = (landscape.hub().client()?, landscape.fresh_target(KYMA).await?);
    offer(landscape, "1.0.0").await?;
    create(landscape, KYMA, &target).await?;
    let shown: Api<Kyma> = Api::namespaced(target.client()?, TARGET_NAMESPACE);
    let choice = Patch::Merge(json!({"spec": {"modules": [{"name": MODULE}]}}));
    shown.patch("default", &PatchParams::default(), &choice).await?;
    let names_it = |line: &Value| {
        line["resource"]["kind"] == "ConfigMap" && line["resource"]["metadata"]["name"] == RESOURCE
    };
    let is_greeting = |line: &Value| line["manifest"]["kind"] == "Greeting" && names_it(line);
    until_ready(kymas(&hub), KYMA, "1.0.0", is_greeting).await?;
    until_ready(shown.clone(), "default", "1.0.0", names_it).await?;
    let maps: Api<ConfigMap> = Api::namespaced(target.client()?, TARGET_NAMESPACE);
    let data = maps.get(RESOURCE).await?.data.unwrap_or_default();
    ensure!(data.get("from").is_some_and(|from| from == "module"), "{data:?}");

    maps.delete(RESOURCE, &DeleteParams::default()).await?;
    let names_none = |line: &Value| line["resource"].is_null();
    until_ready(kymas(&hub), KYMA, "1.0.0", names_none).await?;
    until_ready(shown, "default", "1.0.0", names_none).await?;
    offer(landscape, "1.1.0").await?;
    until_ready(kymas(&hub), KYMA, "1.1.0", names_none).await?;
    ensure!(maps.get_opt(RESOURCE).await?.is_none(), "it was created again");

    let uid = kymas(&hub).get(KYMA).await?.metadata.uid.context("a uid")?;
    kymas(&hub).delete(KYMA, &DeleteParams::default()).await?;
    wait::until("the Kyma is gone", kymas(&hub), KYMA, is_deleted(&uid)).await?;
    let access = landscape.access_secret(KYMA, &target).await?.name_any();
    Api::<Secret>::namespaced(hub, HUB_NAMESPACE).delete(&access, &DeleteParams::default()).await?;
    Ok(())
}

/// Publishes a version of the module with its default CR, and assigns it to the channel.
async fn offer(landscape: &Landscape, version: &str) -> Result<()> {
    let resource = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": RESOURCE},
        "data": {"from": "module"},
    });
    catalogue::publish_greeting_with(landscape, version, Some(&resource)).await?;
    catalogue::assign(landscape.hub().client()?, MODULE, version).await
}

/// Waits until the module's line in the Kyma's status is Ready in this version and satisfies the predicate.
async fn until_ready(
    api: Api<Kyma>,
    name: &str,
    version: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<()> {
    let is_so = |kyma: Option<&Kyma>| {
        is(kyma, |kyma| {
            let line = &kyma["status"]["modules"][0];
            line["state"] == "Ready" && line["version"] == version && wanted(line)
        })
    };
    wait::until(&format!("{MODULE} {version} is Ready on {name}"), api, name, is_so).await?;
    Ok(())
}

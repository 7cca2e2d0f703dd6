//! Requested removals while other objects disappear.

use anyhow::{Context, Result};
use e2e::fleet::LANTERN;
use e2e::landscape::TARGET_NAMESPACE;
use e2e::remains::until_as_before;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use kyma_api::{ModuleStatus, Reason, State};
use serde_json::json;
use testbed::until_or_why;

use crate::world::{DEADLINE, World};

const LANTERNS: &str = "lanterns.demo.example.com";
const KYMA_OPERATOR: &str = "kyma-operator";

/// Finalizers with which the garbage collector processes a Kyma that is deleted with `--cascade`.
const CASCADES: [&str; 2] = ["orphan", "foregroundDeletion"];

/// Runs `kubectl delete kyma --cascade=orphan` while kyma-operator is down, so that components have no owner once
/// it is back.
pub(crate) async fn orphaned(world: &mut World, kyma: &str) -> Result<()> {
    world.landscape.kill(KYMA_OPERATOR)?;
    delete(world, kyma, DeleteParams::orphan()).await?;
    finishes(world, kyma).await
}

/// Runs `kubectl delete kyma --cascade=foreground` and deletes the components while kyma-operator is down. Once it
/// is back, there are no components, and their modules are still on the target.
pub(crate) async fn without_components(world: &mut World, kyma: &str) -> Result<()> {
    world.landscape.kill(KYMA_OPERATOR)?;
    delete(world, kyma, DeleteParams::foreground()).await?;
    for component in components_of(world, kyma).await? {
        match world.components().delete(&component, &DeleteParams::default()).await {
            // The garbage collector may have been faster.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted?),
        }
    }
    until_or_why("the components are gone", DEADLINE, || async {
        let left = components_of(world, kyma).await?;
        Ok(if left.is_empty() { Ok(()) } else { Err(left.join(", ")) })
    })
    .await?;
    finishes(world, kyma).await
}

async fn components_of(world: &World, kyma: &str) -> Result<Vec<String>> {
    let held = world.components().list(&ListParams::default()).await?.items.into_iter();
    let names = held.map(|component| component.name_any());
    Ok(names.filter(|name| name.starts_with(&format!("{kyma}-"))).collect())
}

/// Deletes a Kyma and waits until the garbage collector has processed it.
async fn delete(world: &World, kyma: &str, how: DeleteParams) -> Result<()> {
    world.kymas().delete(kyma, &how).await?;
    until_or_why(&format!("garbage collection is done with {kyma}"), DEADLINE, || async {
        let finalizers = world.kymas().get(kyma).await?.metadata.finalizers.unwrap_or_default();
        let is_done = !finalizers.iter().any(|one| CASCADES.contains(&one.as_str()));
        Ok(if is_done { Ok(()) } else { Err(finalizers.join(", ")) })
    })
    .await
}

/// Restarts kyma-operator, waits until it has finished the requested removal, and creates the Kyma again.
async fn finishes(world: &mut World, kyma: &str) -> Result<()> {
    world.landscape.kill_and_restart(KYMA_OPERATOR).await?;
    world.kyma_is_gone(kyma).await?;
    until_as_before(&world.target(kyma)?, world.before(kyma)?).await?;
    world.fleet()?.create(kyma).await?;
    world.is_ready().await
}

/// Deletes a component and disables its module while kyma-operator is down. The module is removed once
/// kyma-operator is back.
pub(crate) async fn disabled_and_deleted(world: &mut World, kyma: &str) -> Result<()> {
    let marks = world.landscape.marks()?;
    world.landscape.kill(KYMA_OPERATOR)?;
    let mut found = components_of(world, kyma).await?.into_iter();
    let name = found.find(|name| name.starts_with(&format!("{kyma}-{LANTERN}-")));
    let name = name.context("the lantern has a component")?;
    world.components().delete(&name, &DeleteParams::default()).await?;
    world.choose(kyma, &["harbour", "greeting"]).await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_deleted(&marks)?;
    world.landscape.kill_and_restart(KYMA_OPERATOR).await?;
    lantern_is_gone(world, kyma).await?;
    back_to_all_modules(world, kyma).await
}

/// Deletes the access Secret while the removal of a module waits for the user's own object. The removal continues
/// once the Secret is back.
pub(crate) async fn disabled_without_access(world: &World, kyma: &str) -> Result<()> {
    let lanterns = lanterns(world, kyma)?;
    let own = json!({
        "apiVersion": "demo.example.com/v1", "kind": "Lantern", "metadata": {"name": "mine"},
        "spec": {"colour": "red"},
    });
    lanterns.create(&PostParams::default(), &serde_json::from_value(own)?).await?;
    world.choose(kyma, &["harbour", "greeting"]).await?;
    lantern_says(world, kyma, Reason::DeletionBlocked).await?;
    let marks = world.landscape.marks()?;
    world.delete_secret(kyma).await?;
    world.says(kyma, "AwaitingAccess").await?;
    // Each operator watches Secrets itself, so the component reports it independently of the Kyma.
    lantern_says(world, kyma, Reason::AwaitingAccess).await?;
    lanterns.delete("mine", &DeleteParams::default()).await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_deleted(&marks)?;
    world.grant(kyma).await?;
    lantern_is_gone(world, kyma).await?;
    back_to_all_modules(world, kyma).await
}

/// Waits until the component of module lantern is not Ready for this reason.
async fn lantern_says(world: &World, kyma: &str, reason: Reason) -> Result<()> {
    until_or_why(&format!("the lantern's component says {reason}"), DEADLINE, || async {
        let held = world.components().list(&ListParams::default()).await?.items.into_iter();
        let mut held = held.filter(|one| one.name_any().starts_with(&format!("{kyma}-{LANTERN}-")));
        let held = held.next().map(|one| json!({"status": one.data["status"]})).unwrap_or_default();
        let is_reported = e2e::wait::has_condition(&held, "Ready", "False", reason);
        Ok(if is_reported { Ok(()) } else { Err(held.to_string()) })
    })
    .await
}

/// Deletes a Kyma while its access Secret is missing for a moment, as when Secrets are rotated.
pub(crate) async fn deleted_without_access(world: &World, kyma: &str) -> Result<()> {
    let marks = world.landscape.marks()?;
    world.delete_secret(kyma).await?;
    world.kymas().delete(kyma, &DeleteParams::default()).await?;
    world.says(kyma, "AwaitingAccess").await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_deleted(&marks)?;
    world.grant(kyma).await?;
    world.kyma_is_gone(kyma).await?;
    until_as_before(&world.target(kyma)?, world.before(kyma)?).await?;
    world.fleet()?.create(kyma).await?;
    world.is_ready().await
}

async fn lantern_is_gone(world: &World, kyma: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(world.target(kyma)?);
    until_or_why(&format!("{kyma} has no lantern"), DEADLINE, || async {
        let modules = world.kymas().get(kyma).await?.status.and_then(|status| status.modules);
        let is_lantern = |module: &ModuleStatus| module.name == LANTERN;
        let line = modules.into_iter().flatten().find(is_lantern);
        let crd = crds.get_opt(LANTERNS).await?;
        Ok(if line.is_none() && crd.is_none() { Ok(()) } else { Err(format!("{line:?}")) })
    })
    .await
}

async fn back_to_all_modules(world: &World, kyma: &str) -> Result<()> {
    world.choose(kyma, &[LANTERN, "harbour", "greeting"]).await?;
    world.fleet()?.until_state(kyma, State::Ready).await?;
    world.is_ready().await?;
    world.landscape.until_at_rest().await
}

fn lanterns(world: &World, kyma: &str) -> Result<Api<DynamicObject>> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("demo.example.com", "v1", "Lantern"));
    Ok(Api::namespaced_with(world.target(kyma)?, TARGET_NAMESPACE, &kind))
}

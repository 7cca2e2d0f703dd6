//! Objects that disappear from the hub, one kind after another, and their recovery.

use anyhow::{Context, Result};
use e2e::landscape::{HUB_NAMESPACE, TARGET_NAMESPACE};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use kyma_api::{Kyma, ModuleReleaseMeta, ModuleTemplate, annotations};
use serde_json::json;
use testbed::{crd_is_served, until_or_why};

use crate::world::{DEADLINE, KYMAS, World};

pub(crate) const HELM_COMPONENTS: &str = "helmcomponents.component.kyma-project.io";
const MODULE_CONFIG_CRD: &str = "moduleconfigs.operator.kyma-project.io";
pub(crate) const KYMA_CRD: &str = "kymas.operator.kyma-project.io";
const PAUSE_CRD: &str = "pauses.operator.kyma-project.io";

pub(crate) async fn component_objects(world: &World) -> Result<()> {
    for api in [world.components(), world.greetings()] {
        for component in api.list_metadata(&ListParams::default()).await?.items {
            api.delete(&component.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

pub(crate) async fn catalogue(world: &World) -> Result<()> {
    let releases: Api<ModuleReleaseMeta> = world.api();
    let templates: Api<ModuleTemplate> = world.api();
    releases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    templates.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    world.all_say("ModuleReleaseMetaMissing").await
}

pub(crate) async fn publish_again(world: &World) -> Result<()> {
    world.fleet()?.publish().await
}

pub(crate) async fn access_secrets(world: &World) -> Result<()> {
    for name in KYMAS {
        world.delete_secret(name).await?;
    }
    world.all_say("AwaitingAccess").await
}

pub(crate) async fn grant_again(world: &World) -> Result<()> {
    for name in KYMAS {
        world.grant(name).await?;
    }
    Ok(())
}

pub(crate) async fn labels(world: &World) -> Result<()> {
    let strip = Patch::Merge(json!({"metadata": {"labels": null}}));
    for name in KYMAS {
        world.kymas().patch_metadata(name, &PatchParams::default(), &strip).await?;
    }
    Ok(())
}

pub(crate) async fn remote_kymas(world: &World) -> Result<()> {
    for target in world.landscape.targets() {
        let kymas: Api<Kyma> = Api::namespaced(target.client()?, TARGET_NAMESPACE);
        let uid = kymas.get("default").await?.uid().context("a stored Kyma has a uid")?;
        kymas.delete("default", &DeleteParams::default()).await?;
        gone(kymas, "default", &uid).await?;
    }
    Ok(())
}

/// Deletes the Kymas on targets together with their finalizers, while no operator runs.
pub(crate) async fn remote_kymas_by_force(world: &World) -> Result<()> {
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for target in world.landscape.targets() {
        let kymas: Api<Kyma> = Api::namespaced(target.client()?, TARGET_NAMESPACE);
        kymas.delete("default", &DeleteParams::default()).await?;
        match kymas.patch_metadata("default", &PatchParams::default(), &bare).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            freed => drop(freed?),
        }
    }
    Ok(())
}

pub(crate) async fn module_configs(world: &World) -> Result<()> {
    delete_crd(world, MODULE_CONFIG_CRD).await?;
    world.all_say("ModuleConfigMissing").await
}

pub(crate) async fn configure_again(world: &World) -> Result<()> {
    restore_crd(world, kyma_api::crds::module_config()).await?;
    world.configure().await
}

/// Gives a Kyma an owner that does not exist, as on a restored hub with new uids, so that the garbage collector
/// deletes it.
pub(crate) async fn collected_kyma(world: &World) -> Result<()> {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"});
    let reference = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    world.kymas().patch_metadata(KYMAS[0], &PatchParams::default(), &reference).await?;
    world.says(KYMAS[0], "DeletionUnconfirmed").await
}

pub(crate) async fn create_collected(world: &World) -> Result<()> {
    let leaves = json!({"metadata": {"annotations": {annotations::DELETION_CONFIRMED: "false"}}});
    world.kymas().patch_metadata(KYMAS[0], &PatchParams::default(), &Patch::Merge(leaves)).await?;
    world.kyma_is_gone(KYMAS[0]).await?;
    world.fleet()?.create(KYMAS[0]).await
}

/// Empties every status, as a restore with Velero leaves it.
pub(crate) async fn every_status(world: &World) -> Result<()> {
    let kymas: Api<DynamicObject> =
        Api::namespaced_with(world.hub.clone(), HUB_NAMESPACE, &ApiResource::erase::<Kyma>(&()));
    for api in [kymas, world.components(), world.greetings()] {
        for mut object in api.list(&ListParams::default()).await?.items {
            object.data["status"] = json!({});
            let name = object.name_any();
            // An operator may write the status in between.
            until_or_why(&format!("{name} has no status"), DEADLINE, || async {
                let mut live = api.get(&name).await?;
                live.data["status"] = json!({});
                Ok(match api.replace_status(&name, &PostParams::default(), &live).await {
                    Err(kube::Error::Api(status)) if status.is_conflict() => Err(status.message.clone()),
                    stripped => Ok(stripped.map(drop)?),
                })
            })
            .await?;
        }
    }
    Ok(())
}

pub(crate) async fn component_crd(world: &World) -> Result<()> {
    delete_crd(world, HELM_COMPONENTS).await?;
    world.all_say("ComponentCrdMissing").await
}

pub(crate) async fn restore_component_crd(world: &World) -> Result<()> {
    restore_crd(world, kyma_api::crds::helm_component()).await
}

pub(crate) async fn kyma_crd(world: &World) -> Result<()> {
    delete_crd(world, KYMA_CRD).await
}

pub(crate) async fn restore_kymas(world: &World) -> Result<()> {
    restore_crd(world, kyma_api::crds::kyma()).await?;
    for name in KYMAS {
        world.fleet()?.create(name).await?;
    }
    Ok(())
}

pub(crate) async fn pause_crd(world: &World) -> Result<()> {
    delete_crd(world, PAUSE_CRD).await
}

pub(crate) async fn restore_pause_crd(world: &World) -> Result<()> {
    restore_crd(world, kyma_api::crds::pause()).await
}

pub(crate) async fn delete_crd(world: &World, name: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(world.hub.clone());
    let uid = crds.get(name).await?.uid().context("a stored CRD has a uid")?;
    crds.delete(name, &DeleteParams::default()).await?;
    gone(crds, name, &uid).await
}

pub(crate) async fn restore_crd(world: &World, crd: CustomResourceDefinition) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(world.hub.clone());
    let name = crd.name_any();
    crds.create(&PostParams::default(), &crd).await?;
    crd_is_served(&world.hub, &name).await
}

/// Deletes the hub's namespace with everything in it, including the operators' ServiceAccounts. No operator can
/// remove finalizers then, so the test does, as an administrator would; afterwards it installs everything again as
/// the platform team.
pub(crate) async fn namespace(mut world: World) -> Result<World> {
    let marks = world.landscape.marks()?;
    let namespaces: Api<Namespace> = Api::all(world.hub.clone());
    let uid = namespaces.get(HUB_NAMESPACE).await?.uid().context("a stored Namespace has a uid")?;
    namespaces.delete(HUB_NAMESPACE, &DeleteParams::default()).await?;
    let kymas: Api<DynamicObject> =
        Api::namespaced_with(world.hub.clone(), HUB_NAMESPACE, &ApiResource::erase::<Kyma>(&()));
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for api in [kymas, world.components(), world.greetings()] {
        until_or_why("all are being deleted", DEADLINE, || async {
            let held = api.list(&ListParams::default()).await?.items;
            let free = held.iter().find(|object| object.metadata.deletion_timestamp.is_none());
            Ok(free.map_or(Ok(()), |object| Err(object.name_any())))
        })
        .await?;
        for object in api.list(&ListParams::default()).await?.items {
            match api.patch_metadata(&object.name_any(), &PatchParams::default(), &bare).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                freed => drop(freed?),
            }
        }
    }
    gone(namespaces, HUB_NAMESPACE, &uid).await?;
    world.nothing_was_deleted(&marks).context("without the namespace")?;
    world.landscape.install_again().await?;
    world.fleet()?.publish().await?;
    world.configure().await?;
    for name in KYMAS {
        world.fleet()?.join(name, world.cluster(name)?).await?;
    }
    world.is_ready().await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_deleted(&marks).context("with the namespace again")?;
    Ok(world)
}

pub(crate) async fn gone<K>(api: Api<K>, name: &str, uid: &str) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let gone = await_condition(api, name, is_deleted(uid));
    tokio::time::timeout(DEADLINE, gone).await.with_context(|| format!("{name} stays"))??;
    Ok(())
}

//! Restores from backups: of the hub with new uids, of a hub whose targets have changed since, and of a target.

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::fleet::LANTERN;
use e2e::landscape::{HUB_NAMESPACE, TARGET_NAMESPACE};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use kyma_api::Kyma;
use testbed::{Cluster, until_or_why};

use crate::losses::{self, HELM_COMPONENTS, KYMA_CRD};
use crate::world::{DEADLINE, KYMAS, World};

/// Backs up Kymas and components as a backup tool does, and deletes their CRDs.
pub(crate) async fn delete_all(world: &World) -> Result<()> {
    let mut backup = Vec::new();
    for api in [world.components(), kymas(world)] {
        for object in api.list(&ListParams::default()).await?.items {
            let ObjectMeta { name, namespace, labels, annotations, finalizers, owner_references, .. } =
                object.metadata;
            let metadata = ObjectMeta {
                name,
                namespace,
                labels,
                annotations,
                finalizers,
                owner_references,
                ..ObjectMeta::default()
            };
            backup.push(DynamicObject { metadata, ..object });
        }
    }
    ensure!(backup.len() == KYMAS.len() * 3, "2 components and the Kyma itself, of each: {}", backup.len());
    *world.backup() = backup;
    losses::delete_crd(world, KYMA_CRD).await?;
    losses::delete_crd(world, HELM_COMPONENTS).await
}

/// Restores the backup, components first. They name owners that do not exist any more, so the garbage collector
/// deletes them.
pub(crate) async fn with_new_uids(world: &World) -> Result<()> {
    losses::restore_crd(world, kyma_api::crds::kyma()).await?;
    losses::restore_crd(world, kyma_api::crds::helm_component()).await?;
    let backup = std::mem::take(&mut *world.backup());
    for object in backup {
        let is_kyma = object.types.as_ref().is_some_and(|types| types.kind == "Kyma");
        let api = if is_kyma { kymas(world) } else { world.components() };
        match api.create(&PostParams::default(), &object).await {
            // kyma-operator may have created it already.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => drop(created.with_context(|| object.name_any())?),
        }
    }
    Ok(())
}

fn kymas(world: &World) -> Api<DynamicObject> {
    Api::namespaced_with(world.hub.clone(), HUB_NAMESPACE, &ApiResource::erase::<Kyma>(&()))
}

/// Restores the hub to before an upgrade. It writes nothing to the targets, which are newer, until a person adopts
/// them; it does not downgrade them then, and continues once it requests the upgrade again.
pub(crate) async fn hub_beside_targets_that_moved_on(world: &World) -> Result<()> {
    world.landscape.hub().save("before")?;
    world.cluster(KYMAS[0])?.save("before")?;
    catalogue::assign(world.hub.clone(), LANTERN, "1.1.0").await?;
    all_run(world, "1.1.0").await?;
    world.landscape.until_at_rest().await?;

    let marks = world.landscape.marks()?;
    restore(world.landscape.hub()).await?;
    world.all_say("StampMismatch").await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_written(&marks).context("by a hub that is behind")?;
    adopt_all(world).await?;
    world.all_say("DowngradeRefused").await?;
    world.landscape.until_at_rest().await?;
    for kyma in KYMAS {
        ensure!(image(world, kyma).await?.ends_with(":1.1.0"), "{kyma} was downgraded");
    }
    catalogue::assign(world.hub.clone(), LANTERN, "1.1.0").await?;
    all_run(world, "1.1.0").await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_deleted(&marks).context("after the hub's restore")
}

/// Adopts all targets with kymactl, which confirms that the restored hub manages them.
async fn adopt_all(world: &World) -> Result<()> {
    let mut command = world.landscape.kymactl();
    command.args(["target", "adopt", "--all", "--yes", "--allow-loopback-targets"]);
    let output = command.args(["--hub-namespace", HUB_NAMESPACE]).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Restores a target to before an upgrade, and waits until the upgrade is repeated.
pub(crate) async fn target(world: &World) -> Result<()> {
    let marks = world.landscape.marks()?;
    restore(world.cluster(KYMAS[0])?).await?;
    until_or_why("the upgrade is done again", DEADLINE, || async {
        let image = image(world, KYMAS[0]).await?;
        Ok(if image.ends_with(":1.1.0") { Ok(()) } else { Err(image) })
    })
    .await?;
    all_run(world, "1.1.0").await?;
    world.landscape.until_at_rest().await?;
    world.nothing_was_deleted(&marks).context("after the target's restore")
}

/// Restores a cluster from its snapshot, and waits until it serves Kymas again.
async fn restore(cluster: &Cluster) -> Result<()> {
    cluster.restore("before").await?;
    let kymas: Api<Kyma> = Api::all(cluster.client()?);
    // Reads from the watch cache: the API server refuses watches while the cache fills.
    let cached = ListParams::default().match_any();
    until_or_why("Kymas are served again", DEADLINE, || async {
        Ok(kymas.list(&cached).await.map(drop).map_err(|error| error.to_string()))
    })
    .await
}

async fn all_run(world: &World, version: &str) -> Result<()> {
    for kyma in KYMAS {
        world.fleet()?.until_lantern(kyma, version).await?;
    }
    Ok(())
}

/// Returns the image of lantern's operator on the target.
async fn image(world: &World, kyma: &str) -> Result<String> {
    let deployments: Api<Deployment> = Api::namespaced(world.target(kyma)?, TARGET_NAMESPACE);
    let deployment = deployments.get("lantern-operator").await?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("a Deployment has Pods")?;
    pod.containers.into_iter().find_map(|container| container.image).context("a container has an image")
}

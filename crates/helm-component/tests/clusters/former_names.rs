//! A status that an earlier version stored with other names of fields and conditions.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kyma_api::HelmComponent;
use serde_json::{Value, json};

use crate::inventory::write;
use crate::large::{Step, at_rest};
use crate::world::{HUB_NAMESPACE, World};

/// The component, its release and its namespace.
const NAME: &str = "former";
/// An object that the target refuses.
const REFUSED: &str =
    "---\napiVersion: v1\nkind: Service\nmetadata: {name: odd}\nspec: {ports: [{port: 0}]}\n";

#[tokio::test]
async fn former_names_are_kept_until_the_status_changes() -> Result<()> {
    let mut world = World::start().await?;
    apply(&world, "low", "").await?;
    world.ready(NAME, "True", "Ready").await?;
    at_rest(&world).await?;
    world.operator.kill();
    let former = with_former_names(stored_status(&world).await?)?;
    write(&world, NAME, &former).await?;
    let kept = stored_status(&world).await?;
    ensure!(kept == former, "the API server dropped a field: {kept:#}");

    let mut step = Step::begin(&world)?;
    world.restart_operator().await?;
    step.until_watched(&world).await?;
    at_rest(&world).await?;
    ensure!(step.ends(&world, "started with former names")? == [0, 0], "it wrote");

    // The release that the former status names is applied again.
    apply(&world, "high", REFUSED).await?;
    world.ready(NAME, "False", "RolledBack").await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, NAME);
    let level = maps.get("main").await?.data.unwrap_or_default().remove("level");
    ensure!(level.as_deref() == Some("low"), "{level:?}");
    let status = stored_status(&world).await?;
    let has = |pointer: &str| status.pointer(pointer).is_some();
    ensure!(["/rollbackTarget", "/failedRevision", "/digests/objects"].into_iter().all(has), "{status:#}");
    ensure!(!["/kept", "/digests/rendered"].into_iter().any(has), "{status:#}");
    let types = condition_types(&status);
    ensure!(types.contains(&"RollbackAvailable") && !types.contains(&"Kept"), "{types:?}");
    Ok(())
}

/// Applies the component with a ConfigMap of this `level` and further objects, to be rolled back if that fails.
async fn apply(world: &World, level: &str, more: &str) -> Result<()> {
    let main =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: main}}\ndata: {{level: {level}}}\n");
    let url = world.file_server.put(&format!("{NAME}-{level}.yaml"), format!("{main}{more}"));
    let spec = json!({
        "source": {"manifests": {"url": url}}, "release": {"namespace": NAME},
        "rollback": {"mode": "OnFailure"}, "timeouts": {"healthSeconds": 5},
    });
    world.apply(NAME, spec).await
}

/// Returns the status as the API server returns it.
async fn stored_status(world: &World) -> Result<Value> {
    let resource = ApiResource::erase::<HelmComponent>(&());
    let components: Api<DynamicObject> = Api::namespaced_with(world.hub.client()?, HUB_NAMESPACE, &resource);
    let mut component = components.get(NAME).await?;
    Ok(component.data["status"].take())
}

/// Returns the status with the names of the earlier version for the digest of the objects, and for the rollback target
/// and its condition.
fn with_former_names(mut status: Value) -> Result<Value> {
    let fields = status.as_object_mut().context("a status")?;
    let target = fields.remove("rollbackTarget").context("rollbackTarget")?;
    let digests = &target["digests"];
    let kept = json!({
        "version": target["version"], "digest": target["secretDigest"], "inputs": digests["inputs"],
        "source": digests["source"], "values": digests["values"], "rendered": digests["objects"],
    });
    fields.insert("kept".to_owned(), kept);
    let digests = fields.get_mut("digests").and_then(Value::as_object_mut).context("digests")?;
    let objects = digests.remove("objects").context("digests.objects")?;
    digests.insert("rendered".to_owned(), objects);
    let conditions = fields.get_mut("conditions").and_then(Value::as_array_mut).context("conditions")?;
    let available = conditions.iter_mut().find(|condition| condition["type"] == "RollbackAvailable");
    available.context("RollbackAvailable")?["type"] = json!("Kept");
    Ok(status)
}

fn condition_types(status: &Value) -> Vec<&str> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.filter_map(|condition| condition["type"].as_str()).collect()
}

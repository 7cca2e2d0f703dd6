//! Objects that are created only if none exists.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use kyma_api as api;
use kyma_controller::{create_new, is_conflict};
use serde_json::{Value, json};

use crate::{cluster, serve};

const MANAGER: &str = "test-create";

fn object(resource: &ApiResource, name: &str, spec: &Value) -> Result<DynamicObject> {
    let ApiResource { api_version, kind, .. } = resource;
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    Ok(serde_json::from_value(object)?)
}

fn managers(object: &DynamicObject) -> Vec<&str> {
    object.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect()
}

#[tokio::test]
async fn what_is_there_stays_as_it_is_whoever_made_it() -> Result<()> {
    let (cluster, resource) = (cluster().await?, ApiResource::erase::<api::Pause>(&()));
    let namespace = cluster.namespace("create-new").await?;
    let client = cluster.client()?;
    serve(&client, &api::crds::pause()).await?;
    let pauses: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);

    let made = create_new(&pauses, MANAGER, &object(&resource, "ours", &json!({"scope": "All"}))?).await?;
    assert_eq!((managers(&made), &made.data["spec"]["scope"]), (vec![MANAGER], &json!("All")));

    let theirs = object(&resource, "theirs", &json!({"scope": "Deletes"}))?;
    let by_somebody = PatchParams::apply("somebody");
    let theirs = pauses.patch("theirs", &by_somebody, &Patch::Apply(&theirs)).await?;
    // Another spec, the same one, and one with an additional field.
    for there in [made, theirs] {
        for spec in [json!({"scope": "All"}), json!({"scope": "Deletes"}), json!({"reason": "besides"})] {
            let late = create_new(&pauses, MANAGER, &object(&resource, &there.name_any(), &spec)?).await;
            let refused = late.err().context("there was one")?;
            assert!(is_conflict(&refused), "{refused}");
            assert_eq!(pauses.get(&there.name_any()).await?, there);
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_an_apply_refuses_is_created() -> Result<()> {
    let (cluster, resource) = (cluster().await?, ApiResource::erase::<Pod>(&()));
    let namespace = cluster.namespace("create-unmerged").await?;
    let pods: Api<DynamicObject> = Api::namespaced_with(cluster.client()?, &namespace, &resource);
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let spec = json!({"containers": [{"name": "c", "image": "example.com/c", "env": twice}]});
    let made = create_new(&pods, MANAGER, &object(&resource, "twice", &spec)?).await?;
    assert_eq!((managers(&made), &made.data["spec"]["containers"][0]["env"]), (vec![MANAGER], &twice));
    Ok(())
}

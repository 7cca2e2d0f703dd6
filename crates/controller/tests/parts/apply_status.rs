//! Statuses that are applied late.

use anyhow::{Context, Result};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use kyma_api::Pause;
use kyma_controller::apply_status;
use serde_json::{Value, json};

use crate::{cluster, serve};

const MANAGER: &str = "test-status";

fn status(reason: &str) -> Value {
    json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
}

fn reason(pause: &Pause) -> Option<&str> {
    Some(pause.status.as_ref()?.conditions.as_ref()?.first()?.reason.as_str())
}

#[tokio::test]
async fn status_is_written_to_changed_object_but_not_to_its_successor() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("apply-status").await?;
    let client = cluster.client()?;
    serve(&client, &kyma_api::crds::pause()).await?;
    let pauses: Api<Pause> = Api::namespaced(client, &namespace);
    let wish: Pause = serde_json::from_value(json!({ "apiVersion": "operator.kyma-project.io/v1alpha1",
        "kind": "Pause", "metadata": { "name": "night" }, "spec": { "scope": "All" } }))?;
    let create =
        async || -> Result<ObjectMeta> { Ok(pauses.create(&PostParams::default(), &wish).await?.metadata) };

    let seen = create().await?;
    let label = json!({ "metadata": { "labels": { "changed": "meanwhile" } } });
    pauses.patch("night", &PatchParams::default(), &Patch::Merge(label)).await?;
    let written = apply_status(&pauses, MANAGER, &seen, &status("First")).await?;
    assert_eq!(reason(&written), Some("First"));
    let again = apply_status(&pauses, MANAGER, &seen, &status("Second")).await?;
    assert_eq!((reason(&again), &again.metadata.uid), (Some("Second"), &seen.uid));

    pauses.delete("night", &DeleteParams::default()).await?;
    let successor = create().await?;
    assert_ne!(successor.uid, seen.uid);
    let late = apply_status(&pauses, MANAGER, &again.metadata, &status("Late")).await;
    let refused = late.err().context("the object that it is for is gone")?;
    assert!(matches!(&refused, kube::Error::Api(status) if status.is_not_found()), "{refused}");
    assert_eq!(reason(&pauses.get("night").await?), None);
    pauses.delete("night", &DeleteParams::default()).await?;
    assert!(apply_status(&pauses, MANAGER, &successor, &status("Late")).await.is_err());
    Ok(())
}

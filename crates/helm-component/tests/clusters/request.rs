//! A user requests that everything is reconciled again.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::annotations;
use serde_json::json;
use testbed::until;

use crate::source::config;
use crate::world::{DEADLINE, World, world};

#[tokio::test]
async fn a_request_ends_a_back_off_and_has_everything_applied_again() -> Result<()> {
    let world = world().await?;
    let url = world.file_server.put("asked.yaml", config("asked", "one"));
    let later = url.replace("asked.yaml", "asked-later.yaml");
    let spec = |url: &str| json!({"source": {"manifests": {"url": url}}, "release": {"namespace": "asked"}});
    world.apply("asked", spec(&later)).await?;
    world.ready("asked", "False", "SourceNotFound").await?;
    world.file_server.put("asked-later.yaml", config("asked", "one"));
    request(world, "2026-01-01T00:00:00Z").await?;
    world.ready("asked", "True", "Ready").await?;

    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, "asked");
    let before = maps.get("asked").await?;
    let mark = world.target.audit()?.mark()?;
    request(world, "2026-01-02T00:00:00Z").await?;
    let applied = world.target.audit()?.since(mark)?.into_iter();
    let mut applied = applied.filter(|event| {
        event.verb == "patch" && event.resource == "configmaps" && event.namespace == "asked"
    });
    applied.next().context("nothing was applied again")?;
    let after = maps.get("asked").await?;
    assert_eq!((before.uid(), before.resource_version()), (after.uid(), after.resource_version()));
    Ok(())
}

/// Requests a reconcile, and waits until the component reports that it was handled.
async fn request(world: &World, moment: &str) -> Result<()> {
    let components = world.components()?;
    let patch = json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: moment}}});
    components.patch("asked", &PatchParams::default(), &Patch::Merge(patch)).await?;
    until("the request was followed", DEADLINE, || async {
        let status = components.get("asked").await?.status.unwrap_or_default();
        Ok((status.last_handled_reconcile_at.as_deref() == Some(moment)).then_some(()))
    })
    .await
}

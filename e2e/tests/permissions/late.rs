//! Starts an operator before its CRD is on the hub.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::landscape::Landscape;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use testbed::{Cluster, crd_is_served, until};

use crate::hub_user;

const DEADLINE: Duration = Duration::from_secs(90);

/// Deletes the CRD, restarts the operator, and recreates the CRD once the operator watches for it; then the kind is
/// served again, and the operator must become ready.
pub(crate) async fn crd_comes_late(
    landscape: &mut Landscape,
    operator: &str,
    crd: CustomResourceDefinition,
) -> Result<()> {
    let hub = landscape.hub().clone();
    let client = hub.client()?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    crds.delete(&name, &DeleteParams::default()).await?;
    until(&format!("{name} is gone"), DEADLINE, || async {
        Ok(crds.get_opt(&name).await?.is_none().then_some(()))
    })
    .await?;
    let brought = async {
        is_waited_for(&hub, operator, &name).await?;
        crds.create(&PostParams::default(), &crd).await.context("the CRD comes back")?;
        Box::pin(crd_is_served(&client, &name)).await
    };
    tokio::try_join!(landscape.kill_and_restart(operator), brought)?;
    Ok(())
}

async fn is_waited_for(hub: &Cluster, operator: &str, crd: &str) -> Result<()> {
    let (user, audit) = (hub_user(operator), hub.audit()?);
    let mark = audit.mark()?;
    until(&format!("{operator} waits for {crd}"), DEADLINE, || async {
        let events = audit.since(mark)?;
        let waits =
            events.iter().any(|event| event.user == user && event.verb == "watch" && event.name == crd);
        Ok(waits.then_some(()))
    })
    .await
}

//! helm-component without rendering: it installs releases whose renders are stored from a removed installation.
//! Subtracting the time of the `helm` processes would not suffice, since they also slow down other processes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use testbed::until;

use super::footprint::Footprint;
use super::{Bench, OPERATOR, deadline};
use crate::bench::Row;

/// Namespace of the releases and prefix of their names.
pub(super) const SIDE: &str = "apart";

/// Seconds that one round took.
pub(super) struct RoundResult {
    /// Until the releases with stored renders are Ready.
    pub(super) installed: f64,
    /// From the first deletion until all components are gone.
    pub(super) removed: f64,
    /// Requests of the operator to each cluster per removal.
    pub(super) removal_requests: Vec<Row>,
}

/// Measures the installation and the removal of `count` releases.
pub(super) async fn measure(bench: &mut Bench, count: usize) -> Result<RoundResult> {
    bench.landscape.start_again(OPERATOR).await?;
    bench.landscape.until_at_rest().await?;
    // Removes releases of an earlier round.
    bench.remove_all(SIDE, deadline(count)?).await?;
    bench.create_all(SIDE, count).await?;
    bench.until_ready(SIDE, count, deadline(count)?).await?;
    bench.landscape.until_at_rest().await?;
    let marks = bench.landscape.marks()?;
    let start = Instant::now();
    bench.remove_all(SIDE, deadline(count)?).await?;
    let removed = start.elapsed().as_secs_f64();
    bench.landscape.until_at_rest().await?;
    let removal_requests = bench.requests(&marks, count, "removal")?;
    collected(&bench.target, deadline(count)?).await?;
    let footprint = Footprint::begin(bench.landscape.operator(OPERATOR)?.id())?;
    let start = Instant::now();
    bench.create_all(SIDE, count).await?;
    bench.until_ready(SIDE, count, deadline(count)?).await?;
    let installed = start.elapsed().as_secs_f64();
    let rendering = footprint.end().await?.seconds.children;
    ensure!(rendering == 0.0, "{rendering} s went into rendering what had been rendered");
    bench.landscape.until_at_rest().await?;
    bench.landscape.kill(OPERATOR)?;
    Ok(RoundResult { installed, removed, removal_requests })
}

/// Waits until the releases and all objects that controllers created for them are deleted.
async fn collected(target: &Client, deadline: Duration) -> Result<()> {
    until("what was removed is collected", deadline, || async {
        let left = count::<Deployment>(target).await?
            + count::<ReplicaSet>(target).await?
            + count::<Service>(target).await?
            + count::<EndpointSlice>(target).await?;
        Ok((left == 0).then_some(()))
    })
    .await
}

async fn count<K>(target: &Client) -> Result<usize>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let there = Api::<K>::namespaced(target.clone(), SIDE).list_metadata(&ListParams::default()).await?;
    Ok(there.items.len())
}

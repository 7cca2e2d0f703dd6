//! Checks that no output contains a planted secret, whatever fails because of it.
//!
//! Secrets are planted where users put them: kubeconfigs that work and that do not, pull secrets, addresses,
//! values, overrides, manifests, default custom resources. Each cause makes one of them the reason of a failure.
//! Then everything that operators emit is searched: logs at the most verbose level, events, metadata and status of
//! every object on hub and targets, metrics, and the output of `kymactl`. A harmless word, planted beside them,
//! must be found in each of these outputs; otherwise the search would not cover it.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod causes;
mod kyma;
mod output;
mod planted;
mod world;

use anyhow::{Result, ensure};
use futures::StreamExt;

use planted::SecretSearch;
use world::World;

/// Number of causes that are tested at the same time.
const MAX_PARALLEL_ROWS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn no_failure_reveals_a_secret() -> Result<()> {
    let world = World::start().await?;
    let rows = causes::all(&world).await?;
    let results = futures::stream::iter(rows.into_iter().map(|row| world.run_row(row)));
    let results: Vec<Result<()>> = results.buffer_unordered(MAX_PARALLEL_ROWS).collect().await;
    let failures: Vec<String> =
        results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failures.is_empty(), "causes without their effect:\n{}", failures.join("\n"));
    kyma::modules_fail(&world).await?;
    let mut outputs = output::kymactl(&world).await?;
    kyma::access_fails(&world).await?;
    outputs.extend(output::kymactl(&world).await?);
    outputs.extend(e2e::outputs::collect(&world.landscape, &[&world.quay, &world.lake]).await?);

    let search = SecretSearch::of(&world.tokens);
    let leaks: Vec<String> = outputs.iter().flat_map(|output| search.found_in(output)).collect();
    ensure!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
    let blind = output::without_the_word(&outputs);
    ensure!(blind.is_empty(), "the search sees nothing in {blind:?}");
    world.landscape.stop().await
}

//! Checks that modules cannot harm each other: two modules that ship the same CRD, Namespaces and ClusterRole are
//! installed, upgraded and removed in every order, and modules that ship protected objects are refused.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod editions;
mod interleaving;
mod protected;
mod test_kyma;

use anyhow::{Context, Result};
use e2e::landscape::{Landscape, Options};
use futures::FutureExt;
use futures::future::try_join_all;

use interleaving::Interleaving;
use test_kyma::TestKyma;

/// Number of targets. The interleavings are distributed over them: one after another on each target, in parallel across
/// targets.
const TARGETS: usize = 2;
/// Interleavings of a run without `TEST_FULL=1`. In them, a module joins the higher and the lower one, inherits from
/// either, and is upgraded below and above it.
const SAMPLED_INTERLEAVINGS: [&str; TARGETS] = ["ib ub ia rb ua ra", "ia ib ua ra ub rb"];

#[tokio::test(flavor = "multi_thread")]
async fn modules_with_equal_objects_keep_objects_of_others_and_users() {
    // Boxed: the compiler's recursion limit is too low to prove that such a deep future is `Send`.
    tokio::spawn(scenario().boxed()).await.unwrap().unwrap();
}

async fn scenario() -> Result<()> {
    let landscape = Landscape::start(Options { targets: TARGETS, ..Options::default() }).await?;
    editions::publish(&landscape).await?;
    protected::publish(&landscape).await?;
    let test_kymas = landscape.targets().iter().enumerate();
    let test_kymas = test_kymas.map(|(number, target)| TestKyma::create(&landscape, number, target).boxed());
    let test_kymas = try_join_all(test_kymas).await?;
    let interleavings = selected_interleavings();
    let runs = test_kymas.iter().enumerate().map(|(number, test_kyma)| {
        let interleavings: Vec<&Interleaving> = interleavings.iter().skip(number).step_by(TARGETS).collect();
        async move {
            for interleaving in interleavings {
                test_kyma
                    .run(interleaving)
                    .await
                    .with_context(|| format!("{}: {interleaving}", test_kyma.kyma))?;
            }
            Ok::<_, anyhow::Error>(())
        }
        .boxed()
    });
    try_join_all(runs).await?;
    let [first, second, ..] = test_kymas.as_slice() else { anyhow::bail!("fewer than two Kymas") };
    let together = async { first.run_in_parallel().await.context("in parallel") };
    let protected = async { protected::row(second).await.context("protected") };
    futures::future::try_join(together.boxed(), protected.boxed()).await?;
    landscape.stop().await
}

/// Returns all interleavings with `TEST_FULL=1`, and `SAMPLED_INTERLEAVINGS` without.
fn selected_interleavings() -> Vec<Interleaving> {
    let full = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    let is_sampled =
        |interleaving: &Interleaving| SAMPLED_INTERLEAVINGS.contains(&interleaving.to_string().as_str());
    interleaving::all().into_iter().filter(|interleaving| full || is_sampled(interleaving)).collect()
}

#[test]
fn sampled_interleavings_are_among_all() {
    let all: Vec<String> = interleaving::all().iter().map(ToString::to_string).collect();
    assert_eq!(all.len(), 20);
    assert!(SAMPLED_INTERLEAVINGS.iter().all(|interleaving| all.iter().any(|one| one == interleaving)));
}

//! Checks that modules cannot harm each other: two modules that ship the same CRD, Namespaces and ClusterRole are
//! installed, upgraded and removed in every order, and modules that ship protected objects are refused.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod editions;
mod order;
mod protected;
mod town;

use anyhow::{Context, Result};
use e2e::landscape::{Landscape, Options};
use futures::FutureExt;
use futures::future::try_join_all;

use order::Order;
use town::Town;

/// Number of targets. The orders are distributed over them: one after another on each target, in parallel across
/// targets.
const TARGETS: usize = 2;
/// Orders of a run without `TEST_FULL=1`. In them, a module joins the higher and the lower one, inherits from
/// either, and is upgraded below and above it.
const FEW: [&str; TARGETS] = ["ib ub ia rb ua ra", "ia ib ua ra ub rb"];

#[tokio::test(flavor = "multi_thread")]
async fn modules_that_ship_the_same_objects_leave_each_other_and_users_theirs() {
    // Boxed: the compiler's recursion limit is too low to prove that such a deep future is `Send`.
    tokio::spawn(story().boxed()).await.unwrap().unwrap();
}

async fn story() -> Result<()> {
    let landscape = Landscape::start(Options { targets: TARGETS, ..Options::default() }).await?;
    editions::publish(&landscape).await?;
    protected::publish(&landscape).await?;
    let towns = landscape.targets().iter().enumerate();
    let towns = towns.map(|(number, target)| Town::settle(&landscape, number, target).boxed());
    let towns = try_join_all(towns).await?;
    let orders = orders_of_this_run();
    let lives = towns.iter().enumerate().map(|(number, town)| {
        let orders: Vec<&Order> = orders.iter().skip(number).step_by(TARGETS).collect();
        async move {
            for order in orders {
                town.live(order).await.with_context(|| format!("{}: {order}", town.kyma))?;
            }
            Ok::<_, anyhow::Error>(())
        }
        .boxed()
    });
    try_join_all(lives).await?;
    let [first, second, ..] = towns.as_slice() else { anyhow::bail!("there are towns") };
    let together = async { first.all_at_once().await.context("all at once") };
    let protected = async { protected::row(second).await.context("protected") };
    futures::future::try_join(together.boxed(), protected.boxed()).await?;
    landscape.stop().await
}

/// Returns every order with `TEST_FULL=1`, and those of `FEW` without.
fn orders_of_this_run() -> Vec<Order> {
    let full = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    let few = |order: &Order| FEW.contains(&order.to_string().as_str());
    order::all().into_iter().filter(|order| full || few(order)).collect()
}

#[test]
fn the_few_orders_are_among_all() {
    let all: Vec<String> = order::all().iter().map(ToString::to_string).collect();
    assert_eq!(all.len(), 20);
    assert!(FEW.iter().all(|order| all.iter().any(|one| one == order)));
}

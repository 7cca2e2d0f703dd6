//! Runs the model's random sequences against the operator: many Kymas at once, each with its own modules on a hub
//! that is the target.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use testbed::until_or_why;

use crate::landscape::{Landscape, SOON};
use crate::stories::model::{Action, World, draw::action};
use crate::stories::{Names, Objects, SENTINEL, asked};

/// Maximum number of concurrent Kymas.
const KYMAS: usize = 50;
/// Maximum length of a sequence.
const STEPS: usize = 16;
/// Deadline for a shortened sequence, and maximum number of attempts.
const SHORT: Duration = Duration::from_secs(10);
const TRIES: usize = 40;
/// Steps before which the operator is restarted.
const RESTARTS: [usize; 2] = [5, 11];
/// Maximum number of concurrent calls.
const PARALLEL: usize = 16;

/// A Kyma and its sequence.
struct Story {
    names: Names,
    actions: Vec<Action>,
    world: World,
}

impl Story {
    fn new(number: usize, actions: Vec<Action>) -> Self {
        Self { names: Names::new(number), actions, world: World::new() }
    }

    fn objects(&self) -> Objects {
        self.names.objects(&self.world, &self.world.chosen)
    }

    /// Returns the difference between hub and model.
    fn differs(&self, components: &[kyma_api::HelmComponent]) -> Option<String> {
        let why = self.names.differs(&self.world, components)?;
        Some(format!("{:?}: {why}", self.actions))
    }
}

/// Waits until the hub agrees with all models.
async fn agrees(landscape: &Landscape, stories: &[Story], deadline: Duration) -> Result<()> {
    let used =
        stories.iter().flat_map(|story| story.world.used.iter().map(|module| story.names.module(module)));
    let used: BTreeSet<String> = used.collect();
    until_or_why("model and hub agree", deadline, || async {
        let components = landscape.all_components().await?;
        landscape.let_go(&components, &used).await?;
        let wrong: Vec<String> = stories.iter().filter_map(|story| story.differs(&components)).collect();
        Ok(if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) })
    })
    .await
}

/// Applies one action to the model and the hub.
async fn act(landscape: &Landscape, story: &mut Story, step: usize) -> Result<()> {
    let before = story.objects();
    let Some(action) = story.actions.get(step).copied() else { return Ok(()) };
    if let Action::Report(module) = action {
        landscape.report(&story.names, module).await?;
    }
    story.world.act(action);
    landscape.change(&before, &story.objects()).await
}

/// Applies all sequences side by side and step by step.
async fn act_out(landscape: &mut Landscape, stories: &mut [Story], deadline: Duration) -> Result<()> {
    let none = Objects::new();
    let (shared, nothing) = (&*landscape, &none);
    let born =
        stream::iter(&*stories).map(|story| async move { shared.change(nothing, &story.objects()).await });
    born.buffer_unordered(PARALLEL).try_collect::<Vec<()>>().await?;
    for step in 0..STEPS {
        if RESTARTS.contains(&step) {
            landscape.stop().await?;
            landscape.run().await?;
        }
        let shared = &*landscape;
        let acted = stream::iter(&mut *stories).map(|story| act(shared, story, step));
        acted.buffer_unordered(PARALLEL).try_collect::<Vec<()>>().await?;
        landscape.has_caught_up().await?;
        agrees(landscape, stories, deadline).await?;
    }
    Ok(())
}

/// Returns the shortest sequence that still fails.
async fn shrink<T>(landscape: &mut Landscape, mut tree: T, first: usize) -> Result<Vec<Action>>
where
    T: ValueTree<Value = Vec<Action>>,
{
    let mut shortest = tree.current();
    for number in first..first + TRIES {
        if !tree.simplify() {
            break;
        }
        let mut alone = [Story::new(number, tree.current())];
        if act_out(landscape, &mut alone, SHORT).await.is_err() {
            shortest = tree.current();
        } else if !tree.complicate() {
            break;
        }
    }
    Ok(shortest)
}

/// Runs this many sequences from a seed and shortens the first failing one.
async fn sequences(count: usize, seed: u64) -> Result<()> {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let actions = proptest::collection::vec(action(), 1..=STEPS);
    let trees = (0..count).map(|_| actions.new_tree(&mut runner)).collect::<Result<Vec<_>, _>>();
    let trees = trees.map_err(|reason| anyhow::anyhow!("{reason}"))?;
    let mut landscape = Landscape::start(&["--mode=single-cluster", "--brake-targets=1000"]).await?;
    landscape.kyma(SENTINEL, "[{name: sentinel}]").await?;
    let mut stories: Vec<Story> =
        trees.iter().enumerate().map(|(number, tree)| Story::new(number, tree.current())).collect();
    let Err(error) = act_out(&mut landscape, &mut stories, SOON).await else { return Ok(()) };
    let components = landscape.all_components().await?;
    let wrong = stories.iter().position(|story| story.differs(&components).is_some());
    let Some(tree) = wrong.and_then(|at| trees.into_iter().nth(at)) else { return Err(error) };
    let shortest = shrink(&mut landscape, tree, count).await?;
    bail!("{error}\nthe shortest sequence that goes wrong: {shortest:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_and_model_agree_after_each_step_of_50_sequences() -> Result<()> {
    let (count, seed) = asked("SEQUENCES_COUNT");
    let mut left = count.unwrap_or(KYMAS);
    for seed in seed.. {
        println!("SEQUENCES_SEED={seed} SEQUENCES_COUNT={}", left.min(KYMAS));
        sequences(left.min(KYMAS), seed).await?;
        left = left.saturating_sub(KYMAS);
        if left == 0 {
            break;
        }
    }
    Ok(())
}

//! Runs the model's random sequences against Kymas with their own targets: actions of users and administrators, and
//! faults of hub, targets and network.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kyma_api::condition::{self, types};
use kyma_api::{DeletionPolicy, HelmComponent, Kyma, Selection};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Value, json};
use testbed::{AuditMark, until, until_or_why};
use tokio::sync::Mutex;

use crate::landscape::{Landscape, TEST_ENV};
use crate::stories::model::pair::{Access, ForeignEdit, HubAuthority, Pair, PairEvent, Side};
use crate::stories::model::{Action, MODULES, draw::event};
use crate::stories::{Names, Objects, SENTINEL, asked, module_of};
use crate::way::{SAVED, TargetConnection};

/// Number of targets, each with one Kyma at a time.
const TARGETS: usize = 4;
/// Default number of sequences.
const COUNT: usize = 12;
/// Maximum length of a sequence.
const STEPS: usize = 18;
/// Steps before which the hub is saved, the operator is restarted, and the hub is restored.
const SAVES: usize = 4;
const RESTARTS: usize = 8;
const GOES_BACK: usize = 12;
/// Deadline for agreement: a target that did not answer for two minutes is probed again two minutes later.
const LONG: Duration = Duration::from_secs(150);
/// Deadline for a shortened sequence, and maximum number of attempts.
const SHORT: Duration = Duration::from_secs(45);
const TRIES: usize = 20;

/// A Kyma and its sequence.
struct Story<'a> {
    names: Names,
    events: Vec<PairEvent>,
    pair: Pair,
    way: &'a TargetConnection,
    /// Lock: only one sequence at a time waits for the operator to catch up.
    turn: &'a Mutex<()>,
    deadline: Duration,
    /// Beginning of the present event in the target's audit log.
    mark: AuditMark,
    is_wrong: bool,
}

impl<'a> Story<'a> {
    fn new(number: usize, events: Vec<PairEvent>, way: &'a TargetConnection, turn: &'a Mutex<()>) -> Self {
        let (names, pair, mark) = (Names::new(number), Pair::new(), AuditMark::default());
        Self { names, events, pair, way, turn, deadline: LONG, mark, is_wrong: false }
    }

    /// The hub's objects; the hub's Kyma says only with what the target's begins.
    fn objects(&self) -> Objects {
        self.names.objects(&self.pair.hub.world, &Pair::new().hub.world.chosen)
    }

    /// The choice as it stands in the target's Kyma.
    fn choice(&self) -> Result<Value> {
        let chosen = self.pair.target.chosen.as_ref().context("a choice")?;
        let modules = chosen.written(|module| self.names.module(module));
        Ok(json!({ "channel": chosen.channel, "modules": modules }))
    }

    async fn is_born(&self, landscape: &Landscape) -> Result<()> {
        self.way.give_access(landscape, &self.names.kyma(), Access::First).await?;
        landscape.change(&Objects::new(), &self.objects()).await?;
        self.rests(landscape).await
    }

    /// Applies a part of the sequence. The network works at the end: a target that does not answer is asked less and
    /// less often.
    async fn goes_on(&mut self, landscape: &Landscape, steps: Range<usize>) -> Result<()> {
        for step in steps {
            let Some(event) = self.events.get(step).copied() else { break };
            self.does(landscape, event).await.with_context(|| format!("after step {step}, {event:?}"))?;
        }
        if self.pair.is_connected {
            return Ok(());
        }
        self.does(landscape, PairEvent::Network(true)).await.context("after the network is whole again")
    }

    async fn does(&mut self, landscape: &Landscape, event: PairEvent) -> Result<()> {
        let (before, was) = (self.objects(), self.pair.clone());
        self.mark = self.way.target.audit()?.mark()?;
        self.pair.act(event);
        self.happens(landscape, event, &was).await?;
        landscape.change(&before, &self.objects()).await?;
        self.settles(landscape).await
    }

    /// Waits until everything agrees with the model; adopts the target if that is needed.
    async fn settles(&mut self, landscape: &Landscape) -> Result<()> {
        self.rests(landscape).await?;
        if self.pair.authority() == HubAuthority::Refused {
            let writes = self.way.writes(self.mark)?;
            ensure!(writes.is_empty(), "a hub that is behind wrote to the target: {writes:?}");
            self.way.adopt(landscape, &self.names.kyma()).await?;
            self.pair.act(PairEvent::Adopt);
            self.rests(landscape).await?;
        }
        Ok(())
    }

    /// Applies the parts of an event that do not change the hub's catalogue.
    async fn happens(&self, landscape: &Landscape, event: PairEvent, was: &Pair) -> Result<()> {
        let component = |module| self.component(landscape, module);
        match event {
            PairEvent::Act(Action::Report(module)) if was.authority() == HubAuthority::Writes => {
                landscape.report(&self.names, module).await
            }
            PairEvent::Act(_) if self.pair.target.chosen != was.target.chosen => {
                self.way.edit(&json!({ "spec": self.choice()? })).await
            }
            PairEvent::Network(is) => {
                self.way.connect(is);
                Ok(())
            }
            PairEvent::Access(access) => self.way.give_access(landscape, &self.names.kyma(), access).await,
            PairEvent::DeleteKyma => self.way.forget().await,
            PairEvent::DeleteComponent(module) if was.hub.has(module) => {
                let name = component(module).await?;
                landscape.components()?.delete(&name, &DeleteParams::default()).await?;
                Ok(())
            }
            PairEvent::Edit(ForeignEdit::DeletionPolicy(module)) if was.hub.has(module) => {
                let order = json!({ "spec": { "deletionPolicy": DeletionPolicy::Delete } });
                let name = component(module).await?;
                landscape.components()?.patch(&name, &PatchParams::default(), &Patch::Merge(&order)).await?;
                Ok(())
            }
            PairEvent::Edit(ForeignEdit::Marks) => self.way.unmark().await,
            PairEvent::Edit(ForeignEdit::Status) => self.way.tell_lies().await,
            PairEvent::BackUp(Side::Target) => self.way.save(),
            PairEvent::Restore(Side::Target) if was.has_saved(Side::Target) => self.way.restore().await,
            _ => Ok(()),
        }
    }

    async fn component(&self, landscape: &Landscape, module: &str) -> Result<String> {
        let components = landscape.all_components().await?;
        let of_module = |component: &&HelmComponent| module_of(component) == self.names.module(module);
        Ok(components.iter().find(of_module).context("a component")?.name_any())
    }

    /// Waits until the operator has caught up and everything agrees with the model.
    async fn rests(&self, landscape: &Landscape) -> Result<()> {
        let noticed = || self.is_noticed(landscape);
        until_or_why("what is between hub and target is noticed", self.deadline, noticed).await?;
        let turn = self.turn.lock().await;
        landscape.has_caught_up().await?;
        drop(turn);
        until_or_why("model and hub agree", self.deadline, || self.agrees(landscape)).await?;
        until_or_why("hub and target agree", self.deadline, noticed).await
    }

    /// Reports whether the Kyma shows the expected state of its target, and both sides agree.
    async fn is_noticed(&self, landscape: &Landscape) -> Result<Result<(), String>> {
        let kyma = landscape.kymas()?.get(&self.names.kyma()).await?;
        let (told, selection) =
            (reachable(&kyma), kyma.status.as_ref().and_then(|status| status.selection.clone()));
        let is_told = match self.pair.authority() {
            HubAuthority::Writes => told == "True Ready",
            HubAuthority::Refused => told == "False StampMismatch",
            HubAuthority::Unreachable => told.starts_with("False "),
        };
        if !is_told {
            return Ok(Err(format!("it is {:?}, and the Kyma says {told:?}", self.pair.authority())));
        }
        if self.pair.authority() != HubAuthority::Writes {
            return Ok(Ok(()));
        }
        let choice: Selection = serde_json::from_value(self.choice()?)?;
        if selection.as_ref() != Some(&choice) {
            return Ok(Err(format!("{choice:?} was chosen, the hub saw {selection:?}")));
        }
        self.way.shows(&kyma, &choice).await
    }

    async fn agrees(&self, landscape: &Landscape) -> Result<Result<(), String>> {
        let all = landscape.all_components().await?;
        let own: Vec<HelmComponent> = self.names.own(&all).cloned().collect();
        let is_open = self.pair.authority() == HubAuthority::Writes;
        // Reconcilers of components cannot reach the target either.
        let used = MODULES.into_iter().filter(|module| !is_open || self.pair.target.used.contains(module));
        let used: BTreeSet<String> = used.map(|module| self.names.module(module)).collect();
        landscape.let_go(&own, &used).await?;
        let is_ordered = |one: &&HelmComponent| {
            one.metadata.deletion_timestamp.is_none() && one.spec.deletion_policy == DeletionPolicy::Delete
        };
        if let Some(component) = own.iter().find(is_ordered).filter(|_| is_open) {
            return Ok(Err(format!("{} is to go, and nobody ordered it", component.name_any())));
        }
        Ok(self.names.differs(&self.pair.hub.world, &own).map_or(Ok(()), Err))
    }

    /// Deletes the Kyma and checks that nothing is left on its target.
    async fn ends(&mut self, landscape: &Landscape) -> Result<()> {
        self.does(landscape, PairEvent::Access(Access::First)).await.context("in the end")?;
        let (kymas, name) = (landscape.kymas()?, self.names.kyma());
        kymas.delete(&name, &DeleteParams::default()).await?;
        until(&format!("{name} is gone"), self.deadline, || async {
            let all = landscape.all_components().await?;
            let own: Vec<HelmComponent> = self.names.own(&all).cloned().collect();
            landscape.let_go(&own, &BTreeSet::new()).await?;
            Ok(kymas.get_opt(&name).await?.is_none().then_some(()))
        })
        .await?;
        self.way.is_clean().await
    }
}

fn reachable(kyma: &Kyma) -> String {
    let conditions = kyma.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let held = condition::get(conditions, types::TARGET_REACHABLE);
    held.map(|held| format!("{} {}", held.status, held.reason)).unwrap_or_default()
}

/// Continues all sequences side by side.
async fn each(stories: &mut [Story<'_>], go_on: impl AsyncFn(&mut Story<'_>) -> Result<()>) -> Result<()> {
    let go_on = &go_on;
    let all = stories.iter_mut().map(async |story| {
        let went = go_on(story).await;
        story.is_wrong = went.is_err();
        went.with_context(|| format!("{} {:?}", story.names.kyma(), story.events))
    });
    try_join_all(all).await.map(drop)
}

/// Restores the hub, which affects all sequences.
async fn goes_back(landscape: &Landscape, stories: &mut [Story<'_>]) -> Result<()> {
    for story in &mut *stories {
        story.mark = story.way.target.audit()?.mark()?;
    }
    landscape.hub.restore(SAVED).await?;
    landscape.is_served().await?;
    each(stories, async |story| {
        story.pair.act(PairEvent::Restore(Side::Hub));
        story.settles(landscape).await.context("after the hub went back")
    })
    .await
}

/// Runs all sequences from the creation of the Kymas to their deletion.
async fn act_out(landscape: &mut Landscape, stories: &mut [Story<'_>]) -> Result<()> {
    let hub = &*landscape;
    each(stories, async |story| story.is_born(hub).await).await?;
    each(stories, async |story| story.goes_on(hub, 0..SAVES).await).await?;
    hub.has_caught_up().await?;
    for story in &mut *stories {
        story.pair.act(PairEvent::BackUp(Side::Hub));
    }
    hub.hub.save(SAVED)?;
    each(stories, async |story| story.goes_on(hub, SAVES..RESTARTS).await).await?;
    landscape.stop().await?;
    landscape.run().await?;
    let hub = &*landscape;
    each(stories, async |story| story.goes_on(hub, RESTARTS..GOES_BACK).await).await?;
    goes_back(hub, stories).await?;
    each(stories, async |story| story.goes_on(hub, GOES_BACK..STEPS).await).await?;
    each(stories, async |story| story.ends(hub).await).await
}

/// Deletes everything that sequences left on the hub and the targets.
async fn clear(landscape: &mut Landscape, ways: &[TargetConnection]) -> Result<()> {
    landscape.stop().await?;
    let (kymas, components) = (landscape.kymas()?, landscape.components()?);
    let (params, free) = (PatchParams::default(), json!({ "metadata": { "finalizers": null } }));
    let now = DeleteParams::default();
    for kyma in kymas.list(&ListParams::default()).await?.items {
        let name = kyma.name_any();
        if name != SENTINEL {
            kymas.patch(&name, &params, &Patch::Merge(&free)).await?;
            kymas.delete(&name, &now).await.ok();
        }
    }
    for component in landscape.all_components().await? {
        if module_of(&component) != SENTINEL {
            components.patch(&component.name_any(), &params, &Patch::Merge(&free)).await?;
            components.delete(&component.name_any(), &now).await.ok();
        }
    }
    try_join_all(ways.iter().map(TargetConnection::start_over)).await?;
    landscape.run().await
}

/// Returns the shortest sequence that still fails on this target.
async fn shrink<T>(
    landscape: &mut Landscape,
    mut tree: T,
    way: &TargetConnection,
    ways: &[TargetConnection],
    first: usize,
) -> Result<Vec<PairEvent>>
where
    T: ValueTree<Value = Vec<PairEvent>>,
{
    let (turn, mut shortest) = (Mutex::new(()), tree.current());
    for number in first..first + TRIES {
        if !tree.simplify() {
            break;
        }
        clear(landscape, ways).await?;
        let mut alone = [Story { deadline: SHORT, ..Story::new(number, tree.current(), way, &turn) }];
        if act_out(landscape, &mut alone).await.is_err() {
            shortest = tree.current();
        } else if !tree.complicate() {
            break;
        }
    }
    Ok(shortest)
}

/// One random sequence for each target.
fn trees(count: usize, seed: u64) -> Result<Vec<impl ValueTree<Value = Vec<PairEvent>>>> {
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let events = proptest::collection::vec(event(), 1..=STEPS);
    let trees = (0..count).map(|_| events.new_tree(&mut runner)).collect::<Result<Vec<_>, _>>();
    trees.map_err(|reason| anyhow::anyhow!("{reason}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_and_model_agree_for_random_hub_and_target_faults() -> Result<()> {
    let hub = TEST_ENV.cluster("hub-that-goes-back", |cluster| cluster.with_own_etcd().with_audit()).await?;
    let mut landscape = Landscape::on(hub, &["--local-kyma=sentinel", "--brake-targets=1000"]).await?;
    landscape.kyma(SENTINEL, "[{name: sentinel}]").await?;
    let ways = (0..TARGETS).map(|number| TargetConnection::to(format!("target-that-goes-back-{number}")));
    let (ways, turn) = (try_join_all(ways).await?, Mutex::new(()));
    let (count, seed) = asked("SEQUENCES_ON_TARGETS");
    for (seed, first) in (seed..).zip((0..count.unwrap_or(COUNT)).step_by(TARGETS)) {
        println!("SEQUENCES_SEED={seed} SEQUENCES_ON_TARGETS={TARGETS}");
        let trees = trees(TARGETS, seed)?;
        let told = trees.iter().map(ValueTree::current).zip(&ways).enumerate();
        let stories = told.map(|(at, (events, way))| Story::new(first + at, events, way, &turn));
        let mut stories: Vec<Story<'_>> = stories.collect();
        let Err(error) = act_out(&mut landscape, &mut stories).await else { continue };
        println!("{error:#}");
        let wrong = stories.iter().position(|story| story.is_wrong);
        let Some((at, tree)) = trees.into_iter().enumerate().find(|(at, _)| Some(*at) == wrong) else {
            return Err(error);
        };
        let shortest = shrink(&mut landscape, tree, &ways[at], &ways, first + TARGETS).await;
        return Err(match shortest {
            Ok(shortest) => error.context(format!("the shortest sequence that goes wrong: {shortest:?}")),
            Err(reason) => error.context(format!("not shortened: {reason:#}")),
        });
    }
    Ok(())
}

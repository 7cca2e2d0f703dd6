//! The model's random sequences, done to the operator at work: many Kymas at once, each with modules of its own on a hub
//! that is their target.

#[path = "../../src/resolve/model.rs"]
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kyma_api::{DeletionPolicy, HelmComponent, State, labels};
use model::{Action, World, action};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Value, json};
use testbed::{until, until_or_why};

use crate::landscape::{Landscape, SOON, dynamic};

/// Kymas at a time.
const KYMAS: usize = 50;
/// The longest sequence.
const STEPS: usize = 16;
/// How long a shortened sequence is given to agree, and how many are tried.
const SHORT: Duration = Duration::from_secs(10);
const TRIES: usize = 40;
/// The sequences that are run where nobody names others.
const SEED: u64 = 1;
/// Steps before which the operator is started anew.
const RESTARTS: [usize; 2] = [5, 11];
/// Calls at a time.
const PARALLEL: usize = 16;
/// Label by which a Pause finds its Kyma.
const STORY: &str = "example.com/story";
/// The Kyma and module that show how far the operator has come in each of its watches.
const SENTINEL: &str = "sentinel";

/// Objects by kind and name.
type Objects = BTreeMap<(&'static str, String), Value>;

/// One Kyma and what is to become of it.
struct Story {
    /// Names of modules have letters only.
    suffix: String,
    actions: Vec<Action>,
    world: World,
}

impl Story {
    fn new(number: usize, actions: Vec<Action>) -> Self {
        let letter = |digit: usize| char::from(b'a' + u8::try_from(digit).unwrap_or_default());
        Self {
            suffix: format!("x{}{}", letter(number / 26), letter(number % 26)),
            actions,
            world: World::new(),
        }
    }

    fn kyma(&self) -> String {
        format!("kyma-{}", self.suffix)
    }

    fn module(&self, module: &str) -> String {
        format!("{module}-{}", self.suffix)
    }

    /// The objects of the hub that are the model's world.
    fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        let mut put = |kind: &'static str, version: &str, name: String, labels: Value, spec: Value| {
            let object = json!({ "apiVersion": format!("operator.kyma-project.io/{version}"), "kind": kind,
                "metadata": { "name": name, "labels": labels }, "spec": spec });
            objects.insert((kind, name), object);
        };
        let beta = |is: bool| if is { json!({ labels::BETA: "true" }) } else { json!({}) };
        for (module, offer) in &self.world.offers {
            let name = self.module(module);
            for version in &offer.templates {
                let spec = json!({ "moduleName": name, "version": version, "descriptor": {} });
                let labels = beta(offer.beta.contains(version));
                put("ModuleTemplate", "v1beta2", format!("{name}-{version}"), labels, spec);
            }
            if offer.is_there() {
                let channel = |(channel, version)| json!({ "channel": channel, "version": version });
                let channels: Vec<Value> = offer.channels.iter().map(channel).collect();
                let spec =
                    json!({ "moduleName": name, "ocmComponentName": "example.com/m", "channels": channels });
                put("ModuleReleaseMeta", "v1beta2", name, json!({}), spec);
            }
        }
        for (module, channel) in &self.world.governed {
            let name = self.module(module);
            let spec = json!({ "module": name, "overrides": { "module": { "channel": channel } } });
            put("ModuleConfig", "v1alpha1", name, json!({}), spec);
        }
        if self.world.paused {
            let selector = json!({ "matchLabels": { STORY: self.suffix } });
            put(
                "Pause",
                "v1alpha1",
                self.kyma(),
                json!({}),
                json!({ "scope": "Upgrades", "selector": selector }),
            );
        }
        let modules: Vec<Value> =
            self.world.entries.iter().map(|(module, entry)| entry.written(&self.module(module))).collect();
        let mut labels = beta(self.world.tester);
        labels[STORY] = json!(self.suffix);
        put(
            "Kyma",
            "v1beta2",
            self.kyma(),
            labels,
            json!({ "channel": self.world.channel, "modules": modules }),
        );
        objects
    }

    /// How the hub differs from the model.
    fn differs(&self, components: &[HelmComponent]) -> Option<String> {
        let lines = components.iter().map(line_of);
        let found: BTreeSet<String> =
            lines.filter(|line| line.contains(&format!("-{} ", self.suffix))).collect();
        let expected = self.expected();
        (found != expected)
            .then(|| format!("{:?}: the model has {expected:?}, the hub {found:?}", self.actions))
    }

    /// The components that there should be.
    fn expected(&self) -> BTreeSet<String> {
        let line = |(module, held): (&&str, &model::Installed)| {
            written(&self.module(module), held.ordered, held.channel, held.leaving)
        };
        self.world.installed.iter().map(line).collect()
    }
}

fn written(module: &str, version: &str, channel: Option<&str>, is_leaving: bool) -> String {
    format!("{module} {version} {}{}", channel.unwrap_or("-"), if is_leaving { " leaving" } else { "" })
}

fn line_of(component: &HelmComponent) -> String {
    let module = component.spec.module.clone().unwrap_or_default();
    let is_leaving = component.metadata.deletion_timestamp.is_some();
    written(&module.name, &module.version, module.channel.as_deref(), is_leaving)
}

impl Landscape {
    /// Makes the hub's objects what they are now.
    async fn change(&self, before: &Objects, now: &Objects) -> Result<()> {
        for (id, object) in now {
            if before.get(id) != Some(object) {
                self.apply(&object.to_string()).await.with_context(|| format!("{id:?}"))?;
            }
        }
        for (id, object) in before.iter().filter(|(id, _)| !now.contains_key(*id)) {
            let api = dynamic(self.hub.client()?, object, &self.namespace)?;
            api.delete(&id.1, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn all_components(&self) -> Result<Vec<HelmComponent>> {
        Ok(self.components()?.list(&ListParams::default()).await?.items)
    }

    /// Each watch of the operator has delivered what was written before: what comes last in it has had its effect.
    async fn has_caught_up(&self) -> Result<()> {
        static STEP: AtomicUsize = AtomicUsize::new(0);
        let version = format!("1.0.{}", STEP.fetch_add(1, Ordering::Relaxed));
        self.module(SENTINEL, &[("regular", &version)]).await?;
        let is_ordered = |component: &HelmComponent| {
            component.spec.module.as_ref().is_some_and(|module| module.version == version)
        };
        self.until_component("the sentinel's version", SENTINEL, is_ordered).await?;
        self.report_ready(SENTINEL).await?;
        let is_told = |kyma: &kyma_api::Kyma| {
            let lines = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
            lines
                .into_iter()
                .any(|line| line.version.as_ref() == Some(&version) && line.state == State::Ready)
        };
        self.until_kyma("the sentinel is told of", SENTINEL, is_told).await?;
        for kind in ["Pause", "ModuleConfig"] {
            let object = json!({ "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": kind });
            let api = dynamic(self.hub.client()?, &object, &self.namespace)?;
            until(&format!("every {kind} is heeded"), SOON, || async {
                let all = api.list(&ListParams::default()).await?.items;
                let is_heeded = |object: &kube::api::DynamicObject| {
                    let generation = &object.data["status"]["conditions"][0]["observedGeneration"];
                    generation.as_i64() == object.metadata.generation
                };
                Ok(all.iter().all(is_heeded).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// What components' reconcilers do at the end: one that is ordered away waits for its module's users.
    async fn let_go(&self, components: &[HelmComponent], used: &BTreeSet<String>) -> Result<()> {
        let is_free = |component: &&HelmComponent| {
            let module = component.spec.module.clone().unwrap_or_default().name;
            component.metadata.deletion_timestamp.is_some()
                && (component.spec.deletion_policy == DeletionPolicy::Orphan || !used.contains(&module))
        };
        for component in components.iter().filter(is_free) {
            self.let_component_go(&component.name_any()).await.ok();
        }
        Ok(())
    }

    /// Waits until the hub is as all worlds say.
    async fn agrees(&self, stories: &[Story], deadline: Duration) -> Result<()> {
        let used =
            stories.iter().flat_map(|story| story.world.used.iter().map(|module| story.module(module)));
        let used: BTreeSet<String> = used.collect();
        until_or_why("model and hub agree", deadline, || async {
            let components = self.all_components().await?;
            self.let_go(&components, &used).await?;
            let wrong: Vec<String> = stories.iter().filter_map(|story| story.differs(&components)).collect();
            Ok(if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) })
        })
        .await
    }

    async fn report(&self, story: &Story, module: &str) -> Result<()> {
        let name = story.module(module);
        let components = self.all_components().await?;
        let of_module = |component: &&HelmComponent| {
            component.spec.module.as_ref().is_some_and(|module| module.name == name)
        };
        let Some(component) = components.iter().find(of_module) else { return Ok(()) };
        let version = component.spec.module.as_ref().map(|module| module.version.clone());
        let status = json!({ "status": { "state": "Ready", "version": version,
            "observedGeneration": component.metadata.generation } });
        let params = PatchParams::default();
        self.components()?.patch_status(&component.name_any(), &params, &Patch::Merge(&status)).await?;
        Ok(())
    }
}

/// One story's action, on the model and on the hub.
async fn act(landscape: &Landscape, story: &mut Story, step: usize) -> Result<()> {
    let before = story.objects();
    let Some(action) = story.actions.get(step).copied() else { return Ok(()) };
    if let Action::Report(module) = action {
        landscape.report(story, module).await?;
    }
    story.world.act(action);
    landscape.change(&before, &story.objects()).await
}

/// Acts all stories out, side by side and step by step.
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
        landscape.agrees(stories, deadline).await?;
    }
    Ok(())
}

/// The shortest sequence that still goes wrong.
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

/// So many sequences from a seed; the first that goes wrong is shortened.
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
async fn the_operator_and_the_model_agree_after_every_step_of_50_sequences() -> Result<()> {
    let asked = |name: &str| std::env::var(name).ok().and_then(|word| word.parse::<u64>().ok());
    let (count, seed) = (asked("SEQUENCES_COUNT").unwrap_or(50), asked("SEQUENCES_SEED").unwrap_or(SEED));
    let mut left = usize::try_from(count)?;
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

//! Rounds of all stages: an undisturbed one, and disturbed ones that must end in the same state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::catalogue;
use e2e::fleet::LANTERN;
use e2e::landscape::{Landscape, secret_with};
use e2e::remains::until_as_before;
use e2e::snapshot::{self, Difference, Snapshot};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use testbed::{Access, Cluster, ScriptedServer, until_or_why};

use crate::faults::{ClockJump, Fault, FaultInjector, FaultInterceptor, FaultProxy, Record};
use crate::picture::{Picture, deletions};
use crate::stages::{STAGES, Stage, Town};
use crate::writes::WriteSelection;

/// Deadline of each wait in a stage.
const DEADLINE: Duration = Duration::from_mins(4);
/// Time without writes after which a stage has ended.
const REST: Duration = Duration::from_secs(3);
/// Time without writes after which states are compared.
const PAUSE: Duration = Duration::from_millis(500);
/// Number of writes in a stage at which a fault occurs, unless it occurs at all of them.
const SAMPLE: usize = 10;
/// Seconds by which the clock jumps.
const HOUR: i64 = 3600;

/// Hub and targets, with the state of the proxies.
pub(crate) struct World {
    hub: Client,
    targets: Vec<(Cluster, Access)>,
    injector: Arc<FaultInjector>,
}

/// The state after a stage, and its writes and faults.
pub(crate) struct Left {
    picture: Picture,
    record: Record,
}

/// Results of a round by stage.
type Round = BTreeMap<Stage, Left>;

/// Selects the faults of a stage, given the result of the undisturbed round.
type Choice = fn(Stage, Option<&Left>) -> Vec<Fault>;

/// A Kyma in a round.
struct Guest {
    town: Town,
    choice: Choice,
    /// Snapshot of its target before the Kyma.
    before: Snapshot,
    _proxy: ScriptedServer,
}

impl World {
    pub(crate) async fn new(landscape: &Landscape, injector: Arc<FaultInjector>) -> Result<Self> {
        let mut targets = Vec::new();
        for target in landscape.targets() {
            targets.push((target.clone(), landscape.access(target).await?));
        }
        Ok(Self { hub: landscape.hub().client()?, targets, injector })
    }

    pub(crate) async fn tell(&self, is_full: bool) -> Result<()> {
        let calm = self.round(&[("kyma-calm", |_, _| Vec::new())], None, None).await?;
        let calm = calm.into_iter().next().context("there is one")?;
        let garbled: (&str, Choice) = ("kyma-garbled", |_, _| vec![Fault::Disorder]);
        let late: (&str, Choice) = ("kyma-late", |_, _| vec![Fault::Stale]);
        // Kills have a round of their own: a restart would repair the effect of a lost event or a jump of the
        // clock.
        if is_full {
            self.round(&[("kyma-killed", |_, _| vec![Fault::Kill(WriteSelection::All)])], Some(&calm), None)
                .await?;
            let refused: (&str, Choice) = ("kyma-refused", |_, _| vec![Fault::Conflict(WriteSelection::All)]);
            self.round(&[refused, garbled], Some(&calm), None).await?;
            self.round(&[late], Some(&calm), None).await?;
            self.round(&[("kyma-ahead", |_, _| Vec::new())], Some(&calm), Some(HOUR)).await?;
            self.round(&[("kyma-behind", |_, _| Vec::new())], Some(&calm), Some(-HOUR)).await?;
        } else {
            self.round(&[("kyma-killed", kill_some)], Some(&calm), None).await?;
            self.round(&[("kyma-late", late_and_refused), garbled], Some(&calm), Some(HOUR)).await?;
        }
        Ok(())
    }

    /// Runs all stages for these Kymas in parallel, each on a target of its own. `jumps` is the offset of the first
    /// clock jump.
    async fn round(
        &self,
        kymas: &[(&str, Choice)],
        calm: Option<&Round>,
        jumps: Option<i64>,
    ) -> Result<Vec<Round>> {
        // Long before the Kymas exist: the version after an upgrade, if kyma-operator still knew it, would be
        // installed, and this one refused as a downgrade.
        catalogue::assign(self.hub.clone(), LANTERN, "1.0.0").await?;
        let guests = self.guests(kymas).await?;
        let on_hub = snapshot::take(&self.hub).await?;
        let mut rounds: Vec<Round> = guests.iter().map(|_| Round::new()).collect();
        for stage in STAGES {
            let known = calm.and_then(|calm| calm.get(&stage));
            let faults: Vec<Vec<Fault>> = guests.iter().map(|guest| (guest.choice)(stage, known)).collect();
            for (guest, faults) in guests.iter().zip(&faults) {
                self.injector.begin(&guest.town.kyma, faults.clone());
            }
            if let Some(first) = jumps {
                self.injector.prepare(jump(stage, known, first));
            }
            if stage == Stage::Upgrade {
                catalogue::assign(self.hub.clone(), LANTERN, "1.1.0").await?;
            }
            let ends = guests.iter().zip(&faults).zip(&rounds).map(|((guest, faults), round)| {
                let before = STAGES.iter().rev().find_map(|stage| round.get(stage));
                self.stage(&guest.town, faults, stage, before, known)
            });
            let ends = try_join_all(ends).await?;
            rounds.iter_mut().zip(ends).for_each(|(round, left)| drop(round.insert(stage, left)));
            if let Some(first) = jumps {
                ensure!(!self.injector.is_prepared(), "{stage:?}: the clock did not jump");
                self.has_jumped(&guests, stage, first).await?;
            }
        }
        for Guest { town, before, .. } in &guests {
            until_as_before(&town.target, before).await?;
            town.leave().await?;
            self.injector.forget(&town.kyma);
        }
        // The garbage collector deletes objects of deleted components.
        until_or_why("the hub is as before", DEADLINE, || async {
            Ok(is_as_before(&on_hub, &snapshot::take(&self.hub).await?))
        })
        .await?;
        Ok(rounds)
    }

    async fn guests(&self, kymas: &[(&str, Choice)]) -> Result<Vec<Guest>> {
        let mut guests = Vec::new();
        for ((kyma, choice), (target, access)) in kymas.iter().zip(&self.targets) {
            let proxy = Arc::new(FaultInterceptor(FaultProxy::of_target(&self.injector, kyma)));
            let proxy = ScriptedServer::with(proxy, target).await?;
            let (kyma, hub, target) = ((*kyma).to_owned(), self.hub.clone(), target.client()?);
            let secret = secret_with(&kyma, &proxy.access_of(access))?;
            let before = snapshot::take(&target).await?;
            let town = Town { kyma, hub, target, secret };
            guests.push(Guest { town, choice: *choice, before, _proxy: proxy });
        }
        Ok(guests)
    }

    /// Checks that operators used the jumped clock for conditions of the first stage.
    async fn has_jumped(&self, guests: &[Guest], stage: Stage, by: i64) -> Result<()> {
        for Guest { town, .. } in guests.iter().filter(|_| stage == Stage::Install) {
            let ready = town.ready_since().await?.duration_since(Timestamp::now()).as_secs();
            ensure!((ready - by).abs() < by.abs() / 2, "{}: Ready since {ready} s from now", town.kyma);
        }
        Ok(())
    }

    async fn stage(
        &self,
        town: &Town,
        faults: &[Fault],
        stage: Stage,
        before: Option<&Left>,
        calm: Option<&Left>,
    ) -> Result<Left> {
        town.act(stage).await?;
        town.until_done(stage, DEADLINE).await?;
        let name = &town.kyma;
        // The undisturbed round records all writes, and kills at every write also hit those after the end of a
        // stage, so both wait longer.
        let is_thorough = calm.is_none() || kills_always(faults);
        let rest = if is_thorough { REST } else { PAUSE };
        let what = format!("{name} ends as if undisturbed: {stage:?}");
        let picture = until_or_why(&what, DEADLINE, || async {
            if self.injector.record(name).last.elapsed() < rest {
                return Ok(Err("it is still at work".to_owned()));
            }
            let picture = Picture::take(&town.hub, &town.target, name).await?;
            let differences = calm.map(|calm| picture.differs_from(&calm.picture)).unwrap_or_default();
            Ok(if differences.is_empty() { Ok(picture) } else { Err(differences.join("\n")) })
        })
        .await?;
        let left = Left { picture, record: self.injector.record(name) };
        if let Some(calm) = calm {
            left.is_like(calm, before, faults).with_context(|| format!("{name} {stage:?}"))?;
        }
        Ok(left)
    }
}

impl Left {
    /// Checks that the faults occurred, that nothing was deleted except what the undisturbed round deleted, and
    /// that nothing was replaced.
    fn is_like(&self, calm: &Self, before: Option<&Self>, faults: &[Fault]) -> Result<()> {
        // An operator that dies between two writes may merge them into one, so the number of writes in the
        // undisturbed round is not expected.
        let expected = if kills_always(faults) { self.record.writes.len() } else { 3 * faults.len() };
        ensure!(self.record.faults >= expected, "only {} faults", self.record.faults);
        let (deleted, allowed) = (deletions(&self.record.writes), deletions(&calm.record.writes));
        let wrong: Vec<_> = deleted.difference(&allowed).collect();
        ensure!(wrong.is_empty(), "deleted {wrong:?}");
        let replaced = before.map(|before| self.picture.replaced_since(&before.picture)).unwrap_or_default();
        ensure!(replaced.is_empty(), "replaced {replaced:?}");
        Ok(())
    }
}

/// Checks that the hub is as before, except for what operators record of removals and a kind that a module brought.
fn is_as_before(before: &Snapshot, after: &Snapshot) -> Result<(), String> {
    let is_meant = |difference: &Difference| match difference {
        Difference::Removed(_) => false,
        Difference::Added(key) | Difference::Changed(key, _) => {
            key.is("", "ConfigMap") && key.name.starts_with("brake-")
                || key.is("operator.kyma-project.io", "ModuleReleaseMeta") && key.name == LANTERN
                || key.name == "greetings.demo.kyma-project.io"
                || key.name == "v1alpha1.demo.kyma-project.io"
        }
    };
    let mut differences = snapshot::differences(before, after);
    differences.retain(|difference| !is_meant(difference));
    let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

fn kill_some(stage: Stage, calm: Option<&Left>) -> Vec<Fault> {
    vec![Fault::Kill(sample(stage, calm))]
}

fn late_and_refused(stage: Stage, calm: Option<&Left>) -> Vec<Fault> {
    vec![Fault::Conflict(sample(stage, calm)), Fault::Stale]
}

fn kills_always(faults: &[Fault]) -> bool {
    faults.iter().any(|fault| matches!(fault, Fault::Kill(WriteSelection::All)))
}

/// Selects ten writes of a stage; unmanaging and managing a module share ten.
fn sample(stage: Stage, calm: Option<&Left>) -> WriteSelection {
    let count = match stage {
        Stage::Unmanage => 4,
        Stage::Manage => SAMPLE - 4,
        _ => SAMPLE,
    };
    WriteSelection::sample(count, writes_of(calm))
}

fn writes_of(calm: Option<&Left>) -> usize {
    calm.map_or(0, |left| left.record.writes.len())
}

/// Returns the clock jump of a stage, which comes after a third of its writes. The jumps cancel out, so the clock
/// ends where it began.
fn jump(stage: Stage, calm: Option<&Left>, first: i64) -> ClockJump {
    let to = match stage {
        Stage::Install | Stage::Unmanage => first,
        Stage::Upgrade | Stage::Manage | Stage::Delete => 0,
        Stage::Disable => -first,
    };
    ClockJump { after: writes_of(calm) / 3, to }
}

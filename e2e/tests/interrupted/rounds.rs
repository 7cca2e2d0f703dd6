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

use crate::comparable_state::{ComparableState, deletions};
use crate::faults::{ClockJump, Fault, FaultInjector, FaultInterceptor, FaultProxy, Record};
use crate::stages::{STAGES, Stage, TestKyma};
use crate::writes::WriteSelection;

/// Deadline of each wait in a stage.
const DEADLINE: Duration = Duration::from_mins(4);
/// Time without writes after which a stage has ended.
const STAGE_SILENCE: Duration = Duration::from_secs(3);
/// Time without writes after which states are compared.
const COMPARISON_SILENCE: Duration = Duration::from_millis(500);
/// Number of writes in a stage at which a fault occurs, unless it occurs at all of them.
const MAX_SAMPLED_WRITES: usize = 10;
/// Seconds by which the clock jumps.
const CLOCK_JUMP_SECONDS: i64 = 3600;

/// Hub and targets, with the state of the proxies.
pub(crate) struct World {
    hub: Client,
    targets: Vec<(Cluster, Access)>,
    injector: Arc<FaultInjector>,
}

/// The state after a stage, and its writes and faults.
pub(crate) struct StageResult {
    state: ComparableState,
    record: Record,
}

/// Results of a round by stage.
type RoundResults = BTreeMap<Stage, StageResult>;

/// Selects the faults of a stage, given the result of the undisturbed round.
type FaultSelection = fn(Stage, Option<&StageResult>) -> Vec<Fault>;

/// A Kyma in a round.
struct RoundKyma {
    test_kyma: TestKyma,
    selection: FaultSelection,
    /// Snapshot of its target before the Kyma is created.
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

    pub(crate) async fn run(&self, is_full: bool) -> Result<()> {
        let baseline = self.round(&[("kyma-calm", |_, _| Vec::new())], None, None).await?;
        let baseline = baseline.into_iter().next().context("no result of the undisturbed round")?;
        let disordered: (&str, FaultSelection) = ("kyma-garbled", |_, _| vec![Fault::Disorder]);
        let late: (&str, FaultSelection) = ("kyma-late", |_, _| vec![Fault::Stale]);
        // Kills have a round of their own: a restart would repair the effect of a lost event or a jump of the
        // clock.
        if is_full {
            self.round(
                &[("kyma-killed", |_, _| vec![Fault::Kill(WriteSelection::All)])],
                Some(&baseline),
                None,
            )
            .await?;
            let refused: (&str, FaultSelection) =
                ("kyma-refused", |_, _| vec![Fault::Conflict(WriteSelection::All)]);
            self.round(&[refused, disordered], Some(&baseline), None).await?;
            self.round(&[late], Some(&baseline), None).await?;
            self.round(&[("kyma-ahead", |_, _| Vec::new())], Some(&baseline), Some(CLOCK_JUMP_SECONDS))
                .await?;
            self.round(&[("kyma-behind", |_, _| Vec::new())], Some(&baseline), Some(-CLOCK_JUMP_SECONDS))
                .await?;
        } else {
            self.round(&[("kyma-killed", kill_some)], Some(&baseline), None).await?;
            self.round(
                &[("kyma-late", late_and_refused), disordered],
                Some(&baseline),
                Some(CLOCK_JUMP_SECONDS),
            )
            .await?;
        }
        Ok(())
    }

    /// Runs all stages for these Kymas in parallel, each on a target of its own. `jumps` is the offset of the first
    /// clock jump.
    async fn round(
        &self,
        kymas: &[(&str, FaultSelection)],
        baseline: Option<&RoundResults>,
        jumps: Option<i64>,
    ) -> Result<Vec<RoundResults>> {
        // Long before the Kymas exist: the version after an upgrade, if kyma-operator still knew it, would be
        // installed, and this one refused as a downgrade.
        catalogue::assign(self.hub.clone(), LANTERN, "1.0.0").await?;
        let round_kymas = self.round_kymas(kymas).await?;
        let on_hub = snapshot::take(&self.hub).await?;
        let mut rounds: Vec<RoundResults> = round_kymas.iter().map(|_| RoundResults::new()).collect();
        for stage in STAGES {
            let expected = baseline.and_then(|baseline| baseline.get(&stage));
            let faults: Vec<Vec<Fault>> =
                round_kymas.iter().map(|round_kyma| (round_kyma.selection)(stage, expected)).collect();
            for (round_kyma, faults) in round_kymas.iter().zip(&faults) {
                self.injector.begin(&round_kyma.test_kyma.kyma, faults.clone());
            }
            if let Some(first) = jumps {
                self.injector.prepare(jump(stage, expected, first));
            }
            if stage == Stage::Upgrade {
                catalogue::assign(self.hub.clone(), LANTERN, "1.1.0").await?;
            }
            let ends = round_kymas.iter().zip(&faults).zip(&rounds).map(|((round_kyma, faults), round)| {
                let before = STAGES.iter().rev().find_map(|stage| round.get(stage));
                self.stage(&round_kyma.test_kyma, faults, stage, before, expected)
            });
            let ends = try_join_all(ends).await?;
            rounds.iter_mut().zip(ends).for_each(|(round, result)| drop(round.insert(stage, result)));
            if let Some(first) = jumps {
                ensure!(!self.injector.is_prepared(), "{stage:?}: the clock did not jump");
                self.has_jumped(&round_kymas, stage, first).await?;
            }
        }
        for RoundKyma { test_kyma, before, .. } in &round_kymas {
            until_as_before(&test_kyma.target, before).await?;
            test_kyma.delete_access_secret().await?;
            self.injector.forget(&test_kyma.kyma);
        }
        // The garbage collector deletes objects of deleted components.
        until_or_why("the hub is as before", DEADLINE, || async {
            Ok(is_as_before(&on_hub, &snapshot::take(&self.hub).await?))
        })
        .await?;
        Ok(rounds)
    }

    async fn round_kymas(&self, kymas: &[(&str, FaultSelection)]) -> Result<Vec<RoundKyma>> {
        let mut round_kymas = Vec::new();
        for ((kyma, selection), (target, access)) in kymas.iter().zip(&self.targets) {
            let proxy = Arc::new(FaultInterceptor(FaultProxy::of_target(&self.injector, kyma)));
            let proxy = ScriptedServer::with(proxy, target).await?;
            let (kyma, hub, target) = ((*kyma).to_owned(), self.hub.clone(), target.client()?);
            let secret = secret_with(&kyma, &proxy.access_of(access))?;
            let before = snapshot::take(&target).await?;
            let test_kyma = TestKyma { kyma, hub, target, secret };
            round_kymas.push(RoundKyma { test_kyma, selection: *selection, before, _proxy: proxy });
        }
        Ok(round_kymas)
    }

    /// Checks that operators used the jumped clock for conditions of the first stage.
    async fn has_jumped(&self, round_kymas: &[RoundKyma], stage: Stage, by: i64) -> Result<()> {
        for RoundKyma { test_kyma, .. } in round_kymas.iter().filter(|_| stage == Stage::Install) {
            let ready = test_kyma.ready_since().await?.duration_since(Timestamp::now()).as_secs();
            ensure!((ready - by).abs() < by.abs() / 2, "{}: Ready since {ready} s from now", test_kyma.kyma);
        }
        Ok(())
    }

    async fn stage(
        &self,
        test_kyma: &TestKyma,
        faults: &[Fault],
        stage: Stage,
        before: Option<&StageResult>,
        baseline: Option<&StageResult>,
    ) -> Result<StageResult> {
        test_kyma.act(stage).await?;
        test_kyma.until_done(stage, DEADLINE).await?;
        let name = &test_kyma.kyma;
        // The undisturbed round records all writes, and kills at every write also hit those after the end of a
        // stage, so both wait longer.
        let waits_longer = baseline.is_none() || kills_always(faults);
        let rest = if waits_longer { STAGE_SILENCE } else { COMPARISON_SILENCE };
        let what = format!("{name} ends as if undisturbed: {stage:?}");
        let end_state = until_or_why(&what, DEADLINE, || async {
            if self.injector.record(name).last.elapsed() < rest {
                return Ok(Err("it is still at work".to_owned()));
            }
            let end_state = ComparableState::take(&test_kyma.hub, &test_kyma.target, name).await?;
            let differences =
                baseline.map(|baseline| end_state.differs_from(&baseline.state)).unwrap_or_default();
            Ok(if differences.is_empty() { Ok(end_state) } else { Err(differences.join("\n")) })
        })
        .await?;
        let result = StageResult { state: end_state, record: self.injector.record(name) };
        if let Some(baseline) = baseline {
            result.is_like(baseline, before, faults).with_context(|| format!("{name} {stage:?}"))?;
        }
        Ok(result)
    }
}

impl StageResult {
    /// Checks that the faults occurred, that nothing was deleted except what the undisturbed round deleted, and
    /// that nothing was replaced.
    fn is_like(&self, baseline: &Self, before: Option<&Self>, faults: &[Fault]) -> Result<()> {
        // An operator that dies between two writes may merge them into one, so the number of writes in the
        // undisturbed round is not expected.
        let expected = if kills_always(faults) { self.record.writes.len() } else { 3 * faults.len() };
        ensure!(self.record.faults >= expected, "only {} faults", self.record.faults);
        let (deleted, allowed) = (deletions(&self.record.writes), deletions(&baseline.record.writes));
        let wrong: Vec<_> = deleted.difference(&allowed).collect();
        ensure!(wrong.is_empty(), "deleted {wrong:?}");
        let replaced = before.map(|before| self.state.replaced_since(&before.state)).unwrap_or_default();
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

fn kill_some(stage: Stage, baseline: Option<&StageResult>) -> Vec<Fault> {
    vec![Fault::Kill(sample(stage, baseline))]
}

fn late_and_refused(stage: Stage, baseline: Option<&StageResult>) -> Vec<Fault> {
    vec![Fault::Conflict(sample(stage, baseline)), Fault::Stale]
}

fn kills_always(faults: &[Fault]) -> bool {
    faults.iter().any(|fault| matches!(fault, Fault::Kill(WriteSelection::All)))
}

/// Selects ten writes of a stage; unmanaging and managing a module share ten.
fn sample(stage: Stage, baseline: Option<&StageResult>) -> WriteSelection {
    let count = match stage {
        Stage::Unmanage => 4,
        Stage::Manage => MAX_SAMPLED_WRITES - 4,
        _ => MAX_SAMPLED_WRITES,
    };
    WriteSelection::sample(count, writes_of(baseline))
}

fn writes_of(baseline: Option<&StageResult>) -> usize {
    baseline.map_or(0, |result| result.record.writes.len())
}

/// Returns the clock jump of a stage, which comes after a third of its writes. The jumps cancel out, so the clock
/// ends where it began.
fn jump(stage: Stage, baseline: Option<&StageResult>, first: i64) -> ClockJump {
    let to = match stage {
        Stage::Install | Stage::Unmanage => first,
        Stage::Upgrade | Stage::Manage | Stage::Delete => 0,
        Stage::Disable => -first,
    };
    ClockJump { after: writes_of(baseline) / 3, to }
}

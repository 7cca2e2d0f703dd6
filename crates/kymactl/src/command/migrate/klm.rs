//! `kymactl migrate klm`: hands Kymas over from Kyma Lifecycle Manager (KLM), and back.
//!
//! [`plan`] and [`back`] decide each step from the state of hub and target, so the next run continues an interrupted
//! one.

mod back;
mod component;
mod facts;
mod lease;
mod note;
mod plan;
mod read;
mod report;
#[cfg(test)]
mod sample;
mod target;
mod write;

use std::{
    fmt::{Debug, Display},
    time::Duration,
};

use clap::Args;
use futures::{StreamExt as _, stream};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::wait::{Condition, await_condition, conditions::is_deleted},
};
use kyma_api::{HelmComponent, Kyma, labels, names};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use self::{
    facts::{MigrationState, ReadComponent as _},
    lease::{KlmState, LeaseObserver},
    read::KymaSnapshot,
    report::Report,
};
use crate::{
    command::target::connection::{ConnectionArgs, Start},
    duration::duration,
    error::Error,
    output,
};

/// Maximum number of Kymas at a time.
const MAX_PARALLEL_KYMAS: usize = 8;
/// Maximum number of passes over one Kyma in one run; a module takes at most seven, so more would be a bug.
const MAX_PASSES: usize = 1000;

/// Flags of `kymactl migrate klm`.
#[derive(Args)]
pub(crate) struct Klm {
    /// The Kyma to hand over. Default: all
    #[arg(long, conflicts_with = "selector", value_parser = crate::name::kyma, add = crate::command::complete::kymas())]
    kyma: Option<String>,
    /// Only Kymas with these labels
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// Write nothing and print what would be done
    #[arg(long)]
    dry_run: bool,
    /// Hand the Kymas back to KLM
    #[arg(long)]
    rollback: bool,
    /// Confirm that KLM is stopped although it has no Lease on the hub
    #[arg(long = "klm-is-stopped")]
    is_stopped: bool,
    #[clap(skip)]
    lease: LeaseObserver,
    /// Namespace of the users' Kyma on targets
    #[arg(long, env, default_value = "kyma-system")]
    target_namespace: String,
    /// Maximum time to wait for the operators, per Kyma
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl Klm {
    pub(super) async fn run(self) -> Result<(), Error> {
        let hub = self.connection.hub().await?;
        let starts = match &self.kyma {
            Some(kyma) => vec![hub.start(kyma).await?],
            None => hub.starts(self.selector.as_deref()).await?,
        };
        let moves = stream::iter(starts).map(|start| self.migrate(start));
        let reports: Vec<Report> = moves.buffered(MAX_PARALLEL_KYMAS).collect().await;
        let paragraphs = || reports.iter().map(Report::text).collect();
        let names = || reports.iter().map(|report| report.kyma.clone()).collect();
        output::result(&self.connection.hub.format().text(&reports, paragraphs, names)?)?;
        match reports.iter().filter(|report| !report.left.is_empty()).count() {
            0 => Ok(()),
            count => Err(Error::NotMoved { count }),
        }
    }

    /// Moves one Kyma and reports the result.
    async fn migrate(&self, start: Start) -> Report {
        let kyma = start.kyma.name_any();
        let mut first = Vec::new();
        let (outcome, left) = match Box::pin(self.run_steps(start, &mut first)).await {
            Ok(outcome) => (outcome, Vec::new()),
            Err(StopReason::Obstacles(left)) => ("left", left),
            Err(StopReason::Failed(error)) => ("left", vec![error.to_string()]),
        };
        Report { kyma, outcome, modules: first, left }
    }

    async fn run_steps(
        &self,
        mut start: Start,
        first: &mut Vec<report::Line>,
    ) -> Result<&'static str, StopReason> {
        let deadline = Instant::now() + self.timeout;
        let mut idle = false;
        for number in 0..MAX_PASSES {
            let mut snapshot = read::read_snapshot(start, &self.target_namespace).await?;
            if !self.rollback && plan::needs_klm_stopped(&snapshot.facts) {
                snapshot.facts.klm = self.klm_state(&snapshot).await?;
            }
            if number == 0 {
                *first = report::lines(&snapshot.facts);
                idle = self.is_idle(&snapshot.facts);
            }
            let done = if self.rollback {
                self.run_rollback_step(&snapshot, deadline).await
            } else {
                self.run_hand_over_step(&snapshot, deadline).await
            };
            match done {
                Ok(true) => return Ok(self.outcome(idle)),
                Ok(false) => {}
                // Another writer changed the object: the next pass reads it again.
                Err(StopReason::Failed(error)) if error.is_conflict() && Instant::now() < deadline => {}
                Err(stopped) => return Err(stopped),
            }
            start = snapshot.start;
        }
        Err(StopReason::Obstacles(vec!["the steps did not end: run the command again".to_owned()]))
    }

    async fn klm_state(&self, snapshot: &KymaSnapshot) -> Result<KlmState, Error> {
        let namespace = snapshot.facts.kyma.namespace().unwrap_or_default();
        let state = self.lease.state(&snapshot.start.hub, &namespace).await?;
        let confirmed = state == KlmState::Unknown && self.is_stopped;
        Ok(if confirmed { KlmState::Stopped } else { state })
    }

    fn is_idle(&self, facts: &MigrationState) -> bool {
        if self.rollback {
            back::next(facts) == back::RollbackStep::Done
        } else {
            plan::next(facts) == plan::HandOverStep::Done
        }
    }

    fn outcome(&self, idle: bool) -> &'static str {
        match (self.rollback, self.dry_run, idle) {
            (false, _, true) => "nothing to hand over",
            (true, _, true) => "nothing to hand back",
            (false, true, false) => "no obstacle to the hand-over",
            (true, true, false) => "no obstacle to the hand-back",
            (false, false, false) => "handed over",
            (true, false, false) => "handed back to KLM",
        }
    }

    /// Runs the next step of a hand-over. Returns true if there is none.
    async fn run_hand_over_step(
        &self,
        snapshot: &KymaSnapshot,
        deadline: Instant,
    ) -> Result<bool, StopReason> {
        use plan::HandOverStep;
        let facts = &snapshot.facts;
        require_none(plan::obstacles(facts))?;
        if self.dry_run {
            return Ok(true);
        }
        let step = plan::next(facts);
        print_step(facts, &step);
        match step {
            HandOverStep::RecordAndLabel => snapshot.record_and_label().await?,
            HandOverStep::CreateComponent(module) => snapshot.create_component(&module).await?,
            HandOverStep::WriteInventory(module) => snapshot.write_inventory(&module).await?,
            HandOverStep::StartReconciler(module) => snapshot.set_skip_label(&module, false).await?,
            HandOverStep::AwaitApplied(module) => {
                let applied = |one: Option<&HelmComponent>| one.is_some_and(HelmComponent::is_applied);
                await_component(snapshot, &module, "has not applied its objects", deadline, applied).await?;
            }
            HandOverStep::ReportDifferences(module, problems) => {
                return Err(StopReason::Obstacles(
                    problems.into_iter().map(|what| format!("module {module}: {what}")).collect(),
                ));
            }
            HandOverStep::RemoveFinalizers(module) => snapshot.remove_finalizers(&module).await?,
            HandOverStep::StartOperators => snapshot.set_hand_over_label(labels::HAND_OVER_DONE).await?,
            HandOverStep::AwaitReport => {
                let reported = |kyma: Option<&Kyma>| kyma.is_some_and(plan::is_reported_by_us);
                let why = || "kyma-operator has not reported on it: is it running?".to_owned();
                wait_for(deadline, kymas(snapshot), &facts.kyma.name_any(), reported, why).await?;
            }
            HandOverStep::CleanStatus => snapshot.clean_status().await?,
            HandOverStep::RemoveLastFinalizers(module) => snapshot.remove_last_finalizers(&module).await?,
            HandOverStep::Done => return Ok(true),
        }
        Ok(false)
    }

    /// Runs the next step of giving a Kyma back. Returns true if there is none.
    async fn run_rollback_step(
        &self,
        snapshot: &KymaSnapshot,
        deadline: Instant,
    ) -> Result<bool, StopReason> {
        use back::RollbackStep;
        require_none(back::obstacles(&snapshot.facts))?;
        if self.dry_run {
            return Ok(true);
        }
        let step = back::next(&snapshot.facts);
        print_step(&snapshot.facts, &step);
        match step {
            RollbackStep::StopOperators => snapshot.set_hand_over_label(labels::HAND_OVER_PENDING).await?,
            RollbackStep::AwaitOperator(operator) => {
                let stopped = |kyma: Option<&Kyma>| kyma.is_none_or(|kyma| !back::is_at_work(kyma, operator));
                let why = || format!("{operator} has not reported that it stopped: is it running?");
                wait_for(deadline, kymas(snapshot), &snapshot.facts.kyma.name_any(), stopped, why).await?;
            }
            RollbackStep::StopComponent(module) => snapshot.set_skip_label(&module, true).await?,
            RollbackStep::AwaitComponentStop(module) => {
                let stopped = |one: Option<&HelmComponent>| one.is_none_or(HelmComponent::has_stopped);
                await_component(snapshot, &module, "has not stopped", deadline, stopped).await?;
            }
            RollbackStep::ReturnObjects(module) => snapshot.return_objects(&module).await?,
            RollbackStep::DeleteComponent(module) => snapshot.delete_component(&module).await?,
            RollbackStep::AwaitDeletion(module) => {
                let uid = snapshot.facts.modules[&module].component.as_ref().and_then(kube::ResourceExt::uid);
                let gone = is_deleted(uid.as_deref().unwrap_or_default());
                await_component(snapshot, &module, "is not deleted", deadline, gone).await?;
            }
            RollbackStep::RestoreManifest(module) => snapshot.restore_manifest(&module).await?,
            RollbackStep::RestoreStatus => {
                let noted = note::read(&snapshot.facts.kyma.metadata).unwrap_or_default();
                snapshot.restore_target_kyma(&noted).await?;
                snapshot.remove_stamp().await?;
                snapshot.restore_status(&noted).await?;
            }
            RollbackStep::DeleteMirrors => snapshot.delete_mirrors().await?,
            RollbackStep::RemoveLabels => snapshot.remove_labels().await?,
            RollbackStep::Done => return Ok(true),
        }
        Ok(false)
    }
}

/// Reason why a Kyma is not moved.
enum StopReason {
    /// Obstacles that a user has to remove.
    Obstacles(Vec<String>),
    /// A call failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for StopReason {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn require_none(obstacles: Vec<String>) -> Result<(), StopReason> {
    if obstacles.is_empty() { Ok(()) } else { Err(StopReason::Obstacles(obstacles)) }
}

fn print_step(facts: &MigrationState, step: &impl Display) {
    output::remark(&format!("{}: {step}", facts.kyma.name_any()));
}

fn kymas(snapshot: &KymaSnapshot) -> Api<Kyma> {
    Api::namespaced(snapshot.start.hub.clone(), &snapshot.facts.kyma.namespace().unwrap_or_default())
}

async fn await_component(
    snapshot: &KymaSnapshot,
    module: &str,
    what: &str,
    deadline: Instant,
    wanted: impl Condition<HelmComponent>,
) -> Result<(), StopReason> {
    let kyma = &snapshot.facts.kyma;
    let api: Api<HelmComponent> =
        Api::namespaced(snapshot.start.hub.clone(), &kyma.namespace().unwrap_or_default());
    let name = names::component_name(&kyma.name_any(), module);
    if wait_for(deadline, api.clone(), &name, wanted, String::new).await.is_ok() {
        return Ok(());
    }
    let says = api.get_opt(&name).await?.map(|component| component.says()).unwrap_or_default();
    Err(StopReason::Obstacles(vec![format!("module {module}: component {name} {what}: {says}")]))
}

/// Waits until the object satisfies the condition or the deadline passes.
async fn wait_for<K>(
    deadline: Instant,
    api: Api<K>,
    name: &str,
    wanted: impl Condition<K>,
    why: impl FnOnce() -> String,
) -> Result<(), StopReason>
where
    K: Clone + Debug + Send + DeserializeOwned + Resource + 'static,
{
    match timeout_at(deadline, await_condition(api, name, wanted)).await {
        Ok(found) => found.map(drop).map_err(StopReason::from),
        Err(_) => Err(StopReason::Obstacles(vec![why()])),
    }
}

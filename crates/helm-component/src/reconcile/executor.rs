//! Executes the steps of a plan, on hub and target or as a dry run.

use std::time::Instant;

use kyma_api::Reason;
use kyma_controller::Failure;

use super::dry_run::DryRunState;
use crate::actions::outcome::StepOutcome;
use crate::actions::{history, hooks, rollback, test};
use crate::pass::Pass;
use crate::plan::{Observed, Step, StopReason};

/// Message of a dry run that the plan does not end.
const UNFINISHED_DRY_RUN: &str = "the dry run did not end";

/// Executor of the steps of a plan.
pub(super) enum Executor<'e> {
    /// Writes to hub and target.
    Real,
    /// Writes nothing, and collects the changes.
    DryRun(&'e mut DryRunState),
}

impl Executor<'_> {
    /// Reports whether nothing is written.
    pub(super) fn is_dry_run(&self) -> bool {
        matches!(self, Self::DryRun(_))
    }

    /// Returns the message of a pass that the plan does not end, which is a bug.
    pub(super) fn unfinished(&self) -> &'static str {
        match self {
            Self::Real => "the reconcile did not end",
            Self::DryRun(_) => UNFINISHED_DRY_RUN,
        }
    }
}

impl Pass<'_> {
    /// Executes one step. A failure that the plan decides on is stored in `Pass::done`; any other one is returned and
    /// ends the pass. A step that is not defined for both executors does not compile.
    pub(super) async fn execute(
        &mut self,
        step: Step,
        seen: &Observed,
        executor: &mut Executor<'_>,
    ) -> Result<StepOutcome, Failure> {
        match (step, executor) {
            // Steps that read, and steps whose writes `Context` and `Cluster` omit or send as dry runs.
            (Step::Load, _) => self.load().await?,
            (Step::Watch, _) => self.watch()?,
            (Step::Rediscover, _) => self.rediscover().await?,
            (Step::ReadExistingInstallation, _) => self.read_existing_installation().await?,
            (Step::FindHelmRelease, _) => self.find_helm_release().await?,
            (Step::Apply, _) => self.apply(seen).await?,
            (Step::Sweep, _) => self.sweep().await?,
            (Step::Judge, _) => self.judge_health(seen).await?,
            (Step::Namespace, Executor::Real) => self.namespace().await?,
            (Step::Namespace, Executor::DryRun(state)) => state.namespace(self).await?,
            (Step::ApplyCrds, Executor::Real) => self.apply_crds(seen).await?,
            // CRDs are applied with everything else.
            (Step::ApplyCrds, Executor::DryRun(_)) => self.done.hooks.crds_applied = true,
            (Step::Hooks(event), Executor::Real) => hooks::run_for_release(self, event).await,
            (Step::Hooks(event), Executor::DryRun(state)) => state.count_hooks_as_passed(self, event),
            (Step::Prune(_), Executor::Real)
                if self.half_time().is_some_and(|half| Instant::now() >= half) =>
            {
                self.context.waker().wake();
                let next_pass = "the next reconcile, which prunes the remaining objects".to_owned();
                return Ok(StepOutcome::Stop(StopReason::Progressing(vec![next_pass])));
            }
            (Step::Prune(surplus), Executor::Real) => self.prune(surplus, seen).await,
            (Step::Prune(surplus), Executor::DryRun(state)) => state.prune(self, &surplus, seen).await,
            (Step::Record(status), executor) => history::run(self, status, executor.is_dry_run()).await,
            (Step::DefaultResource, Executor::Real) => self.default_resource().await?,
            (Step::DefaultResource, Executor::DryRun(state)) => {
                return Ok(state.default_resource(self).await);
            }
            (Step::ConfirmDefaultResource, Executor::Real) => self.confirm_default_resource().await,
            (Step::ConfirmDefaultResource, Executor::DryRun(_)) => self.done.default_confirmed = true,
            (Step::Rollback(action), executor) => {
                return Box::pin(rollback::run(self, action, executor.is_dry_run())).await;
            }
            (Step::Test, Executor::Real) => test::run_requested(self).await,
            (Step::Test, Executor::DryRun(_)) => test::count_as_run(self),
            (Step::ReadCauses, Executor::Real) => self.read_causes(seen).await,
            // Its result is only used after the apply.
            (Step::ReadCauses, Executor::DryRun(_)) => self.done.causes_read = true,
            (Step::Remove, Executor::Real) => self.remove(seen).await,
            // A dry run of an installation removes nothing.
            (Step::Remove, Executor::DryRun(_)) => {
                return Err(Failure::new(Reason::Internal, UNFINISHED_DRY_RUN));
            }
            (Step::Stop(StopReason::WaitingForSync), Executor::Real) => {
                self.check_target().await?;
                return Ok(StepOutcome::Stop(StopReason::WaitingForSync));
            }
            (Step::Stop(StopReason::WaitingForSync), Executor::DryRun(state)) => {
                state.wait_for_watches(self).await?;
                return Ok(StepOutcome::ContinueAfterEvent);
            }
            (Step::Stop(stop_reason), _) => return Ok(StepOutcome::Stop(stop_reason)),
        }
        Ok(StepOutcome::Continue)
    }
}

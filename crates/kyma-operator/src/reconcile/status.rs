//! The status of a Kyma after one pass.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kyma_api::{KymaStatus, MandatoryModule, State as ModuleState};
use kyma_controller::Wait;

use crate::apply::PlanResult;
use crate::decision::deletion::IgnorePolicy;
use crate::decision::missing_components;
use crate::decision::resolve::{Decision, ResolvedModule};
use crate::hub::component::ComponentView;
use crate::observe::{self, Observation};
use crate::plan::Plan;
use crate::report::{self, KymaProblem, Outcome, StatusInputs, windows};
use crate::state::State;
use crate::target::prerequisites::Prerequisites;

/// Returns the next status, and how long to wait for an event before the next pass.
pub(super) fn status_of(
    state: &State,
    observed: &Observation,
    decided: &[ResolvedModule],
    (plan, applied): (&Plan, &PlanResult),
    prerequisites: &Prerequisites,
) -> (KymaStatus, Wait) {
    let now = Timestamp::now();
    let before = observed.kyma.status.clone().unwrap_or_default();
    let views = observe::views(state, &observed.key, Some(&before));
    let outcomes: Vec<Outcome<'_>> = decided
        .iter()
        .map(|resolved| Outcome {
            view: views
                .get(&resolved.module)
                .filter(|_| !is_orphaned_by_plan(plan, views.get(&resolved.module))),
            blocked: plan.blocked.get(&resolved.module),
            failure: applied.failures.get(&resolved.module),
            missed: applied.missed.contains(&resolved.module),
            ignore: state.args.ignore_policy,
            before: before.modules.iter().flatten().find(|module| module.name == resolved.module),
            now,
            deadline: state.args.reconciler_deadline,
            resolved,
        })
        .collect();
    let (generation, initial) = (observed.kyma.metadata.generation, report::initial(state, &observed.kyma));
    let mut inputs = StatusInputs {
        channel: observed.selection.as_ref().map(|selection| selection.channel.clone()),
        problem: refused_selection(observed),
        target: observed.remote.as_ref().map(|remote| remote.session.identity.clone()),
        is_remote: observed.remote.is_some(),
        choice: observed.remote.as_ref().and_then(|_| observed.choice.clone()),
        mandatory: Some(mandatory(&before, &views, decided, state.args.ignore_policy)),
        windows: windows::condition(decided, observed.skips_windows),
        pull_secret: prerequisites.pull_secret(),
        resource_rules: prerequisites.resource_rules(),
        unsupported: unsupported(decided),
        ..StatusInputs::unchanged(&before, generation, initial, now)
    };
    if observed.selection.is_some() {
        inputs.lines = outcomes.iter().filter_map(report::line).collect();
    }
    let status = report::status(&inputs);
    let due = report::earliest(outcomes.iter().filter_map(report::next_change), now);
    let wait = due.and_then(|due| Duration::try_from(due).ok()).map_or(Wait::Event, Wait::Timer);
    (status, wait)
}

/// Returns the recorded mandatory modules, without those that are now installed for the user's entry.
fn mandatory(
    before: &KymaStatus,
    views: &BTreeMap<String, ComponentView>,
    decided: &[ResolvedModule],
    ignore: IgnorePolicy,
) -> Vec<MandatoryModule> {
    let is_chosen = |module: &str| {
        decided.iter().filter(|resolved| resolved.module == module).any(|resolved| match &resolved.decision {
            Decision::Install(install)
            | Decision::KeepVersion(install, _)
            | Decision::Await(Some(install), _) => !install.mandatory,
            _ => false,
        })
    };
    let mut known = missing_components::mandatory_modules(before, views, ignore);
    known.retain(|known| !is_chosen(&known.name));
    known
}

/// Reports whether the plan deletes the component and leaves everything on the target: the status then no longer
/// shows it.
fn is_orphaned_by_plan(plan: &Plan, view: Option<&ComponentView>) -> bool {
    let Some(view) = view else { return false };
    plan.deletions.iter().any(|deletion| {
        deletion.component.uid == view.uid
            && deletion.policy == kyma_api::DeletionPolicy::Orphan
            && !view.terminating
    })
}

fn refused_selection(observed: &Observation) -> Option<KymaProblem> {
    observed.refused.as_ref().map(|error| KymaProblem {
        reason: error.reason(),
        message: error.to_string(),
        state: ModuleState::Error,
        about_target: false,
    })
}

/// Returns the fields in use that this version accepts but does not implement.
fn unsupported(decided: &[ResolvedModule]) -> Vec<String> {
    let mut found = Vec::new();
    for resolved in decided {
        let (Decision::Install(install) | Decision::KeepVersion(install, _)) = &resolved.decision else {
            continue;
        };
        let module = &resolved.module;
        if install.release.rollout {
            found.push(format!("ModuleReleaseMeta {module} spec.rollout"));
        }
    }
    found
}

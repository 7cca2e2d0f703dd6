//! Status of a Kyma that is being deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kyma_api::{DeletionPolicy, Kyma, KymaStatus, MandatoryModule, Reason, State as ModuleState, labels};
use kyma_controller::{Failure, KymaKey};

use super::hub_writes::{StepResult, find_missing_components};
use super::live_reads::unwatched;
use super::{CLUSTER_GONE_MESSAGE, TargetAccess};
use crate::decision::deletion::{self, DeletionInputs, DeletionStep, TargetReachability};
use crate::decision::missing_components;
use crate::decision::resolve::ModuleProblem;
use crate::hub::component::{ComponentKind, ComponentView};
use crate::observe;
use crate::report::{self, KymaProblem, Line, StatusInputs};
use crate::state::State;

/// Returns the reason and message of the failure, Pause or missing access Secret that blocks the deletion.
fn blocking_problem(
    step: &DeletionStep,
    gone: bool,
    failure: Option<&Failure>,
    blocked: Option<&ModuleProblem>,
) -> Option<(Reason, String)> {
    match (step, failure) {
        _ if gone => Some((Reason::ClusterGone, CLUSTER_GONE_MESSAGE.to_owned())),
        (DeletionStep::AwaitTarget { gone_at: Some(moment) }, _) => Some((
            Reason::AwaitingAccess,
            format!(
                "the access Secret no longer exists: from {} on, the cluster counts as deleted",
                moment.strftime("%FT%TZ")
            ),
        )),
        (_, Some(failure)) => Some((failure.reason, failure.message.clone())),
        _ => blocked.map(|problem| (problem.reason, problem.message.clone())),
    }
}

/// Returns the problem of a deletion that waits for components that exist although the index lacks them.
fn unindexed_problem(step: &DeletionStep, unindexed: &BTreeSet<String>) -> Option<KymaProblem> {
    if *step != DeletionStep::AwaitUnwatched || unindexed.is_empty() {
        return None;
    }
    let modules = unindexed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let message = format!(
        "the hub's list of components lacks existing components of these modules: {modules}; set their label {} if it \
         is missing",
        labels::KYMA_NAME
    );
    Some(KymaProblem { reason: Reason::Deleting, message, state: ModuleState::Deleting, about_target: false })
}

pub(super) async fn report(
    state: &State,
    kyma: &Arc<Kyma>,
    access: &TargetAccess,
    step: &DeletionStep,
    inputs: &DeletionInputs<'_>,
    done: &StepResult,
) -> Result<(), Failure> {
    if *step == DeletionStep::Release {
        return Ok(());
    }
    let before = kyma.status.clone().unwrap_or_default();
    let views = observe::views(state, &KymaKey::of(kyma), Some(&before));
    let (gone, installed) = (deletion::is_gone(inputs), inputs.installed());
    let blocked = done.plan.blocked.values().next();
    let problem = blocking_problem(step, gone, access.failure.as_ref(), blocked).map(|(reason, message)| {
        KymaProblem { reason, message, state: ModuleState::Deleting, about_target: true }
    });
    let (generation, initial) = (kyma.metadata.generation, report::initial(state, kyma));
    let status = report::status(&StatusInputs {
        lines: lines(state, kyma, &before, (&views, &installed), gone, done),
        problem: unindexed_problem(step, inputs.unindexed).or(problem),
        is_remote: access.session.is_some(),
        access_missing: matches!(access.reachability, TargetReachability::NoSecret { .. }),
        mandatory: Some(mandatory(state, &before, &views, &installed)),
        deleting: true,
        ..StatusInputs::unchanged(&before, generation, initial, Timestamp::now())
    });
    let kyma = report::write(state, kyma, &status).await?;
    update_target(state, &kyma, access).await;
    Ok(())
}

/// Updates the status on the target while it has a Kyma. Errors are only logged.
async fn update_target(state: &State, kyma: &Kyma, access: &TargetAccess) {
    let (Some(session), Some(status)) = (&access.session, &kyma.status) else { return };
    let Some(crate::target::target_kyma::Remote::Present(remote)) = state.target_kyma(&KymaKey::of(kyma))
    else {
        return;
    };
    let shown = crate::target::target_kyma::update(state, kyma, session, &remote, status).await;
    if let Err(failure) = shown.map_err(Failure::from) {
        tracing::info!(kyma = %KymaKey::of(kyma), reason = %failure.reason, "status of the target's Kyma: {}", failure.message);
    }
}

/// Returns the mandatory modules on record, including those whose component the index lacks although it exists.
fn mandatory(
    state: &State,
    before: &KymaStatus,
    views: &BTreeMap<String, ComponentView>,
    installed: &BTreeSet<&str>,
) -> Vec<MandatoryModule> {
    let mut known = missing_components::mandatory_modules(before, views, state.args.ignore_policy);
    let recorded = before.mandatory_modules.iter().flatten();
    let unindexed: Vec<MandatoryModule> = recorded
        .filter(|module| installed.contains(module.name.as_str()))
        .filter(|module| !known.iter().any(|other| other.name == module.name))
        .cloned()
        .collect();
    known.extend(unindexed);
    known.sort_by(|one, other| one.name.cmp(&other.name));
    known
}

/// Returns the remaining modules, with the message of their components. A module is Deleting once its removal is
/// requested, or once its component is to be deleted without one: see [`missing_components`]. A module whose component
/// exists stays on record although the index lacks the component.
fn lines(
    state: &State,
    kyma: &Kyma,
    before: &KymaStatus,
    (views, installed): (&BTreeMap<String, ComponentView>, &BTreeSet<&str>),
    gone: bool,
    done: &StepResult,
) -> Vec<Line> {
    let missing: BTreeSet<String> =
        find_missing_components(state, kyma).into_iter().map(|missing| missing.module).collect();
    let mut lines = report::lines_before(before);
    let unwatched = unwatched(&state.kinds(), Some(before));
    let is_unseen =
        |line: &Line| ComponentKind::of_line(&line.status).is_some_and(|kind| unwatched.contains(&kind));
    lines.retain(|line| {
        let module = &line.status.name;
        let exists = views.contains_key(module) || installed.contains(module.as_str());
        exists || !gone && (missing.contains(module) || is_unseen(line))
    });
    for line in &mut lines {
        let module = &line.status.name;
        let view = views.get(module);
        let waiting =
            view.and_then(ComponentView::removal_message).map(|message| (Reason::Deleting, message));
        let blocked = done.plan.blocked.get(module).map(|problem| (problem.reason, problem.message.clone()));
        let failed =
            done.applied.failures.get(module).map(|failure| (failure.reason, failure.message.clone()));
        let (reason, message) = failed.or(blocked).or(waiting).unwrap_or((Reason::Deleting, String::new()));
        let removes = view.is_some_and(|view| view.deletion_policy == DeletionPolicy::Delete);
        let leaves = done
            .plan
            .deletions
            .iter()
            .any(|deletion| deletion.component.module == *module && !deletion.removes());
        if removes || leaves {
            line.status.state = ModuleState::Deleting;
        }
        line.reason = reason;
        line.status.message = Some(message).filter(|text| !text.is_empty());
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::tests::unconnected;

    #[tokio::test]
    async fn module_with_a_component_that_the_index_lacks_stays_on_record() {
        let (state, _trigger) = unconnected();
        state.kinds_mut().apply(kyma_api::crds::helm_component());
        state.kinds_mut().set_synced("component.kyma-project.io", "HelmComponent", true);
        let kind = json!({"apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent"});
        let line = |name: &str| json!({"name": name, "state": "Deleting", "manifest": kind});
        let mandatory_module = |name: &str| {
            json!({"name": name, "version": "1.0.0", "deleting": true,
                "apiVersion": kind["apiVersion"], "kind": kind["kind"]})
        };
        let kyma: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "blue", "namespace": "kcp-system"}, "spec": {"channel": "regular"},
            "status": {
                "modules": [line("deleted"), line("lantern")],
                "mandatoryModules": [mandatory_module("removed"), mandatory_module("warden")],
            },
        }))
        .unwrap();
        let (before, views) = (kyma.status.clone().unwrap(), BTreeMap::new());
        let installed = BTreeSet::from(["lantern", "warden"]);
        let done = StepResult::default();
        for gone in [false, true] {
            let lines = lines(&state, &kyma, &before, (&views, &installed), gone, &done);
            let left: Vec<&str> = lines.iter().map(|line| line.status.name.as_str()).collect();
            assert_eq!(left, ["lantern"], "{gone}");
        }
        let recorded = mandatory(&state, &before, &views, &installed);
        assert_eq!(recorded.iter().map(|known| known.name.as_str()).collect::<Vec<_>>(), ["warden"]);
    }

    #[test]
    fn deletion_waiting_for_unindexed_components_names_modules() {
        let unindexed = BTreeSet::from(["lantern".to_owned()]);
        let problem = unindexed_problem(&DeletionStep::AwaitUnwatched, &unindexed).unwrap();
        let text = &problem.message;
        assert!(text.contains("lantern") && text.contains(labels::KYMA_NAME), "{text}");
        assert!(!problem.about_target, "the target may answer");
        assert!(unindexed_problem(&DeletionStep::AwaitUnwatched, &BTreeSet::new()).is_none());
        assert!(unindexed_problem(&DeletionStep::CleanTarget, &unindexed).is_none());
    }

    #[test]
    fn each_step_of_a_deletion_reports_its_own_blocking_reason() {
        let moment = Timestamp::from_second(1_800_000_000).unwrap();
        let waiting = DeletionStep::AwaitTarget { gone_at: Some(moment) };
        let reason = |step: &DeletionStep, gone, failure: Option<&Failure>| {
            blocking_problem(step, gone, failure, None).map(|(reason, _)| reason)
        };
        assert_eq!(reason(&DeletionStep::DeleteComponents(vec![]), true, None), Some(Reason::ClusterGone));
        assert_eq!(reason(&waiting, false, None), Some(Reason::AwaitingAccess));
        let silent = Failure::new(Reason::TargetTimeout, "");
        let waiting = DeletionStep::AwaitTarget { gone_at: None };
        assert_eq!(reason(&waiting, false, Some(&silent)), Some(Reason::TargetTimeout));
        assert_eq!(reason(&DeletionStep::CleanTarget, false, None), None);
        let missing = ModuleProblem::warning(Reason::ModuleTemplateMissing, "");
        let blocked = blocking_problem(&DeletionStep::FinishRemovals, false, None, Some(&missing));
        assert_eq!(blocked.map(|(reason, _)| reason), Some(Reason::ModuleTemplateMissing));
    }
}

//! Writes of a Kyma's deletion on the hub: deletion requests, and the creation of missing components.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kyma_api::component::DeletionReason;
use kyma_api::{Kyma, Reason, TargetRef, names};
use kyma_connection::access_of;
use kyma_controller::{Failure, KymaKey, PausedOperations, Wait};

use crate::apply::{self, Authority, PlanResult};
use crate::decision::deletion::DeletionStep;
use crate::decision::missing_components::{self, MissingComponent};
use crate::decision::resolve::{self, Decision, ModuleProblem, ResolvedModule};
use crate::hub::catalogue::Subscription;
use crate::observe;
use crate::plan::{self, Plan};
use crate::report::events;
use crate::state::State;
use crate::target::local;

/// Result of a step's writes on the hub.
#[derive(Default)]
pub(super) struct StepResult {
    pub(super) plan: Plan,
    pub(super) applied: PlanResult,
}

/// Carries out requests that remove objects. Requests that leave everything in place are reported in the status
/// first.
pub(super) async fn carry_out(
    state: &State,
    kyma: &Kyma,
    step: &DeletionStep,
    missing_components: &[MissingComponent],
    paused_operations: &PausedOperations,
) -> StepResult {
    let plan = match step {
        DeletionStep::DeleteComponents(deletions) => Plan { deletions: deletions.clone(), ..Plan::default() },
        DeletionStep::FinishRemovals => plan_missing_components(state, kyma, missing_components),
        _ => return StepResult::default(),
    };
    let (key, uid) = (KymaKey::of(kyma), kyma.uid().unwrap_or_default());
    let applied = apply::apply(state, &plan, authority(kyma, &key, &uid, paused_operations)).await;
    StepResult { plan, applied }
}

pub(super) async fn complete_step(
    done: StepResult,
    state: &State,
    kyma: &Kyma,
    paused_operations: &PausedOperations,
) -> Result<Wait, Failure> {
    let (key, uid) = (KymaKey::of(kyma), kyma.uid().unwrap_or_default());
    apply::delete_and_orphan(state, &done.plan, authority(kyma, &key, &uid, paused_operations)).await?;
    if let Some(failure) = done.applied.worst() {
        return Err(failure.clone());
    }
    if !done.plan.deletions.is_empty() {
        events::send_deletion_step(state, kyma, Reason::DeleteManifests);
    }
    Ok(Wait::Event)
}

fn authority<'a>(
    kyma: &Kyma,
    key: &'a KymaKey,
    uid: &'a str,
    paused_operations: &'a PausedOperations,
) -> Authority<'a> {
    Authority { kyma: key, uid, generation: kyma.metadata.generation.unwrap_or(0), paused_operations }
}

/// Returns the components without which no reconciler would remove their modules. Components of a kind that is being
/// listed do not count as missing.
pub(super) fn find_missing_components(state: &State, kyma: &Kyma) -> Vec<MissingComponent> {
    let before = kyma.status.clone().unwrap_or_default();
    missing_components::find(
        &before,
        &observe::views(state, &KymaKey::of(kyma), Some(&before)),
        state.args.ignore_policy,
    )
}

fn plan_missing_components(state: &State, kyma: &Kyma, missing_components: &[MissingComponent]) -> Plan {
    let key = KymaKey::of(kyma);
    let decided: Vec<ResolvedModule> = {
        let catalogue = state.catalogue();
        missing_components
            .iter()
            .map(|missing| resolve::finish_removal(&catalogue, missing, DeletionReason::KymaDeleted))
            .collect()
    };
    let subscriptions: Vec<Subscription> =
        decided.iter().map(|resolved| resolved.subscription.clone()).collect();
    state.catalogue_mut().subscribe(&key, &subscriptions);
    let access = match local::is_local(state, kyma) {
        Ok(true) => None,
        Ok(false) => Some(access_of(state, kyma)),
        Err(refused) => Some(Err(refused)),
    };
    let reference = match access.transpose() {
        Ok(access) => access.map(|access| TargetRef { kubeconfig_secret_ref: Some(access) }),
        Err(failure) => return blocked(missing_components, failure.reason, &failure.message),
    };
    let shard = reference.as_ref().and_then(|reference| reference.kubeconfig_secret_ref.as_ref());
    let kinds = state.kinds();
    state.set_awaited_kinds(&key, plan::unready_kinds(&kinds, &decided));
    let mut plan = plan::plan(
        &plan::Scope {
            kyma: &key,
            uid: &kyma.uid().unwrap_or_default(),
            generation: kyma.metadata.generation.unwrap_or(0),
            shard: shard.map_or(0, |access| names::shard(&key.namespace, &access.name)),
            target: reference.as_ref(),
            identity: kyma.status.as_ref().and_then(|status| status.target.as_ref()),
            target_namespace: &state.runtime.settings.target_namespace,
            installed: &BTreeMap::new(),
            default_resources: &BTreeSet::new(),
            kinds: &kinds,
            policy: &state.policy,
            ignore: state.args.ignore_policy,
            deletes_paused: None,
        },
        &decided,
    );
    for ResolvedModule { module, decision, .. } in decided {
        if let Decision::Keep(problem) = decision {
            plan.blocked.insert(module, problem);
        }
    }
    plan
}

fn blocked(missing_components: &[MissingComponent], reason: Reason, message: &str) -> Plan {
    let problem =
        |missing: &MissingComponent| (missing.module.clone(), ModuleProblem::warning(reason, message));
    Plan { blocked: missing_components.iter().map(problem).collect(), ..Plan::default() }
}

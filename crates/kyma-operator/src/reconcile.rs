//! One pass over one Kyma: runs the stages in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kyma_api::hand_over::{self, Actor};
use kyma_api::{ErrorClass, Kyma, KymaStatus, Reason, State as ModuleState};
use kyma_controller::{Failure, KymaKey, PausedOperations, ReconcileContext, Wait, evaluate_on_thread};

use crate::apply;
use crate::decision::missing_components;
use crate::decision::resolve::{self, Inputs, ResolvedModule};
use crate::error::Error;
use crate::hub::catalogue::Subscription;
use crate::hub::claim;
use crate::hub::config::{EffectiveEntry, govern_all, keep_under_missing};
use crate::hub::mirror;
use crate::observe::{self, Observation};
use crate::plan::{self, Plan};
use crate::prepare;
use crate::removal;
use crate::report::{self, KymaProblem, StatusInputs, windows};
use crate::state::State;
use crate::target::prerequisites::Prerequisites;
use crate::target::target_kyma;

mod status;

use status::status_of;

/// Message for a Kyma with the label `skip-reconciliation`.
const SKIPPED_MESSAGE: &str = "the label operator.kyma-project.io/skip-reconciliation is true";
/// Deadline for the target's first list. After it the session is verified again.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Evaluation deadline for the rules of ModuleConfigs over one Kyma.
const RULES_DEADLINE: Duration = Duration::from_secs(10);
/// Delay before a target of another hub is read again: no watch reports that it was released.
const TARGET_IN_USE_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Reconciles one Kyma.
pub(crate) async fn reconcile(
    state: Arc<State>,
    object: Arc<Kyma>,
    context: ReconcileContext,
) -> Result<Wait, Failure> {
    // Boxed: the future of all stages is large.
    Box::pin(reconcile_latest(&state, object, &context)).await
}

/// Reconciles the latest state of a Kyma, which may be an own write that the watch has not delivered yet.
async fn reconcile_latest(
    state: &State,
    object: Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Wait, Failure> {
    // Before events of its target, which add no state.
    state.kymas().get_or_add(&KymaKey::of(&object));
    state.own_writes().record_delivered(&object);
    let kyma = state.own_writes().latest(object);
    let actor = hand_over::actor(&kyma.metadata);
    if actor.excludes_operators() {
        return stop_managing(state, &kyma, actor).await;
    }
    let is_deleting = kyma.metadata.deletion_timestamp.is_some();
    if !is_deleting && actor == Actor::None && context.paused_operations().writes().is_none() {
        state.record_decision(&KymaKey::of(&kyma));
        return report::write_skipped(state, &kyma, Reason::SkipReconciliation, SKIPPED_MESSAGE).await;
    }
    let done = if is_deleting {
        // No ModuleConfig is evaluated for a removal.
        state.record_decision(&KymaKey::of(&kyma));
        removal::reconcile(state, &kyma, context).await
    } else {
        reconcile_existing(state, &kyma, context).await
    };
    // Also after a failure: a mirror shows errors too.
    let mirrored = match context.paused_operations().writes() {
        None => mirror::sync(state, &KymaKey::of(&kyma)).await,
        Some(_) => Ok(()),
    };
    done.and_then(|wait| mirrored.map(|()| wait))
}

async fn reconcile_existing(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Wait, Failure> {
    if let Some(why) = context.paused_operations().writes() {
        state.record_decision(&KymaKey::of(kyma));
        return report::write_skipped(state, kyma, Reason::Paused, why).await;
    }
    let kyma = claim::ensure_claim(state, kyma).await?;
    let mut observed = match prepare_and_observe(state, &kyma, context).await {
        Ok(Some(observed)) => observed,
        Ok(None) => return await_first_list(state, &kyma).await,
        Err(failure) => return report_failure(state, &kyma, failure).await,
    };
    let decided = loop {
        let entries = govern(state, &observed).await?;
        // ModuleConfigs changed during the evaluation: evaluate again.
        if let Some(decided) = decide(state, &observed, context.paused_operations(), &entries) {
            break decided;
        }
    };
    let plan = plan_for(state, &observed, &decided, context.paused_operations());
    if plan.changes_target()
        && let Err(failure) = advance_fencing_generation(state, &mut observed).await
    {
        return report_failure(state, &observed.kyma, failure).await;
    }
    let prerequisites = Prerequisites::apply(state, &observed, &decided, context.paused_operations()).await;
    // A target that does not answer may refuse rules, so the condition of ModuleConfigs waits for it.
    if prerequisites.has_answer_about_rules() {
        state.record_decision(&observed.key);
    }
    let applied = apply::apply(state, &plan, observed.authority(context.paused_operations())).await;
    if let Some(remote) = observed.remote.as_ref().filter(|_| applied.has_written) {
        remote.session.fencing_generation_is_used();
    }
    context.repaired(plan.components.len());
    let (status, wait) = status_of(state, &observed, &decided, (&plan, &applied), &prerequisites);
    let kyma = match report::write(state, &observed.kyma, &status).await {
        Ok(kyma) => kyma,
        Err(error) => {
            let failure = Failure::from(error);
            if failure.reason == Reason::HubRefused {
                update_target_kyma(state, &observed).await;
            }
            return Err(failure);
        }
    };
    if let Some(remote) = &observed.remote {
        let status = kyma.status.clone().unwrap_or_default();
        if let Err(failure) = target_kyma::update(state, &kyma, &remote.session, &remote.kyma, &status).await
        {
            return report_failure(state, &kyma, failure.into()).await;
        }
    }
    apply::delete_and_orphan(state, &plan, observed.authority(context.paused_operations())).await?;
    let failed = applied.worst().or(prerequisites.retryable_failure());
    failed.map_or(Ok(wait), |failure| Err(failure.clone()))
}

/// Prepares the target and reads the inputs of the decisions. Returns `None` while the target's first list is pending.
async fn prepare_and_observe(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Option<Observation>, Failure> {
    match prepare::prepare(state, kyma, context).await? {
        Some(preparation) => observe::observe(state, preparation).await.map(Some),
        None => Ok(None),
    }
}

/// Updates the Kyma on the target although this pass failed there.
async fn update_target_kyma(state: &State, observed: &Observation) {
    let Some(remote) = &observed.remote else { return };
    let kyma = state.own_writes().latest(Arc::clone(&observed.kyma));
    let status = kyma.status.clone().unwrap_or_default();
    if let Err(error) = target_kyma::update(state, &kyma, &remote.session, &remote.kyma, &status).await {
        tracing::warn!(kyma = %observed.key, %error, "the target's Kyma cannot show the failure");
    }
}

/// Advances the fencing generation: only the hub that the target's stamp names as current may request changes.
async fn advance_fencing_generation(state: &State, observed: &mut Observation) -> Result<(), Failure> {
    let Some(remote) = &mut observed.remote else { return Ok(()) };
    let (kyma, session) = (&observed.kyma, &remote.session);
    let advanced = kyma_connection::advance_fencing_generation(state, &state.sessions, kyma, session);
    (observed.kyma, remote.session) = advanced.await?;
    Ok(())
}

/// Stops work on the Kyma. No status is written, not even the reason: KLM counts every condition.
async fn stop_managing(state: &State, kyma: &Arc<Kyma>, actor: Actor) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    state.record_decision(&key);
    state.end_session(&key);
    // The operator no longer reports metrics of this Kyma.
    state.metrics.forget(&key);
    if actor == Actor::HandOver {
        kyma_controller::record_stop(&state.runtime, kyma).await?;
    } else if state.record_klm_kyma(&key) {
        let note = Reason::NotHandedOver.summary();
        state.runtime.events.normal(kyma.as_ref(), Reason::NotHandedOver, "Reconcile", note);
    }
    Ok(Wait::Event)
}

/// Waits for the target's first list, which requeues the Kyma. Without one before the deadline, the session is
/// verified again.
async fn await_first_list(state: &State, kyma: &Arc<Kyma>) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    let opened = state.sessions.get(&key).map(|session| session.opened);
    let Some(left) = opened.and_then(|opened| FIRST_LIST_TIMEOUT.checked_sub(opened.elapsed())) else {
        return report_failure(state, kyma, Error::AwaitList.into()).await;
    };
    Ok(Wait::Answer(left + Duration::from_millis(100)))
}

/// The entries in force of one Kyma.
#[derive(Default)]
struct Entries {
    /// Revision of the ModuleConfigs that were applied.
    revision: u64,
    /// Entries of the user.
    selected: Vec<EffectiveEntry>,
    /// Last entries of modules whose removal is blocked, by module.
    leaving: BTreeMap<String, EffectiveEntry>,
}

/// Returns all entries in force. Rules are evaluated on another thread without a lock.
async fn govern(state: &State, observed: &Observation) -> Result<Entries, Failure> {
    let Some(selection) = observed.selection.clone() else { return Ok(Entries::default()) };
    let labels = observed.kyma.metadata.labels.clone().unwrap_or_default();
    let installed = observed.installed();
    let configs = state.configs().clone();
    let has_rules = configs.have_rules();
    let evaluate = move || Entries {
        revision: configs.revision(),
        selected: govern_all(&configs, &labels, &selection),
        leaving: resolve::govern_leaving(&configs, &labels, &installed),
    };
    let mut entries = if has_rules {
        evaluate_on_thread(&observed.key.to_string(), RULES_DEADLINE, evaluate).await?
    } else {
        evaluate()
    };
    keep_under_missing(&mut entries.selected, &observed.missing_configs);
    Ok(entries)
}

/// Decides about all modules, and stores the catalogue objects that the decisions depend on. Without a valid
/// selection nothing is decided and everything stays. Returns `None` if ModuleConfigs changed since `entries` were
/// computed.
fn decide(
    state: &State,
    observed: &Observation,
    paused_operations: &PausedOperations,
    entries: &Entries,
) -> Option<Vec<ResolvedModule>> {
    let Some(selection) = &observed.selection else { return Some(vec![]) };
    let installed = observed.installed();
    let none = BTreeMap::new();
    let before = observed.kyma.status.clone().unwrap_or_default();
    let labels = observed.kyma.metadata.labels.as_ref().unwrap_or(&none);
    // Locked until the subscriptions are stored: a change in between would requeue no Kyma.
    let configs = state.configs();
    if configs.revision() != entries.revision {
        return None;
    }
    // Registered first, so that a policy change from here on requeues this Kyma.
    state.awaits_window(&observed.key, true);
    let recorded = recorded(&before, observed);
    let components = state.components();
    let mut catalogue = state.catalogue_mut();
    let decided = resolve::resolve(&Inputs {
        labels,
        channel: &selection.channel,
        entries: &entries.selected,
        leaving: &entries.leaving,
        configs: &configs,
        missing_configs: &observed.missing_configs,
        installed: &installed,
        catalogue: &catalogue,
        contents: components.contents(),
        recorded: &recorded,
        policy: &state.policy,
        upgrades_paused: paused_operations.upgrades(),
        missing_components: &missing_components::find(&before, &observed.views, state.args.ignore_policy),
        maintenance: &state.maintenance(),
        skips_windows: observed.skips_windows.is_some(),
        offered: &offered(&before),
        now: Timestamp::now(),
    });
    state.awaits_window(&observed.key, decided.iter().any(windows::is_awaited));
    let subscriptions: Vec<Subscription> =
        decided.iter().map(|resolved| resolved.subscription.clone()).collect();
    catalogue.subscribe(&observed.key, &subscriptions);
    state.count_for_configs(&observed.key, &entries.selected);
    Some(decided)
}

/// Returns the recorded versions of modules without a component, from the status.
fn recorded(before: &KymaStatus, observed: &Observation) -> BTreeMap<String, String> {
    let without_component =
        before.modules.iter().flatten().filter(|line| !observed.views.contains_key(&line.name));
    let installed =
        without_component.filter(|line| line.manifest.is_some() && line.state != ModuleState::Deleting);
    installed.filter_map(|line| Some((line.name.clone(), line.version.clone()?))).collect()
}

/// Returns since when upgrades have been waiting for approval, from the status.
fn offered(before: &KymaStatus) -> BTreeMap<String, Timestamp> {
    let modules = before.modules.iter().flatten();
    let pending =
        modules.filter_map(|module| Some((module.name.clone(), module.pending_upgrade.as_ref()?.since.0)));
    pending.collect()
}

fn plan_for(
    state: &State,
    observed: &Observation,
    decided: &[ResolvedModule],
    paused_operations: &PausedOperations,
) -> Plan {
    let lines = observed.kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    let created = lines.filter(|line| line.default_resource_created);
    let default_resources = created.map(|line| line.name.clone()).collect();
    let kinds = state.kinds();
    state.set_awaited_kinds(&observed.key, plan::unready_kinds(&kinds, decided));
    let scope = plan::Scope {
        kyma: &observed.key,
        uid: &observed.uid,
        generation: observed.kyma.metadata.generation.unwrap_or(0),
        shard: observed.shard(),
        target: observed.remote.as_ref().map(|remote| &remote.reference),
        identity: match &observed.remote {
            Some(remote) => Some(&remote.session.identity),
            None => observed.kyma.status.as_ref().and_then(|status| status.target.as_ref()),
        },
        target_namespace: &state.runtime.settings.target_namespace,
        installed: &observed.views,
        default_resources: &default_resources,
        kinds: &kinds,
        policy: &state.policy,
        ignore: state.args.ignore_policy,
        deletes_paused: paused_operations.deletes(),
    };
    plan::plan(&scope, decided)
}

/// Reports the failure in the status and ends the session, so that the next pass verifies the target again. A failure
/// of the hub is returned unchanged.
async fn report_failure(state: &State, kyma: &Arc<Kyma>, failure: Failure) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    if failure.is_about_hub() {
        return Err(failure);
    }
    state.end_session(&key);
    state.set_blocked(&key, failure.reason == Reason::TargetInUse);
    let kyma = state.own_writes().latest(Arc::clone(kyma));
    let before = kyma.status.clone().unwrap_or_default();
    let waits = failure.reason == Reason::AwaitingAccess || failure.class == ErrorClass::Transient;
    let problem = KymaProblem {
        reason: failure.reason,
        message: failure.message.clone(),
        state: if waits { ModuleState::Processing } else { ModuleState::Error },
        about_target: true,
    };
    let (generation, initial) = (kyma.metadata.generation, report::initial(state, &kyma));
    let status = report::status(&StatusInputs {
        problem: Some(problem),
        is_remote: true,
        ..StatusInputs::unchanged(&before, generation, initial, Timestamp::now())
    });
    report::write(state, &kyma, &status).await?;
    Err(retry_if_in_use(failure))
}

/// Makes the failure retry by time: no event reports that another hub released the target.
fn retry_if_in_use(failure: Failure) -> Failure {
    match failure.reason {
        Reason::TargetInUse => failure.retry_after(TARGET_IN_USE_RETRY_DELAY),
        _ => failure,
    }
}

//! Deletes a Kyma: carries out the step that [`crate::decision::deletion`] decides.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, CustomResourceExt, ResourceExt};
use kyma_api::condition;
use kyma_api::{Kyma, Reason, annotations, labels, names};
use kyma_connection::{Connection, access_of};
use kyma_controller::{DeleteGate, DeletionRequest, Failure, KymaKey, ReconcileContext, Wait};

use crate::decision::deletion::{self, ComponentDeletion, DeletionInputs, DeletionStep, TargetReachability};
use crate::decision::missing_components::MissingComponent;
use crate::error::Error;
use crate::hub::claim;
use crate::hub::component::ComponentView;
use crate::hub::scope;
use crate::report;
use crate::report::events;
use crate::state::State;
use crate::target::admission;
use crate::target::local;
use crate::target::session;

mod hub_writes;
mod live_reads;
mod status;
mod target;

use hub_writes::{carry_out, complete_step, find_missing_components};
use status::report;

/// Interval for checking components that no watch reports.
const UNWATCHED_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Message about a cluster that is gone.
const CLUSTER_GONE_MESSAGE: &str =
    "the cluster no longer exists: its components are deleted, and nothing is removed from the cluster";

/// State of the target, with its session or the failure to open one.
struct TargetAccess {
    reachability: TargetReachability,
    session: Option<Arc<Connection>>,
    failure: Option<Failure>,
}

impl TargetAccess {
    /// Returns the access to a target without a session.
    fn without_session(reachability: TargetReachability, failure: Option<Failure>) -> Self {
        Self { reachability, session: None, failure }
    }
}

/// Runs one pass over a Kyma that is being deleted.
pub(crate) async fn reconcile(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Wait, Failure> {
    if !claim::has_finalizer(kyma) {
        state.forget(&KymaKey::of(kyma));
        return Ok(Wait::Event);
    }
    if let Some(why) = context.paused_operations().deletes() {
        return report::write_skipped(state, kyma, Reason::Paused, why).await;
    }
    if let Err(refused) = local::is_local(state, kyma) {
        return report::write_skipped(state, kyma, refused.reason, &refused.message).await;
    }
    let request = DeletionRequest::of(&kyma.metadata, Timestamp::now());
    let key = KymaKey::of(kyma);
    let is_terminating = scope::is_terminating(state, &key.namespace, Kyma::crd_name()).await?;
    if let (DeletionRequest::Unconfirmed { until: end }, false) = (request, is_terminating) {
        let why = DeletionRequest::message(end);
        report::write_skipped(state, kyma, Reason::DeletionUnconfirmed, &why).await?;
        return Ok(Wait::Timer(until(end)));
    }
    run_next_step(state, kyma, context, is_terminating || request == DeletionRequest::Orphan).await
}

/// Runs the next step of a deletion that is not halted.
async fn run_next_step(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
    nothing_requested: bool,
) -> Result<Wait, Failure> {
    let key = KymaKey::of(kyma);
    let components = state.components().of(&key);
    let missing_components = find_missing_components(state, kyma);
    let unindexed = if nothing_requested {
        BTreeSet::new()
    } else {
        live_reads::find_unindexed(state, kyma, &components, &missing_components).await?
    };
    let mut access = access_target(state, kyma, &components, &missing_components, context).await?;
    let mut inputs = DeletionInputs {
        nothing_requested,
        components: &components,
        unindexed: &unindexed,
        has_missing_components: !missing_components.is_empty(),
        target: access.reachability,
        declared_gone: kyma.annotations().get(annotations::CLUSTER_GONE).is_some_and(|value| value == "true"),
        now: Timestamp::now(),
        gone_after: state.args.cluster_gone_after,
        ignore: state.args.ignore_policy,
    };
    let mut step = deletion::next_step(&inputs);
    let kyma = &match advance_fencing_generation(state, kyma, &step, &mut access).await {
        Ok(taken) => taken,
        Err(failure) => {
            access = TargetAccess::without_session(TargetReachability::Unreachable, Some(failure));
            inputs.target = access.reachability;
            step = deletion::next_step(&inputs);
            Arc::clone(kyma)
        }
    };
    let gone = deletion::is_gone(&inputs);
    let is_last_step = matches!(step, DeletionStep::CleanTarget | DeletionStep::Release)
        && !inputs.nothing_requested
        && !gone;
    if is_last_step && live_reads::has_unwatched_components(state, kyma).await? {
        step = DeletionStep::AwaitUnwatched;
    }
    let done = carry_out(state, kyma, &step, &missing_components, context.paused_operations()).await;
    if let Some(session) = access.session.as_ref().filter(|_| done.applied.has_written) {
        session.fencing_generation_is_used();
    }
    report(state, kyma, &access, &step, &inputs, &done).await?;
    if gone && matches!(step, DeletionStep::DeleteComponents(_) | DeletionStep::Release) {
        state.runtime.events.normal(kyma.as_ref(), Reason::ClusterGone, "Delete", CLUSTER_GONE_MESSAGE);
    }
    match step {
        DeletionStep::DeleteComponents(_) | DeletionStep::FinishRemovals => {
            let wait = complete_step(done, state, kyma, context.paused_operations()).await?;
            // Components that wait for an event are deleted too once the cluster counts as gone.
            Ok(inputs.gone_at().filter(|_| !gone).map_or(wait, |moment| Wait::Timer(until(moment))))
        }
        DeletionStep::AwaitComponents { .. } => Ok(Wait::Event),
        DeletionStep::AwaitUnwatched => Ok(Wait::Timer(UNWATCHED_POLL_INTERVAL)),
        DeletionStep::AwaitTarget { gone_at: Some(moment) } => Ok(Wait::Timer(until(moment))),
        DeletionStep::AwaitTarget { gone_at: None } => access.failure.map_or(Ok(Wait::Event), Err),
        DeletionStep::CleanTarget => clean(state, kyma, access.session, context).await,
        DeletionStep::Release => claim::release_kyma(state, kyma).await.map(|()| Wait::Event),
    }
}

/// Advances the fencing generation before a removal is requested. Without a session there is no target to record it
/// on.
async fn advance_fencing_generation(
    state: &State,
    kyma: &Arc<Kyma>,
    step: &DeletionStep,
    access: &mut TargetAccess,
) -> Result<Arc<Kyma>, Failure> {
    let removes = match step {
        DeletionStep::DeleteComponents(deletions) => deletions.iter().any(ComponentDeletion::removes),
        DeletionStep::FinishRemovals => true,
        _ => false,
    };
    let Some(session) = access.session.as_mut().filter(|_| removes) else { return Ok(Arc::clone(kyma)) };
    let (kyma, taken) =
        kyma_connection::advance_fencing_generation(state, &state.sessions, kyma, session).await?;
    *session = taken;
    Ok(kyma)
}

/// Removes the operator's objects from the target. Without a session the target is the hub itself, where only
/// policies are removed.
async fn clean(
    state: &State,
    kyma: &Kyma,
    session: Option<Arc<Connection>>,
    context: &ReconcileContext,
) -> Result<Wait, Failure> {
    let gate =
        DeleteGate::new(context.paused_operations(), &state.runtime.brake, KymaKey::of(kyma).to_string());
    let Some(session) = session else {
        admission::clean(state, kyma, &state.runtime.access.local(), &gate).await?;
        return claim::release_kyma(state, kyma).await.map(|()| Wait::Event);
    };
    gate.permit().await?;
    let cleaned = target::clean(state, kyma, &session.target, &gate).await;
    match cleaned {
        Ok(true) => {
            session::forget_identity(state, &session.target);
            events::send_deletion_step(state, kyma, Reason::DeleteSkrKyma);
            claim::release_kyma(state, kyma).await.map(|()| Wait::Event)
        }
        Ok(false) => {
            let is_watched = state.watches.is_healthy(&session.target, [session::watch_spec(state)]);
            Ok(if is_watched { Wait::Event } else { Wait::Timer(UNWATCHED_POLL_INTERVAL) })
        }
        Err(failure) => {
            state.end_session(&KymaKey::of(kyma));
            Err(failure.into())
        }
    }
}

fn until(moment: Timestamp) -> Duration {
    let left = moment.duration_since(Timestamp::now());
    Duration::try_from(left).unwrap_or_default() + Duration::from_millis(100)
}

async fn access_target(
    state: &State,
    kyma: &Arc<Kyma>,
    components: &[ComponentView],
    missing_components: &[MissingComponent],
    context: &ReconcileContext,
) -> Result<TargetAccess, Failure> {
    if local::is_local(state, kyma)? {
        return Ok(TargetAccess::without_session(TargetReachability::Local, None));
    }
    let was_contacted = kyma.status.as_ref().is_some_and(|status| status.target.is_some());
    if !was_contacted && components.is_empty() && missing_components.is_empty() {
        return Ok(TargetAccess::without_session(TargetReachability::NeverContacted, None));
    }
    if is_access_gone(state, kyma, components).await? {
        return Ok(TargetAccess::without_session(
            TargetReachability::NoSecret { since: missing_since(kyma) },
            None,
        ));
    }
    let opened = match access_of(state, kyma) {
        Ok(access) => session::of(state, kyma, access, context).await,
        Err(failure) => Err(failure),
    };
    Ok(match opened {
        Ok(session) => TargetAccess {
            reachability: TargetReachability::Reachable,
            session: Some(session),
            failure: None,
        },
        Err(failure) => TargetAccess::without_session(TargetReachability::Unreachable, Some(failure)),
    })
}

/// Reports whether live reads show no Secret for the target: none that the Kyma or a component names, and none
/// labelled for it. A failed read proves nothing.
async fn is_access_gone(state: &State, kyma: &Kyma, components: &[ComponentView]) -> Result<bool, Failure> {
    let key = KymaKey::of(kyma);
    let by_ref = kyma.spec.kubeconfig_secret_ref.as_ref().map(|named| named.name.clone());
    let mut names: Vec<String> =
        components.iter().filter_map(|view| view.secret.clone()).chain(by_ref).collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        if !state.runtime.access.is_gone(name).await? {
            return Ok(false);
        }
    }
    let secrets: Api<Secret> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let labelled = ListParams::default().labels(&names::label_selector(labels::KYMA_NAME, &key.name));
    let listed = secrets.list_metadata(&labelled).await;
    let listed = listed.map_err(|source| Error::ListAccess { kyma: key, source })?;
    Ok(listed.items.is_empty())
}

/// Returns since when the access has been missing; the current time if it is newly missing.
fn missing_since(kyma: &Kyma) -> Timestamp {
    let conditions = kyma.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let stored = condition::get(&conditions, report::ACCESS_MISSING).filter(|stored| stored.status == "True");
    stored.map_or_else(Timestamp::now, |stored| stored.last_transition_time.0)
}

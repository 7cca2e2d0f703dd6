//! A session with one target: its identity is verified, the CRD is installed, and its Kyma is watched.
//!
//! Opened once for each access Secret and kept until the Secret changes or a call fails, so that passes in between
//! make no calls to the target.

use std::sync::Arc;
use std::time::Instant;

use kyma_api::{Kyma, SecretKeyRef, TargetIdentity};
use kyma_connection::{NamespaceLabels, ensure_namespace};
use kyma_sdk::{
    Content, Failure, KymaAccess, KymaKey, ReconcileContext, TargetVerification, WatchSpec, fence_of,
    is_on_record,
};
use kyma_targets::{STAMP_NAMESPACE, Target};

use crate::admission::watch as admission;
use crate::error::Error;
use crate::pull_secret::watch as pull_secret;
use crate::state::State;
use crate::target_kyma;

mod bootstrap;
mod fencing_generation;
pub(crate) mod open_session;

pub(crate) use fencing_generation::advance as advance_fencing_generation;
pub(crate) use open_session::Session;

/// Returns the session of a Kyma with its target. Opens one if there is none, if it has expired, or if the connection
/// changed.
pub(crate) async fn of(
    state: &State,
    kyma: &Arc<Kyma>,
    access: SecretKeyRef,
    context: &ReconcileContext,
) -> Result<Arc<Session>, Failure> {
    let key = KymaKey::of(kyma);
    let proven = |session: &Arc<Session>| session.access == access && is_on_record(kyma, &session.identity);
    let existing = state.sessions.get(&key).filter(proven);
    if let Some(session) = existing.filter(|session| session.is_fresh(state.runtime.settings.resync)) {
        return Ok(session);
    }
    // Discard what another access or an expired session reported; it is read again.
    state.end_session(&key);
    let pending = state.sessions.begin(&key);
    let session = open(state, kyma, access, context).await?;
    pending.complete(session).inspect_err(|_| state.end_session(&key))
}

/// Returns the access Secret of a Kyma: the one that it names, or else the one labelled for it.
pub(crate) fn access_of(state: &State, kyma: &Kyma) -> Result<SecretKeyRef, Failure> {
    let key = KymaKey::of(kyma);
    let access = KymaAccess::known(&state.runtime.access, kyma);
    state.depends_on_secrets(&key, access.secrets);
    access.chosen
}

async fn open(
    state: &State,
    kyma: &Arc<Kyma>,
    access: SecretKeyRef,
    context: &ReconcileContext,
) -> Result<Session, Failure> {
    let target = state.runtime.access.target(&access).await?;
    let connection = target.connection();
    // An unreachable target keeps its client with the state of the circuit breaker.
    target.identify().await?;
    let proven = prove(state, kyma, &target).await;
    let identity = proven.inspect_err(|_| forget_identity(state, &target))?;
    let target = target.fenced(fence_of(&state.runtime, kyma, &identity));
    // Nothing is applied to a target whose Kyma is being deleted: it would have to be removed again.
    if kyma.metadata.deletion_timestamp.is_none() {
        context.repaired(bootstrap::ensure_namespace_and_crd(state, kyma, &target).await?);
    }
    watch(state, &KymaKey::of(kyma), &target, false)?;
    Ok(Session {
        access,
        target,
        identity,
        unused_fencing_generation: Arc::default(),
        opened: Instant::now(),
        connection,
    })
}

/// Discards the target's identity after a refusal or a deleted stamp, so that it is read again. It is otherwise read
/// once for each connection.
pub(crate) fn forget_identity(state: &State, target: &Target) {
    if let Some(place) = target.key() {
        state.runtime.targets.forget(place);
    }
}

/// Verifies that the target is the recorded cluster and not owned by another Kyma. Writes its stamp if necessary.
/// Returns its identity.
async fn prove(state: &State, kyma: &Arc<Kyma>, target: &Target) -> Result<TargetIdentity, Failure> {
    let TargetVerification { identity, kyma: live, stamp, found } =
        kyma_sdk::verify_target(&state.runtime, kyma, target).await?;
    if let Some(live) = live {
        state.record_write(live);
    }
    if let Some(stamp) = stamp.filter(|_| kyma.metadata.deletion_timestamp.is_none()) {
        let operator = state.runtime.operator;
        ensure_namespace(target.client(), operator, NamespaceLabels::Ensured, STAMP_NAMESPACE).await?;
        target.put_stamp(&stamp, &found).await?;
    }
    Ok(identity)
}

/// Returns the watch of the target's Kyma.
pub(crate) fn watch_spec(state: &State) -> WatchSpec {
    WatchSpec {
        namespace: Some(state.runtime.settings.target_namespace.clone()),
        fields: Some(format!("metadata.name={}", target_kyma::NAME)),
        content: Content::Whole,
        ..WatchSpec::in_kind(&kube::api::ApiResource::erase::<Kyma>(&()))
    }
}

/// Starts the watches of a target; those of policies only if it has policies. On the hub itself only policies are
/// watched.
pub(crate) fn watch(state: &State, kyma: &KymaKey, target: &Target, has_policies: bool) -> Result<(), Error> {
    let remote = std::iter::once(watch_spec(state)).chain(pull_secret::watch_spec(state));
    let policies = admission::watch_specs(kyma).filter(|_| has_policies);
    let watch_specs: Vec<WatchSpec> = remote.filter(|_| !target.is_local()).chain(policies).collect();
    Ok(state.watches.subscribe(target, kyma, watch_specs)?)
}

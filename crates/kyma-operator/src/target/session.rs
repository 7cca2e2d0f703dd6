//! A session with one target: its identity is verified, the CRD is installed, and its Kyma is watched.
//!
//! Opened once for each access Secret and kept until the Secret changes or a call fails, so that passes in between
//! make no calls to the target.

use std::future::ready;
use std::sync::Arc;

use kyma_api::{Kyma, SecretKeyRef};
use kyma_connection::{Connection, Connector, NamespaceLabels};
use kyma_controller::{Content, Failure, KymaKey, ReconcileContext, Runtime, WatchSpec};
use kyma_targets::Target;

use crate::error::Error;
use crate::state::State;
use crate::target::admission::watch as admission;
use crate::target::pull_secret::watch as pull_secret;
use crate::target::target_kyma;

mod bootstrap;

impl Connector for State {
    const NAMESPACE_LABELS: NamespaceLabels = NamespaceLabels::Ensured;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn record_access_secrets(&self, kyma: &KymaKey, secrets: Vec<String>) {
        self.depends_on_secrets(kyma, secrets);
    }

    /// No stamp is written for a Kyma that is being deleted: it would have to be removed again.
    fn may_stamp(&self, kyma: &Kyma) -> impl Future<Output = Result<bool, Failure>> + Send {
        ready(Ok(kyma.metadata.deletion_timestamp.is_none()))
    }

    fn record_kyma(&self, kyma: &Arc<Kyma>) {
        self.own_writes().record_write(Arc::clone(kyma));
    }

    fn discard_refused(&self, target: &Target) {
        forget_identity(self, target);
    }
}

/// Returns the session of a Kyma with its target. Opens one if there is none, if it has expired, or if the connection
/// changed.
pub(crate) async fn of(
    state: &State,
    kyma: &Kyma,
    access: SecretKeyRef,
    context: &ReconcileContext,
) -> Result<Arc<Connection>, Failure> {
    let key = KymaKey::of(kyma);
    let resync = state.runtime.settings.resync;
    let existing = state.sessions.get(&key).filter(|session| session.is_verified_for(kyma, &access));
    if let Some(session) = existing.filter(|session| !session.has_expired(resync)) {
        return Ok(session);
    }
    // Discard what another access or an expired session reported; it is read again.
    state.end_session(&key);
    let pending = state.sessions.begin(&key);
    // Boxed: every pass holds this future.
    let session = Box::pin(open(state, kyma, access, context)).await?;
    pending.complete(session).inspect_err(|_| state.end_session(&key))
}

async fn open(
    state: &State,
    kyma: &Kyma,
    access: SecretKeyRef,
    context: &ReconcileContext,
) -> Result<Connection, Failure> {
    let connection = kyma_connection::open(state, kyma, access).await?;
    let target = &connection.target;
    // Nothing is applied to a target whose Kyma is being deleted: it would have to be removed again.
    if kyma.metadata.deletion_timestamp.is_none() {
        context.repaired(bootstrap::ensure_namespace_and_crd(state, kyma, target).await?);
    }
    watch(state, &KymaKey::of(kyma), target, false)?;
    Ok(connection)
}

/// Discards the target's identity after a refusal or a deleted stamp, so that it is read again. It is otherwise read
/// once for each connection.
pub(crate) fn forget_identity(state: &State, target: &Target) {
    if let Some(place) = target.key() {
        state.runtime.targets.forget(place);
    }
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
    // A list of the hub that lacks the Kyma removes its state, and events of a target add none.
    state.kymas().get_or_add(kyma);
    let remote = std::iter::once(watch_spec(state)).chain(pull_secret::watch_spec(state));
    let policies = admission::watch_specs(kyma).filter(|_| has_policies);
    let watch_specs: Vec<WatchSpec> = remote.filter(|_| !target.is_local()).chain(policies).collect();
    Ok(state.watches.subscribe(target, kyma, watch_specs)?)
}

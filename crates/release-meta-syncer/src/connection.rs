//! Opens sessions with targets: verifies identities and starts watches.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ApiResource;
use kyma_api::{Kyma, Reason, SecretKeyRef, TargetIdentity, labels, names};
use kyma_connection::{NamespaceLabels, ensure_namespace};
use kyma_sdk::{
    Content, Failure, KymaAccess, KymaKey, TargetVerification, WatchSpec, fence_of, verify_recorded_target,
};
use kyma_targets::Target;

use crate::copy::Kind;
use crate::hub;
use crate::session::Session;
use crate::state::State;

/// Share of the resync after which a target is read again, even if its watches reported nothing.
const EXPIRY_SHARE_OF_RESYNC: f64 = 0.8;

/// Returns the session of a Kyma with its target. Opens one if there is none or if the connection changed.
pub(crate) async fn open_session(state: &State, kyma: &Kyma) -> Result<Arc<Session>, Failure> {
    let key = KymaKey::of(kyma);
    let access = access_of(state, kyma)?;
    let existing = state.sessions.get(&key);
    if let Some(session) = existing.filter(|session| session.is_proven(kyma, &access)) {
        return Ok(session);
    }
    state.end_session(&key);
    let pending = state.sessions.begin(&key);
    let target = state.runtime.access.target(&access).await?;
    let connection = target.connection();
    let identity = prove(state, kyma, &target).await?;
    let target = target.fenced(fence_of(&state.runtime, kyma, &identity));
    let session = Session::new(access, target, connection, identity);
    pending.complete(session).inspect_err(|_| state.end_session(&key))
}

/// Returns the target of a Kyma that is being deleted, without writing to it.
pub(crate) async fn target_for_cleanup(state: &State, kyma: &Kyma) -> Result<Target, Failure> {
    let access = access_of(state, kyma)?;
    let target = state.runtime.access.target(&access).await?;
    let known = verify_recorded_target(&state.runtime, kyma, &target).await?;
    Ok(target.fenced(fence_of(&state.runtime, kyma, &known)))
}

/// Returns the access Secret of a Kyma: the one that it names, or else the one labelled for it.
fn access_of(state: &State, kyma: &Kyma) -> Result<SecretKeyRef, Failure> {
    let key = KymaKey::of(kyma);
    let access = KymaAccess::known(&state.runtime.access, kyma);
    state.depends_on_secrets(&key, access.secrets);
    access.chosen
}

/// Verifies that the target is the recorded cluster and not owned by another Kyma.
async fn prove(state: &State, kyma: &Kyma, target: &Target) -> Result<TargetIdentity, Failure> {
    let TargetVerification { identity, stamp, found, .. } =
        kyma_sdk::verify_target(&state.runtime, kyma, target).await?;
    if let Some(stamp) = stamp {
        // If the Kyma is being deleted, kyma-operator has just removed the stamp.
        hub::ensure_kyma_exists(state, kyma).await?;
        let (operator, labels) = (state.runtime.operator, NamespaceLabels::SetOnCreation);
        ensure_namespace(target.client(), operator, labels, kyma_targets::STAMP_NAMESPACE).await?;
        target.put_stamp(&stamp, &found).await?;
    }
    Ok(identity)
}

/// Returns the watches of a target: metadata of the catalogue's kinds and of their CRDs.
fn watch_specs(state: &State) -> [WatchSpec; 3] {
    let namespace = state.runtime.settings.target_namespace.clone();
    let copies = Kind::BOTH.map(|kind| WatchSpec {
        namespace: Some(namespace.clone()),
        content: Content::Metadata,
        ..WatchSpec::in_kind(&kind.resource())
    });
    let [templates, releases] = copies;
    let crds = WatchSpec {
        labels: Some(names::label_selector(labels::MANAGED_BY, labels::MANAGED_BY_KYMA)),
        content: Content::Metadata,
        ..WatchSpec::in_kind(&ApiResource::erase::<CustomResourceDefinition>(&()))
    };
    [templates, releases, crds]
}

/// Starts missing watches.
pub(crate) fn watch(state: &State, key: &KymaKey, target: &Target) -> Result<(), Failure> {
    let desired = state.watches.subscribe(target, key, watch_specs(state));
    desired.map_err(|limit| Failure::new(Reason::Internal, limit.to_string()))
}

/// Reports whether the session's state of the target is still valid.
pub(crate) fn is_fresh(state: &State, session: &Session) -> bool {
    let longest = state.runtime.settings.resync.mul_f64(EXPIRY_SHARE_OF_RESYNC);
    session.age() < longest && state.watches.is_healthy(&session.target, watch_specs(state))
}

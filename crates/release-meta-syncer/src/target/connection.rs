//! Opens sessions with targets, and starts their watches.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ApiResource;
use kyma_api::{Kyma, Reason, labels, names};
use kyma_connection::{Connector, NamespaceLabels, access_of, session_lifetime};
use kyma_controller::{Content, Failure, KymaKey, Runtime, WatchSpec};
use kyma_targets::Target;

use crate::copy::Kind;
use crate::hub;
use crate::state::State;
use crate::target::session::Session;

impl Connector for State {
    const NAMESPACE_LABELS: NamespaceLabels = NamespaceLabels::SetOnCreation;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn record_access_secrets(&self, kyma: &KymaKey, secrets: Vec<String>) {
        self.depends_on_secrets(kyma, secrets);
    }

    async fn may_stamp(&self, kyma: &Kyma) -> Result<bool, Failure> {
        // If the Kyma is being deleted, kyma-operator has just removed the stamp.
        hub::ensure_kyma_exists(self, kyma).await.map(|()| true)
    }
}

/// Returns the session of a Kyma with its target. Opens one if there is none or if the connection changed.
pub(crate) async fn open_session(state: &State, kyma: &Kyma) -> Result<Arc<Session>, Failure> {
    let key = KymaKey::of(kyma);
    let access = access_of(state, kyma)?;
    let existing = state.sessions.get(&key);
    if let Some(session) = existing.filter(|session| session.connection.is_verified_for(kyma, &access)) {
        return Ok(session);
    }
    state.end_session(&key);
    let pending = state.sessions.begin(&key);
    // Boxed: every reconcile holds this future.
    let connection = Box::pin(kyma_connection::open(state, kyma, access)).await?;
    pending.complete(Session::new(connection)).inspect_err(|_| state.end_session(&key))
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
    session.age() < session_lifetime(state.runtime.settings.resync)
        && state.watches.is_healthy(&session.connection.target, watch_specs(state))
}

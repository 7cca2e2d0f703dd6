//! Prepares a Kyma for the decisions: opens the session with its target, which writes the stamp, the namespace and the
//! CRD there, and creates the target's Kyma.

use std::sync::Arc;

use kube::api::ListParams;
use kyma_api::{DeletionPolicy, Kyma, Selection as Choice, TargetRef};
use kyma_connection::{Connection, access_of};
use kyma_controller::{Failure, KymaKey, ReconcileContext};
use serde_json::{Value, json};

use crate::apply;
use crate::decision::selection;
use crate::error::Error;
use crate::hub::component::ComponentView;
use crate::state::State;
use crate::target::local;
use crate::target::session;
use crate::target::target_kyma::{self, Remote, TargetKyma};

/// A Kyma that is ready for the decisions.
pub(crate) struct Preparation {
    /// The Kyma with the operator's writes.
    pub(crate) kyma: Arc<Kyma>,
    /// Its target; `None` if that is the hub.
    pub(crate) remote: Option<RemoteSide>,
}

/// The target of a Kyma.
#[derive(Debug)]
pub(crate) struct RemoteSide {
    pub(crate) session: Arc<Connection>,
    pub(crate) kyma: TargetKyma,
    pub(crate) reference: TargetRef,
}

/// Prepares a Kyma and its target. Returns `None` while the target's first list is pending; its arrival requeues the
/// Kyma.
pub(crate) async fn prepare(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Option<Preparation>, Failure> {
    if local::is_local(state, kyma)? {
        let recorded = kyma_connection::record_local(&state.runtime, kyma).await?;
        let kyma = recorded.map_or_else(|| Arc::clone(kyma), |recorded| state.record_write(recorded));
        return Ok(Some(Preparation { kyma, remote: None }));
    }
    let remote = remote_side(state, kyma, context).await?;
    let kyma = state.own_writes().latest(Arc::clone(kyma));
    Ok(remote.map(|remote| Preparation { kyma, remote: Some(remote) }))
}

async fn remote_side(
    state: &State,
    kyma: &Arc<Kyma>,
    context: &ReconcileContext,
) -> Result<Option<RemoteSide>, Failure> {
    let access = access_of(state, kyma)?;
    let session = session::of(state, kyma, access, context).await?;
    state.set_blocked(&KymaKey::of(kyma), false);
    let known = state.target_kyma(&KymaKey::of(kyma));
    let remote = match known {
        None => return Ok(None),
        Some(Remote::Present(remote)) => *remote,
        Some(Remote::Absent) => {
            let recorded_selection = kyma.status.as_ref().and_then(|status| status.selection.clone());
            let choice = match recorded_selection {
                Some(recorded_selection) => recorded_selection,
                None => recover_choice(state, kyma).await?,
            };
            target_kyma::create_target_kyma(state, kyma, &session, &choice).await?
        }
    };
    let reference = TargetRef { kubeconfig_secret_ref: Some(session.access.clone()) };
    Ok(Some(RemoteSide { session, kyma: remote, reference }))
}

/// Returns the choice of a Kyma when hub and target have none on record: the hub's initial set, or the installed
/// modules if there are any.
async fn recover_choice(state: &State, kyma: &Kyma) -> Result<Choice, Failure> {
    let initial = selection::choice(&json!(kyma.spec), None);
    let components = state.components().of(&KymaKey::of(kyma));
    let is_chosen = |view: &ComponentView| !view.mandatory && view.deletion_policy == DeletionPolicy::Orphan;
    let mut specs: Vec<Value> = Vec::new();
    for view in components.into_iter().filter(is_chosen) {
        // The role need not permit `get` on components.
        let only = ListParams::default().fields(&format!("metadata.name={}", view.name));
        let live = apply::api_of(state, &view)?.list(&only).await;
        let failed = |source| Error::ReadComponent { component: apply::named(&view), source };
        let live = live.map_err(failed)?.items.into_iter();
        specs.extend(live.filter_map(|component| component.data.get("spec").cloned()));
    }
    if specs.is_empty() {
        return Ok(initial);
    }
    tracing::warn!(kyma = %KymaKey::of(kyma), modules = specs.len(), "no selection is recorded: every module with a component is selected");
    Ok(selection::recover_selection(&initial, &specs))
}

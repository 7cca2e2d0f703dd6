//! Writes a Kyma's status to the hub if it differs.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Resource, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{Kyma, KymaStatus, Reason, State as ModuleState, TargetIdentity};
use kyma_controller::{Failure, KymaKey, Wait, apply_status, hub_apply, is_absent};
use serde_json::json;

use super::{own_conditions, skipped_status};
use crate::FIELD_MANAGER;
use crate::error::Error;
use crate::report::events;
use crate::state::State;

/// Writes the status if it differs, and sends events about changes.
pub(crate) async fn write(state: &State, kyma: &Arc<Kyma>, desired: &KymaStatus) -> Result<Arc<Kyma>, Error> {
    let key = KymaKey::of(kyma);
    state.metrics.record(&key, kyma, desired, &state.components().of(&key), Timestamp::now());
    let before = kyma.status.clone().unwrap_or_default();
    let desired = &own_part(desired);
    if own_part(&before) == *desired {
        return Ok(Arc::clone(kyma));
    }
    let api: Api<Kyma> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let written = if is_in_doubt(desired) {
        write_if_unchanged(&api, kyma, desired).await
    } else {
        apply_status(&api, FIELD_MANAGER, &kyma.metadata, &json!(desired)).await
    };
    let written = match written {
        // Deleted meanwhile.
        Err(error) if is_absent(&api, &key.name, &error) => return Ok(Arc::clone(kyma)),
        Err(source) => {
            show_refusal(state, &api, kyma, &source).await;
            return Err(Error::Report { kyma: key, source });
        }
        Ok(written) => written,
    };
    send_events(state, kyma, &before, desired);
    Ok(state.record_write(written))
}

/// Reports a refused status write in an event and in the previous status, which would otherwise keep showing Ready.
async fn show_refusal(state: &State, api: &Api<Kyma>, kyma: &Arc<Kyma>, source: &kube::Error) {
    let failure = Failure::hub("write the status", source);
    if failure.reason != Reason::HubRefused {
        return;
    }
    state.runtime.events.warning(kyma.as_ref(), failure.reason, "Reconcile", &failure.message);
    let before = kyma.status.clone().unwrap_or_default();
    let generation = kyma.metadata.generation;
    let mut shown = skipped_status(&before, generation, (failure.reason, &failure.message), Timestamp::now());
    shown.state = Some(ModuleState::Error);
    let shown = own_part(&shown);
    if own_part(&before) == shown {
        return;
    }
    match apply_status(api, FIELD_MANAGER, &kyma.metadata, &json!(shown)).await {
        Ok(written) => drop(state.record_write(written)),
        Err(error) => {
            tracing::warn!(kyma = %KymaKey::of(kyma), %error, "the refusal cannot be shown in the status");
        }
    }
}

/// Writes with the resourceVersion that was read: a user may be correcting the recorded owner of the target.
async fn write_if_unchanged(api: &Api<Kyma>, kyma: &Kyma, desired: &KymaStatus) -> kube::Result<Kyma> {
    let body = json!({
        "apiVersion": Kyma::api_version(&()),
        "kind": Kyma::kind(&()),
        "metadata": { "resourceVersion": kyma.resource_version() },
        "status": desired,
    });
    api.patch_status(&kyma.name_any(), &hub_apply(FIELD_MANAGER), &Patch::Apply(&body)).await
}

/// Writes only the reason why nothing is decided; all other fields stay.
pub(crate) async fn write_skipped(
    state: &State,
    kyma: &Arc<Kyma>,
    reason: Reason,
    why: &str,
) -> Result<Wait, Failure> {
    let before = kyma.status.clone().unwrap_or_default();
    let status = skipped_status(&before, kyma.metadata.generation, (reason, why), Timestamp::now());
    write(state, kyma, &status).await?;
    Ok(Wait::Event)
}

/// Returns the modules with which the target's Kyma is created; empty for the hub's own Kyma, whose spec is the
/// user's selection.
pub(crate) fn initial<'a>(state: &State, kyma: &'a Kyma) -> BTreeSet<&'a str> {
    let is_local = kyma.metadata.name.as_deref().is_some_and(|name| state.runtime.settings.is_local(name));
    let modules = kyma.spec.modules.iter().flatten().filter(|_| !is_local);
    modules.map(|module| module.name.as_str()).collect()
}

/// Returns the status without conditions of other writers and without the fencing generation. Only taking the next one
/// writes it, never a pass that may have begun before the hub was restored from a backup.
fn own_part(status: &KymaStatus) -> KymaStatus {
    let target = status.target.clone().map(|target| TargetIdentity {
        fencing_generation: None,
        is_deprecated_turn: false,
        ..target
    });
    KymaStatus { conditions: Some(own_conditions(status)), target, ..status.clone() }
}

/// Reports whether a user has to decide which Kyma owns the target.
fn is_in_doubt(status: &KymaStatus) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let reachable = condition::get(conditions, types::TARGET_REACHABLE);
    reachable.and_then(|reachable| Reason::from_word(&reachable.reason)).is_some_and(|reason| {
        matches!(reason, Reason::StampMismatch | Reason::TargetChanged | Reason::TargetInUse)
    })
}

/// Sends one event if the Kyma's readiness or its cause changed, and one when its deletion began.
fn send_events(state: &State, kyma: &Arc<Kyma>, before: &KymaStatus, now: &KymaStatus) {
    let is_deleting = |status: &KymaStatus| status.state == Some(ModuleState::Deleting);
    if is_deleting(now) && !is_deleting(before) {
        events::send_deletion_step(state, kyma, Reason::SetKcpKymaStateDeleting);
    }
    let ready = |status: &KymaStatus| {
        let conditions = status.conditions.clone().unwrap_or_default();
        let ready = condition::get(&conditions, types::READY)?;
        Some((ready.status.clone(), ready.reason.clone(), ready.message.clone()))
    };
    let (was, is) = (ready(before), ready(now));
    let Some((_, reason, message)) = is.filter(|is| was.as_ref() != Some(is)) else { return };
    let Some(reason) = Reason::from_word(&reason) else { return };
    let (events, object) = (&state.runtime.events, kyma.as_ref());
    match now.state {
        Some(ModuleState::Error | ModuleState::Warning) => {
            events.warning(object, reason, "Reconcile", &message);
        }
        Some(ModuleState::Ready) => events.normal(object, reason, "Reconcile", &message),
        // Progress needs a user's action, so this is a Warning too.
        _ if reason.class().is_some() => events.warning(object, reason, "Reconcile", &message),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_status_write_leaves_out_the_fencing_generation() {
        let own = |target: Value| -> KymaStatus {
            own_part(&serde_json::from_value(json!({ "target": target })).unwrap())
        };
        let old = own(json!({ "clusterUid": "u", "epoch": 2, "turn": "5-a" }));
        assert_eq!(old, own(json!({ "clusterUid": "u", "epoch": 2, "fencingGeneration": "6-b" })));
        assert_eq!(json!(old), json!({ "conditions": [], "target": { "clusterUid": "u", "epoch": 2 } }));
    }
}

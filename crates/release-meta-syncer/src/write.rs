//! Carries out a plan on a target, and writes the operator's fields of the Kyma on the hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use kyma_api::{Kyma, Reason, finalizers};
use kyma_controller::{
    DeleteGate, DeleteRequest, Failure, KymaKey, hub_apply, live_metadata, none_if_absent, patch_finalizers,
    remove_finalizer,
};
use kyma_targets::Target;
use serde_json::json;

use crate::copy::{Copy, Key};
use crate::names::FIELD_MANAGER;
use crate::plan::{ExistingObject, Plan, Removal};
use crate::report::Outcome;
use crate::state::State;
use crate::{hub, observe, report};

/// Maximum number of concurrent writes to one target.
const MAX_CONCURRENT_WRITES: usize = 4;

/// Target of the writes of a plan, and the conditions for them.
pub(crate) struct WriteContext<'a> {
    pub(crate) state: &'a State,
    pub(crate) target: &'a Target,
    pub(crate) namespace: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) gate: &'a DeleteGate,
}

/// Applies, then deletes; updates `held` after each success. Returns the first failure after all applies were tried;
/// deletions stop at the first failure.
pub(crate) async fn carry_out(
    context: &WriteContext<'_>,
    plan: &Plan,
    existing: &mut BTreeMap<Key, ExistingObject>,
) -> Result<(), Failure> {
    // Collected first: the compiler cannot prove the lazy form to be `Send`.
    let calls: Vec<_> =
        plan.apply.iter().map(|(key, copy, uid)| apply(context, key, copy, uid.as_deref())).collect();
    let applied: Vec<_> = stream::iter(calls).buffer_unordered(MAX_CONCURRENT_WRITES).collect().await;
    let mut outcome = Ok(());
    for result in applied {
        match result {
            Ok((key, now)) => drop(existing.insert(key, now)),
            Err(failure) => outcome = outcome.and(Err(failure)),
        }
    }
    // New copies must exist before old ones are deleted.
    outcome?;
    if !plan.remove.is_empty() {
        context.gate.permit().await?;
    }
    for removal in &plan.remove {
        if remove(context, removal).await? {
            existing.remove(&removal.key);
        }
    }
    Ok(())
}

async fn apply(
    context: &WriteContext<'_>,
    key: &Key,
    copy: &Arc<Copy>,
    uid: Option<&str>,
) -> Result<(Key, ExistingObject), Failure> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.target.client(), context.namespace, &key.kind.resource());
    let params = PatchParams::apply(FIELD_MANAGER);
    // Not forced if the object did not exist when it was read: a user may have created it since.
    let params = if uid.is_some() { params.force() } else { params };
    let body = copy.body(key, context.namespace, context.owner, uid);
    let applied = api.patch(&key.name, &params, &Patch::Apply(&body)).await;
    let applied = applied.map_err(|error| Failure::target(&format!("apply {key}"), &error))?;
    let mut existing = observe::reduce(&applied, context.owner, None);
    existing.content = Some(copy.hash.clone());
    Ok((key.clone(), existing))
}

/// Deletes a copy. Returns false if a live read finds the object on the hub.
async fn remove(context: &WriteContext<'_>, removal: &Removal) -> Result<bool, Failure> {
    let key = &removal.key;
    if removal.unconfirmed && hub::has(context.state, key).await? {
        tracing::warn!(object = %key, "the hub has the object although the watch did not report it; the copy stays");
        return Ok(false);
    }
    delete(context.gate, context.target, context.namespace, key, &removal.uid).await?;
    tracing::info!(object = %key, uid = removal.uid, "copy removed from the target");
    Ok(true)
}

/// Deletes the object only if it has this uid.
pub(crate) async fn delete(
    gate: &DeleteGate,
    target: &Target,
    namespace: &str,
    key: &Key,
    uid: &str,
) -> Result<(), Failure> {
    let (client, resource) = (target.client(), key.kind.resource());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let failed = |error: &kube::Error| Failure::target(&format!("delete {key}"), error);
    let live = live_metadata(&api, &key.name).await.map_err(|error| failed(&error))?;
    let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(uid)) else { return Ok(()) };
    let request = DeleteRequest::new(&resource, &live.metadata, &[FIELD_MANAGER]);
    gate.carry_out(&client, &request).await.map(drop).map_err(|error| error.into_failure(failed))
}

fn kymas(state: &State, key: &KymaKey) -> Api<Kyma> {
    Api::namespaced(state.runtime.hub.clone(), &key.namespace)
}

/// Adds the finalizer to the Kyma, before the first write to its target.
pub(crate) async fn ensure_finalizer(state: &State, kyma: &Kyma) -> Result<(), Failure> {
    if kyma.finalizers().iter().any(|existing| existing == finalizers::CATALOG) {
        return Ok(());
    }
    let key = KymaKey::of(kyma);
    let body = json!({
        "apiVersion": Kyma::api_version(&()), "kind": Kyma::kind(&()),
        "metadata": { "name": key.name, "uid": kyma.uid(), "finalizers": [finalizers::CATALOG] },
    });
    let written =
        kymas(state, &key).patch_metadata(&key.name, &hub_apply(FIELD_MANAGER), &Patch::Apply(&body)).await;
    written.map(drop).map_err(|error| Failure::hub(&format!("add the finalizer to Kyma {key}"), &error))
}

/// Removes the finalizer if it is still at the same index of the same object.
pub(crate) async fn release_kyma(state: &State, kyma: &Kyma) -> Result<(), Failure> {
    let key = KymaKey::of(kyma);
    match remove_finalizer(&kyma.metadata, finalizers::CATALOG) {
        Some(patch) => patch_finalizers(&kymas(state, &key), &key.name, patch).await,
        None => Ok(()),
    }
}

/// Writes the condition if it changed.
pub(crate) async fn report(state: &State, kyma: &Kyma, outcome: &Outcome<'_>) -> Result<(), Failure> {
    let before = state.conditions().latest(kyma);
    let reported_reason = before.as_ref().map(|condition| condition.reason.clone());
    let next = report::next(before.clone(), outcome, kyma.metadata.generation, Timestamp::now());
    let Some(condition) = next else {
        if let Some(condition) = before {
            state.conditions().record_unchanged(kyma, condition);
        }
        return Ok(());
    };
    let key = KymaKey::of(kyma);
    // A late write to a new Kyma of the same name is corrected by the next pass over that one.
    let body = json!({
        "apiVersion": Kyma::api_version(&()), "kind": Kyma::kind(&()),
        "metadata": { "name": key.name },
        "status": { "conditions": [condition] },
    });
    let written =
        kymas(state, &key).patch_status(&key.name, &hub_apply(FIELD_MANAGER), &Patch::Apply(&body)).await;
    match written {
        Ok(written) => {
            send_event(state, kyma, reported_reason.as_deref(), &condition);
            state.conditions().record_write(&written, condition);
            Ok(())
        }
        Err(error) => {
            let gone = none_if_absent::<_, ()>(&kymas(state, &key), &key.name, Err(error));
            gone.map(drop).map_err(|error| Failure::hub(&format!("report on Kyma {key}"), &error))
        }
    }
}

/// Sends an event for each new reason; the condition has the details.
fn send_event(state: &State, kyma: &Kyma, reported_reason: Option<&str>, condition: &Condition) {
    let Some(reason) =
        Reason::from_word(&condition.reason).filter(|_| reported_reason != Some(&condition.reason))
    else {
        return;
    };
    let events = &state.runtime.events;
    if condition.status == "True" || reason == Reason::Deleting {
        events.normal(kyma, reason, "SyncCatalogue", &condition.message);
    } else {
        events.warning(kyma, reason, "SyncCatalogue", &condition.message);
    }
}

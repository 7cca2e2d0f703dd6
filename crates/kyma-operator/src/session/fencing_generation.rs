//! Advances the fencing generation before a change is requested for a target: on the hub first, then in the target's
//! stamp. From then on a restored copy of the hub without this record may not write to the target.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::{Kyma, TargetIdentity};
use kyma_connection::{NamespaceLabels, ensure_namespace};
use kyma_sdk::{Failure, KymaKey, fence_of, target_record};
use kyma_targets::{FencingGeneration, LiveIdentity, STAMP_NAMESPACE, Stamp, Target, Verdict};
use serde_json::{Value, json};

use super::Session;
use crate::FIELD_MANAGER;
use crate::error::Error;
use crate::state::State;

/// Path of the fencing generation in a Kyma.
const FENCING_GENERATION: &str = "/status/target/fencingGeneration";
/// Path of the fencing generation in a Kyma that an operator of an earlier version wrote.
const DEPRECATED_TURN: &str = "/status/target/turn";

/// Records the next fencing generation, unless no change was requested in the present one. Returns the updated Kyma and
/// session.
pub(crate) async fn advance(
    state: &State,
    kyma: &Arc<Kyma>,
    session: &Arc<Session>,
) -> Result<(Arc<Kyma>, Arc<Session>), Failure> {
    let target = &session.target;
    let found = target.identify_anew().await?;
    let stamp = ours(state, kyma, session, &found).await?;
    let (recorded, stamped) = (target_record(kyma).fencing_generation, stamp.fencing_generation.clone());
    // No stamp is written to a target whose Kyma is being deleted: it would have to be removed again.
    let is_cleaned = kyma.metadata.deletion_timestamp.is_some() && found.stamp.is_none();
    let is_unused = session.has_unused_fencing_generation() && recorded.is_some() && recorded == stamped;
    if is_cleaned || is_unused {
        return Ok((Arc::clone(kyma), Arc::clone(session)));
    }
    let next =
        FencingGeneration::after(recorded.iter().chain(&stamped), format!("{:08x}", fastrand::u32(..)));
    let identity = TargetIdentity {
        fencing_generation: Some(next.to_string()),
        is_deprecated_turn: false,
        ..session.identity.clone()
    };
    let kyma = record(state, kyma, &identity).await?;
    target.set_hub_record(target_record(&kyma));
    put(state, target, Stamp { fencing_generation: Some(next), ..stamp }, &found).await?;
    let unused_fencing_generation = Arc::new(AtomicBool::new(true));
    let taken = Arc::new(Session { identity, unused_fencing_generation, ..(**session).clone() });
    state.sessions.replace(&KymaKey::of(&kyma), session, &taken);
    Ok((kyma, taken))
}

/// Returns the stamp if this hub may change it.
async fn ours(state: &State, kyma: &Kyma, session: &Session, found: &LiveIdentity) -> Result<Stamp, Failure> {
    let fence = fence_of(&state.runtime, kyma, &session.identity);
    match session.target.judge(&fence, found).await? {
        Verdict::Match { write } | Verdict::FirstContact { write, .. } => {
            Ok(write.or_else(|| found.stamp.clone()).unwrap_or_default())
        }
        refused => Err(session.target.refuse(refused).await.into()),
    }
}

/// Writes the fencing generation if the hub has the expected one: it may have been restored from a backup meanwhile.
///
/// The first write after an upgrade replaces the deprecated field. A CRD without the new field would lose both, so a
/// dry run comes first.
async fn record(state: &State, kyma: &Kyma, next: &TargetIdentity) -> Result<Arc<Kyma>, Error> {
    let key = KymaKey::of(kyma);
    let api: Api<Kyma> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let next = next.fencing_generation.as_deref();
    let steps = serde_json::from_value(json!(record_steps(kyma, next)));
    let patch =
        steps.map_err(|source| Error::Compose { what: "the record of a fencing generation", source })?;
    let patch = Patch::Json(patch);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    if recorded_identity(kyma).is_some_and(|recorded| recorded.is_deprecated_turn) {
        let dry_run = PatchParams { dry_run: true, ..params.clone() };
        send_record(&api, &key, &dry_run, &patch, next).await?;
    }
    Ok(state.record_write(send_record(&api, &key, &params, &patch, next).await?))
}

fn recorded_identity(kyma: &Kyma) -> Option<&TargetIdentity> {
    kyma.status.as_ref()?.target.as_ref()
}

/// Returns the JSON patch that sets the fencing generation to `next`. It fails if the stored one is not the one that
/// was read, or has the other name.
fn record_steps(kyma: &Kyma, next: Option<&str>) -> Vec<Value> {
    let mut steps = vec![json!({ "op": "test", "path": "/metadata/uid", "value": kyma.metadata.uid })];
    let recorded = recorded_identity(kyma);
    let known = recorded.and_then(|recorded| recorded.fencing_generation.as_deref());
    if recorded.is_some_and(|recorded| recorded.is_deprecated_turn) {
        steps.push(json!({ "op": "test", "path": DEPRECATED_TURN, "value": known }));
        steps.push(json!({ "op": "remove", "path": DEPRECATED_TURN }));
    } else {
        let test = |known: &str| json!({ "op": "test", "path": FENCING_GENERATION, "value": known });
        steps.extend(known.map(test));
    }
    steps.push(json!({ "op": "add", "path": FENCING_GENERATION, "value": next }));
    steps
}

/// Sends the patch, and fails if the hub does not keep `next`: an older CRD drops the field, and the stamp must not
/// get ahead of what the hub can record.
async fn send_record(
    api: &Api<Kyma>,
    key: &KymaKey,
    params: &PatchParams,
    patch: &Patch<()>,
    next: Option<&str>,
) -> Result<Kyma, Error> {
    let failed = |source| match source {
        kube::Error::Api(status) if status.code == 422 => Error::MissFencingGeneration { kyma: key.clone() },
        source => Error::RecordFencingGeneration { kyma: key.clone(), source },
    };
    let written = api.patch_status(&key.name, params, patch).await.map_err(failed)?;
    let kept = target_record(&written).fencing_generation.map(|generation| generation.to_string());
    if kept.as_deref() == next {
        Ok(written)
    } else {
        Err(Error::KeepFencingGeneration { kyma: key.clone() })
    }
}

async fn put(state: &State, target: &Target, stamp: Stamp, over: &LiveIdentity) -> Result<(), Failure> {
    if over.stamp.is_none() {
        let operator = state.runtime.operator;
        ensure_namespace(target.client(), operator, NamespaceLabels::Ensured, STAMP_NAMESPACE).await?;
    }
    Ok(target.put_stamp(&stamp, over).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(target: &Value) -> Value {
        let kyma: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "sample", "namespace": "kcp-system", "uid": "uid-of-kyma" },
            "spec": { "channel": "regular" }, "status": { "target": target },
        }))
        .unwrap();
        json!(record_steps(&kyma, Some("8-b")))
    }

    #[test]
    fn record_tests_and_replaces_the_stored_field() {
        let uid = json!({ "op": "test", "path": "/metadata/uid", "value": "uid-of-kyma" });
        let add = json!({ "op": "add", "path": "/status/target/fencingGeneration", "value": "8-b" });
        assert_eq!(steps(&json!({ "clusterUid": "u" })), json!([uid, add]));
        let test = json!({ "op": "test", "path": "/status/target/fencingGeneration", "value": "7-a" });
        let new = json!({ "clusterUid": "u", "fencingGeneration": "7-a" });
        assert_eq!(steps(&new), json!([uid, test, add]));
        let both = json!({ "clusterUid": "u", "fencingGeneration": "7-a", "turn": "5-a" });
        assert_eq!(steps(&both), json!([uid, test, add]), "the deprecated field has no effect");
        let test = json!({ "op": "test", "path": "/status/target/turn", "value": "7-a" });
        let remove = json!({ "op": "remove", "path": "/status/target/turn" });
        let old = json!({ "clusterUid": "u", "turn": "7-a" });
        assert_eq!(steps(&old), json!([uid, test, remove, add]), "a second writer's test fails");
    }
}

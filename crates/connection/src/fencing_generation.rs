//! Advances the fencing generation before a change is requested for a target: on the hub first, then in the target's
//! stamp. From then on a restored copy of the hub without this record may not write to the target.

use std::sync::Arc;

use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::{Kyma, TargetIdentity};
use kyma_controller::{Failure, KymaKey, Runtime, fence_of, target_record};
use kyma_targets::{FencingGeneration, LiveIdentity, STAMP_NAMESPACE, Stamp, Verdict};
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::connector::Connector;
use crate::error::Error;
use crate::namespace::ensure_namespace;
use crate::sessions::Sessions;

/// Path of the fencing generation in a Kyma.
const FENCING_GENERATION: &str = "/status/target/fencingGeneration";
/// Path of the fencing generation in a Kyma that an operator of an earlier version wrote.
const DEPRECATED_TURN: &str = "/status/target/turn";

/// Records the next fencing generation, unless no change was requested in the present one. Returns the updated Kyma and
/// session.
///
/// # Errors
/// Hub or target does not answer, or does not keep the record; this hub must not change the target.
pub async fn advance_fencing_generation<C: Connector>(
    connector: &C,
    sessions: &Sessions<Connection>,
    kyma: &Arc<Kyma>,
    session: &Arc<Connection>,
) -> Result<(Arc<Kyma>, Arc<Connection>), Failure> {
    let target = &session.target;
    let found = target.identify_anew().await?;
    let stamp = permitted_stamp(connector, kyma, session, &found).await?;
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
    let kyma = record(connector, kyma, &identity).await?;
    target.set_hub_record(target_record(&kyma));
    if found.stamp.is_none() {
        ensure_namespace(connector, target, STAMP_NAMESPACE).await?;
    }
    target.put_stamp(&Stamp { fencing_generation: Some(next), ..stamp }, &found).await?;
    let advanced = Arc::new(session.with_next_identity(identity));
    sessions.replace(&KymaKey::of(&kyma), session, &advanced);
    Ok((kyma, advanced))
}

/// Returns the stamp if this hub may change it.
async fn permitted_stamp<C: Connector>(
    connector: &C,
    kyma: &Kyma,
    session: &Connection,
    found: &LiveIdentity,
) -> Result<Stamp, Failure> {
    let fence = fence_of(connector.runtime(), kyma, &session.identity);
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
async fn record<C: Connector>(connector: &C, kyma: &Kyma, next: &TargetIdentity) -> Result<Arc<Kyma>, Error> {
    let key = KymaKey::of(kyma);
    let Runtime { hub, operator, .. } = connector.runtime();
    let api: Api<Kyma> = Api::namespaced(hub.clone(), &key.namespace);
    let next = next.fencing_generation.as_deref();
    let steps = serde_json::from_value(json!(record_steps(kyma, next)));
    let patch =
        steps.map_err(|source| Error::Compose { what: "the record of a fencing generation", source })?;
    let patch = Patch::Json(patch);
    let params = PatchParams { field_manager: Some(operator.name.to_owned()), ..PatchParams::default() };
    if recorded_identity(kyma).is_some_and(|recorded| recorded.is_deprecated_turn) {
        let dry_run = PatchParams { dry_run: true, ..params.clone() };
        send_record(&api, &key, &dry_run, &patch, next).await?;
    }
    let written = Arc::new(send_record(&api, &key, &params, &patch, next).await?);
    connector.record_kyma(&written);
    Ok(written)
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

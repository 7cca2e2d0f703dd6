//! Records the turn before a change is requested for a target: on the hub first, then in the target's stamp. From
//! then on a restored copy of the hub without this record may not write to the target.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::{Kyma, TargetIdentity};
use kyma_sdk::{Failure, KymaKey, fence_of, recorded_of};
use kyma_targets::{LiveIdentity, STAMP_NAMESPACE, Stamp, Target, Turn, Verdict};
use serde_json::json;

use super::{Session, ground};
use crate::FIELD_MANAGER;
use crate::error::Error;
use crate::state::State;

/// Path of the turn in a Kyma.
const TURN: &str = "/status/target/turn";

/// Takes the next turn, unless no change was requested in the present one. Returns the updated Kyma and session.
pub(crate) async fn take(
    state: &State,
    kyma: &Arc<Kyma>,
    session: &Arc<Session>,
) -> Result<(Arc<Kyma>, Arc<Session>), Failure> {
    let target = &session.target;
    let found = target.identify_anew().await?;
    let stamp = ours(state, kyma, session, &found).await?;
    let (recorded, stamped) = (recorded_of(kyma).turn, stamp.turn.clone());
    // No stamp is written to a target whose Kyma is being deleted: it would have to be removed again.
    let is_cleaned = kyma.metadata.deletion_timestamp.is_some() && found.stamp.is_none();
    let is_unused = session.has_unused_turn() && recorded.is_some() && recorded == stamped;
    if is_cleaned || is_unused {
        return Ok((Arc::clone(kyma), Arc::clone(session)));
    }
    let turn = Turn::after(recorded.iter().chain(&stamped), format!("{:08x}", fastrand::u32(..)));
    let identity = TargetIdentity { turn: Some(turn.to_string()), ..session.identity.clone() };
    let kyma = record(state, kyma, &identity).await?;
    target.hub_has(recorded_of(&kyma));
    put(target, Stamp { turn: Some(turn), ..stamp }, &found).await?;
    let unused_turn = Arc::new(AtomicBool::new(true));
    let taken = Arc::new(Session { identity, unused_turn, ..(**session).clone() });
    go_on(state, &kyma, session, &taken);
    Ok((kyma, taken))
}

/// Replaces the session, unless it ended meanwhile.
fn go_on(state: &State, kyma: &Kyma, before: &Arc<Session>, now: &Arc<Session>) {
    if let Some(held) = state.sessions().get_mut(&KymaKey::of(kyma)).filter(|held| Arc::ptr_eq(held, before))
    {
        *held = Arc::clone(now);
    }
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

/// Writes the turn if the hub has the expected one: it may have been restored from a backup meanwhile.
async fn record(state: &State, kyma: &Kyma, next: &TargetIdentity) -> Result<Arc<Kyma>, Error> {
    let key = KymaKey::of(kyma);
    let api: Api<Kyma> = Api::namespaced(state.runtime.hub.clone(), &key.namespace);
    let known = kyma.status.as_ref().and_then(|status| status.target.as_ref()?.turn.clone());
    let mut steps = vec![json!({ "op": "test", "path": "/metadata/uid", "value": kyma.metadata.uid })];
    steps.extend(known.map(|turn| json!({ "op": "test", "path": TURN, "value": turn })));
    steps.push(json!({ "op": "add", "path": TURN, "value": next.turn }));
    let failed = |source| match source {
        kube::Error::Api(status) if status.code == 422 => Error::MissTurn { kyma: key.clone() },
        source => Error::RecordTurn { kyma: key.clone(), source },
    };
    let steps = serde_json::from_value(json!(steps));
    let patch = steps.map_err(|source| Error::Compose { what: "the record of a turn", source })?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let written = api.patch_status(&key.name, &params, &Patch::<()>::Json(patch)).await.map_err(failed)?;
    // An older CRD drops the field: the stamp must not get ahead of what the hub can record.
    if recorded_of(&written).turn.map(|turn| turn.to_string()) != next.turn {
        return Err(Error::KeepTurn { kyma: key });
    }
    Ok(state.wrote(written))
}

async fn put(target: &Target, stamp: Stamp, over: &LiveIdentity) -> Result<(), Failure> {
    if over.stamp.is_none() {
        ground::namespace(target, STAMP_NAMESPACE).await?;
    }
    Ok(target.put_stamp(&stamp, over).await?)
}

//! Whether a cluster is a Kyma's target, and nobody else's.

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use kyma_api::{Kyma, Reason, TargetIdentity};
use kyma_targets::{Found, Mismatch, Stamp, Target, Verdict, compare};
use serde_json::json;

use super::{claim, recorded_of};
use crate::{Failure, Runtime};

/// How often a first contact is recorded while others write the same Kyma.
const MAX_TRIES: usize = 5;

/// What a successful comparison leaves to do.
#[derive(Debug)]
pub struct Proof {
    /// The target as the hub has it on record.
    pub identity: TargetIdentity,
    /// The Kyma as the hub has it by now, where it was asked for that; none where the one at hand said enough.
    pub kyma: Option<Kyma>,
    /// The stamp to put on the target before anything else; its namespace is the caller's to ensure.
    pub stamp: Option<Stamp>,
    /// What the target says about itself: what the stamp is put over.
    pub found: Found,
}

/// Whether the cluster behind a Kyma's access is its target, and nobody else's. A first contact is recorded on the hub,
/// before anything is written on the target.
///
/// # Errors
/// It is another cluster, or another's, or the hub: nothing may be written or deleted there, and the target is asked
/// anew the next time. Target or hub do not answer; the hub does not take the record.
pub async fn prove(runtime: &Runtime, kyma: &Kyma, target: &Target) -> Result<Proof, Failure> {
    for _ in 1..MAX_TRIES {
        match prove_once(runtime, kyma, target).await {
            // Another operator had its first contact at the same time: its record is the one that counts.
            Err(failure) if failure.reason == Reason::ApplyConflict => {}
            proven => return proven,
        }
    }
    prove_once(runtime, kyma, target).await
}

async fn prove_once(runtime: &Runtime, kyma: &Kyma, target: &Target) -> Result<Proof, Failure> {
    let Judged { kyma: live, found, verdict } = judge(runtime, kyma, target).await?;
    let current = live.as_ref().unwrap_or(kyma);
    match verdict {
        Verdict::Match { write } => {
            Ok(Proof { identity: identity_of(current), kyma: live, stamp: write, found })
        }
        Verdict::FirstContact { record, write } => {
            let identity = TargetIdentity {
                cluster_uid: record.target_uid.unwrap_or_default(),
                epoch: i64::try_from(record.epoch).ok(),
                turn: record.turn.map(|turn| turn.to_string()),
            };
            let written = write_record(runtime, current, &identity).await?;
            Ok(Proof { identity, kyma: Some(written), stamp: write, found })
        }
        refused => Err(target.refuse(refused).await.into()),
    }
}

/// The same comparison where nothing may be written, as before a clean-up: the target has to be on record. Gives that
/// record.
///
/// # Errors
/// It is not, or it is not the Kyma's; target or hub do not answer.
pub async fn prove_known(runtime: &Runtime, kyma: &Kyma, target: &Target) -> Result<TargetIdentity, Failure> {
    let Judged { kyma: live, verdict, .. } = judge(runtime, kyma, target).await?;
    match verdict {
        Verdict::Match { .. } => Ok(identity_of(live.as_ref().unwrap_or(kyma))),
        Verdict::FirstContact { .. } => Err(Failure::new(
            Reason::TargetChanged,
            "the hub has no record of this target, so nothing is deleted there",
        )),
        refused => Err(target.refuse(refused).await.into()),
    }
}

/// Records the hub as the target of `kyma` at the first contact. Gives the Kyma as it is by then; none if the record is
/// there already. The caller has checked with [`is_local`](crate::is_local) that no other cluster is.
///
/// # Errors
/// Another cluster was recorded meanwhile; the hub does not answer or does not take the record.
pub async fn record_local(runtime: &Runtime, kyma: &Kyma) -> Result<Option<Kyma>, Failure> {
    if recorded_of(kyma).target_uid.is_some() {
        return Ok(None);
    }
    let live = read(runtime, kyma).await?;
    if !crate::is_local(runtime, &live)? || recorded_of(&live).target_uid.is_some() {
        return Ok(Some(live));
    }
    let identity = TargetIdentity { cluster_uid: runtime.hub_uid.to_string(), epoch: Some(1), turn: None };
    write_record(runtime, &live, &identity).await.map(Some)
}

struct Judged {
    /// Where the one at hand did not say enough.
    kyma: Option<Kyma>,
    found: Found,
    verdict: Verdict,
}

/// What an earlier look at the target says, compared with the Kyma at hand. Where that may come of the one being older
/// than the other both are asked anew: the target first, because a turn is on record on the hub before it is there.
async fn judge(runtime: &Runtime, kyma: &Kyma, target: &Target) -> Result<Judged, Failure> {
    let compared = |kyma: &Kyma, found: &Found| compare(&claim(runtime, kyma), &recorded_of(kyma), found);
    let found = target.identify().await?;
    let verdict = compared(kyma, &found);
    if !matches!(verdict, Verdict::FirstContact { .. } | Verdict::StampMismatch(Mismatch::LaterState)) {
        return Ok(Judged { kyma: None, found, verdict });
    }
    let found = target.identify_anew().await?;
    let live = read(runtime, kyma).await?;
    let verdict = compared(&live, &found);
    Ok(Judged { kyma: Some(live), found, verdict })
}

async fn read(runtime: &Runtime, kyma: &Kyma) -> Result<Kyma, Failure> {
    let (name, namespace) = (kyma.name_any(), kyma.namespace().unwrap_or_default());
    let kymas: Api<Kyma> = Api::namespaced(runtime.hub.clone(), &namespace);
    let read = kymas.get_opt(&name).await;
    let read = read.map_err(|error| Failure::hub(&format!("read Kyma {namespace}/{name}"), &error))?;
    let same = read.filter(|live| live.uid() == kyma.uid());
    let gone = || Failure::new(Reason::ApplyConflict, format!("Kyma {namespace}/{name} is gone"));
    same.ok_or_else(gone)
}

fn identity_of(kyma: &Kyma) -> TargetIdentity {
    kyma.status.as_ref().and_then(|status| status.target.clone()).unwrap_or_default()
}

/// By a merge: the field belongs to whoever had the first contact, and every operator may. Over nothing but the Kyma
/// that was read: another operator's first contact, and the turns after it, may have come in between.
async fn write_record(runtime: &Runtime, kyma: &Kyma, identity: &TargetIdentity) -> Result<Kyma, Failure> {
    let (name, namespace) = (kyma.name_any(), kyma.namespace().unwrap_or_default());
    let body = json!({
        "apiVersion": Kyma::api_version(&()), "kind": Kyma::kind(&()),
        "metadata": { "uid": kyma.uid(), "resourceVersion": kyma.resource_version() },
        "status": { "target": identity },
    });
    let api: Api<Kyma> = Api::namespaced(runtime.hub.clone(), &namespace);
    let manager = Some(runtime.operator.name.to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    let written = api.patch_status(&name, &params, &Patch::Merge(&body)).await;
    written.map_err(|error| Failure::hub(&format!("record the target of Kyma {namespace}/{name}"), &error))
}

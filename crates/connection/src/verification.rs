//! Verifies that a cluster is a Kyma's target and belongs to no other Kyma or hub.

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use kyma_api::{Kyma, Reason, TargetIdentity};
use kyma_controller::{Failure, Runtime, claim_of, find_object, is_local, target_record};
use kyma_targets::{LiveIdentity, Mismatch, Stamp, Target, TargetRecord, Verdict, compare};
use serde_json::json;

/// Maximum number of tries to record a first contact when other writers change the Kyma.
const MAX_TRIES: usize = 5;

/// Result of a successful verification of a target.
#[derive(Debug)]
pub struct TargetVerification {
    /// The target as recorded on the hub.
    pub identity: TargetIdentity,
    /// The Kyma as read from or written to the hub; `None` if the cached one was sufficient.
    pub kyma: Option<Kyma>,
    /// The stamp to write to the target before anything else. The caller ensures the namespace of the stamp.
    pub stamp: Option<Stamp>,
    /// Identity and stamp found on the target. `stamp` replaces this stamp.
    pub found: LiveIdentity,
}

/// Verifies that the cluster behind a Kyma's access Secret is its target and belongs to no other Kyma or hub. Records
/// a first contact on the hub before anything is written to the target.
///
/// # Errors
/// The target is another cluster, belongs to another Kyma or hub, or is the hub: nothing may be written or deleted
/// there, and the next call reads the target again. Target or hub does not answer; the hub refuses the record.
pub async fn verify_target(
    runtime: &Runtime,
    kyma: &Kyma,
    target: &Target,
) -> Result<TargetVerification, Failure> {
    for _ in 1..MAX_TRIES {
        match try_verify_target(runtime, kyma, target).await {
            // Another operator recorded a first contact at the same time, and the record of that operator counts.
            Err(failure) if failure.reason == Reason::ApplyConflict => {}
            result => return result,
        }
    }
    try_verify_target(runtime, kyma, target).await
}

async fn try_verify_target(
    runtime: &Runtime,
    kyma: &Kyma,
    target: &Target,
) -> Result<TargetVerification, Failure> {
    let IdentityVerdict { kyma: live, found, verdict } = compare_latest(runtime, kyma, target).await?;
    let current = live.as_ref().unwrap_or(kyma);
    match verdict {
        Verdict::Match { write } => {
            Ok(TargetVerification { identity: identity_of(current), kyma: live, stamp: write, found })
        }
        Verdict::FirstContact { record, write } => {
            let identity = TargetIdentity {
                cluster_uid: record.target_uid.unwrap_or_default(),
                epoch: i64::try_from(record.epoch).ok(),
                fencing_generation: record.fencing_generation.map(|generation| generation.to_string()),
                ..TargetIdentity::default()
            };
            let written = write_record(runtime, current, &identity).await?;
            Ok(TargetVerification { identity, kyma: Some(written), stamp: write, found })
        }
        mismatch => Err(target.refuse(mismatch).await.into()),
    }
}

/// Verifies a target before a clean-up: the target must be recorded already, and nothing is written. Returns the
/// record.
///
/// # Errors
/// No target is recorded, or it is not the Kyma's; target or hub does not answer.
pub(crate) async fn verify_recorded_target(
    runtime: &Runtime,
    kyma: &Kyma,
    target: &Target,
) -> Result<TargetIdentity, Failure> {
    let IdentityVerdict { kyma: live, verdict, .. } = compare_latest(runtime, kyma, target).await?;
    match verdict {
        Verdict::Match { .. } => Ok(identity_of(live.as_ref().unwrap_or(kyma))),
        Verdict::FirstContact { .. } => Err(Failure::new(
            Reason::TargetChanged,
            "the hub has no record of this target, so nothing is deleted there",
        )),
        mismatch => Err(target.refuse(mismatch).await.into()),
    }
}

/// Records the hub as the target of `kyma` at the first contact. Returns the Kyma as the hub now has it; `None` if
/// `kyma` already contains the record. The caller has checked with [`is_local`] that no other cluster is recorded.
///
/// # Errors
/// Another cluster was recorded meanwhile; the hub does not answer or does not take the record.
pub async fn record_local(runtime: &Runtime, kyma: &Kyma) -> Result<Option<Kyma>, Failure> {
    if target_record(kyma).target_uid.is_some() {
        return Ok(None);
    }
    let live = read(runtime, kyma).await?;
    if !is_local(runtime, &live)? || target_record(&live).target_uid.is_some() {
        return Ok(Some(live));
    }
    let cluster_uid = runtime.hub_uid.to_string();
    let identity = TargetIdentity { cluster_uid, epoch: Some(1), ..TargetIdentity::default() };
    write_record(runtime, &live, &identity).await.map(Some)
}

/// Reports whether the verified identity of a Kyma's target still agrees with the record on the hub: the record is the
/// same or newer. Returns false after a restore of the hub from a backup, or after a user adopted another target.
pub(crate) fn is_on_record(kyma: &Kyma, verified: &TargetIdentity) -> bool {
    let Some(record) = kyma.status.as_ref().and_then(|status| status.target.as_ref()) else {
        // Before the first fencing generation, the watch may not show the record yet. After it, a missing record was
        // removed and must be written again.
        return verified.fencing_generation.is_none();
    };
    let (now, then) = (TargetRecord::from(record), TargetRecord::from(verified));
    let is_record_older =
        then.fencing_generation.is_some_and(|then| then.is_beyond(now.fencing_generation.as_ref()));
    (now.target_uid, now.epoch) == (then.target_uid, then.epoch) && !is_record_older
}

struct IdentityVerdict {
    /// The Kyma as read live, if the cached one was not sufficient.
    kyma: Option<Kyma>,
    found: LiveIdentity,
    verdict: Verdict,
}

/// Compares the last identity read from the target with the cached Kyma. If one may be older than the other, both are
/// read again: the target first, since a fencing generation is recorded on the hub before it is written to the target.
async fn compare_latest(runtime: &Runtime, kyma: &Kyma, target: &Target) -> Result<IdentityVerdict, Failure> {
    let compared = |kyma: &Kyma, found: &LiveIdentity| {
        let claim = claim_of(kyma, &runtime.hub_uid, runtime.operator);
        compare(&claim, &target_record(kyma), found)
    };
    let found = target.identify().await?;
    let verdict = compared(kyma, &found);
    if !matches!(verdict, Verdict::FirstContact { .. } | Verdict::StampMismatch(Mismatch::LaterState)) {
        return Ok(IdentityVerdict { kyma: None, found, verdict });
    }
    let found = target.identify_anew().await?;
    let live = read(runtime, kyma).await?;
    let verdict = compared(&live, &found);
    Ok(IdentityVerdict { kyma: Some(live), found, verdict })
}

async fn read(runtime: &Runtime, kyma: &Kyma) -> Result<Kyma, Failure> {
    let (name, namespace) = (kyma.name_any(), kyma.namespace().unwrap_or_default());
    let kymas: Api<Kyma> = Api::namespaced(runtime.hub.clone(), &namespace);
    let read = find_object(&kymas, &name).await;
    let read = read.map_err(|error| Failure::hub(&format!("read Kyma {namespace}/{name}"), &error))?;
    let same = read.filter(|live| live.uid() == kyma.uid());
    let gone = || Failure::new(Reason::ApplyConflict, format!("Kyma {namespace}/{name} no longer exists"));
    same.ok_or_else(gone)
}

fn identity_of(kyma: &Kyma) -> TargetIdentity {
    kyma.status.as_ref().and_then(|status| status.target.clone()).unwrap_or_default()
}

/// Uses a merge patch, since any operator may have the first contact and no field manager owns the record. Sends the
/// resourceVersion, so that the record of a concurrent first contact is not overwritten.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kyma() -> Kyma {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "sample", "namespace": "kcp-system" }, "spec": { "channel": "regular" },
        }))
        .unwrap()
    }

    #[test]
    fn verified_identity_is_valid_unless_the_record_is_older() {
        let target = |epoch, generation: &str| TargetIdentity {
            cluster_uid: "u".into(),
            epoch: Some(epoch),
            fencing_generation: Some(generation.into()),
            ..TargetIdentity::default()
        };
        let recorded = |epoch, generation| {
            let mut kyma = kyma();
            kyma.status =
                Some(kyma_api::KymaStatus { target: Some(target(epoch, generation)), ..Default::default() });
            kyma
        };
        let verified = target(2, "5-a");
        assert!(is_on_record(&recorded(2, "5-a"), &verified));
        assert!(is_on_record(&recorded(2, "6-b"), &verified), "a later generation was recorded since");
        assert!(!is_on_record(&recorded(2, "4-c"), &verified), "the hub was restored from a backup");
        assert!(
            !is_on_record(&recorded(1, "5-a"), &verified),
            "the hub was restored from a backup before an adoption"
        );
        let without_record = kyma();
        assert!(!is_on_record(&without_record, &verified), "the record was removed from the status");
        let first = TargetIdentity { fencing_generation: None, ..verified };
        assert!(is_on_record(&without_record, &first), "the watch does not show the record yet");
    }
}

//! Identity of the cluster that a connection reaches, and the owner of that target. Pure.
//!
//! A target is identified by the uid of its `kube-system` namespace, which lives as long as the cluster. The hub
//! records that uid; the target carries a stamp that says which hub and Kyma manage it. Both are compared on
//! each new connection, before the first write.

use std::collections::BTreeMap;

use crate::fencing::fencing_generation::FencingGeneration;

mod stamp;
mod target_record;
#[cfg(test)]
mod tests;
mod verdict;

pub use stamp::{KymaId, STAMP_MANAGERS, STAMP_NAME, STAMP_NAMESPACE, Stamp};
pub use target_record::{TARGET_EPOCH, TargetRecord, record, recorded};
pub use verdict::{Mismatch, Verdict};

/// Claim of an operator on a hub to a target, usually on behalf of a Kyma.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// uid of the hub's `kube-system` namespace.
    pub hub_uid: String,
    /// The Kyma on whose behalf the target is managed; absent for a component without a Kyma.
    pub kyma: Option<KymaId>,
    /// Name of the operator that asks; key in [`Stamp::versions`].
    pub operator: String,
    /// Version of the operator; `major.minor` is compared.
    pub version: String,
}

/// Identity and stamp as read from the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveIdentity {
    /// uid of the target's `kube-system` namespace.
    pub target_uid: String,
    /// The stamp; `None` if the target has none.
    pub stamp: Option<Stamp>,
    /// resourceVersion of the stamp's `ConfigMap`, for the precondition of a rewrite.
    pub stamp_version: Option<String>,
}

impl LiveIdentity {
    /// Returns the fencing generation in the stamp.
    pub fn fencing_generation(&self) -> Option<FencingGeneration> {
        self.stamp.as_ref().and_then(|stamp| stamp.fencing_generation.clone())
    }
}

/// Compares the hub's record with the target's identity and stamp. Pure; see [`Verdict`].
pub fn compare(claim: &Claim, recorded: &TargetRecord, found: &LiveIdentity) -> Verdict {
    if found.target_uid == claim.hub_uid {
        return Verdict::TargetIsHub;
    }
    if let Some(uid) = recorded.target_uid.as_ref().filter(|uid| **uid != found.target_uid) {
        return Verdict::TargetChanged { recorded: uid.clone(), found: found.target_uid.clone() };
    }
    let known = recorded.target_uid.is_some();
    if let Some(refusal) = found.stamp.as_ref().and_then(|stamp| contradiction(claim, recorded, known, stamp))
    {
        return refusal;
    }
    let present = found.stamp.as_ref();
    let epoch = recorded.epoch.max(present.map_or(1, |stamp| stamp.epoch)).max(1);
    // Fencing generations of an earlier epoch are not comparable.
    let counted = present.filter(|stamp| stamp.epoch == epoch);
    let fencing_generation =
        counted.map_or_else(|| recorded.fencing_generation.clone(), |stamp| stamp.fencing_generation.clone());
    let wanted = claim.kyma.as_ref().map(|kyma| stamp(claim, kyma, (epoch, fencing_generation), present));
    let write = wanted.filter(|wanted| present != Some(wanted));
    if known && recorded.epoch > 0 {
        return Verdict::Match { write };
    }
    let record = TargetRecord {
        target_uid: Some(found.target_uid.clone()),
        epoch,
        fencing_generation: found.fencing_generation(),
    };
    Verdict::FirstContact { record, write }
}

/// Returns the record for the hub and the stamp for the target with which a user's decision to take a target over
/// replaces the conflicting ones. `None` if there is no conflict, or if a decision is not enough: for the hub itself,
/// and for a target of another Kyma of this hub.
///
/// The epoch is higher than all known ones, so an old copy of the hub is behind. Versions are left out, so that older
/// operators than those that worked there may continue. Pure.
pub fn adopt(claim: &Claim, recorded: &TargetRecord, found: &LiveIdentity) -> Option<(TargetRecord, Stamp)> {
    let may = match compare(claim, recorded, found) {
        Verdict::TargetChanged { .. } => {
            // A Kyma of this hub that owns the new cluster keeps it.
            let first = compare(claim, &TargetRecord::default(), found);
            !matches!(first, Verdict::TargetInUse { other_hub: false, .. })
        }
        Verdict::StampMismatch(_) | Verdict::TargetInUse { other_hub: true, .. } => true,
        Verdict::Match { .. }
        | Verdict::FirstContact { .. }
        | Verdict::TargetInUse { other_hub: false, .. }
        | Verdict::TargetIsHub => false,
    };
    let kyma = claim.kyma.clone().filter(|_| may)?;
    let epoch = recorded.epoch.max(found.stamp.as_ref().map_or(0, |stamp| stamp.epoch)).saturating_add(1);
    let record = TargetRecord { target_uid: Some(found.target_uid.clone()), epoch, fencing_generation: None };
    Some((
        record,
        Stamp {
            hub_uid: claim.hub_uid.clone(),
            kyma,
            epoch,
            fencing_generation: None,
            versions: BTreeMap::new(),
        },
    ))
}

fn contradiction(claim: &Claim, recorded: &TargetRecord, known: bool, stamp: &Stamp) -> Option<Verdict> {
    let owner = || format!("{}/{}", stamp.kyma.namespace, stamp.kyma.name);
    if stamp.hub_uid != claim.hub_uid {
        return Some(if known {
            Verdict::StampMismatch(Mismatch::TakenOver)
        } else {
            Verdict::TargetInUse { kyma: owner(), other_hub: true }
        });
    }
    // On one hub a name has one owner at a time: the same name under a new uid is the successor.
    let other = |kyma: &KymaId| (&kyma.namespace, &kyma.name) != (&stamp.kyma.namespace, &stamp.kyma.name);
    if claim.kyma.as_ref().is_some_and(other) {
        return Some(Verdict::TargetInUse { kyma: owner(), other_hub: false });
    }
    // Only Kymas have fencing generations; for a component without one they are not checked.
    let is_later = |stamped: &FencingGeneration| {
        claim.kyma.is_some() && stamped.is_beyond(recorded.fencing_generation.as_ref())
    };
    let is_beyond = || stamp.fencing_generation.as_ref().is_some_and(is_later);
    if known && (stamp.epoch > recorded.epoch || stamp.epoch == recorded.epoch && is_beyond()) {
        return Some(Verdict::StampMismatch(Mismatch::LaterState));
    }
    // At a first contact the stamp's fencing generation becomes the hub's.
    if !known && stamp.fencing_generation.as_ref().is_some_and(|generation| !generation.is_readable()) {
        return Some(Verdict::StampMismatch(Mismatch::LaterState));
    }
    let written_by = stamp.versions.get(&claim.operator).map(|version| minor(version));
    (written_by > Some(minor(&claim.version))).then_some(Verdict::StampMismatch(Mismatch::NewerOperator))
}

fn stamp(
    claim: &Claim,
    kyma: &KymaId,
    (epoch, fencing_generation): (u64, Option<FencingGeneration>),
    present: Option<&Stamp>,
) -> Stamp {
    let mut versions = present.map(|stamp| stamp.versions.clone()).unwrap_or_default();
    let (major, minor) = minor(&claim.version);
    versions.insert(claim.operator.clone(), format!("{major}.{minor}"));
    Stamp { hub_uid: claim.hub_uid.clone(), kyma: kyma.clone(), epoch, fencing_generation, versions }
}

/// Returns major and minor version. The patch version is ignored: it may be rolled back, and its change writes
/// nothing to targets.
fn minor(version: &str) -> (u64, u64) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

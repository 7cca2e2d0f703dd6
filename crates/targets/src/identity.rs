//! Identity of the cluster that a connection reaches, and the owner of that target. Pure.
//!
//! A target is identified by the uid of its `kube-system` namespace, which lives as long as the cluster. The hub
//! records that uid; the target carries a stamp that says which hub and Kyma manage it. Both are compared on
//! each new connection, before the first write.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kyma_api::TargetIdentity;
use kyma_api::annotations::TARGET_UID;

use crate::fencing_generation::FencingGeneration;

#[cfg(test)]
mod tests;
mod words;

/// Name of the `ConfigMap` on the target that holds the [`Stamp`].
pub const STAMP_NAME: &str = "kyma-target-stamp";
/// Field managers that write the stamp: the operators and kymactl, by the name in their User-Agent.
pub const STAMP_MANAGERS: [&str; 4] = ["kyma-operator", "release-meta-syncer", "helm-component", "kymactl"];
/// Namespace of the stamp.
pub const STAMP_NAMESPACE: &str = "kyma-system";
/// Annotation on the hub object with the epoch under which it manages the target.
pub const TARGET_EPOCH: &str = "component.kyma-project.io/target-epoch";

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

/// A Kyma on the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KymaId {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid.
    pub uid: String,
}

/// The hub's record of a target from an earlier contact. Read with [`recorded`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetRecord {
    /// uid of the target's `kube-system` namespace; absent before the first contact.
    pub target_uid: Option<String>,
    /// Epoch of the claim, from 1; 0 before the first contact. Taking a target over raises it, so that an old
    /// copy of the hub falls behind.
    pub epoch: u64,
    /// The last change that was ordered for the target; none before the first.
    pub fencing_generation: Option<FencingGeneration>,
}

impl From<&TargetIdentity> for TargetRecord {
    fn from(identity: &TargetIdentity) -> Self {
        let uid = Some(identity.cluster_uid.clone()).filter(|uid| !uid.is_empty());
        Self {
            target_uid: uid,
            epoch: identity.epoch.and_then(|epoch| epoch.try_into().ok()).unwrap_or(0),
            fencing_generation: identity
                .fencing_generation
                .as_deref()
                .and_then(|generation| generation.parse().ok()),
        }
    }
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

/// Stamp on a target, which names its hub and Kyma.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// uid of the managing hub.
    pub hub_uid: String,
    /// The Kyma on that hub.
    pub kyma: KymaId,
    /// Epoch of the hub's claim.
    pub epoch: u64,
    /// The last change that the hub ordered for the target.
    pub fencing_generation: Option<FencingGeneration>,
    /// `major.minor` of each operator that wrote to the target.
    pub versions: BTreeMap<String, String>,
}

/// Outcome of [`compare`]. Only `Match` and `FirstContact` permit writes to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target is the recorded one. `write`: the stamp to write before any other change, if the present one is
    /// missing or older.
    Match {
        /// New content of the stamp, if it has to change.
        write: Option<Stamp>,
    },
    /// The hub has no record of this target yet. Write `record` to the hub, then `write` to the target.
    FirstContact {
        /// Record to write to the hub.
        record: TargetRecord,
        /// The stamp for the target; `None` for a component without a Kyma.
        write: Option<Stamp>,
    },
    /// The access leads to another cluster than before.
    TargetChanged {
        /// The uid on record.
        recorded: String,
        /// The uid found.
        found: String,
    },
    /// The stamp contradicts the hub's record.
    StampMismatch(Mismatch),
    /// The target belongs to another Kyma or hub already.
    TargetInUse {
        /// Namespace and name of the other Kyma as `namespace/name`; on another hub if `other_hub`.
        kyma: String,
        /// Whether that Kyma lives on another hub.
        other_hub: bool,
    },
    /// The access leads to the hub itself.
    TargetIsHub,
}

/// Conflict between a stamp and the record on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Another hub took the target over after this hub's last contact.
    TakenOver,
    /// The stamp has a later epoch or fencing generation: this hub is an older copy, or was restored from a backup.
    LaterState,
    /// A newer version of this operator has worked on the target.
    NewerOperator,
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

/// Returns the record of a target from the annotations of a hub object. They hold no fencing generation.
pub fn recorded(annotations: Option<&BTreeMap<String, String>>) -> TargetRecord {
    let get = |key| annotations.and_then(|all| all.get(key));
    TargetRecord {
        target_uid: get(TARGET_UID).filter(|uid| !uid.is_empty()).cloned(),
        epoch: get(TARGET_EPOCH).and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
        fencing_generation: None,
    }
}

/// Returns the annotations that store `recorded` on a hub object; empty before the first contact. They hold no fencing
/// generation, which the status of the Kyma records.
pub fn record(recorded: &TargetRecord) -> BTreeMap<String, String> {
    let Some(uid) = &recorded.target_uid else {
        return BTreeMap::new();
    };
    BTreeMap::from([
        (TARGET_UID.to_owned(), uid.clone()),
        (TARGET_EPOCH.to_owned(), recorded.epoch.to_string()),
    ])
}

const HUB_UID: &str = "hubUid";
const KYMA_NAMESPACE: &str = "kymaNamespace";
const KYMA_NAME: &str = "kymaName";
const KYMA_UID: &str = "kymaUid";
const EPOCH: &str = "epoch";
/// The key keeps its former name: another one would have to be written to every target.
const FENCING_GENERATION: &str = "turn";
const VERSION_PREFIX: &str = "version.";

impl Stamp {
    /// Returns the `ConfigMap` that carries this stamp.
    pub fn to_config_map(&self) -> ConfigMap {
        let mut data = BTreeMap::from([
            (HUB_UID.to_owned(), self.hub_uid.clone()),
            (KYMA_NAMESPACE.to_owned(), self.kyma.namespace.clone()),
            (KYMA_NAME.to_owned(), self.kyma.name.clone()),
            (KYMA_UID.to_owned(), self.kyma.uid.clone()),
            (EPOCH.to_owned(), self.epoch.to_string()),
        ]);
        data.extend(
            self.fencing_generation
                .iter()
                .map(|generation| (FENCING_GENERATION.to_owned(), generation.to_string())),
        );
        let versions = self.versions.iter();
        data.extend(
            versions.map(|(operator, version)| (format!("{VERSION_PREFIX}{operator}"), version.clone())),
        );
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(STAMP_NAME.to_owned()),
                namespace: Some(STAMP_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        }
    }

    /// Returns the stamp in its `ConfigMap`. Missing or unreadable fields become empty or 0, which match nothing: a
    /// damaged stamp never counts as this hub's.
    pub fn from_config_map(map: &ConfigMap) -> Self {
        let data = map.data.clone().unwrap_or_default();
        let text = |key: &str| data.get(key).cloned().unwrap_or_default();
        let version = |(key, version): (&String, &String)| {
            key.strip_prefix(VERSION_PREFIX).map(|operator| (operator.to_owned(), version.clone()))
        };
        Self {
            hub_uid: text(HUB_UID),
            kyma: KymaId { namespace: text(KYMA_NAMESPACE), name: text(KYMA_NAME), uid: text(KYMA_UID) },
            epoch: text(EPOCH).parse().unwrap_or(0),
            fencing_generation: data
                .get(FENCING_GENERATION)
                .map(|generation| generation.parse().unwrap_or_else(|_| FencingGeneration::unreadable())),
            versions: data.iter().filter_map(version).collect(),
        }
    }
}

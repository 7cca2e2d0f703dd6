//! The hub's record of a target, in annotations or in the status of a Kyma. Pure.

use std::collections::BTreeMap;

use kyma_api::TargetIdentity;
use kyma_api::annotations::TARGET_UID;

use crate::fencing::fencing_generation::FencingGeneration;

/// Annotation on the hub object with the epoch under which it manages the target.
pub const TARGET_EPOCH: &str = "component.kyma-project.io/target-epoch";

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

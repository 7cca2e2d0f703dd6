//! The claim of a Kyma on its target, and the record of the target on the hub.

use kube::ResourceExt;
use kyma_api::Kyma;
use kyma_targets::{Claim, KymaId, TargetRecord};

use crate::process::runtime::Operator;

/// Returns the record of a Kyma's target on the hub. Pure.
pub fn target_record(kyma: &Kyma) -> TargetRecord {
    let target = kyma.status.as_ref().and_then(|status| status.target.as_ref());
    target.map(TargetRecord::from).unwrap_or_default()
}

/// Returns the claim of a Kyma on its target, for the hub of this uid and this operator. Pure.
pub fn claim_of(kyma: &Kyma, hub_uid: &str, operator: Operator) -> Claim {
    let id = KymaId {
        namespace: kyma.namespace().unwrap_or_default(),
        name: kyma.name_any(),
        uid: kyma.uid().unwrap_or_default(),
    };
    Claim {
        hub_uid: hub_uid.to_owned(),
        kyma: Some(id),
        operator: operator.name.to_owned(),
        version: operator.version.to_owned(),
    }
}

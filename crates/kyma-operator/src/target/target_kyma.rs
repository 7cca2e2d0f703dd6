//! The target's own Kyma, `kyma-system/default`, in which users select modules and see their state.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use kyma_api::{Kyma, KymaStatus, annotations, labels, limits};
use kyma_controller::ResourceVersion;
use serde_json::{Value, json};

use crate::decision::selection;

mod remote;
mod write;

pub(crate) use remote::{Remote, RemoteRecord};
pub(crate) use write::{create_target_kyma, update};

pub(crate) use kyma_api::names::TARGET_KYMA as NAME;

/// A target's Kyma, reduced. Its content is untrusted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TargetKyma {
    pub(crate) uid: String,
    pub(crate) resource_version: ResourceVersion,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) terminating: bool,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

impl TargetKyma {
    /// Reduces the result of a watch or a write.
    pub(crate) fn of(object: &DynamicObject) -> Option<Self> {
        let meta = &object.metadata;
        Some(Self {
            uid: meta.uid.clone()?,
            resource_version: ResourceVersion::of(meta).unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            terminating: meta.deletion_timestamp.is_some(),
            spec: object.data.get("spec").map_or_else(|| json!({}), selection::reduced),
            status: object.data.get("status").map_or_else(|| json!({}), shown),
        })
    }
}

/// Returns the status; an oversized one, which the operator never writes, counts as empty.
fn shown(status: &Value) -> Value {
    if limits::fits(status, limits::OBJECT_BYTES) { status.clone() } else { json!({}) }
}

/// Returns the labels of the target's Kyma that name its owner, as KLM sets them.
pub(crate) fn labels_for(kyma: &Kyma) -> BTreeMap<String, String> {
    let mut desired = BTreeMap::from([
        (labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_KYMA.to_owned()),
        (labels::WATCHED_BY.to_owned(), labels::WATCHED_BY_KYMA.to_owned()),
    ]);
    let given = kyma.metadata.labels.as_ref();
    for name in [labels::RUNTIME_ID, labels::GLOBAL_ACCOUNT_ID, labels::SUBACCOUNT_ID] {
        if let Some(value) = given.and_then(|given| given.get(name)) {
            desired.insert(name.to_owned(), value.clone());
        }
    }
    desired
}

/// Returns the annotations of the target's Kyma, as KLM sets them.
pub(crate) fn annotations_for(kyma: &Kyma) -> BTreeMap<String, String> {
    let meta = &kyma.metadata;
    let owner = format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    );
    BTreeMap::from([(annotations::OWNED_BY.to_owned(), owner)])
}

/// Reports whether labels and annotations are up to date.
pub(crate) fn has_owner_metadata(remote: &TargetKyma, kyma: &Kyma) -> bool {
    let holds = |actual: &BTreeMap<String, String>, desired: BTreeMap<String, String>| {
        desired.iter().all(|(name, value)| actual.get(name) == Some(value))
    };
    holds(&remote.labels, labels_for(kyma)) && holds(&remote.annotations, annotations_for(kyma))
}

/// Returns the hub's status for the target, without fields that exist only on the hub.
pub(crate) fn status_for(status: &KymaStatus, namespace: &str) -> KymaStatus {
    let mut status = KymaStatus { target: None, selection: None, mandatory_modules: None, ..status.clone() };
    for module in status.modules.iter_mut().flatten() {
        module.manifest = None;
        module.module_configs.clear();
        module.default_resource_created = false;
        if let Some(meta) = module.template.as_mut().and_then(|template| template.metadata.as_mut()) {
            meta.namespace = Some(namespace.to_owned());
        }
    }
    status
}

/// Reports whether the target shows exactly this status.
pub(crate) fn has_status(remote: &TargetKyma, desired: &KymaStatus) -> bool {
    serde_json::to_value(desired).is_ok_and(|desired| remote.status == desired)
}

//! Records of KLM's objects before a hand-over, from which they are restored. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::ResourceExt as _;
use kyma_api::{annotations, hand_over::klm_entry};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::facts::{Manifest, MigrationState};
use crate::hub::MANAGER;

/// Record of a Kyma.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KymaNote {
    /// KLM's field manager of the status; `None` if KLM has not written it.
    pub(super) manager: Option<String>,
    /// The status.
    pub(super) status: Value,
    /// managedFields of the target's Kyma.
    #[serde(default)]
    pub(super) target_fields: Vec<ManagedFieldsEntry>,
}

/// Record of a Manifest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManifestNote {
    /// All finalizers.
    pub(super) finalizers: Vec<String>,
    /// managedFields, without labels of users.
    pub(super) managed_fields: Vec<ManagedFieldsEntry>,
    /// The status, which kyma-operator overwrites with `--manifest-mirror`.
    #[serde(default)]
    pub(super) status: Value,
}

/// Returns the record of a Kyma on hub and target.
pub(super) fn of_kyma(facts: &MigrationState) -> KymaNote {
    let entry = klm_entry(&facts.kyma.metadata);
    let on_target = facts.target.get(&facts.target_kyma).and_then(|live| live.managed_fields.clone());
    KymaNote {
        manager: entry.and_then(|entry| entry.manager.clone()),
        status: facts.status.clone(),
        target_fields: on_target.unwrap_or_default(),
    }
}

/// Returns the record of a Manifest with its stored status.
pub(super) fn of_manifest(manifest: &Manifest, status: &Value) -> ManifestNote {
    let by_people = |entry: &&ManagedFieldsEntry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        manager.starts_with("kubectl") || manager == MANAGER
    };
    let fields = manifest.metadata.managed_fields.iter().flatten();
    ManifestNote {
        finalizers: manifest.finalizers().to_vec(),
        managed_fields: fields.filter(|entry| !by_people(entry)).cloned().collect(),
        status: status.clone(),
    }
}

/// Reads the record of an object; `None` if it is missing or invalid.
pub(super) fn read<T: DeserializeOwned>(meta: &ObjectMeta) -> Option<T> {
    serde_json::from_str(meta.annotations.as_ref()?.get(annotations::BEFORE_HAND_OVER)?).ok()
}

/// Returns the annotation value of a record.
pub(super) fn text(note: &impl Serialize) -> String {
    // Maps with string keys always serialize.
    serde_json::to_string(note).unwrap_or_default()
}

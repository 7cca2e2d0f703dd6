//! What is noted of KLM's objects before they are handed over, so that they can be given back as they were. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::ResourceExt as _;
use kyma_api::{annotations, hand_over::klm_entry};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::facts::{Facts, Manifest};

/// Of a Kyma.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KymaNote {
    /// KLM's field manager of the status; none where KLM had not written one.
    pub(super) manager: Option<String>,
    /// The status.
    pub(super) status: Value,
    /// Who owned which field of the target's Kyma.
    #[serde(default)]
    pub(super) target_fields: Vec<ManagedFieldsEntry>,
}

/// Of a Manifest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManifestNote {
    /// All finalizers.
    pub(super) finalizers: Vec<String>,
    /// Who owned which field, people's labels apart.
    pub(super) managed_fields: Vec<ManagedFieldsEntry>,
    /// The status, which `--manifest-mirror` of kyma-operator writes.
    #[serde(default)]
    pub(super) status: Value,
}

/// Notes a Kyma, on both sides.
pub(super) fn of_kyma(facts: &Facts) -> KymaNote {
    let entry = klm_entry(&facts.kyma.metadata);
    let on_target = facts.target.get(&facts.target_kyma).and_then(|live| live.managed_fields.clone());
    KymaNote {
        manager: entry.and_then(|entry| entry.manager.clone()),
        status: facts.status.clone(),
        target_fields: on_target.unwrap_or_default(),
    }
}

/// Notes a Manifest with its status as it is stored.
pub(super) fn of_manifest(manifest: &Manifest, status: &Value) -> ManifestNote {
    let by_people = |entry: &&ManagedFieldsEntry| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        manager.starts_with("kubectl") || manager == super::MANAGER
    };
    let fields = manifest.metadata.managed_fields.iter().flatten();
    ManifestNote {
        finalizers: manifest.finalizers().to_vec(),
        managed_fields: fields.filter(|entry| !by_people(entry)).cloned().collect(),
        status: status.clone(),
    }
}

/// Reads what was noted on an object; what is no note is none.
pub(super) fn read<T: DeserializeOwned>(meta: &ObjectMeta) -> Option<T> {
    serde_json::from_str(meta.annotations.as_ref()?.get(annotations::BEFORE_HAND_OVER)?).ok()
}

/// A note as it stands in the annotation.
pub(super) fn text(note: &impl Serialize) -> String {
    // Maps with string keys always become JSON.
    serde_json::to_string(note).unwrap_or_default()
}

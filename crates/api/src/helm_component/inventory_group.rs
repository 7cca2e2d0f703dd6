//! Objects of an inventory, grouped by kind and namespace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status_records::InventoryEntry;

/// Objects of one kind in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryGroup {
    /// API group; absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// API version in which they were applied.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The objects, by name.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub items: Vec<InventoryItem>,
}

/// One object of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryItem {
    /// Name.
    pub name: String,
    /// Uid. Only the object with this uid is ever deleted.
    pub uid: String,
    /// Hash of the applied object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Hash of the fields that the operator owned after the last apply. Absent if drift is not corrected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// True if the object existed before this component. Such a Namespace, CRD or PersistentVolumeClaim is never
    /// deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// True for a Job that succeeded and has ttlSecondsAfterFinished: its deletion is no drift.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
}

impl InventoryGroup {
    /// Groups objects by kind and namespace. Entries of one group have to be adjacent, or the result has duplicate
    /// groups.
    pub fn of(entries: impl IntoIterator<Item = InventoryEntry>) -> Vec<Self> {
        let mut groups: Vec<Self> = vec![];
        for entry in entries {
            let InventoryEntry { group, version, kind, namespace, .. } = entry;
            let InventoryEntry { name, uid, hash, fingerprint, created, finished, .. } = entry;
            let item = InventoryItem { name, uid, hash, fingerprint, adopted: !created, finished };
            let fits = |last: &&mut Self| {
                (&last.group, &last.version, &last.kind, &last.namespace)
                    == (&group, &version, &kind, &namespace)
            };
            match groups.last_mut().filter(fits) {
                Some(last) => last.items.push(item),
                None => groups.push(Self { group, version, kind, namespace, items: vec![item] }),
            }
        }
        groups
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = InventoryEntry> {
        self.items.iter().map(|item| {
            let InventoryItem { name, uid, hash, fingerprint, adopted, finished } = item.clone();
            InventoryEntry {
                group: self.group.clone(),
                version: self.version.clone(),
                kind: self.kind.clone(),
                namespace: self.namespace.clone(),
                name,
                uid,
                hash,
                fingerprint,
                created: !adopted,
                finished,
            }
        })
    }
}

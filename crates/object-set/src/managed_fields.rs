//! Writing who owns which fields of an object, past what the API server itself writes down of it.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

/// The entry of a manager that applied these fields.
pub(crate) fn applied(manager: &str, api_version: Option<String>, fields: Value) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        api_version,
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        manager: Some(manager.to_owned()),
        operation: Some("Apply".to_owned()),
        ..ManagedFieldsEntry::default()
    }
}

/// The patch that makes these the entries of an object; it fails when the object changed since `metadata` was read.
pub(crate) fn replace(metadata: &ObjectMeta, entries: &[ManagedFieldsEntry]) -> Patch {
    let at = |field: &str| PointerBuf::from_tokens(["metadata", field]);
    let version = metadata.resource_version.clone().unwrap_or_default();
    let (path, value) = (at("managedFields"), serde_json::to_value(entries).unwrap_or_default());
    Patch(vec![
        PatchOperation::Test(TestOperation { path: at("resourceVersion"), value: version.into() }),
        if metadata.managed_fields.is_some() {
            PatchOperation::Replace(ReplaceOperation { path, value })
        } else {
            PatchOperation::Add(AddOperation { path, value })
        },
    ])
}

//! Entries of `managedFields`, and patches of them, which change the ownership of fields without an apply.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use super::field_set::{empty, union};

/// Maximum number of entries that are moved to another version. API servers merge entries beyond ten of updates, and
/// each entry is compared with the others.
const MAX_MOVED_ENTRIES: usize = 1_000;

/// Returns the managedFields entry of a manager's applies to the main resource.
pub(crate) fn applied_entry<'a>(metadata: &'a ObjectMeta, manager: &str) -> Option<&'a ManagedFieldsEntry> {
    metadata.managed_fields.iter().flatten().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    })
}

/// Returns the fields of all managers except the apply of one manager.
pub(crate) fn fields_of_others(metadata: &ObjectMeta, manager: &str) -> Value {
    let own = applied_entry(metadata, manager);
    let entries = metadata.managed_fields.iter().flatten().filter(|entry| Some(*entry) != own);
    let mut fields = empty();
    entries.filter_map(|entry: &ManagedFieldsEntry| entry.fields_v1.as_ref()).for_each(|owned| {
        union(&mut fields, &owned.0);
    });
    fields
}

/// Returns the entry of a manager that applied these fields.
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

/// Returns the patch that sets these entries; it fails if the object changed since `metadata` was read.
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

/// Returns the patch that sets the API version of all entries of removed versions to another one; `None` if there are
/// none, or more entries than an object has. It fails if the object changed since `metadata` was read.
pub(crate) fn replace_removed_versions(
    metadata: &ObjectMeta,
    is_gone: &dyn Fn(&str) -> bool,
    to: &str,
) -> Option<Patch> {
    let is_gone = |entry: &ManagedFieldsEntry| entry.api_version.as_deref().is_some_and(is_gone);
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    if entries.len() > MAX_MOVED_ENTRIES || !entries.iter().any(is_gone) {
        return None;
    }
    let mut all: Vec<ManagedFieldsEntry> = Vec::new();
    for entry in entries {
        let mut entry = entry.clone();
        if is_gone(&entry) {
            entry.api_version = Some(to.to_owned());
        }
        // Of two entries that differ in nothing but their fields, API servers would keep one.
        match all.iter_mut().find(|other| is_of_same(other, &entry)) {
            Some(ManagedFieldsEntry { fields_v1: Some(fields), .. }) => {
                if let Some(more) = &entry.fields_v1 {
                    union(&mut fields.0, &more.0);
                }
            }
            Some(other) => other.fields_v1 = entry.fields_v1,
            None => all.push(entry),
        }
    }
    Some(replace(metadata, &all))
}

fn is_of_same(one: &ManagedFieldsEntry, other: &ManagedFieldsEntry) -> bool {
    one.manager == other.manager
        && one.operation == other.operation
        && one.subresource == other.subresource
        && one.api_version == other.api_version
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_of_removed_versions_are_changed_and_merged() {
        let entry = |manager: &str, operation: &str, version: &str, field: &str| {
            json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {field: {}}}})
        };
        let metadata = json!({"resourceVersion": "7", "managedFields": [
            entry("us", "Apply", "g/v1beta1", "f:a"),
            entry("them", "Update", "g/v1beta1", "f:b"),
            entry("them", "Update", "g/v1", "f:c"),
            entry("them", "Update", "g/v2", "f:d"),
            entry("them", "Apply", "g/v1", "f:e"),
        ]});
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        let patch = |gone: &str| replace_removed_versions(&metadata, &|version| version == gone, "g/v1");
        assert!(patch("g/v1alpha1").is_none());
        let patch = serde_json::to_value(patch("g/v1beta1").unwrap()).unwrap();
        assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
        let mut both = entry("them", "Update", "g/v1", "f:b");
        both["fieldsV1"]["f:spec"]["f:c"] = json!({});
        let expected = json!([
            entry("us", "Apply", "g/v1", "f:a"),
            both,
            entry("them", "Update", "g/v2", "f:d"),
            entry("them", "Apply", "g/v1", "f:e"),
        ]);
        assert_eq!(patch[1]["value"], expected);
    }

    #[test]
    fn entries_of_a_hostile_target_are_not_compared() {
        let moved = |count: usize| {
            let entry =
                |at: usize| json!({"manager": format!("m{at}"), "operation": "Update", "apiVersion": "g/v1"});
            let entries: Vec<Value> = (0..count).map(entry).collect();
            let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": entries})).unwrap();
            replace_removed_versions(&metadata, &|version| version == "g/v1", "g/v2").is_some()
        };
        assert!(moved(MAX_MOVED_ENTRIES) && !moved(MAX_MOVED_ENTRIES + 1));
    }
}

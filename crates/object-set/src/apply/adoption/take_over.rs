//! Moves fields that other tools applied to the operator's field manager, so that the next apply removes those that
//! the set lacks.

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, RemoveOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use super::system::{System, TRACKING_LABEL, is_helms, is_of_object, is_tracked_by_label, leave_helms_marks};
use crate::apply::context::DesiredObject;
use crate::apply::outcome::Refusal;
use crate::apply::target_object::MAX_MANAGED_FIELDS_TRIES;
use crate::error::Failure;
use crate::managed_fields::entries::{self, applied_entry};
use crate::managed_fields::field_set::{empty, union};
use crate::object::Object;
use crate::ownership::OWNER_LABEL;

/// Manager that the API server records for fields that existed before the first apply.
const BEFORE_FIRST_APPLY_MANAGER: &str = "before-first-apply";

/// kubectl's record of its last apply, from which it would restore removed fields.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Moves fields that other tools applied to the operator's field manager. Returns the new metadata if there were any.
pub(in crate::apply) async fn take_over(
    desired: &DesiredObject<'_>,
    metadata: &ObjectMeta,
) -> Result<Option<ObjectMeta>, Refusal> {
    let DesiredObject { object, target, options, .. } = desired;
    let manager = options.ownership.manager.as_str();
    let (mut newer, mut tries) = (None, 0);
    loop {
        let metadata = newer.as_ref().unwrap_or(metadata);
        let Some(moved) = patch(metadata, manager, options.take_over, object) else {
            return Ok(None);
        };
        if let Some(dry_run) = &target.cluster.dry_run {
            dry_run.record_take_over(target.identity);
            return Ok(None);
        }
        let error = match target.patch_managed_fields(manager, moved).await {
            Ok(taken) => return Ok(Some(taken)),
            Err(error) => error,
        };
        tries += 1;
        if error.failure != Failure::Conflict || tries == MAX_MANAGED_FIELDS_TRIES {
            return Err(error.into());
        }
        let found = target.metadata().await?;
        // An object that was replaced, is being deleted or has another owner now is left to the next run.
        let Some(found) = found.filter(|found| is_as_seen(found, metadata)) else {
            return Err(error.into());
        };
        newer = Some(found);
    }
}

/// Reports whether the object has the same uid and owner as when it was read, and is not being deleted.
fn is_as_seen(found: &ObjectMeta, seen: &ObjectMeta) -> bool {
    let owner = |metadata: &ObjectMeta| metadata.labels.as_ref()?.get(OWNER_LABEL).cloned();
    found.uid == seen.uid && owner(found) == owner(seen) && found.deletion_timestamp.is_none()
}

/// Returns the patch that moves the fields of other tools to `manager`. These tools apply whole objects, so fields
/// that they own and the set lacks were left out on purpose. `more`: managers of further tools. `None` if there are
/// no such fields. The patch fails if the object changed since `metadata` was read. It removes the label by which
/// Argo CD tracks the object, unless `wanted` has it too.
fn patch(metadata: &ObjectMeta, manager: &str, more: &[&str], wanted: &Object) -> Option<Patch> {
    let annotated = metadata.annotations.as_ref().is_some_and(|a| a.contains_key(LAST_APPLIED));
    let is_tool = |entry: &ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(BEFORE_FIRST_APPLY_MANAGER)
            || System::of_entry(entry, more).is_some()
    };
    let mut patch = moved(metadata, manager, is_tool, annotated)?;
    // The label would otherwise stay, and Argo CD could delete the object.
    if is_tracked_by_label(metadata) && wanted.label(TRACKING_LABEL).is_none() {
        patch.0.push(removal(["metadata", "labels", TRACKING_LABEL]));
    }
    Some(patch)
}

/// Returns the patch that moves the fields of the managers `from` to applies of the manager `to`; `None` if they have
/// none. No value changes. The patch fails if the object changed since `metadata` was read.
pub fn move_fields(metadata: &ObjectMeta, from: &[&str], to: &str) -> Option<Patch> {
    let is_from =
        |entry: &ManagedFieldsEntry| entry.manager.as_deref().is_some_and(|name| from.contains(&name));
    moved(metadata, to, is_from, false)
}

fn moved(
    metadata: &ObjectMeta,
    manager: &str,
    is_from: impl Fn(&ManagedFieldsEntry) -> bool,
    annotated: bool,
) -> Option<Patch> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let is_tool = |entry: &ManagedFieldsEntry| {
        entry.manager.as_deref() != Some(manager) && is_of_object(entry) && is_from(entry)
    };
    if !annotated && !entries.iter().any(is_tool) {
        return None;
    }
    // Searched once: a target may report any number of entries.
    let own = applied_entry(metadata, manager);
    let mut ours = own.and_then(|entry| entry.fields_v1.clone()).map_or_else(empty, |fields| fields.0);
    let mut api_version = own.and_then(|entry| entry.api_version.clone());
    for entry in entries.iter().filter(|entry| is_tool(entry)) {
        if let Some(fields) = &entry.fields_v1 {
            let mut fields = fields.0.clone();
            if is_helms(entry) {
                leave_helms_marks(&mut fields);
            }
            union(&mut ours, &fields);
            api_version = api_version.or_else(|| entry.api_version.clone());
        }
    }
    if let Value::Object(fields) = &mut ours {
        fields.remove("f:status");
    }
    let mut kept: Vec<ManagedFieldsEntry> =
        entries.iter().filter(|entry| !is_tool(entry) && own != Some(*entry)).cloned().collect();
    if api_version.is_some() {
        kept.push(entries::applied(manager, api_version, ours));
    }
    let mut patch = entries::replace(metadata, &kept);
    if annotated {
        patch.0.push(removal(["metadata", "annotations", LAST_APPLIED]));
    }
    Some(patch)
}

fn removal(path: [&str; 3]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    fn wanted(labels: &Value) -> Object {
        let metadata = json!({"name": "a", "labels": labels});
        Object::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    }

    #[allow(clippy::needless_pass_by_value)]
    fn entry(manager: &str, operation: &str, subresource: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn fields_of_tools_move_into_our_entry_and_others_stay() {
        let found = metadata(
            json!({"resourceVersion": "7", "annotations": {LAST_APPLIED: "{}"}, "managedFields": [
                entry("kubectl-client-side-apply", "Update", "", json!({"f:data": {"f:a": {}}, "f:status": {}})),
                entry("helm", "Apply", "", json!({"f:data": {"f:b": {}}})),
                entry("us", "Apply", "", json!({"f:data": {"f:c": {}}})),
                entry("kube-controller-manager", "Update", "status", json!({"f:status": {}})),
                entry("kubectl-edit", "Update", "", json!({"f:data": {"f:user": {}}})),
            ]}),
        );
        let patch = patch(&found, "us", &[], &wanted(&json!({}))).unwrap();
        let operations = serde_json::to_value(&patch).unwrap();
        assert_eq!(operations[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
        assert_eq!(
            operations[2]["path"],
            "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"
        );
        let fields: Vec<ManagedFieldsEntry> = serde_json::from_value(operations[1]["value"].clone()).unwrap();
        let managers: Vec<&str> = fields.iter().map(|f| f.manager.as_deref().unwrap()).collect();
        assert_eq!(managers, ["kube-controller-manager", "kubectl-edit", "us"]);
        let ours = fields[2].fields_v1.as_ref().unwrap();
        assert_eq!(ours.0, json!({"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}}));
    }

    #[test]
    fn helms_marks_stay_and_are_nobodys() {
        let release = "f:meta.helm.sh/release-name";
        let helms = json!({"f:metadata": {"f:annotations": {release: {}, "f:own": {}}}});
        let found =
            metadata(json!({"resourceVersion": "7", "managedFields": [entry("helm", "Update", "", helms)]}));
        let operations =
            serde_json::to_value(patch(&found, "us", &[], &wanted(&json!({}))).unwrap()).unwrap();
        let ours = &operations[1]["value"][0];
        assert_eq!(ours["manager"], "us");
        assert_eq!(ours["fieldsV1"], json!({"f:metadata": {"f:annotations": {"f:own": {}}}}));
    }

    #[test]
    fn argo_cd_tracking_label_is_removed_unless_desired() {
        let label = |value: &str| json!({TRACKING_LABEL: value});
        let removed = |manager: &str, desired: &Value| {
            let fields = json!({"f:metadata": {"f:labels": {format!("f:{TRACKING_LABEL}"): {}}}});
            let found = metadata(json!({
                "resourceVersion": "7", "labels": label("shop"), "managedFields": [entry(manager, "Apply", "", fields)],
            }));
            let patch = patch(&found, "us", &[], &wanted(desired)).unwrap();
            serde_json::to_value(&patch).unwrap().as_array().unwrap().iter().any(|operation| {
                *operation == json!({"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1instance"})
            })
        };
        assert!(removed("argocd-controller", &json!({"app": "a"})));
        assert!(!removed("argocd-controller", &label("shop")));
        assert!(!removed("argocd-controller", &label("another")));
        for other in ["helm", "kubectl", "helm-controller"] {
            assert!(!removed(other, &json!({})), "{other}");
        }
    }

    #[test]
    fn there_is_nothing_to_take_from_strangers() {
        let found = metadata(json!({"managedFields": [
            entry("kubectl-edit", "Update", "", json!({"f:data": {}})),
            entry("us", "Apply", "", json!({"f:data": {}})),
            entry("helm", "Update", "status", json!({"f:status": {}})),
        ]}));
        let wanted = wanted(&json!({}));
        assert!(patch(&found, "us", &[], &wanted).is_none());
        assert!(patch(&found, "us", &["kubectl-edit"], &wanted).is_some());
    }

    #[test]
    fn fields_move_from_named_managers_and_never_from_tools() {
        let found =
            metadata(json!({"resourceVersion": "7", "annotations": {LAST_APPLIED: "{}"}, "managedFields": [
                entry("us", "Apply", "", json!({"f:data": {"f:a": {}}})),
                entry("kubectl", "Apply", "", json!({"f:data": {"f:user": {}}})),
            ]}));
        assert!(move_fields(&found, &["nobody"], "them").is_none());
        let operations = serde_json::to_value(move_fields(&found, &["us"], "them").unwrap()).unwrap();
        assert_eq!(operations.as_array().unwrap().len(), 2, "kubectl's record stays: {operations}");
        let fields = &operations[1]["value"];
        assert_eq!((&fields[0]["manager"], &fields[1]["manager"]), (&json!("kubectl"), &json!("them")));
        assert_eq!(fields[1]["fieldsV1"], json!({"f:data": {"f:a": {}}}));
    }
}

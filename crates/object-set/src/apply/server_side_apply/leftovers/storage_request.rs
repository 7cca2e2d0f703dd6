//! Storage requests of PersistentVolumeClaims, which other managers enlarge and the API server does not reduce. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::managed_fields::entries::fields_of_others;
use crate::object::Identity;

/// Path of the storage request in an API server's answer. Source: `ValidatePersistentVolumeClaimUpdate` in
/// `pkg/apis/core/validation/validation.go` of Kubernetes.
const STORAGE_REQUEST: &str = "spec.resources.requests.storage";
/// Path of the storage request in a set of fields.
const STORAGE_REQUEST_FIELD: &str = "/f:spec/f:resources/f:requests/f:storage";

/// Returns a desired claim without its storage request; `None` unless the request is the only refused field and another
/// manager set the live one. The live request is larger then and stays, since the API server accepts no smaller one.
pub(in super::super) fn without_storage_request(
    desired: &Value,
    identity: &Identity,
    metadata: &ObjectMeta,
    manager: &str,
    refused: &[String],
) -> Option<Value> {
    let is_refused = !refused.is_empty() && refused.iter().all(|path| path == STORAGE_REQUEST);
    if !is_refused || !identity.is("", "PersistentVolumeClaim") {
        return None;
    }
    fields_of_others(metadata, manager).pointer(STORAGE_REQUEST_FIELD)?;
    let mut corrected = desired.clone();
    corrected.pointer_mut("/spec/resources/requests")?.as_object_mut()?.remove("storage")?;
    Some(corrected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_request_that_another_manager_set_is_left_out() {
        let claim = json!({"spec": {"accessModes": ["a"], "resources": {"requests": {"storage": "1Gi"}}}});
        let corrected = |kind: &str, manager: &str, refused: &[&str]| {
            let fields = json!({"f:spec": {"f:resources": {"f:requests": {"f:storage": {}}}}});
            let metadata: ObjectMeta = serde_json::from_value(json!({"managedFields": [
                {"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}]}))
            .unwrap();
            let refused: Vec<String> = refused.iter().map(|path| (*path).to_owned()).collect();
            let identity = Identity::new("", kind, Some("n"), "c");
            without_storage_request(&claim, &identity, &metadata, "us", &refused)
        };
        let kind = "PersistentVolumeClaim";
        let expected = json!({"spec": {"accessModes": ["a"], "resources": {"requests": {}}}});
        assert_eq!(corrected(kind, "them", &[STORAGE_REQUEST]), Some(expected));
        assert_eq!(corrected(kind, "us", &[STORAGE_REQUEST]), None, "the set itself makes it smaller");
        assert_eq!(corrected(kind, "them", &[STORAGE_REQUEST, "spec"]), None, "another field is refused too");
        assert_eq!(corrected(kind, "them", &[]), None);
        assert_eq!(corrected("Thing", "them", &[STORAGE_REQUEST]), None);
    }
}

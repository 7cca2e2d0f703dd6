//! Ensures that no object of a CRD exists when the CRD is deleted: new objects are refused before the objects are
//! listed for the last time.
//!
//! An empty list proves nothing about the time of the DELETE: creating an object does not change the CRD, so a
//! precondition on the CRD's resourceVersion does not detect new objects. The CRD is therefore changed first, in every
//! version: each schema requires a property that it does not define. The API server prunes undefined properties, so no
//! object has the property, and every creation is refused. Existing objects stay readable. Then the objects are listed
//! again, and the DELETE requires the resourceVersion of the changed CRD. If an object exists, or the CRD is not
//! deleted, the property is removed again. An interrupted removal leaves the property, and the next removal or apply of
//! the CRD removes it.

use std::time::Duration;

use json_patch::Patch as JsonPatch;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::discovery::{Mapping, crd_mappings};

/// The required property that no object has.
const REQUIRED_PROPERTY: &str = "thisKindIsBeingRemoved";
/// Number of dry runs after which every refusal counts, even one for another reason than the missing property.
const MAX_REFUSED_PROBES: usize = 20;
/// Maximum number of dry runs. An API server under load may need several seconds to apply a changed schema.
const MAX_PROBES: usize = 100;
/// Pause between two dry runs. An API server applies a changed schema with a delay, and reports no event.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// Time for other API servers of the target to refuse creation as well. The client sees one address, and not which API
/// server answers.
const SCHEMA_PROPAGATION_TIME: Duration = Duration::from_millis(300);

/// Whether objects of a CRD exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrdContents {
    /// No object exists and none can be created while the CRD has this resourceVersion.
    Empty {
        /// The resourceVersion that the DELETE must require.
        resource_version: String,
    },
    /// An object exists; the CRD is as it was.
    InUse,
    /// No version is served, or creation cannot be blocked; the CRD is as it was.
    Unknown,
}

/// Whether objects of a CRD can be created.
#[derive(Clone, Copy)]
enum Creation {
    Blocked,
    Allowed,
}

/// Blocks the creation of objects of a CRD and lists the existing ones. `manager` is the field manager of the change.
///
/// # Errors
/// The target does not answer, forbids a call, or the CRD was changed meanwhile (409 or 422).
pub async fn block_creation(
    client: &Client,
    crd: &DynamicObject,
    manager: &str,
) -> kube::Result<CrdContents> {
    let Some(mapping) = served_mapping(crd) else { return Ok(CrdContents::Unknown) };
    if has_objects(client, &mapping).await? {
        unblock_creation(client, crd, manager).await?;
        return Ok(CrdContents::InUse);
    }
    let blocked = match patch_of(crd, Creation::Blocked) {
        Some(patch) => patch_crd(client, crd, manager, patch).await?,
        None => crd.clone(),
    };
    let mut has_objects_after_block = Ok(None);
    if is_creation_refused(client, &mapping).await {
        // No event announces that the other API servers apply the changed schema.
        tokio::time::sleep(SCHEMA_PROPAGATION_TIME).await;
        has_objects_after_block = has_objects(client, &mapping).await.map(Some);
    }
    if let Ok(Some(false)) = has_objects_after_block {
        return Ok(CrdContents::Empty { resource_version: blocked.resource_version().unwrap_or_default() });
    }
    unblock_creation(client, &blocked, manager).await?;
    Ok(if has_objects_after_block? == Some(true) { CrdContents::InUse } else { CrdContents::Unknown })
}

/// Reports whether objects of a CRD exist, without changing it; `None` if no version is served.
///
/// # Errors
/// The target does not answer, or forbids the list.
pub(super) async fn is_in_use(client: &Client, crd: &DynamicObject) -> kube::Result<Option<bool>> {
    match served_mapping(crd) {
        Some(mapping) => has_objects(client, &mapping).await.map(Some),
        None => Ok(None),
    }
}

async fn has_objects(client: &Client, mapping: &Mapping) -> kube::Result<bool> {
    let listed = mapping.api(client, None).list_metadata(&ListParams::default().limit(1)).await;
    listed.map(|listed| !listed.items.is_empty())
}

/// Allows the creation of objects again, if it was blocked.
///
/// # Errors
/// The target does not answer, forbids the patch, or the CRD was changed meanwhile (409 or 422).
pub async fn unblock_creation(client: &Client, crd: &DynamicObject, manager: &str) -> kube::Result<()> {
    match patch_of(crd, Creation::Allowed) {
        Some(patch) => patch_crd(client, crd, manager, patch).await.map(drop),
        None => Ok(()),
    }
}

/// Allows the creation of objects again if the CRD is not deleted after all: the CRD is still needed, or its DELETE
/// failed. Changes nothing while the CRD is being deleted. A failure is ignored: the next removal or apply of the CRD
/// allows creation again.
pub async fn unblock_kept_crd(client: &Client, name: &str, manager: &str) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &crd_resource());
    let Ok(live) = api.get(name).await else { return };
    if live.metadata.deletion_timestamp.is_none() {
        drop(unblock_creation(client, &live, manager).await);
    }
}

/// Removes the required property from the spec of a live CRD, before an apply copies parts of that spec.
pub(crate) fn remove_required_property(spec: &mut Value) {
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let schema = version.pointer_mut("/schema/openAPIV3Schema").and_then(Value::as_object_mut);
        let Some(schema) = schema else { continue };
        let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) else { continue };
        required.retain(|name| name != REQUIRED_PROPERTY);
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

/// Returns the kind CustomResourceDefinition.
fn crd_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    ApiResource::from_gvk(&kind)
}

/// Returns the mapping of a served version: of the storage version if it is served, since it is read without the CRD's
/// conversion webhook.
fn served_mapping(crd: &DynamicObject) -> Option<Mapping> {
    let stored = crd.data.pointer("/spec/versions").and_then(Value::as_array)?;
    let stored = stored.iter().find(|version| version["storage"] == true)?["name"].as_str()?.to_owned();
    let mut mappings = crd_mappings(crd.data.get("spec")?);
    mappings.sort_by_key(|mapping| mapping.resource.version != stored);
    mappings.into_iter().next()
}

async fn patch_crd(
    client: &Client,
    crd: &DynamicObject,
    manager: &str,
    patch: JsonPatch,
) -> kube::Result<DynamicObject> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &crd_resource());
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    api.patch(&crd.name_any(), &params, &Patch::<()>::Json(patch)).await
}

/// Returns the patch that adds the required property to every schema ([`Creation::Blocked`]) or removes it
/// ([`Creation::Allowed`]); `None` if nothing changes.
fn patch_of(crd: &DynamicObject, creation: Creation) -> Option<JsonPatch> {
    let versions = crd.data.pointer("/spec/versions")?.as_array()?;
    let changes = versions.iter().enumerate().filter_map(|(index, version)| {
        let schema = version.pointer("/schema/openAPIV3Schema")?;
        let path = format!("/spec/versions/{index}/schema/openAPIV3Schema/required");
        let required = schema.get("required").and_then(Value::as_array);
        let index_in_list = required.and_then(|all| all.iter().position(|name| name == REQUIRED_PROPERTY));
        match (creation, index_in_list, required) {
            (Creation::Blocked, None, Some(_)) => {
                Some(json!({"op": "add", "path": format!("{path}/-"), "value": REQUIRED_PROPERTY}))
            }
            (Creation::Blocked, None, None) => {
                Some(json!({"op": "add", "path": path, "value": [REQUIRED_PROPERTY]}))
            }
            (Creation::Allowed, Some(_), Some(all)) if all.len() == 1 => {
                Some(json!({"op": "remove", "path": path}))
            }
            (Creation::Allowed, Some(index), _) => {
                Some(json!({"op": "remove", "path": format!("{path}/{index}")}))
            }
            _ => None,
        }
    });
    let changes: Vec<Value> = changes.collect();
    if changes.is_empty() {
        return None;
    }
    let meta = &crd.metadata;
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": meta.uid}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version}),
    ];
    operations.extend(changes);
    serde_json::from_value(Value::Array(operations)).ok()
}

/// Reports whether the API server refuses new objects, by dry runs. A refusal for another reason (a missing right, a
/// webhook) hides whether the schema refuses the object too. Such a refusal counts only after [`MAX_REFUSED_PROBES`]
/// dry runs, when the changed schema is in effect. A failed call, or the answer of an overloaded server, does not count
/// as a refusal.
async fn is_creation_refused(client: &Client, mapping: &Mapping) -> bool {
    let api = mapping.api(client, mapping.namespaced.then_some("default"));
    let probe = DynamicObject::new("creation-probe", &mapping.resource);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    for number in 1..=MAX_PROBES {
        let is_refused = match api.create(&params, &probe).await {
            Err(kube::Error::Api(status)) if status.message.contains(REQUIRED_PROPERTY) => return true,
            Err(kube::Error::Api(status)) => !matches!(status.code, 429 | 502..=504),
            Err(_) | Ok(_) => false,
        };
        if is_refused && number > MAX_REFUSED_PROBES {
            return true;
        }
        // No event announces that the API server applies the changed schema.
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    false
}

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod tests {
    use super::*;

    fn crd(required: &Value) -> DynamicObject {
        let mut schema = json!({"type": "object"});
        if !required.is_null() {
            schema["required"] = required.clone();
        }
        let version = json!({"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}});
        serde_json::from_value(json!({
            "metadata": {"name": "things.x.io", "uid": "u", "resourceVersion": "7"},
            "spec": {"group": "x.io", "names": {"kind": "Thing", "plural": "things"}, "scope": "Namespaced",
                "versions": [version.clone(), version]},
        }))
        .unwrap()
    }

    fn changed(crd: &DynamicObject, creation: Creation) -> Option<DynamicObject> {
        let patch = patch_of(crd, creation)?;
        let mut value = serde_json::to_value(crd).unwrap();
        json_patch::patch(&mut value, &patch).unwrap();
        Some(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn creation_is_blocked_in_all_versions_and_schemas_restored() {
        for required in [json!(null), json!([]), json!(["spec"]), json!(["spec", "data"])] {
            let before = crd(&required);
            let blocked = changed(&before, Creation::Blocked).unwrap();
            for index in 0..2 {
                let path = format!("/spec/versions/{index}/schema/openAPIV3Schema/required");
                let names = blocked.data.pointer(&path).unwrap().as_array().unwrap();
                assert!(names.contains(&json!(REQUIRED_PROPERTY)), "{names:?}");
            }
            assert!(changed(&blocked, Creation::Blocked).is_none(), "the property is added only once");
            let mut spec = blocked.data["spec"].clone();
            remove_required_property(&mut spec);
            let after = changed(&blocked, Creation::Allowed).unwrap();
            assert_eq!(spec, after.data["spec"]);
            let is_same = after.data == before.data || required == json!([]);
            assert!(is_same, "{}", after.data);
            assert!(changed(&before, Creation::Allowed).is_none());
        }
    }

    #[test]
    fn a_crd_that_changed_meanwhile_is_not_patched() {
        let patch = patch_of(&crd(&json!(null)), Creation::Blocked).unwrap();
        let mut newer = serde_json::to_value(crd(&json!(null))).unwrap();
        newer["metadata"]["resourceVersion"] = json!("8");
        assert!(json_patch::patch(&mut newer, &patch).is_err());
    }
}

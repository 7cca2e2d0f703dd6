//! Adds and removes finalizers by JSON patch, for objects whose finalizers are not owned by server-side apply.

use kube::{
    Api, Resource,
    api::{ObjectMeta, PartialObjectMeta, Patch, PatchParams},
};
use kyma_api::Reason;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::calls::objects::is_absent;
use crate::failure::Failure;

/// Sends such a patch to the hub. Succeeds if the API server says that the object is gone ([`is_absent`]).
///
/// # Errors
/// `ApplyConflict` if the object was changed meanwhile, which also requeues it; otherwise the failure of the hub.
pub async fn patch_finalizers<K>(api: &Api<K>, name: &str, patch: json_patch::Patch) -> Result<(), Failure>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let patched: kube::Result<PartialObjectMeta<K>> =
        api.patch_metadata(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await;
    let action = format!("change the finalizers of {name}");
    match patched {
        Ok(_) => Ok(()),
        Err(error) if is_absent(api, name, &error) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 422 || status.is_conflict() => {
            Err(Failure::new(Reason::ApplyConflict, action))
        }
        Err(error) => Err(Failure::hub(&action, &error)),
    }
}

/// Returns a JSON patch that adds `finalizer` if the object is unchanged; `None` if the finalizer is present.
pub fn add_finalizer(meta: &ObjectMeta, finalizer: &str) -> Option<json_patch::Patch> {
    let held = meta.finalizers.as_deref().unwrap_or_default();
    if held.iter().any(|name| name == finalizer) {
        return None;
    }
    let add = if held.is_empty() {
        json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizer]})
    } else {
        json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizer})
    };
    patch(json!([
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        add,
    ]))
}

/// Returns a JSON patch that removes `finalizer`, with tests for its index, the uid and the generation: a new
/// generation may contain a deletion request. `None` if the finalizer is absent.
pub fn remove_finalizer(meta: &ObjectMeta, finalizer: &str) -> Option<json_patch::Patch> {
    let index = meta.finalizers.iter().flatten().position(|name| name == finalizer)?;
    let place = format!("/metadata/finalizers/{index}");
    let test = |path: &str, value: Value| json!({"op": "test", "path": path, "value": value});
    // Kinds without a spec have no generation.
    let wish = meta.generation.map(|generation| test("/metadata/generation", json!(generation)));
    let mut operations = vec![test("/metadata/uid", json!(meta.uid)), test(&place, json!(finalizer))];
    operations.extend(wish);
    operations.push(json!({"op": "remove", "path": place}));
    patch(Value::Array(operations))
}

fn patch(operations: Value) -> Option<json_patch::Patch> {
    // The operations above always form a valid patch.
    serde_json::from_value(operations).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(finalizers: &[&str]) -> ObjectMeta {
        let finalizers: Vec<String> = finalizers.iter().map(|name| (*name).to_owned()).collect();
        ObjectMeta {
            uid: Some("u".into()),
            resource_version: Some("7".into()),
            finalizers: Some(finalizers).filter(|held| !held.is_empty()),
            ..ObjectMeta::default()
        }
    }

    /// Returns the finalizers after the API server applied a patch.
    fn patched(live: &ObjectMeta, patch: &json_patch::Patch) -> Result<Vec<String>, json_patch::PatchError> {
        let mut object = json!({"metadata": live});
        json_patch::patch(&mut object, patch)?;
        Ok(serde_json::from_value(object["metadata"]["finalizers"].clone()).unwrap())
    }

    #[test]
    fn it_is_added_once_and_after_those_of_others() {
        let add = |held: &[&str]| {
            let held = meta(held);
            add_finalizer(&held, "ours").map(|patch| patched(&held, &patch).unwrap())
        };
        assert_eq!(add(&[]).unwrap(), ["ours"]);
        assert_eq!(add(&["theirs"]).unwrap(), ["theirs", "ours"]);
        assert_eq!(add(&["ours", "theirs"]), None);
    }

    #[test]
    fn only_it_is_taken_out() {
        let held = meta(&["a", "ours", "b"]);
        assert_eq!(patched(&held, &remove_finalizer(&held, "ours").unwrap()).unwrap(), ["a", "b"]);
        assert_eq!(remove_finalizer(&meta(&["a"]), "ours"), None);
        assert_eq!(remove_finalizer(&meta(&[]), "ours"), None);
    }

    #[test]
    fn a_list_that_moved_and_another_object_or_wish_are_left_alone() {
        let removal = remove_finalizer(&meta(&["a", "ours"]), "ours").unwrap();
        assert!(patched(&meta(&["ours"]), &removal).is_err());
        let other = ObjectMeta { uid: Some("other".into()), ..meta(&["a", "ours"]) };
        assert!(patched(&other, &removal).is_err());
        let wished = |generation| ObjectMeta { generation: Some(generation), ..meta(&["ours"]) };
        let removal = remove_finalizer(&wished(2), "ours").unwrap();
        assert!(patched(&wished(2), &removal).is_ok() && patched(&wished(3), &removal).is_err());
        let addition = add_finalizer(&meta(&["a"]), "ours").unwrap();
        let newer = ObjectMeta { resource_version: Some("8".into()), ..meta(&["a"]) };
        assert!(patched(&newer, &addition).is_err());
    }
}

//! Answers of the API server that are no failures, and creation of objects that do not exist yet.

use std::fmt::Debug;

use kube::api::{ListParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};

/// A resourceVersion that no object has: etcd's first revision, which contains no objects.
const BEFORE_ALL: &str = "1";

/// Turns 404 into success, for removals.
///
/// # Errors
/// Everything but 404.
pub fn gone_is_fine(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    }
}

/// Reports whether another writer changed the object between read and write. The next reconcile reads it again.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns the live metadata of the object of this name by a list with a field selector, since a role that allows
/// list and watch need not allow get.
///
/// # Errors
/// As for a list.
pub async fn live_metadata<K>(api: &Api<K>, name: &str) -> kube::Result<Option<PartialObjectMeta<K>>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(api.list_metadata(&only).await?.items.pop())
}

/// Creates an object if none of its name exists; otherwise changes nothing.
///
/// An API server delays a POST for two seconds after the CRD of the kind arrived, but not an apply. With a
/// resourceVersion that no object has, an apply creates the object or returns a conflict.
///
/// # Errors
/// [`is_conflict`]: the object exists, or a concurrent writer changed it. Otherwise as for a create.
pub async fn create_new<K>(api: &Api<K>, manager: &str, object: &K) -> kube::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let mut body = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    body["metadata"]["resourceVersion"] = BEFORE_ALL.into();
    match api.patch(&object.name_any(), &PatchParams::apply(manager), &Patch::Apply(&body)).await {
        // Some objects can be created but not applied: an apply checks the keys of lists, for example.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 415 | 422 | 500) => {
            let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
            api.create(&params, object).await
        }
        other => other,
    }
}

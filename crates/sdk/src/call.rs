//! Answers that are no failure, and objects that are made only where there is none.

use std::fmt::Debug;

use kube::api::{ListParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};

/// A resourceVersion that no object has: etcd's first state, in which there are none.
const BEFORE_ALL: &str = "1";

/// What is gone need not be removed.
///
/// # Errors
/// Everything but 404.
pub fn gone_is_fine(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other,
    }
}

/// Whether somebody wrote between a look and a write; the next look tells.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// The metadata of the object of this name as the API server has it now, by a list of one: who may watch a kind need
/// not be allowed to get as well.
///
/// # Errors
/// As a list.
pub async fn live_metadata<K>(api: &Api<K>, name: &str) -> kube::Result<Option<PartialObjectMeta<K>>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(api.list_metadata(&only).await?.items.pop())
}

/// Makes an object where there is none of its name; where there is one it stays as it is.
///
/// A plain create is held up for two seconds by an API server that has just got the CRD of the kind. An apply is not:
/// with a resourceVersion that no object has it creates, or it is a conflict.
///
/// # Errors
/// [`is_conflict`]: there is one, or somebody was faster in something else that counts. Else as a create.
pub async fn create_new<K>(api: &Api<K>, manager: &str, object: &K) -> kube::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let mut body = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    body["metadata"]["resourceVersion"] = BEFORE_ALL.into();
    match api.patch(&object.name_any(), &PatchParams::apply(manager), &Patch::Apply(&body)).await {
        // Not all that can be created can be merged: an apply minds the keys of lists, for one.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 415 | 422 | 500) => {
            let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
            api.create(&params, object).await
        }
        other => other,
    }
}

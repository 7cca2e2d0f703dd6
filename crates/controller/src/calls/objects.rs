//! Proof that an object does not exist, answers of the API server that are no failures, and creation of objects that
//! do not exist yet.

use std::fmt::Debug;

use kube::api::{ListParams, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use kyma_api::refusal::proves_absence;
use serde::{Serialize, de::DeserializeOwned};

/// A resourceVersion that no object has: etcd's first revision, which contains no objects.
const BEFORE_ALL: &str = "1";

/// Reports whether an error proves that no object of this name exists ([`proves_absence`]). A 404 of a proxy, or for a
/// kind that is not served, does not.
pub fn is_absent<K: Resource>(api: &Api<K>, name: &str, error: &kube::Error) -> bool {
    let (group, plural) = group_and_plural(api.resource_url());
    matches!(error, kube::Error::Api(status) if proves_absence(status, group, plural, name))
}

/// Returns API group and resource in the URL of a resource, `/api/v1/...` or `/apis/<group>/<version>/...`.
fn group_and_plural(url: &str) -> (&str, &str) {
    let group = url.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
    let plural = url.rsplit('/').next();
    (group.unwrap_or_default(), plural.unwrap_or_default())
}

/// Turns the error of a call for one object into `None` if it proves that the object does not exist ([`is_absent`]).
///
/// # Errors
/// Every other error, also a 404 that does not name the object.
pub fn none_if_absent<K: Resource, T>(
    api: &Api<K>,
    name: &str,
    result: kube::Result<T>,
) -> kube::Result<Option<T>> {
    match result {
        Err(error) if is_absent(api, name, &error) => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the object of this name; `None` only if the API server says that it does not exist. The `get_opt` of kube
/// returns `None` for every 404.
///
/// # Errors
/// Errors of a GET, also a 404 that does not name the object.
pub async fn find_object<K>(api: &Api<K>, name: &str) -> kube::Result<Option<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    none_if_absent(api, name, api.get(name).await)
}

/// Returns the metadata of the object of this name, as [`find_object`] returns the object.
///
/// # Errors
/// Errors of [`find_object`].
pub async fn find_metadata<K>(api: &Api<K>, name: &str) -> kube::Result<Option<PartialObjectMeta<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    none_if_absent(api, name, api.get_metadata(name).await)
}

/// Reports whether another writer changed the object between read and write. The next reconcile reads it again.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns the live metadata of the object of this name by a list with a field selector, since a role that allows
/// list and watch need not allow get.
///
/// # Errors
/// Errors of a list.
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

#[cfg(test)]
mod tests {
    use super::group_and_plural;

    #[test]
    fn the_url_of_a_resource_has_its_group_and_plural() {
        let rows = [
            ("/api/v1/namespaces", ("", "namespaces")),
            ("/api/v1/namespaces/n/configmaps", ("", "configmaps")),
            ("/apis/apps/v1/deployments", ("apps", "deployments")),
            ("/apis/x.io/v1/namespaces/n/things", ("x.io", "things")),
        ];
        for (url, expected) in rows {
            assert_eq!(group_and_plural(url), expected, "{url}");
        }
    }
}

//! Applies the status of the object that was read, never to a successor of the same name.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::core::Status;
use kube::core::response::{StatusDetails, reason};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::calls::objects::{is_conflict, live_metadata};
use crate::hub::hub_apply;

/// Maximum number of tries when other writers change the object.
const MAX_TRIES: usize = 5;

/// Applies `status` with [`hub_apply`] to the object with the metadata `seen`, also if other fields of it changed
/// since.
///
/// An API server ignores `metadata.uid` in an apply to a status, so a late apply would reach a successor of the same
/// name. The API server checks `metadata.resourceVersion`, which this function sends.
///
/// # Errors
/// 404: the object is gone, or another object has its name. 409: the object was changed during each of five tries.
/// Other errors are those of an apply.
pub async fn apply_status<K>(
    api: &Api<K>,
    manager: &str,
    seen: &ObjectMeta,
    status: &Value,
) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let name = seen.name.as_deref().unwrap_or_default();
    let mut version = seen.resource_version.clone();
    let mut tries = 1;
    loop {
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": { "name": name, "namespace": seen.namespace, "resourceVersion": version },
            "status": status,
        });
        match api.patch_status(name, &hub_apply(manager), &Patch::Apply(&body)).await {
            Err(error) if is_conflict(&error) && tries < MAX_TRIES => {
                let live = live_metadata(api, name).await?.map(|live| live.metadata);
                let same = live.filter(|live| live.uid == seen.uid);
                version = same.ok_or_else(|| gone::<K>(name))?.resource_version;
                tries += 1;
            }
            answer => return answer,
        }
    }
}

/// Returns the error of an API server for an absent object ([`is_absent`](crate::is_absent)).
fn gone<K: Resource<DynamicType = ()>>(name: &str) -> kube::Error {
    let details = StatusDetails {
        name: name.to_owned(),
        group: K::group(&()).into_owned(),
        kind: K::plural(&()).into_owned(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    };
    let status = Status::failure(&format!("{name} no longer exists"), reason::NOT_FOUND).with_code(404);
    kube::Error::Api(status.with_details(details).boxed())
}

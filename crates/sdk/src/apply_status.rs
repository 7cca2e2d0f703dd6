//! A status for the object that was read, and for no other of its name.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::core::Status;
use kube::core::response::reason;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{hub_apply, is_conflict, live_metadata};

/// How often it is tried while others write the same object.
const TRIES: usize = 5;

/// Applies `status` as [`hub_apply`] does to the object that has the metadata `seen`; what else changed of it meanwhile
/// does not matter.
///
/// In the status of a custom resource an API server takes no notice of `metadata.uid`, so one that comes late would be
/// that of a successor of the same name. It does heed `metadata.resourceVersion`.
///
/// # Errors
/// 404: the object is gone, whether or not another one has its name by now. 409: it was changed during each of five
/// tries. Else as an apply.
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
            Err(error) if is_conflict(&error) && tries < TRIES => {
                let live = live_metadata(api, name).await?.map(|live| live.metadata);
                let same = live.filter(|live| live.uid == seen.uid);
                version = same.ok_or_else(|| gone(name))?.resource_version;
                tries += 1;
            }
            answer => return answer,
        }
    }
}

fn gone(name: &str) -> kube::Error {
    let status = Status::failure(&format!("{name} is gone"), reason::NOT_FOUND).with_code(404);
    kube::Error::Api(status.boxed())
}

//! Waits for objects in a watch, with a deadline.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Result, bail};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Resource};
use kyma_api::Reason;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Deadline for one change to reach its target.
const DEADLINE: Duration = Duration::from_mins(2);

/// Waits until `wanted` holds for the object, which may be absent, and returns it.
///
/// # Errors
/// The condition does not hold within two minutes, or the apiserver does not respond.
pub async fn until<K>(what: &str, api: Api<K>, name: &str, wanted: impl Condition<K>) -> Result<Option<K>>
where
    K: Clone + Debug + Send + DeserializeOwned + Resource + 'static,
{
    // Boxed, since the future holds whole objects.
    let waiting = Box::pin(await_condition(api.clone(), name, wanted));
    match tokio::time::timeout(DEADLINE, waiting).await {
        Ok(found) => Ok(found?),
        Err(_) => bail!("{what}: not within {DEADLINE:?}; it is {:?}", api.get_opt(name).await?),
    }
}

/// Reports whether a condition has this status and reason.
pub fn has_condition(object: &Value, type_: &str, status: &str, reason: Reason) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == type_ && condition["status"] == status && condition["reason"] == reason.as_str()
    })
}

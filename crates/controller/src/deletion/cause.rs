//! Distinguishes the deletion of one hub object from the deletion of its namespace or its CRD.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ObjectMeta;
use kube::{Api, Client};

/// Returns the creation time of the youngest of the namespace and the CRDs; `None` if one of them is absent or being
/// deleted. Reads live, not from a cache.
///
/// # Errors
/// If the hub does not answer.
pub async fn namespace_and_crds_since(
    hub: &Client,
    namespace: &str,
    crds: &[&str],
) -> kube::Result<Option<Timestamp>> {
    let namespaces: Api<Namespace> = Api::all(hub.clone());
    let found = namespaces.get_metadata_opt(namespace).await?;
    let Some(mut latest) = found.and_then(|found| exists_since(&found.metadata)) else { return Ok(None) };
    let definitions: Api<CustomResourceDefinition> = Api::all(hub.clone());
    for name in crds {
        let found = definitions.get_metadata_opt(name).await?;
        let Some(since) = found.and_then(|found| exists_since(&found.metadata)) else { return Ok(None) };
        latest = latest.max(since);
    }
    Ok(Some(latest))
}

/// Reports whether an object that no longer exists was deleted by itself: its namespace and its CRD exist since
/// before it was created, and still do. `since` is the result of [`namespace_and_crds_since`]. Returns false for an
/// object of unknown age.
///
/// ```
/// use jiff::Timestamp;
/// use kyma_controller::is_deleted_alone;
///
/// let at = |second| Timestamp::from_second(second).ok();
/// assert!(is_deleted_alone(at(20), at(10)));
/// assert!(!is_deleted_alone(at(20), at(30)), "the CRD was recreated, so its deletion removed the object");
/// ```
pub fn is_deleted_alone(created: Option<Timestamp>, since: Option<Timestamp>) -> bool {
    created.zip(since).is_some_and(|(created, since)| since <= created)
}

/// Returns since when an object exists; `None` if it is being deleted or its age is unknown.
pub(crate) fn exists_since(meta: &ObjectMeta) -> Option<Timestamp> {
    let created = meta.creation_timestamp.as_ref().map(|time| time.0);
    created.filter(|_| meta.deletion_timestamp.is_none())
}

#[cfg(test)]
mod tests {
    use axum::http::{StatusCode, Uri};
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;

    const CRDS: [&str; 2] = ["as.x.io", "bs.x.io"];

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    /// Returns the result for a hub that has these objects: metadata by name.
    async fn since(objects: Value) -> Option<Timestamp> {
        let answer = move |uri: Uri| {
            let name = uri.path().rsplit('/').next().unwrap_or_default();
            let answer = match objects.get(name) {
                Some(metadata) => (
                    StatusCode::OK,
                    Json(json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                        "metadata": metadata})),
                ),
                None => (
                    StatusCode::NOT_FOUND,
                    Json(json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                        "message": "not found", "reason": "NotFound", "code": 404})),
                ),
            };
            async move { answer }
        };
        let server: Router = Router::new().fallback(answer);
        namespace_and_crds_since(&Client::new(server, "default"), "hub", &CRDS).await.unwrap()
    }

    fn created(second: i64) -> Value {
        json!({"name": "any", "creationTimestamp": at(second).unwrap().to_string()})
    }

    fn terminating(second: i64) -> Value {
        let mut metadata = created(second);
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        metadata
    }

    #[tokio::test]
    async fn namespace_and_crds_exist_since_the_newest_was_created() {
        for (namespace, first, second) in [(30, 10, 20), (10, 30, 20), (10, 20, 30)] {
            let objects = json!({"hub": created(namespace), "as.x.io": created(first),
                "bs.x.io": created(second)});
            assert_eq!(since(objects).await, at(30), "{namespace} {first} {second}");
        }
    }

    #[tokio::test]
    async fn an_absent_or_terminating_namespace_or_crd_gives_none() {
        let all = json!({"hub": created(10), "as.x.io": created(10), "bs.x.io": created(10)});
        for name in ["hub", "as.x.io", "bs.x.io"] {
            let mut objects = all.clone();
            objects[name] = terminating(10);
            assert_eq!(since(objects).await, None, "{name} is being deleted");
            let mut objects = all.clone();
            objects.as_object_mut().unwrap().remove(name);
            assert_eq!(since(objects).await, None, "{name} is absent");
        }
    }

    #[test]
    fn a_deletion_is_proven_only_by_an_older_namespace_and_crd() {
        assert!(is_deleted_alone(at(20), at(10)) && is_deleted_alone(at(10), at(10)));
        assert!(!is_deleted_alone(at(10), at(11)), "recreated");
        assert!(!is_deleted_alone(at(10), None), "absent or being deleted");
        assert!(!is_deleted_alone(None, at(10)), "unknown age");
    }
}

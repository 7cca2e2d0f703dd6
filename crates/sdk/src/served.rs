//! Proof that a cluster does not serve a kind.
//!
//! An API server answers calls for such a kind with 404 and plain text. A proxy in front of it may answer any call like
//! that.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ApiResource;
use kube::core::{Status, response::reason};
use kube::{Api, Client};

/// Reports whether the cluster has no CRD of a kind. A kind of an aggregated API has none either.
///
/// # Errors
/// If the CRD cannot be read, which includes a 404 that does not name it: the API server did not write that.
pub async fn is_crd_absent(client: &Client, resource: &ApiResource) -> kube::Result<bool> {
    let name = format!("{}.{}", resource.plural, resource.group);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    match definitions.get_metadata(&name).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if is_absent(&status, &name) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Turns the failure of a list into `None` if the cluster does not serve the kind, proved by [`is_crd_absent`].
///
/// # Errors
/// The failure of the list, or of the read of the CRD.
pub async fn none_if_unserved<T>(
    listed: kube::Result<T>,
    client: &Client,
    resource: &ApiResource,
) -> kube::Result<Option<T>> {
    match listed {
        Err(error) if is_404(&error) => {
            if is_crd_absent(client, resource).await? {
                Ok(None)
            } else {
                Err(error)
            }
        }
        listed => listed.map(Some),
    }
}

fn is_404(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn is_absent(status: &Status, name: &str) -> bool {
    let details = status.details.as_ref();
    status.reason == reason::NOT_FOUND && details.is_some_and(|details| details.name == name)
}

#[cfg(test)]
pub(crate) mod tests {
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use kube::api::{DynamicObject, ListParams};
    use kyma_api::Pause;
    use serde_json::json;

    use super::*;

    /// The answer of an API server for a kind that it does not serve. Proxies write it too.
    pub(crate) fn page() -> (StatusCode, String) {
        (StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
    }

    /// The answer of an API server for an absent CRD.
    pub(crate) fn absent(crd: &str) -> (StatusCode, String) {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404,
            "reason": "NotFound", "message": "not found",
            "details": {"name": crd, "group": "apiextensions.k8s.io", "kind": "customresourcedefinitions"},
        });
        (StatusCode::NOT_FOUND, status.to_string())
    }

    /// The answer of an API server for the metadata of a CRD.
    pub(crate) fn present(crd: &str) -> (StatusCode, String) {
        let metadata = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": crd},
        });
        (StatusCode::OK, metadata.to_string())
    }

    /// Returns a client for a cluster that answers reads of CRDs with `crd`, and all other calls with [`page`].
    pub(crate) fn cluster(crd: (StatusCode, String)) -> Client {
        let answer = move |uri: Uri| {
            let is_crd = uri.path().starts_with("/apis/apiextensions.k8s.io/");
            let answer = if is_crd { crd.clone() } else { page() };
            async move { answer }
        };
        let server: Router = Router::new().fallback(answer);
        Client::new(server, "default")
    }

    #[tokio::test]
    async fn only_an_absent_crd_proves_that_a_kind_is_not_served() {
        let (kind, crd) = (ApiResource::erase::<Pause>(&()), "pauses.operator.kyma-project.io");
        let forbidden = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "no",
        });
        let rows = [
            ("absent", absent(crd), Some(true)),
            ("present", present(crd), Some(false)),
            ("a proxy answers", page(), None),
            ("another object is absent", absent("others.x.io"), None),
            ("forbidden", (StatusCode::FORBIDDEN, forbidden.to_string()), None),
        ];
        for (name, answer, expected) in rows {
            let client = cluster(answer);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let listed = api.list(&ListParams::default()).await;
            let is_missing = listed.as_ref().is_err_and(is_404);
            assert!(is_missing, "{name}: a proxy answers like an API server");
            assert_eq!(is_crd_absent(&client, &kind).await.ok(), expected, "{name}");
            let listed = none_if_unserved(listed, &client, &kind).await;
            assert_eq!(matches!(listed, Ok(None)), expected == Some(true), "{name}");
            assert_eq!(listed.is_err(), expected != Some(true), "{name}");
        }
    }

    #[tokio::test]
    async fn a_list_that_succeeds_or_fails_otherwise_stays_as_it_is() {
        let (kind, client) = (ApiResource::erase::<Pause>(&()), cluster(page()));
        assert_eq!(none_if_unserved(Ok(1), &client, &kind).await.ok(), Some(Some(1)));
        let conflict = Status::failure("no", reason::CONFLICT).with_code(409);
        let failed = none_if_unserved::<u8>(Err(kube::Error::Api(conflict.boxed())), &client, &kind).await;
        assert!(matches!(failed, Err(kube::Error::Api(status)) if status.code == 409));
    }
}

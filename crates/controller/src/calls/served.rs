//! Proof that a cluster does not serve a kind.
//!
//! An API server answers calls for such a kind with 404 and plain text. A proxy in front of it may answer any call like
//! that.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ApiResource, ObjectMeta};
use kube::{Api, Client};

use crate::calls::objects::live_metadata;

/// Reports whether the cluster has no CRD of a kind, by a list of CRDs with this name. A built-in kind or one of an
/// aggregated API has none either.
///
/// # Errors
/// If the CRDs cannot be listed. A 404 is such a failure, since all API servers serve CRDs.
pub async fn is_crd_absent(client: &Client, resource: &ApiResource) -> kube::Result<bool> {
    let name = format!("{}.{}", resource.plural, resource.group);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    Ok(live_metadata(&definitions, &name).await?.is_none())
}

/// Label on the `APIService`s that the API server creates for the versions of CRDs and of its own kinds. Source:
/// `AutoRegisterManagedLabel` in `staging/src/k8s.io/kube-aggregator/pkg/controllers/autoregister` of Kubernetes.
const AUTOMANAGED_LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Turns the 404 of a call into `None` if the cluster has neither a CRD of the kind ([`is_crd_absent`]) nor an
/// aggregated API that may serve it. For groups of Kubernetes itself this proves nothing, so their 404 stays a failure.
///
/// # Errors
/// The failure of the call, or of the reads of CRD and `APIService` or groups.
pub async fn none_if_unserved<T>(
    client: &Client,
    resource: &ApiResource,
    result: kube::Result<T>,
) -> kube::Result<Option<T>> {
    match result {
        Err(error) if is_404(&error) && !may_be_built_in(&resource.group) => {
            let is_unserved =
                is_crd_absent(client, resource).await? && !may_be_aggregated(client, resource).await?;
            if is_unserved { Ok(None) } else { Err(error) }
        }
        result => result.map(Some),
    }
}

/// Reports whether an aggregated API may serve a kind without CRD: one is registered for the group and version, and
/// its server may be down.
async fn may_be_aggregated(client: &Client, resource: &ApiResource) -> kube::Result<bool> {
    let services: Api<APIService> = Api::all(client.clone());
    match live_metadata(&services, &format!("{}.{}", resource.version, resource.group)).await {
        Ok(service) => Ok(service.is_some_and(|service| !is_automanaged(&service.metadata))),
        Err(kube::Error::Api(status)) if status.code == 403 => is_discovered(client, resource).await,
        Err(error) => Err(error),
    }
}

/// Reports whether discovery, which every role may read, shows a kind. The server of its group and version answers, the
/// API server itself for CRDs.
///
/// # Errors
/// If the version is served and its server does not answer.
async fn is_discovered(client: &Client, resource: &ApiResource) -> kube::Result<bool> {
    let groups = client.list_api_groups().await?.groups;
    let mut versions =
        groups.iter().filter(|group| group.name == resource.group).flat_map(|group| &group.versions);
    if !versions.any(|version| version.version == resource.version) {
        return Ok(false);
    }
    let served = client.list_api_group_resources(&resource.api_version).await?;
    Ok(served.resources.iter().any(|served| served.name == resource.plural))
}

fn is_automanaged(service: &ObjectMeta) -> bool {
    service.labels.as_ref().is_some_and(|labels| labels.contains_key(AUTOMANAGED_LABEL))
}

fn is_404(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Reports whether Kubernetes itself can serve the group.
fn may_be_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

#[cfg(test)]
pub(crate) mod tests {
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use kube::api::{DynamicObject, ListParams};
    use kube::core::{Status, response::reason};
    use kyma_api::Pause;
    use serde_json::{Value, json};

    use super::*;

    /// Path of the version of Pauses.
    const VERSION: &str = "/apis/operator.kyma-project.io/v1alpha1";

    /// The answer of an API server for a kind that it does not serve. Proxies write it too.
    pub(crate) fn page() -> (StatusCode, String) {
        (StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
    }

    /// The answer of an API server to a list of CRDs with the name of an absent one.
    pub(crate) fn absent() -> (StatusCode, String) {
        (StatusCode::OK, list(&json!([])))
    }

    /// The answer of an API server to a list of CRDs with this name.
    pub(crate) fn present(crd: &str) -> (StatusCode, String) {
        let item = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": crd},
        });
        (StatusCode::OK, list(&json!([item])))
    }

    /// The answer of an API server to a list of `APIService`s with this name.
    fn registered(labels: &Value) -> (StatusCode, String) {
        let item = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "v1alpha1.operator.kyma-project.io", "labels": labels},
        });
        (StatusCode::OK, list(&json!([item])))
    }

    fn forbidden() -> (StatusCode, String) {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "no",
        });
        (StatusCode::FORBIDDEN, status.to_string())
    }

    /// The answer of an API server to a read of its groups.
    fn groups(names: &[&str]) -> (StatusCode, String) {
        let version = json!({"groupVersion": "x/v1alpha1", "version": "v1alpha1"});
        let groups: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "versions": [version], "preferredVersion": version}))
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "APIGroupList", "groups": groups});
        (StatusCode::OK, list.to_string())
    }

    fn group() -> (StatusCode, String) {
        groups(&["operator.kyma-project.io"])
    }

    /// The answer of an API server to a read of the kinds of a version.
    fn kinds(plurals: &[&str]) -> (StatusCode, String) {
        let kinds: Vec<Value> = plurals
            .iter()
            .map(|name| json!({"name": name, "singularName": "", "namespaced": true, "kind": "Any", "verbs": ["get"]}))
            .collect();
        let list = json!({
            "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": VERSION.trim_start_matches("/apis/"),
            "resources": kinds,
        });
        (StatusCode::OK, list.to_string())
    }

    /// The answer of an API server for a version whose server does not answer.
    fn down() -> (StatusCode, String) {
        (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n".to_owned())
    }

    fn list(items: &Value) -> String {
        let list = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items,
        });
        list.to_string()
    }

    /// Returns a client for a cluster without aggregated APIs that answers reads of CRDs with `crd`, and all other
    /// calls with [`page`].
    pub(crate) fn cluster(crd: (StatusCode, String)) -> Client {
        cluster_with(crd, absent(), page(), page())
    }

    /// Returns a client for a cluster that gives these answers to reads of CRDs, of `APIService`s, of its groups and of
    /// the kinds of a Pause's version, and [`page`] to all other calls.
    fn cluster_with(
        crd: (StatusCode, String),
        service: (StatusCode, String),
        groups: (StatusCode, String),
        kinds: (StatusCode, String),
    ) -> Client {
        let answer = move |uri: Uri| {
            let answer = match uri.path() {
                "/apis" => groups.clone(),
                path if path == VERSION => kinds.clone(),
                path if path.starts_with("/apis/apiextensions.k8s.io/") => crd.clone(),
                path if path.starts_with("/apis/apiregistration.k8s.io/") => service.clone(),
                _ => page(),
            };
            async move { answer }
        };
        let server: Router = Router::new().fallback(answer);
        Client::new(server, "default")
    }

    #[tokio::test]
    async fn only_an_absent_crd_proves_that_a_kind_is_not_served() {
        let (kind, crd) = (ApiResource::erase::<Pause>(&()), "pauses.operator.kyma-project.io");
        let rows = [
            ("absent", absent(), Some(true)),
            ("present", present(crd), Some(false)),
            ("a proxy answers", page(), None),
            ("forbidden", forbidden(), None),
        ];
        for (name, answer, expected) in rows {
            let client = cluster(answer);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let listed = api.list(&ListParams::default()).await;
            let is_missing = listed.as_ref().is_err_and(is_404);
            assert!(is_missing, "{name}: a proxy answers like an API server");
            assert_eq!(is_crd_absent(&client, &kind).await.ok(), expected, "{name}");
            let listed = none_if_unserved(&client, &kind, listed).await;
            assert_eq!(matches!(listed, Ok(None)), expected == Some(true), "{name}");
            assert_eq!(listed.is_err(), expected != Some(true), "{name}");
        }
    }

    #[tokio::test]
    async fn aggregated_kind_is_unserved_only_without_its_api_service() {
        let kind = ApiResource::erase::<Pause>(&());
        let (unserved, unknown) = (true, false);
        let rows = [
            ("no APIService", absent(), page(), page(), unserved),
            (
                "the APIService of a CRD",
                registered(&json!({AUTOMANAGED_LABEL: "true"})),
                page(),
                page(),
                unserved,
            ),
            ("an aggregated API", registered(&json!({})), page(), page(), unknown),
            ("a proxy answers", page(), page(), page(), unknown),
            ("forbidden, no group", forbidden(), groups(&["example.org"]), page(), unserved),
            ("forbidden, other kinds", forbidden(), group(), kinds(&["kymas"]), unserved),
            ("forbidden, the kind", forbidden(), group(), kinds(&["kymas", "pauses"]), unknown),
            ("forbidden, its server is down", forbidden(), group(), down(), unknown),
            ("forbidden, a proxy answers", forbidden(), page(), page(), unknown),
        ];
        for (name, service, groups, kinds, expected) in rows {
            let client = cluster_with(absent(), service, groups, kinds);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let listed = api.list(&ListParams::default()).await;
            let listed = none_if_unserved(&client, &kind, listed).await;
            assert_eq!(matches!(listed, Ok(None)), expected, "{name}");
            assert_eq!(listed.is_err(), !expected, "{name}");
        }
    }

    #[tokio::test]
    async fn kinds_of_kubernetes_itself_are_never_taken_for_unserved() {
        for group in ["", "apps", "metrics.k8s.io"] {
            let kind = ApiResource { group: group.to_owned(), ..ApiResource::erase::<Pause>(&()) };
            let client = cluster(absent());
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let listed = api.list(&ListParams::default()).await;
            assert!(none_if_unserved(&client, &kind, listed).await.is_err(), "{group}");
        }
    }

    #[tokio::test]
    async fn a_list_that_succeeds_or_fails_otherwise_stays_as_it_is() {
        let (kind, client) = (ApiResource::erase::<Pause>(&()), cluster(page()));
        assert_eq!(none_if_unserved(&client, &kind, Ok(1)).await.ok(), Some(Some(1)));
        let conflict = Status::failure("no", reason::CONFLICT).with_code(409);
        let failed = none_if_unserved::<u8>(&client, &kind, Err(kube::Error::Api(conflict.boxed()))).await;
        assert!(matches!(failed, Err(kube::Error::Api(status)) if status.code == 409));
    }
}

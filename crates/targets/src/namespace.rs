//! Namespaces that operators create where they are missing. Such a namespace has no owner: others may use it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// Creates a namespace unless it exists. Returns the metadata of an existing one, and `None` if it was missing.
///
/// `field_manager` is the field manager of the creation.
///
/// # Errors
/// The cluster does not answer, or refuses the read or the creation.
pub async fn ensure_namespace(
    client: &Client,
    name: &str,
    labels: &[(&str, &str)],
    field_manager: &str,
) -> kube::Result<Option<ObjectMeta>> {
    let api: Api<Namespace> = Api::all(client.clone());
    if let Some(found) = api.get_metadata_opt(name).await? {
        return Ok(Some(found.metadata));
    }
    create_namespace(client, name, labels, field_manager).await?;
    Ok(None)
}

/// Creates a namespace. Returns false if it exists. Parameters as in [`ensure_namespace`].
///
/// # Errors
/// The cluster does not answer, or refuses the creation.
pub async fn create_namespace(
    client: &Client,
    name: &str,
    labels: &[(&str, &str)],
    field_manager: &str,
) -> kube::Result<bool> {
    let api: Api<Namespace> = Api::all(client.clone());
    let params = PostParams { field_manager: Some(field_manager.to_owned()), ..PostParams::default() };
    match api.create(&params, &namespace(name, labels)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

fn namespace(name: &str, labels: &[(&str, &str)]) -> Namespace {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
        ..ObjectMeta::default()
    };
    Namespace { metadata, ..Namespace::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    /// Ensures the namespace `a` on a cluster with these answers. Returns the requests with the result.
    async fn ensured(read: Answer, creation: Answer) -> (kube::Result<Option<ObjectMeta>>, Vec<String>) {
        let server = ScriptedServer::start().await.unwrap();
        let creations = RequestMatcher::path("/api/v1/namespaces").method("POST").query("fieldManager=m");
        server.always(RequestMatcher::path("/api/v1/namespaces/a").method("GET"), read);
        server.always(creations, creation);
        let client = server.access().client().unwrap();
        let found = ensure_namespace(&client, "a", &[], "m").await;
        (found, server.requests().into_iter().map(|sent| format!("{} {}", sent.method, sent.path)).collect())
    }

    fn absent() -> Answer {
        Answer::not_found("", "namespaces", "a")
    }

    fn live() -> Answer {
        let metadata = json!({"name": "a", "labels": {"b": "c"}});
        Answer::json(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    }

    #[tokio::test]
    async fn an_existing_namespace_is_only_read() {
        let (found, requests) = ensured(live(), Answer::failure(500, "InternalError", "no")).await;
        assert_eq!(found.unwrap().unwrap().labels.unwrap()["b"], "c");
        assert_eq!(requests, ["GET /api/v1/namespaces/a"]);
    }

    #[tokio::test]
    async fn a_missing_namespace_is_created_unless_another_writer_does() {
        for answer in [live(), Answer::failure(409, "AlreadyExists", "exists")] {
            let (found, requests) = ensured(absent(), answer).await;
            assert_eq!(found.unwrap(), None);
            assert_eq!(requests, ["GET /api/v1/namespaces/a", "POST /api/v1/namespaces"]);
        }
    }

    #[tokio::test]
    async fn a_refused_creation_is_a_failure() {
        let (found, _) = ensured(absent(), Answer::failure(403, "Forbidden", "no")).await;
        assert!(matches!(&found, Err(kube::Error::Api(status)) if status.code == 403), "{found:?}");
    }

    #[test]
    fn a_namespace_has_the_labels_and_no_other_content() {
        let created = |labels: &[(&str, &str)]| serde_json::to_value(namespace("a", labels)).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "a", "labels": {"b": "c"}}});
        assert_eq!(created(&[("b", "c")]), expected);
        assert_eq!(created(&[])["metadata"], json!({"name": "a"}));
    }
}

//! Answers with 404, of which only one that names the object proves its absence.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, ObjectMeta};
use kyma_api::{ErrorClass, Reason};
use kyma_controller::{
    DeleteError, DeleteGate, DeleteOutcome, DeleteRequest, PausedOperations, find_metadata, find_object,
    none_if_absent, patch_finalizers, remove_finalizer,
};
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer};

const PATH: &str = "/api/v1/namespaces/n/configmaps/a";

/// Returns answers with 404 that do not prove that the ConfigMap is absent.
fn without_proof() -> [(&'static str, Answer); 6] {
    [
        ("page of a proxy", Answer::html(404, "not found")),
        ("plain text", Answer::text(404, "404 page not found\n")),
        ("Status without details", Answer::failure(404, "NotFound", "configmaps \"a\" not found")),
        ("another object", Answer::not_found("", "configmaps", "b")),
        ("another resource", Answer::not_found("", "namespaces", "a")),
        ("another API group", Answer::not_found("x.io", "configmaps", "a")),
    ]
}

fn proof() -> Answer {
    Answer::not_found("", "configmaps", "a")
}

/// Returns a cluster that gives this answer to all calls for the ConfigMap.
async fn cluster(answer: Answer) -> Result<(ScriptedServer, Api<ConfigMap>)> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::path(PATH), answer);
    let maps: Api<ConfigMap> = Api::namespaced(server.access().client()?, "n");
    Ok((server, maps))
}

fn live() -> ObjectMeta {
    let live = json!({"name": "a", "namespace": "n", "uid": "u", "finalizers": ["mine"],
        "managedFields": [{"manager": "mine", "operation": "Apply"}]});
    serde_json::from_value(live).unwrap()
}

#[tokio::test]
async fn a_read_finds_no_object_only_if_the_answer_names_it() -> Result<()> {
    for (name, answer) in without_proof() {
        let (_server, maps) = cluster(answer).await?;
        assert!(find_object(&maps, "a").await.is_err(), "{name}");
        assert!(find_metadata(&maps, "a").await.is_err(), "{name}");
        let deleted = maps.delete("a", &DeleteParams::default()).await;
        assert!(none_if_absent(&maps, "a", deleted.map(drop)).is_err(), "{name}");
    }
    let (_server, maps) = cluster(proof()).await?;
    assert!(find_object(&maps, "a").await?.is_none() && find_metadata(&maps, "a").await?.is_none());
    let deleted = maps.delete("a", &DeleteParams::default()).await;
    assert!(none_if_absent(&maps, "a", deleted.map(drop))?.is_none());
    Ok(())
}

#[tokio::test]
async fn finalizer_counts_as_removed_only_if_answer_names_the_object() -> Result<()> {
    for (name, answer) in without_proof() {
        let (_server, maps) = cluster(answer).await?;
        let patch = remove_finalizer(&live(), "mine").unwrap();
        let failure = patch_finalizers(&maps, "a", patch).await.unwrap_err();
        let expected = (Reason::HubUnavailable, ErrorClass::Transient);
        assert_eq!((failure.reason, failure.class), expected, "{name}");
    }
    let (_server, maps) = cluster(proof()).await?;
    let patch = remove_finalizer(&live(), "mine").unwrap();
    assert_eq!(patch_finalizers(&maps, "a", patch).await, Ok(()));
    Ok(())
}

#[tokio::test]
async fn gate_reports_object_as_gone_only_if_the_answer_names_it() -> Result<()> {
    let (kind, live) = (ApiResource::erase::<ConfigMap>(&()), live());
    let gate = DeleteGate::uncounted(&PausedOperations::default());
    for (name, answer) in without_proof() {
        let (server, _) = cluster(answer).await?;
        let request = DeleteRequest::new(&kind, &live, &["mine"]);
        let deleted = gate.carry_out(&server.access().client()?, &request).await;
        assert!(matches!(deleted, Err(DeleteError::Call(_))), "{name}: {deleted:?}");
        assert_eq!(server.count(&RequestMatcher::path(PATH).method("DELETE")), 1, "{name}");
    }
    let (server, _) = cluster(proof()).await?;
    let request = DeleteRequest::new(&kind, &live, &["mine"]);
    let deleted = gate.carry_out(&server.access().client()?, &request).await;
    assert!(matches!(deleted, Ok(DeleteOutcome::Gone)), "{deleted:?}");
    Ok(())
}

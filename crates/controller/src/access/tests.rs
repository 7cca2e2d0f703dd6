use anyhow::Result;
use kyma_targets::{AccessPolicy, Limits};
use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher, ScriptedServer};

use super::*;

const PATH: &str = "/api/v1/namespaces/hub/secrets/a";

fn secret(version: u64) -> PartialObjectMeta<Secret> {
    let metadata =
        json!({"name": "a", "namespace": "hub", "uid": "u", "resourceVersion": version.to_string()});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

/// Returns a hub with one access Secret, and the `Access` that reads it.
async fn hub() -> Result<(ScriptedServer, Access)> {
    let server = ScriptedServer::start().await?;
    let mut whole: Value = serde_json::to_value(secret(1))?;
    let kubeconfig = k8s_openapi::ByteString(server.access().kubeconfig().into_bytes());
    (whole["apiVersion"], whole["kind"]) = ("v1".into(), "Secret".into());
    whole["data"] = json!({"config": kubeconfig});
    server.always(RequestMatcher::path(PATH), Answer::json(&whole));
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let targets = Targets::new(policy, Limits::default(), "test/0.1.0", "test", 10);
    let access = Access::new(server.access().client()?, "hub", targets);
    Ok((server, access))
}

fn reference() -> SecretKeyRef {
    SecretKeyRef { name: "a".to_owned(), key: "config".to_owned() }
}

#[tokio::test]
async fn secret_change_withdraws_targets_before_it_is_announced() -> Result<()> {
    let (_server, access) = hub().await?;
    access.applied(secret(1));
    let first = access.target(&reference()).await?;
    access.applied(secret(1));
    assert!(!first.is_withdrawn(), "nothing changed");
    let (told, taken) = (Arc::new(Mutex::new(None)), first.acting_for("u", None));
    let heard = Arc::clone(&told);
    access.on_change(move |_| *heard.lock() = Some(taken.is_withdrawn()));
    access.applied(secret(2));
    assert_eq!(*told.lock(), Some(true));
    let second = access.target(&reference()).await?;
    assert!(!second.is_withdrawn());
    access.gone("a");
    assert!(first.is_withdrawn() && second.is_withdrawn());
    Ok(())
}

#[tokio::test]
async fn targets_of_a_deleted_secret_leave_the_cache() -> Result<()> {
    let (_server, access) = hub().await?;
    access.applied(secret(1));
    access.target(&reference()).await?;
    access.gone("b");
    assert_eq!(access.inner.targets.len(), 1, "another Secret");
    access.gone("a");
    assert!(access.inner.targets.is_empty());
    Ok(())
}

#[tokio::test]
async fn concurrent_requests_for_an_unknown_target_cost_two_reads() -> Result<()> {
    let (server, access) = hub().await?;
    let (reference, asked) = (reference(), 50);
    let all = (0..asked).map(|_| access.target(&reference));
    let reached = futures::future::join_all(all).await;
    assert!(reached.iter().all(Result::is_ok) && reached.len() == asked);
    assert_eq!(server.count(&RequestMatcher::path(PATH)), 2);
    Ok(())
}

#[tokio::test]
async fn a_secret_is_gone_only_if_the_answer_names_it() -> Result<()> {
    let (server, access) = hub().await?;
    assert!(!access.is_gone("a").await?);
    let of_proxy = [
        Answer::html(404, "no such cluster"),
        Answer::text(404, "404 page not found"),
        Answer::failure(404, "NotFound", "no such cluster"),
    ];
    for answer in of_proxy {
        server.clear();
        server.always(RequestMatcher::path(PATH), answer.clone());
        let failed = access.is_gone("a").await.map_err(|failure| failure.reason);
        assert_eq!(failed, Err(Reason::HubUnavailable), "{answer:?}");
    }
    server.clear();
    server.always(RequestMatcher::path(PATH), Answer::not_found("", "secrets", "a"));
    assert!(access.is_gone("a").await?);
    Ok(())
}

#[test]
fn a_name_that_is_a_path_is_none() {
    for name in ["kubeconfig-a", "a.b", "0", &"x".repeat(253)] {
        assert!(is_object_name(name), "{name}");
    }
    for name in ["", "..", "../configmaps/a", "a/b", "a?b", "{{ x }}", "A", "é", ".a", "a-", &"x".repeat(254)]
    {
        assert!(!is_object_name(name), "{name}");
    }
}

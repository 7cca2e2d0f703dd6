//! Content that each credential may read, and servers that receive each credential.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use kyma_artifacts::{ArtifactError, Credentials, ManifestsSource};

use crate::{
    Client,
    component::Component,
    server::{ReceivedRequest, Reply, Server},
};

const ALICE: &str = "Basic YWxpY2U6aHVudGVyMg==";

fn alice(server: &Server) -> Credentials {
    Credentials::basic(server.address(), "alice", "hunter2")
}

/// Serves the component with Basic authentication to user alice only.
fn for_alice(component: Component) -> impl Fn(&ReceivedRequest) -> Reply {
    move |request| {
        if request.authorization.as_deref() == Some(ALICE) {
            component.serve(request)
        } else {
            Reply::status(401).header("WWW-Authenticate", "Basic realm=\"r\"")
        }
    }
}

#[tokio::test]
async fn basic_credentials_answer_a_challenge() {
    let server = Server::start(for_alice(Component::new())).await;
    Client::new(&[&server]).component(&server, &alice(&server)).await.unwrap();
}

#[tokio::test]
async fn cached_content_is_not_for_those_whom_the_source_refuses() {
    let server = Server::start(for_alice(Component::new())).await;
    let client = Client::new(&[&server]);
    client.component(&server, &alice(&server)).await.unwrap();
    let rows = [
        (Credentials::anonymous(), "without credentials"),
        (Credentials::basic("registry.example", "bob", "hunter2"), "without credentials"),
        (Credentials::basic(server.address(), "bob", "hunter2"), "with these credentials"),
    ];
    for (other, says) in rows {
        let error = client.component(&server, &other).await.unwrap_err();
        assert!(matches!(error, ArtifactError::Unauthorized { status: 401, .. }), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"));
        assert!(error.to_string().contains(says), "{error}");
        let url = format!("http://{}/manifest.yaml", server.address()).parse().unwrap();
        let source = ManifestsSource::Http { url, digest: None };
        let error = client.artifacts.manifests(&source, &other).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn during_an_outage_an_older_proof_counts_for_its_owner_alone() {
    let server = Server::start_at(testbed::free_address().unwrap(), for_alice(Component::new())).await;
    let client = Client::with(&[&server], |config| config.deadlines.proof = Duration::ZERO);
    let address = server.address().to_owned();
    let alice = alice(&server);
    let before = client.component_at(&address, &alice).await.unwrap();
    drop(server);
    assert_eq!(client.component_at(&address, &alice).await.unwrap(), before);
    let error = client.component_at(&address, &Credentials::anonymous()).await.unwrap_err();
    assert!(matches!(error, ArtifactError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_refusal_ends_an_older_proof_at_once() {
    let component = Component::new();
    let status = Arc::new(AtomicU16::new(200));
    let current = status.clone();
    let server = Server::start(move |request| match current.load(Ordering::SeqCst) {
        200 => component.serve(request),
        status => Reply::status(status),
    })
    .await;
    let client = Client::with(&[&server], |config| config.deadlines.proof = Duration::ZERO);
    for (answer, works) in [(200, true), (503, true), (403, false), (503, false)] {
        status.store(answer, Ordering::SeqCst);
        assert_eq!(client.component(&server, &Credentials::anonymous()).await.is_ok(), works, "{answer}");
    }
}

#[tokio::test]
async fn a_token_is_fetched_once_and_used_for_all() {
    let component = Component::new();
    let server = Server::start(move |request| {
        if request.path.starts_with("/token") {
            return if request.authorization.as_deref() == Some(ALICE) {
                Reply::ok(r#"{"token":"opensesame","expires_in":300}"#)
            } else {
                Reply::status(401)
            };
        }
        if request.authorization.as_deref() == Some("Bearer opensesame") {
            component.serve(request)
        } else {
            challenge(request)
        }
    })
    .await;
    let client = Client::new(&[&server]);
    client.component(&server, &alice(&server)).await.unwrap();
    assert_eq!(server.count("GET /token"), 1);
    let asked =
        server.requests().into_iter().find(|request| request.path.starts_with("/token")).unwrap().path;
    assert!(
        asked.contains("scope=repository%3Acomponent-descriptors%2Fexample.io%2Fmodule%2Fsample%3Apull"),
        "{asked}"
    );
    assert!(asked.contains("service=registry"), "{asked}");
}

/// Returns a challenge that names a token service on the same server.
fn challenge(request: &ReceivedRequest) -> Reply {
    let host = request.host.clone();
    Reply::status(401)
        .header("WWW-Authenticate", format!(r#"Bearer realm="http://{host}/token",service="registry""#))
}

#[tokio::test]
async fn an_identity_token_is_exchanged_by_post() {
    let component = Component::new();
    let server = Server::start(move |request| {
        if request.path == "/token" {
            let body = String::from_utf8(request.body.to_vec()).unwrap();
            return if request.method == "POST" && body.contains("refresh_token=idtoken") {
                Reply::ok(r#"{"access_token":"opensesame"}"#)
            } else {
                Reply::status(400)
            };
        }
        if request.authorization.as_deref() == Some("Bearer opensesame") {
            component.serve(request)
        } else {
            challenge(request)
        }
    })
    .await;
    let json = format!(r#"{{"auths":{{"{}":{{"identitytoken":"idtoken"}}}}}}"#, server.address());
    let credentials = Credentials::from_docker_config(json.as_bytes()).unwrap();
    Client::new(&[&server]).component(&server, &credentials).await.unwrap();
}

#[tokio::test]
async fn credentials_of_another_host_stay_at_home() {
    let component = Component::new();
    let server = Server::start(move |request| component.serve(request)).await;
    let credentials = Credentials::basic("registry.example", "alice", "hunter2");
    Client::new(&[&server]).component(&server, &credentials).await.unwrap();
    assert!(server.requests().iter().all(|request| request.authorization.is_none()));
}

//! Sources that redirect to other hosts.

use axum::body::Bytes;
use kyma_api::Reason;
use kyma_artifacts::{ArtifactError, ChartSource, ComponentVersion, Credentials, Digest, ManifestsSource};

use crate::{
    Client,
    component::{Component, MANIFEST, NAME, VERSION},
    server::{ReceivedRequest, Reply, Server},
};

/// Starts a registry with Basic authentication that redirects blobs to another server.
async fn with_blobs_at(elsewhere: &Server, component: Component) -> Server {
    let elsewhere = elsewhere.address().to_owned();
    Server::start(move |request: &ReceivedRequest| match &request.authorization {
        None => Reply::status(401).header("WWW-Authenticate", "Basic"),
        Some(_) if request.path.contains("/blobs/") => {
            Reply::status(307).header("Location", format!("http://{elsewhere}{}", request.path))
        }
        Some(_) => component.serve(request),
    })
    .await
}

#[tokio::test]
async fn a_redirect_to_a_foreign_host_is_not_followed() {
    let component = Component::new();
    let elsewhere = Server::start(move |_| Reply::status(200)).await;
    let server = with_blobs_at(&elsewhere, component).await;
    let client = Client::new(&[&server, &elsewhere]);
    let credentials = Credentials::basic(server.address(), "alice", "hunter2");
    let error = client.component(&server, &credentials).await.unwrap_err();
    assert!(
        matches!(&error, ArtifactError::RedirectNotAllowed { host, .. } if host == elsewhere.address()),
        "{error}"
    );
    assert_eq!(error.reason(), Reason::SourceHostRefused);
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn redirect_to_allowed_host_is_followed_without_credentials() {
    let component = Component::new();
    let blobs = component.clone();
    let elsewhere = Server::start(move |request| blobs.serve(request)).await;
    let server = with_blobs_at(&elsewhere, component).await;
    let client = Client::with(&[&server, &elsewhere], |config| {
        config.allowed_hosts = vec![elsewhere.address().to_owned()];
    });
    let credentials = Credentials::basic(server.address(), "alice", "hunter2");
    client.component(&server, &credentials).await.unwrap();
    assert!(!elsewhere.requests().is_empty());
    assert!(elsewhere.requests().iter().all(|request| request.authorization.is_none()));
}

/// The host would choose the token service that gets the registry's credentials.
#[tokio::test]
async fn a_challenge_of_the_host_of_a_redirect_is_not_answered() {
    let elsewhere = Server::start(|request| {
        if request.path.starts_with("/token") {
            return Reply::ok(r#"{"token":"x"}"#);
        }
        let realm = format!(r#"Bearer realm="http://{}/token""#, request.host);
        Reply::status(401).header("WWW-Authenticate", realm)
    })
    .await;
    let server = with_blobs_at(&elsewhere, Component::new()).await;
    let client = Client::with(&[&server, &elsewhere], |config| {
        config.allowed_hosts = vec![elsewhere.address().to_owned()];
    });
    let credentials = Credentials::basic(server.address(), "alice", "hunter2");
    let error = client.component(&server, &credentials).await.unwrap_err();
    assert!(matches!(error, ArtifactError::Unauthorized { status: 401, .. }), "{error}");
    assert!(elsewhere.count("GET /v2/") > 0);
    assert_eq!(elsewhere.count("GET /token"), 0);
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let server = Server::start(|request| Reply::status(302).header("Location", request.path.clone())).await;
    let error = Client::new(&[&server]).component(&server, &Credentials::anonymous()).await.unwrap_err();
    assert!(error.to_string().contains("redirects"), "{error}");
    assert!(server.requests().len() < 10);
}

#[tokio::test]
async fn a_foreign_token_service_gets_no_credentials() {
    let thief = Server::start(|_| Reply::ok(r#"{"token":"x"}"#)).await;
    let realm = format!(r#"Bearer realm="http://{}/token",service="s""#, thief.address());
    let server = Server::start(move |_| Reply::status(401).header("WWW-Authenticate", realm.clone())).await;
    let client = Client::new(&[&server, &thief]);
    let credentials = Credentials::basic(server.address(), "alice", "hunter2");
    let error = client.component(&server, &credentials).await.unwrap_err();
    assert!(
        matches!(&error, ArtifactError::RealmNotAllowed { host, .. } if host == thief.address()),
        "{error}"
    );
    assert!(thief.requests().is_empty());
}

#[tokio::test]
async fn an_upload_stays_with_its_registry() {
    let thief = Server::start(|_| Reply::status(201)).await;
    let location = format!("http://{}/upload", thief.address());
    let server = Server::start(move |request| match request.method.as_str() {
        "POST" => Reply::status(202).header("Location", location.clone()),
        _ => Reply::status(404),
    })
    .await;
    let component = ComponentVersion {
        name: NAME.to_owned(),
        version: VERSION.to_owned(),
        manifest: Bytes::from(MANIFEST),
        ..ComponentVersion::default()
    };
    let client = Client::new(&[&server, &thief]);
    let base = server.address().parse().unwrap();
    let pushed = client.artifacts.push_component(&base, &component, &Credentials::anonymous(), &()).await;
    assert!(matches!(pushed, Err(ArtifactError::RedirectNotAllowed { .. })), "{pushed:?}");
    assert!(thief.requests().is_empty());
}

#[tokio::test]
async fn a_repository_index_leads_to_allowed_hosts_only() {
    let index = "entries: {demo: [{version: 1.0.0, urls: ['http://169.254.169.254/demo.tgz']}]}";
    let server = Server::start(move |_| Reply::ok(index)).await;
    let source = ChartSource::Repository {
        url: format!("http://{}/charts", server.address()).parse().unwrap(),
        name: "demo".to_owned(),
        version: "1.0.0".to_owned(),
        digest: None,
    };
    let error =
        Client::new(&[&server]).artifacts.chart(&source, &Credentials::anonymous()).await.unwrap_err();
    assert!(matches!(error, ArtifactError::RedirectNotAllowed { .. }), "{error}");
}

#[tokio::test]
async fn plain_http_needs_the_flag() {
    let server = Server::start(|_| Reply::ok(MANIFEST)).await;
    let url = format!("http://{}/manifest.yaml", server.address()).parse().unwrap();
    let source = ManifestsSource::Http { url, digest: None };
    let error = Client::new(&[]).artifacts.manifests(&source, &Credentials::anonymous()).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceInvalid);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_pinned_document_is_checked_and_its_query_is_not_told() {
    let server = Server::start(|_| Reply::ok(MANIFEST)).await;
    let client = Client::new(&[&server]);
    let source = |digest| ManifestsSource::Http {
        url: format!("http://{}/manifest.yaml?sig=hunter2", server.address()).parse().unwrap(),
        digest: Some(digest),
    };
    let right = source(Digest::of(MANIFEST.as_bytes()));
    assert_eq!(client.artifacts.manifests(&right, &Credentials::anonymous()).await.unwrap().yaml, MANIFEST);
    let error =
        client.artifacts.manifests(&source(Digest::of(b"x")), &Credentials::anonymous()).await.unwrap_err();
    assert!(matches!(error, ArtifactError::DigestMismatch { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

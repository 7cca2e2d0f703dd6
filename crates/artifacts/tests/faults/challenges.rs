//! Challenges and token services of widely used registries.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kyma_api::Reason;
use kyma_artifacts::{ArtifactError, Credentials};

use crate::{
    Client,
    component::Component,
    server::{ReceivedRequest, Reply, Server},
};

const BASIC: &str = r#"Basic realm="r""#;
/// `HOST` stands for the address of the registry.
const BEARER: &str = r#"Bearer realm="http://HOST/token?account=kyma",service="r""#;
const TOKEN: &str = r#"{"token":"opensesame","expires_in":300}"#;

fn alice(server: &Server) -> Credentials {
    Credentials::basic(server.address(), "alice", "hunter2")
}

fn challenge(request: &ReceivedRequest, challenges: &[&str]) -> Reply {
    challenges.iter().fold(Reply::status(401), |reply, challenge| {
        reply.header("WWW-Authenticate", challenge.replace("HOST", &request.host))
    })
}

/// Starts a registry that accepts the password of user alice and the token `opensesame`.
async fn registry(
    challenges: &'static [&'static str],
    token_service: impl Fn() -> Reply + Send + Sync + 'static,
) -> Server {
    let component = Component::new();
    Server::start(move |request| match request.authorization.as_deref() {
        _ if request.path.starts_with("/token") => token_service(),
        Some("Basic YWxpY2U6aHVudGVyMg==" | "Bearer opensesame") => component.serve(request),
        _ => challenge(request, challenges),
    })
    .await
}

#[tokio::test]
async fn one_of_several_challenges_is_answered() {
    let rows: [&'static [&'static str]; 8] = [
        &[BEARER],
        &[BASIC, BEARER],
        &[BEARER, BASIC],
        &[r#"Basic realm="r", Bearer realm="http://HOST/token""#],
        &[r#"bearer realm="http://HOST/token", Basic realm="r""#],
        &["Negotiate", BASIC],
        &[r#"Negotiate, BASIC realm="r", charset="UTF-8""#],
        &["Basic realm=\"Dépôt d'images\""],
    ];
    for challenges in rows {
        let server = registry(challenges, || Reply::ok(TOKEN)).await;
        let found = Client::new(&[&server]).component(&server, &alice(&server)).await;
        assert!(found.is_ok(), "{challenges:?}: {found:?}");
    }
}

#[tokio::test]
async fn tokens_are_read_in_all_forms_and_kept() {
    for answer in [
        TOKEN,
        r#"{"token":"opensesame"}"#,
        r#"{"access_token":"opensesame","refresh_token":"x","scope":"x"}"#,
        r#"{"token":"","access_token":"opensesame"}"#,
        r#"{"token":null,"access_token":"opensesame","expires_in":null}"#,
        r#"{"token":"opensesame","expires_in":0}"#,
        r#"{"token":"opensesame","expires_in":-1}"#,
        r#"{"token":"opensesame","expires_in":"3600"}"#,
        r#"{"token":"opensesame","expires_in":3599.5}"#,
        r#"{"token":"opensesame","expires_in":99999999999999999999}"#,
        r#"{"token":"opensesame","expires_in":"an hour"}"#,
    ] {
        let server = registry(&[BEARER], move || Reply::ok(answer)).await;
        let found = Client::new(&[&server]).component(&server, &alice(&server)).await;
        assert!(found.is_ok(), "{answer}: {found:?}");
        assert_eq!(server.count("GET /token?account=kyma&service=r&scope="), 1, "{answer}");
    }
}

#[tokio::test]
async fn an_absent_token_service_is_named_in_the_error() {
    let server = registry(&[BEARER], || Reply::status(404)).await;
    let error = Client::new(&[&server]).component(&server, &alice(&server)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceInvalid);
    assert!(error.to_string().contains("the token service answers HTTP 404"), "{error}");
}

/// Token services refuse a refresh token with 400, as OAuth 2.0 requires.
#[tokio::test]
async fn a_revoked_refresh_token_is_no_outage() {
    let is_revoked = Arc::new(AtomicBool::new(false));
    let revoked = Arc::clone(&is_revoked);
    let component = Component::new();
    let server = Server::start(move |request| {
        let is_revoked = revoked.load(Ordering::SeqCst);
        match request.authorization.as_deref() {
            _ if request.path.starts_with("/token") && is_revoked => Reply::status(400),
            _ if request.path.starts_with("/token") => Reply::ok(TOKEN),
            Some("Bearer opensesame") if !is_revoked => component.serve(request),
            _ => challenge(request, &[BEARER]),
        }
    })
    .await;
    let json = format!(r#"{{"auths":{{"{}":{{"identitytoken":"idtoken"}}}}}}"#, server.address());
    let credentials = Credentials::from_docker_config(json.as_bytes()).unwrap();
    let client = Client::with(&[&server], |config| config.deadlines.proof = Duration::ZERO);
    client.component(&server, &credentials).await.unwrap();
    is_revoked.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let error = client.component(&server, &credentials).await.unwrap_err();
        assert!(matches!(error, ArtifactError::Unauthorized { status: 400, .. }), "{error}");
    }
    is_revoked.store(false, Ordering::SeqCst);
    client.component(&server, &credentials).await.unwrap();
}

#[tokio::test]
async fn a_refresh_token_follows_no_redirect() {
    let server = registry(&[BEARER], || Reply::status(307).header("Location", "/token/")).await;
    let json = format!(r#"{{"auths":{{"{}":{{"identitytoken":"idtoken"}}}}}}"#, server.address());
    let credentials = Credentials::from_docker_config(json.as_bytes()).unwrap();
    let error = Client::new(&[&server]).component(&server, &credentials).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceHostRefused);
    assert!(error.to_string().ends_with("a request that sends content follows no redirect"), "{error}");
    assert_eq!(server.count("POST /token?"), server.count("POST /token"));
}

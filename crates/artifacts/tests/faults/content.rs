//! Wrong, broken, oversized and missing content.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::{StreamExt as _, stream};
use kyma_api::{ErrorClass, Reason};
use kyma_artifacts::{ArtifactError, Credentials};

use crate::{
    Client,
    component::{Component, MANIFEST, NAME, VERSION},
    server::{Reply, Server},
};

#[tokio::test]
async fn an_honest_registry_gives_the_module() {
    let component = Component::new();
    let server = Server::start(move |request| component.serve(request)).await;
    let found = Client::new(&[&server]).component(&server, &Credentials::anonymous()).await.unwrap();
    assert_eq!(found.manifest, MANIFEST);
    assert_eq!(found.default_cr, None);
}

#[tokio::test]
async fn a_blob_that_differs_from_its_digest_is_never_used() {
    let mut component = Component::new();
    component.content.insert(component.manifest_blob.clone(), Bytes::from("kind: Evil"));
    let server = Server::start(move |request| component.serve(request)).await;
    let client = Client::new(&[&server]);
    for _ in 0..2 {
        let error = client.component(&server, &Credentials::anonymous()).await.unwrap_err();
        assert!(matches!(error, ArtifactError::DigestMismatch { .. }), "{error}");
        assert_eq!(error.reason(), Reason::DigestMismatch);
    }
}

#[tokio::test]
async fn a_manifest_that_differs_from_the_digest_told_is_refused() {
    let component = Component::new();
    let server = Server::start(move |request| {
        let mut reply = component.serve(request);
        if request.path.contains("/manifests/") {
            reply.headers = vec![("Docker-Content-Digest", format!("sha256:{}", "0".repeat(64)))];
        }
        reply
    })
    .await;
    let error = Client::new(&[&server]).component(&server, &Credentials::anonymous()).await.unwrap_err();
    assert!(matches!(error, ArtifactError::DigestMismatch { .. }), "{error}");
}

#[tokio::test]
async fn refusals_keep_their_kind() {
    let cases = [
        (404, Reason::SourceNotFound),
        (401, Reason::SourceUnauthorized),
        (403, Reason::SourceUnauthorized),
        (500, Reason::SourceUnreachable),
        (429, Reason::SourceUnreachable),
    ];
    for (status, reason) in cases {
        let server = Server::start(move |_| Reply::status(status).header("Retry-After", "7")).await;
        let error = Client::new(&[&server]).component(&server, &Credentials::anonymous()).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert_eq!(error.class(), ErrorClass::Transient);
        let asked = matches!(status, 429 | 500).then_some(Duration::from_secs(7));
        assert_eq!(error.retry_after(), asked);
    }
}

#[tokio::test]
async fn what_is_too_large_is_not_read_to_its_end() {
    let announced = Server::start(|_| Reply::ok(vec![b' '; 5 << 20])).await;
    let endless = Server::start(|_| {
        let zeroes = stream::repeat(Bytes::from_static(&[b' '; 4096])).map(Ok::<_, std::io::Error>);
        Reply { status: 200, headers: Vec::new(), body: Body::from_stream(zeroes) }
    })
    .await;
    for server in [announced, endless] {
        let error = Client::new(&[&server]).component(&server, &Credentials::anonymous()).await.unwrap_err();
        assert!(matches!(error, ArtifactError::TooLarge { .. }), "{error}");
        assert_eq!(error.class(), ErrorClass::Transient);
    }
}

#[tokio::test]
async fn a_silent_registry_is_given_up_at_the_deadline() {
    let server = Server::start(|_| {
        let nothing = stream::pending::<Result<Bytes, std::io::Error>>();
        Reply { status: 200, headers: Vec::new(), body: Body::from_stream(nothing) }
    })
    .await;
    let client = Client::with(&[&server], |config| {
        config.deadlines.idle = Duration::from_millis(100);
    });
    let error = client.component(&server, &Credentials::anonymous()).await.unwrap_err();
    assert!(matches!(error, ArtifactError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_descriptor_has_to_be_of_the_component_asked_for() {
    let of = |name: &str, version: &str, rest: &str| {
        format!("meta: {{schemaVersion: v2}}\ncomponent: {{name: {name}, version: {version}, {rest}}}")
    };
    let cases = [
        (of("example.io/other", VERSION, "resources: []"), "is of example.io/other"),
        (of(NAME, "2.0.0", "resources: []"), "2.0.0"),
        (of(NAME, VERSION, "resources: []"), "no resource raw-manifest"),
        ("meta: {schemaVersion: v9}\ncomponent: {name: a, version: b}".to_owned(), "schema v9"),
        ("[".to_owned(), "not of schema v2"),
        (
            of(NAME, VERSION, "resources: [{name: raw-manifest, type: x, access: {type: s3}}]"),
            "access s3 is not a local blob",
        ),
    ];
    for (descriptor, problem) in cases {
        let component = Component::with_descriptor(&descriptor);
        let server = Server::start(move |request| component.serve(request)).await;
        let error = Client::new(&[&server]).component(&server, &Credentials::anonymous()).await.unwrap_err();
        assert_eq!(error.reason(), Reason::SourceInvalid);
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[tokio::test]
async fn many_waiters_cause_one_pull() {
    let component = Component::new();
    let blob = format!("GET {}", component.manifest_blob);
    let server = Server::start(move |request| component.serve(request)).await;
    let client = Client::new(&[&server]);
    let anonymous = Credentials::anonymous();
    let pulls = futures::future::join_all((0..100).map(|_| client.component(&server, &anonymous))).await;
    assert!(pulls.into_iter().all(|found| found.unwrap().manifest == MANIFEST));
    assert_eq!(server.count(&blob), 1);
    assert_eq!(server.count("GET /v2/component-descriptors/example.io/module/sample/manifests/"), 1);
}

#[tokio::test]
async fn a_fresh_proof_needs_no_request_and_an_old_one_a_head() {
    let component = Component::new();
    let server = Server::start(move |request| component.serve(request)).await;
    let anonymous = Credentials::anonymous();
    let client = Client::new(&[&server]);
    client.component(&server, &anonymous).await.unwrap();
    let before = server.requests().len();
    client.component(&server, &anonymous).await.unwrap();
    assert_eq!(server.requests().len(), before);

    let client = Client::with(&[&server], |config| config.deadlines.proof = Duration::ZERO);
    client.component(&server, &anonymous).await.unwrap();
    let before = server.requests().len();
    client.component(&server, &anonymous).await.unwrap();
    let after: Vec<String> =
        server.requests()[before..].iter().map(|request| request.method.clone()).collect();
    assert_eq!(after, ["HEAD"]);
}

#[tokio::test]
async fn a_tag_that_moved_is_noticed() {
    let old = Component::new();
    let new = Component::with_descriptor(&format!(
        "meta: {{schemaVersion: v2}}\ncomponent:\n  name: {NAME}\n  version: {VERSION}\n  resources:\n  \
         - {{name: raw-manifest, type: x, access: {{type: localBlob/v1, localReference: '{}'}}}}\n",
        kyma_artifacts::Digest::of(MANIFEST.as_bytes())
    ));
    let moved = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switch = moved.clone();
    let server = Server::start(move |request| {
        if switch.load(std::sync::atomic::Ordering::SeqCst) { new.serve(request) } else { old.serve(request) }
    })
    .await;
    let client = Client::with(&[&server], |config| config.deadlines.proof = Duration::ZERO);
    let before = client.component(&server, &Credentials::anonymous()).await.unwrap();
    moved.store(true, std::sync::atomic::Ordering::SeqCst);
    let after = client.component(&server, &Credentials::anonymous()).await.unwrap();
    assert_ne!(before.digest, after.digest);
}

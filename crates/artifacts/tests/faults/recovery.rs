//! Sources that send invalid responses and recover.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flate2::{Compression, write::GzEncoder};
use kyma_api::{ErrorClass, Reason};
use kyma_artifacts::{ArtifactError, ChartArchive, ChartSource, Credentials, Manifests, ManifestsSource};

use crate::{
    Client,
    artifacts::{Repository, chart},
    component::MANIFEST,
    server::{ReceivedRequest, Reply, Server},
};

const PAGE: &str = "<!DOCTYPE html><html><body>Back soon</body></html>";
const PATH: &str = "charts/demo";

/// Returns a page that is sent in place of the content.
fn page() -> Reply {
    Reply::ok(PAGE).header("Content-Type", "text/html")
}

fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

fn sign_on() -> Reply {
    Reply::status(302).header("Location", "https://sso.example/login")
}

/// Starts a registry and a repository with one chart. While `is_down`, requests that match `is_wrong` get `wrong`.
async fn source(
    is_down: &Arc<AtomicBool>,
    is_wrong: fn(&ReceivedRequest) -> bool,
    wrong: fn() -> Reply,
) -> Server {
    let mut repository = Repository::default();
    repository.chart("1.0.0", "demo", "1.0.0");
    let is_down = Arc::clone(is_down);
    Server::start(move |request| {
        if is_down.load(Ordering::SeqCst) && is_wrong(request) {
            return wrong();
        }
        if request.path.starts_with("/token") {
            return Reply::ok(r#"{"token":"t"}"#);
        }
        if request.path.starts_with("/v2/") && request.authorization.as_deref() != Some("Bearer t") {
            let realm = format!(r#"Bearer realm="http://{}/token""#, request.host);
            return Reply::status(401).header("WWW-Authenticate", realm);
        }
        match request.path.as_str() {
            "/charts/index.yaml" => Reply::ok("entries: {demo: [{version: 1.0.0, urls: [demo.tgz]}]}"),
            "/charts/demo.tgz" => Reply::ok(chart("demo", "1.0.0")),
            "/manifest.yaml" => Reply::ok(MANIFEST),
            _ => repository.serve(PATH, request),
        }
    })
    .await
}

async fn read_chart(client: &Client, source: &ChartSource) -> Result<ChartArchive, ArtifactError> {
    client.artifacts.chart(source, &Credentials::anonymous()).await
}

fn sources(server: &Server) -> [ChartSource; 2] {
    let url = format!("http://{}/charts", server.address()).parse().unwrap();
    [
        ChartSource::Oci(format!("{}/{PATH}:1.0.0", server.address()).parse().unwrap()),
        ChartSource::Repository { url, name: "demo".to_owned(), version: "1.0.0".to_owned(), digest: None },
    ]
}

type RequestPredicate = fn(&ReceivedRequest) -> bool;

type ReplyFactory = fn() -> Reply;

#[tokio::test]
async fn a_wrong_answer_is_tried_again_and_never_cached() {
    let places: [(&str, usize, RequestPredicate); 5] = [
        ("token", 0, |request| request.path.starts_with("/token")),
        ("manifest", 0, |request| request.path.contains("/manifests/") && request.authorization.is_some()),
        ("blob", 0, |request| request.path.contains("/blobs/")),
        ("index", 1, |request| request.path.ends_with("index.yaml")),
        ("archive", 1, |request| request.path.contains(".tgz")),
    ];
    let broken_archive = || Reply::ok(b"\x1f\x8b broken".to_vec());
    let json_error = || Reply::ok(r#"{"error":"maintenance"}"#);
    let wrongs: [(&str, ReplyFactory); 5] = [
        ("page", page),
        ("sign-on", sign_on),
        ("broken archive", broken_archive),
        ("JSON", json_error),
        ("nothing", || Reply::ok("")),
    ];
    for (place, source_index, is_wrong) in places {
        for (name, wrong) in wrongs {
            let is_down = Arc::new(AtomicBool::new(true));
            let server = source(&is_down, is_wrong, wrong).await;
            let client = Client::new(&[&server]);
            let chart = &sources(&server)[source_index];
            for _ in 0..2 {
                let error = read_chart(&client, chart).await.unwrap_err();
                assert_eq!(error.class(), ErrorClass::Transient, "{place}, {name}: {error}");
                assert!(!error.to_string().contains("Back soon"), "{error}");
            }
            is_down.store(false, Ordering::SeqCst);
            let found = read_chart(&client, chart).await;
            assert!(found.is_ok(), "{place}, {name}: {found:?}");
        }
    }
}

async fn read_manifests(client: &Client, source: &ManifestsSource) -> Result<Manifests, ArtifactError> {
    client.artifacts.manifests(source, &Credentials::anonymous()).await
}

/// An empty answer would be a module without objects, of which all installed objects are deleted.
#[tokio::test]
async fn a_page_or_nothing_in_place_of_manifests_is_tried_again() {
    let wrongs: [ReplyFactory; 7] = [
        page,
        || Reply::ok(""),
        || Reply::ok(" \r\n"),
        || Reply::status(204),
        || Reply::ok(gzip("")),
        || Reply::ok(gzip("\n")),
        || Reply::ok(gzip(PAGE)),
    ];
    for wrong in wrongs {
        let is_down = Arc::new(AtomicBool::new(true));
        let server = source(&is_down, |_| true, wrong).await;
        let client = Client::new(&[&server]);
        let url = format!("http://{}/manifest.yaml", server.address()).parse().unwrap();
        let source = ManifestsSource::Http { url, digest: None };
        let error = read_manifests(&client, &source).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), (Reason::SourceInvalid, ErrorClass::Transient));
        is_down.store(false, Ordering::SeqCst);
        assert_eq!(read_manifests(&client, &source).await.unwrap().yaml, MANIFEST);
    }
}

#[tokio::test]
async fn rejected_manifests_are_pulled_again() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = source(&is_down, |_| true, || Reply::ok("in maintenance")).await;
    let client = Client::new(&[&server]);
    let url = format!("http://{}/manifest.yaml", server.address()).parse().unwrap();
    let source = ManifestsSource::Http { url, digest: None };
    let anonymous = Credentials::anonymous();
    let found = read_manifests(&client, &source).await.unwrap();
    is_down.store(false, Ordering::SeqCst);
    assert_eq!(read_manifests(&client, &source).await.unwrap(), found, "it was read a moment ago");
    client.artifacts.reject_manifests(&source, found.digest, &anonymous);
    assert_eq!(read_manifests(&client, &source).await.unwrap().yaml, MANIFEST);
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_not_tried_again() {
    let client = Client::new(&[]);
    for url in ["http://registry.example/a.yaml", "https://me:hush@registry.example/a.yaml", "ftp://a/b"] {
        let source = ManifestsSource::Http { url: url.parse().unwrap(), digest: None };
        let error = read_manifests(&client, &source).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), (Reason::SourceInvalid, ErrorClass::Invalid), "{url}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}

/// A registry whose tokens contain the rights at the time of issue. It may answer 404 for content that a token may not
/// read.
#[tokio::test]
async fn a_right_that_is_granted_later_takes_effect_at_the_next_try() {
    for (status, reason) in [(403, Reason::SourceUnauthorized), (404, Reason::SourceNotFound)] {
        let is_granted = Arc::new(AtomicBool::new(false));
        let granted = Arc::clone(&is_granted);
        let mut repository = Repository::default();
        repository.chart("1.0.0", "demo", "1.0.0");
        let server = Server::start(move |request| {
            if request.path.starts_with("/token") {
                let token = if granted.load(Ordering::SeqCst) { "new" } else { "old" };
                return Reply::ok(format!(r#"{{"token":"{token}","expires_in":3600}}"#));
            }
            match request.authorization.as_deref() {
                Some("Bearer new") => repository.serve(PATH, request),
                Some(_) => Reply::status(status),
                None => {
                    let realm = format!(r#"Bearer realm="http://{}/token""#, request.host);
                    Reply::status(401).header("WWW-Authenticate", realm)
                }
            }
        })
        .await;
        let client = Client::new(&[&server]);
        let chart = &sources(&server)[0];
        for _ in 0..2 {
            let error = read_chart(&client, chart).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{error}");
        }
        is_granted.store(true, Ordering::SeqCst);
        read_chart(&client, chart).await.unwrap();
    }
}

/// A right may be revoked and granted again while a token is valid.
#[tokio::test]
async fn rejected_cached_token_is_replaced_within_the_same_attempt() {
    let is_rotated = Arc::new(AtomicBool::new(false));
    let rotated = Arc::clone(&is_rotated);
    let mut repository = Repository::default();
    repository.chart("1.0.0", "demo", "1.0.0");
    let server = Server::start(move |request| {
        let token = if rotated.load(Ordering::SeqCst) { "new" } else { "old" };
        if request.path.starts_with("/token") {
            return Reply::ok(format!(r#"{{"token":"{token}","expires_in":3600}}"#));
        }
        match request.authorization.as_deref() {
            Some(shown) if shown.ends_with(token) => repository.serve(PATH, request),
            Some(_) => Reply::status(403),
            None => {
                let realm = format!(r#"Bearer realm="http://{}/token""#, request.host);
                Reply::status(401).header("WWW-Authenticate", realm)
            }
        }
    })
    .await;
    let client = Client::with(&[&server], |config| config.deadlines.proof = std::time::Duration::ZERO);
    let chart = &sources(&server)[0];
    read_chart(&client, chart).await.unwrap();
    is_rotated.store(true, Ordering::SeqCst);
    read_chart(&client, chart).await.unwrap();
}

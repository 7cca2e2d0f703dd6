//! Guarantees of the cache: one pull for concurrent readers, no changed content, and no more bytes than its limit.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kyma_artifacts::{ArtifactError, Credentials};

use crate::{
    Client,
    component::{Component, MANIFEST, REPOSITORY},
    server::{ReceivedRequest, Reply, Server},
};

/// Serves the component to every user whose password is `right`.
fn for_the_right(component: Component) -> impl Fn(&ReceivedRequest) -> Reply {
    move |request| match request.authorization.as_deref() {
        Some(shown) if shown.ends_with("OnJpZ2h0") => component.serve(request),
        _ => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"r\""),
    }
}

/// Returns the paths of requests that pulled content.
fn pulls(server: &Server) -> Vec<String> {
    let is_pull = |request: &ReceivedRequest| {
        request.method == "GET" && request.path.contains("/blobs/") && request.authorization.is_some()
    };
    server.requests().into_iter().filter(is_pull).map(|request| request.path).collect()
}

/// Returns all files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn component_is_pulled_once_but_each_credential_is_authorized() {
    let server = Server::start(for_the_right(Component::new())).await;
    let client = Client::new(&[&server]);
    // User names of this length align `:right` with the groups of base64.
    let users: Vec<Credentials> =
        (10..30).map(|number| Credentials::basic(server.address(), &format!("u{number}"), "right")).collect();
    let read = users.iter().map(|credentials| client.component(&server, credentials));
    for found in futures::future::join_all(read).await {
        assert_eq!(found.unwrap().manifest, MANIFEST);
    }
    let mut pulled = pulls(&server);
    let all = pulled.len();
    pulled.sort();
    pulled.dedup();
    assert_eq!(pulled.len(), all, "each blob came once");
    assert_eq!(all, 3, "config, descriptor and manifest: {pulled:?}");
    let asked = |request: &ReceivedRequest| {
        request.path.starts_with(&format!("{REPOSITORY}/manifests/")) && request.authorization.is_some()
    };
    let who: std::collections::BTreeSet<_> =
        server.requests().into_iter().filter(asked).filter_map(|request| request.authorization).collect();
    assert_eq!(who.len(), users.len(), "everybody was let through by the registry");

    let wrong = Credentials::basic(server.address(), "u99", "wrong");
    let error = client.component(&server, &wrong).await.unwrap_err();
    assert_eq!(error.reason(), kyma_api::Reason::SourceUnauthorized, "{error}");
    assert!(matches!(error, ArtifactError::Unauthorized { status: 401, .. }));
}

#[tokio::test]
async fn content_that_changed_on_disk_is_not_given_but_pulled_anew() {
    let component = Component::new();
    let server = Server::start(move |request| component.serve(request)).await;
    let client = Client::new(&[&server]);
    let anonymous = Credentials::anonymous();
    let before = client.component(&server, &anonymous).await.unwrap();
    let get = format!("GET {REPOSITORY}/");
    let first = server.count(&get);
    client.component(&server, &anonymous).await.unwrap();
    assert_eq!(server.count(&get), first);
    let held = files(&client.cache.path().join("blobs"));
    assert_eq!(held.len(), first);
    for file in &held {
        fs::write(file, "kind: Evil").unwrap();
    }
    assert_eq!(client.component(&server, &anonymous).await.unwrap(), before);
    assert_eq!(server.count(&get), 2 * first);
    assert!(held.iter().all(|file| fs::read(file).unwrap() != b"kind: Evil"));
}

#[tokio::test]
async fn what_does_not_fit_is_evicted_and_pulled_anew() {
    let component = Component::new();
    let server = Server::start(move |request| component.serve(request)).await;
    let client = Client::with(&[&server], |config| config.cache_bytes = MANIFEST.len() as u64);
    let get = format!("GET {REPOSITORY}/blobs/");
    for round in 1..=3 {
        let found = client.component(&server, &Credentials::anonymous()).await.unwrap();
        assert_eq!(found.manifest, MANIFEST);
        let held = files(&client.cache.path().join("blobs"));
        let bytes: u64 = held.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(bytes <= MANIFEST.len() as u64, "{held:?}");
        assert!(server.count(&get) > round, "pulled again");
    }
}

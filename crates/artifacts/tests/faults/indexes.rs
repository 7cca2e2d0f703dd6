//! Chart repositories with many readers: content that is pulled once, and what each credential has to prove.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use futures::future::join_all;
use kyma_api::Reason;
use kyma_artifacts::{
    ArtifactError, ChartArchive, ChartSource, ChartVersions, Credentials, Digest, Limits, archive,
};

use crate::{
    Client,
    server::{ReceivedRequest, Reply, Server},
};

/// Support of a repository server for conditional requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sends an `ETag` and honours it.
    Tagged,
    /// Sends a weak `ETag`.
    WeaklyTagged,
    /// Sends a `Last-Modified` and honours it.
    Dated,
    /// Supports none.
    Plain,
    /// Sends an `ETag`, and refuses HEAD.
    WithoutHead,
}

const DATE: &str = "Tue, 24 Nov 2020 08:00:00 GMT";

/// A repository of the chart `demo` for every user whose password is `right`. Its highest version is 1.N.0.
struct Charts {
    server: Server,
    highest: Arc<AtomicUsize>,
}

fn archive(version: usize) -> Bytes {
    let chart = format!("apiVersion: v2\nname: demo\nversion: 1.{version}.0\n");
    let files = [("demo/Chart.yaml".to_owned(), Bytes::from(chart))];
    archive::pack(&files.into(), flate2::Compression::fast()).unwrap()
}

fn index(highest: usize) -> String {
    let entry = |version| {
        let digest = Digest::of(&archive(version)).hex();
        format!("  - {{version: 1.{version}.0, urls: [demo-{version}.tgz], digest: {digest}}}\n")
    };
    let entries: String = (0..=highest).rev().map(entry).collect();
    format!("apiVersion: v1\nentries:\n  other:\n  - {{version: 9.9.9, urls: [x]}}\n  demo:\n{entries}")
}

fn answer(kind: Kind, highest: usize, request: &ReceivedRequest) -> Reply {
    // The header ends with `:right` in base64, after a name of three letters.
    if !request.authorization.as_ref().is_some_and(|shown| shown.ends_with("OnJpZ2h0")) {
        return Reply::status(401);
    }
    if request.method == "HEAD" && kind == Kind::WithoutHead {
        return Reply::status(405);
    }
    let Some(content) = (match request.path.strip_prefix("/demo-") {
        None => Some(Bytes::from(index(highest))),
        Some(rest) => rest.strip_suffix(".tgz").and_then(|version| version.parse().ok()).map(archive),
    }) else {
        return Reply::status(404);
    };
    let strong = format!("\"{}\"", Digest::of(&content).hex());
    let (name, validator) = match kind {
        Kind::Tagged | Kind::WithoutHead => ("ETag", strong),
        Kind::WeaklyTagged => ("ETag", format!("W/{strong}")),
        Kind::Dated => ("Last-Modified", DATE.to_owned()),
        Kind::Plain => return Reply::ok(content),
    };
    if request.condition.as_ref() == Some(&validator) {
        return Reply::status(304);
    }
    let part = if request.range.is_some() { content.slice(..1) } else { content };
    let reply = Reply::ok(part).header(name, validator);
    if request.range.is_some() { Reply { status: 206, ..reply } } else { reply }
}

impl Charts {
    async fn start(kind: Kind) -> Self {
        let highest = Arc::new(AtomicUsize::new(3));
        let counted = Arc::clone(&highest);
        let server =
            Server::start(move |request| answer(kind, counted.load(Ordering::SeqCst), request)).await;
        Self { server, highest }
    }

    /// Returns a client that does not reuse earlier proofs of access.
    fn forgetful(&self) -> Client {
        Client::with(&[&self.server], |config| config.deadlines.proof = Duration::ZERO)
    }

    fn url(&self) -> url::Url {
        format!("http://{}", self.server.address()).parse().unwrap()
    }

    fn source(&self, version: &str) -> ChartSource {
        ChartSource::Repository {
            url: self.url(),
            name: "demo".to_owned(),
            version: version.to_owned(),
            digest: None,
        }
    }

    fn user(&self, number: usize) -> Credentials {
        Credentials::basic(self.server.address(), &format!("u{number:02}"), "right")
    }

    async fn read(&self, client: &Client, version: &str, user: usize) -> Result<ChartArchive, ArtifactError> {
        client.artifacts.chart(&self.source(version), &self.user(user)).await
    }

    /// Returns the number of requests below this path that were answered with the whole content.
    fn whole(&self, path: &str) -> usize {
        let whole = |request: &&ReceivedRequest| {
            let let_through = request.authorization.as_ref().is_some_and(|shown| shown.ends_with("OnJpZ2h0"));
            request.method == "GET"
                && request.path.starts_with(path)
                && request.range.is_none()
                && let_through
        };
        self.server.requests().iter().filter(whole).filter(|request| request.condition.is_none()).count()
    }

    /// Returns the number of distinct credentials in requests below this path.
    fn who(&self, path: &str) -> usize {
        let requests = self.server.requests();
        let asked = requests.iter().filter(|request| request.path.starts_with(path));
        asked.map(|request| request.authorization.clone()).collect::<BTreeSet<_>>().len()
    }
}

#[tokio::test]
async fn chart_is_downloaded_once_but_each_credential_is_authorized() {
    for kind in [Kind::Tagged, Kind::WithoutHead] {
        let charts = Charts::start(kind).await;
        let client = Client::new(&[&charts.server]);
        let all = join_all((0..20).map(|user| charts.read(&client, "1.2.0", user))).await;
        assert!(all.into_iter().all(|chart| chart.unwrap().metadata.version == "1.2.0"));
        assert_eq!((charts.whole("/index.yaml"), charts.whole("/demo-2.tgz")), (1, 1));
        assert_eq!((charts.who("/index.yaml"), charts.who("/demo-2.tgz")), (20, 20));

        let wrong = Credentials::basic(charts.server.address(), "u99", "wrong");
        let refused = client.artifacts.chart(&charts.source("1.2.0"), &wrong).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::SourceUnauthorized, "{refused}");
    }
}

#[tokio::test]
async fn who_may_read_the_index_and_not_the_archive_gets_none() {
    let charts = Charts::start(Kind::Tagged).await;
    let client = Client::new(&[&charts.server]);
    charts.read(&client, "1.2.0", 1).await.unwrap();
    let url = charts.url().join("demo-2.tgz").unwrap();
    let digest = Some(charts.read(&client, "1.2.0", 1).await.unwrap().digest);
    let wrong = Credentials::basic(charts.server.address(), "u99", "wrong");
    let refused = client.artifacts.chart(&ChartSource::Archive { url, digest }, &wrong).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::SourceUnauthorized, "{refused}");
}

#[tokio::test]
async fn unchanged_index_is_not_downloaded_again_but_a_changed_one_is() {
    for kind in [Kind::Tagged, Kind::WeaklyTagged, Kind::Dated] {
        let charts = Charts::start(kind).await;
        let client = charts.forgetful();
        for _ in 0..3 {
            charts.read(&client, "1.3.0", 1).await.unwrap();
        }
        assert_eq!(charts.whole("/index.yaml"), 1);
        assert_eq!(charts.server.count("GET /index.yaml"), 3);
        if kind == Kind::Dated {
            continue;
        }
        charts.highest.store(4, Ordering::SeqCst);
        let versions = ChartVersions::Repository { url: charts.url(), name: "demo".to_owned() };
        let (range, user) = ("1.x".parse().unwrap(), charts.user(1));
        let resolve = || client.artifacts.resolve(&versions, &range, &user);
        assert_eq!(resolve().await.unwrap().version, "1.4.0");
        charts.read(&client, "1.4.0", 1).await.unwrap();
        assert_eq!(resolve().await.unwrap().version, "1.4.0");
        assert_eq!(charts.whole("/index.yaml"), 1, "each was asked with what came before");
        assert_eq!(charts.server.count("GET /index.yaml"), 6);
    }
}

/// Two representations may have one date, and servers may use weak tags for different content.
#[tokio::test]
async fn date_or_weak_tag_shares_no_content_with_another_credential() {
    for kind in [Kind::WeaklyTagged, Kind::Dated, Kind::Plain] {
        let charts = Charts::start(kind).await;
        let client = Client::new(&[&charts.server]);
        for user in 0..3 {
            charts.read(&client, "1.3.0", user).await.unwrap();
        }
        assert_eq!((charts.whole("/index.yaml"), charts.whole("/demo-3.tgz")), (3, 1));
    }
}

#[tokio::test]
async fn what_was_found_in_an_index_is_not_looked_up_in_it_again() {
    let charts = Charts::start(Kind::Tagged).await;
    let client = Client::new(&[&charts.server]);
    charts.read(&client, "1.3.0", 1).await.unwrap();
    let text = index(3);
    let held = client.cache.path().join("blobs");
    let blobs = fs::read_dir(held).unwrap().flat_map(|origin| fs::read_dir(origin.unwrap().path()).unwrap());
    let mut indexes = blobs.map(|blob| blob.unwrap().path());
    let place = indexes.find(|path| fs::read(path).unwrap() == text.as_bytes()).unwrap();
    fs::write(&place, "entries: {demo: []}").unwrap();
    charts.read(&client, "1.3.0", 1).await.unwrap();
    assert_eq!(charts.server.count("GET /index.yaml"), 1, "neither pulled nor read");
    // Another version needs the index, and a file that was changed on disk is not trusted.
    charts.read(&client, "1.2.0", 1).await.unwrap();
    assert_eq!(charts.whole("/index.yaml"), 2);
    assert_eq!(fs::read(&place).unwrap(), text.as_bytes());
}

#[tokio::test]
async fn new_chart_version_is_found_and_missing_one_is_requested_once() {
    let charts = Charts::start(Kind::Tagged).await;
    let client = Client::new(&[&charts.server]);
    charts.read(&client, "1.3.0", 1).await.unwrap();
    let error = charts.read(&client, "1.4.0", 1).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceNotFound, "{error}");
    assert_eq!(charts.server.count("GET /index.yaml"), 2);
    charts.highest.store(4, Ordering::SeqCst);
    assert_eq!(charts.read(&client, "1.4.0", 1).await.unwrap().metadata.version, "1.4.0");
    assert_eq!(charts.server.count("GET /index.yaml"), 3);
    assert_eq!(charts.whole("/index.yaml"), 1, "what came before was named each time");
}

#[tokio::test]
async fn an_index_that_the_cache_cannot_hold_is_too_large() {
    let charts = Charts::start(Kind::Tagged).await;
    let small = Client::with(&[&charts.server], |config| config.cache_bytes = 100);
    let error = charts.read(&small, "1.3.0", 1).await.unwrap_err();
    assert!(matches!(error, ArtifactError::TooLarge { limit: 100, .. }), "{error}");
    let limited = Client::with(&[&charts.server], |config| {
        config.limits = Limits { index: 100, ..Limits::default() };
    });
    let error = charts.read(&limited, "1.3.0", 1).await.unwrap_err();
    assert!(matches!(error, ArtifactError::TooLarge { limit: 100, .. }), "{error}");
}

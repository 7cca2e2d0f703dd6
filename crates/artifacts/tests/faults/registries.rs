//! Behaviour of widely used registries and repositories.

use std::{io::Write as _, time::Duration};

use axum::body::Bytes;
use flate2::{Compression, write::GzEncoder};
use kyma_api::Reason;
use kyma_artifacts::{ArtifactError, ChartSource, ChartVersions, Credentials, ManifestsSource};
use serde_json::json;

use crate::{
    Client,
    artifacts::{CHART_CONFIG, MANIFEST, Repository, chart},
    server::{ReceivedRequest, Reply, Server},
};

const PATH: &str = "charts/demo";
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn oci(server: &Server, tag: &str) -> ChartSource {
    ChartSource::Oci(format!("{}/{PATH}:{tag}", server.address()).parse().unwrap())
}

fn with_chart() -> Repository {
    let mut repository = Repository::default();
    repository.chart("1.0.0", "demo", "1.0.0");
    repository
}

/// Starts a registry whose token service issues a token for exactly the scope that the challenge names.
async fn scoped(scope_of: fn(&ReceivedRequest) -> String) -> Server {
    let repository = with_chart();
    Server::start(move |request| {
        if let Some(query) = request.path.strip_prefix("/token?") {
            let scopes: Vec<String> = url::form_urlencoded::parse(query.as_bytes())
                .filter(|(name, _)| name == "scope")
                .map(|(_, value)| value.into_owned())
                .collect();
            return Reply::ok(json!({"token": scopes.join(" ").replace(' ', "|")}).to_string());
        }
        let scope = scope_of(request);
        if request.authorization == Some(format!("Bearer {}", scope.replace(' ', "|"))) {
            return repository.serve(PATH, request);
        }
        let challenge =
            format!(r#"Bearer realm="http://{}/token",service="r",scope="{scope}""#, request.host);
        Reply::status(401).header("WWW-Authenticate", challenge)
    })
    .await
}

#[tokio::test]
async fn the_scope_of_the_challenge_is_requested() {
    let scopes: [fn(&ReceivedRequest) -> String; 4] = [
        // Azure: a list of tags needs another right than a pull does.
        |request| {
            let right = if request.path.contains("/tags/list") { "metadata_read" } else { "pull" };
            format!("repository:{PATH}:{right}")
        },
        // Artifactory: the registry knows the repository by another name.
        |_| "repository:local/demo:pull".to_owned(),
        // ECR Public.
        |_| "aws".to_owned(),
        |_| format!("repository:{PATH}:pull registry:catalog:*"),
    ];
    for scope in scopes {
        let server = scoped(scope).await;
        let client = Client::new(&[&server]);
        let anonymous = Credentials::anonymous();
        let versions = ChartVersions::Oci(format!("{}/{PATH}", server.address()).parse().unwrap());
        let found = client.artifacts.resolve(&versions, &"1.x".parse().unwrap(), &anonymous).await.unwrap();
        assert_eq!(found.version, "1.0.0");
        client.artifacts.chart(&oci(&server, "1.0.0"), &anonymous).await.unwrap();
        let tokens = server.count("GET /token");
        assert!(tokens <= 2, "{tokens}: tokens are kept for what they are for");
    }
}

#[tokio::test]
async fn a_registry_that_refuses_head_is_asked_by_get() {
    for status in [400, 403, 404, 405, 501] {
        let repository = with_chart();
        let server = Server::start(move |request| {
            if request.method == "HEAD" { Reply::status(status) } else { repository.serve(PATH, request) }
        })
        .await;
        let anonymous = Credentials::anonymous();
        let client = Client::with(&[&server], |config| config.deadlines.proof = Duration::ZERO);
        let versions = ChartVersions::Oci(format!("{}/{PATH}", server.address()).parse().unwrap());
        let found = client.artifacts.resolve(&versions, &"1.x".parse().unwrap(), &anonymous).await.unwrap();
        let pinned = format!("{}/{PATH}:1.0.0@{}", server.address(), found.digest).parse().unwrap();
        client.artifacts.chart(&ChartSource::Oci(pinned), &anonymous).await.unwrap();
        client.artifacts.chart(&oci(&server, "1.0.0"), &anonymous).await.unwrap();
        client.artifacts.chart(&oci(&server, "1.0.0"), &anonymous).await.unwrap();
    }
}

#[tokio::test]
async fn blobs_and_tags_are_requested_as_what_they_are() {
    let repository = with_chart();
    let server = Server::start(move |request| {
        let kind = if request.path.contains("/manifests/") { MANIFEST } else { "*/*" };
        if request.accept.as_deref().is_some_and(|accept| accept.contains(kind)) {
            repository.serve(PATH, request)
        } else {
            Reply::status(406)
        }
    })
    .await;
    let client = Client::new(&[&server]);
    let anonymous = Credentials::anonymous();
    let versions = ChartVersions::Oci(format!("{}/{PATH}", server.address()).parse().unwrap());
    client.artifacts.resolve(&versions, &"1.x".parse().unwrap(), &anonymous).await.unwrap();
    client.artifacts.chart(&oci(&server, "1.0.0"), &anonymous).await.unwrap();
}

/// Adds an index of an image and charts.
fn index(repository: &mut Repository, charts: usize, is_typed: bool) {
    let image = repository.artifact("", IMAGE_CONFIG, &[]);
    let mut manifests = vec![json!({
        "mediaType": MANIFEST, "size": 1, "digest": image, "platform": {"os": "linux", "architecture": "amd64"},
    })];
    for number in 0..charts {
        let digest = repository.chart("", "demo", &format!("1.{number}.0"));
        let mut descriptor = json!({"mediaType": MANIFEST, "size": 1, "digest": digest});
        if is_typed {
            descriptor["artifactType"] = CHART_CONFIG.into();
        }
        manifests.push(descriptor);
    }
    repository.manifest("both", &json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}));
}

#[tokio::test]
async fn of_an_index_the_only_chart_is_read() {
    for is_typed in [true, false] {
        let read = async |charts| {
            let mut repository = Repository::default();
            index(&mut repository, charts, is_typed);
            let server = Server::start(move |request| repository.serve(PATH, request)).await;
            let client = Client::new(&[&server]);
            client.artifacts.chart(&oci(&server, "both"), &Credentials::anonymous()).await
        };
        assert_eq!(read(1).await.unwrap().metadata.version, "1.0.0");
        for (charts, says) in
            [(0, "without a Helm chart"), (2, "more than one Helm chart: name one of the digests")]
        {
            let error = read(charts).await.unwrap_err();
            assert_eq!(error.reason(), Reason::SourceInvalid);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}

#[tokio::test]
async fn files_beside_manifests_are_left_out() {
    let yaml = Bytes::from("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n");
    let binary = "application/octet-stream";
    let layers = [
        (binary, "README.md", Bytes::from("# *a*\n\nuse: it: well")),
        (binary, "all.yaml", yaml.clone()),
        (binary, "LICENSE", Bytes::from("free: as: in")),
        ("image/png", "", Bytes::from_static(b"\x89PNG")),
    ];
    let mut repository = Repository::default();
    repository.artifact("1", "application/vnd.unknown.config.v1+json", &layers);
    repository.artifact("2", "application/vnd.unknown.config.v1+json", &layers[..1]);
    let server = Server::start(move |request| repository.serve(PATH, request)).await;
    let client = Client::new(&[&server]);
    let read = async |tag: &str| {
        let source = ManifestsSource::Oci(format!("{}/{PATH}:{tag}", server.address()).parse().unwrap());
        client.artifacts.manifests(&source, &Credentials::anonymous()).await
    };
    assert_eq!(read("1").await.unwrap().yaml, yaml);
    let error = read("2").await.unwrap_err();
    assert!(error.to_string().contains("ignored: README.md"), "{error}");
}

fn repository_at(url: &str) -> ChartSource {
    ChartSource::Repository {
        url: url.parse().unwrap(),
        name: "demo".to_owned(),
        version: "1.0.0".to_owned(),
        digest: None,
    }
}

#[tokio::test]
async fn repository_url_query_reaches_index_and_charts_but_no_message() {
    let server = Server::start(|request| match request.path.as_str() {
        "/charts/index.yaml?token=hunter2" => Reply::ok(
            "entries: {demo: [{version: 1.0.0, urls: [demo.tgz]}], none: [{version: 1.0.0, urls: [x]}]}",
        ),
        "/charts/demo.tgz?token=hunter2" => Reply::ok(chart("demo", "1.0.0")),
        _ => Reply::status(401),
    })
    .await;
    let client = Client::new(&[&server]);
    let anonymous = Credentials::anonymous();
    for end in ["", "/"] {
        let url = format!("http://{}/charts{end}?token=hunter2", server.address());
        client.artifacts.chart(&repository_at(&url), &anonymous).await.unwrap();
    }
    for url in ["charts?token=hunter3", "other?token=hunter2"] {
        let source = repository_at(&format!("http://{}/{url}", server.address()));
        let error = client.artifacts.chart(&source, &anonymous).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
    }
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

/// Object stores send an index as it was uploaded, whatever the client accepts.
#[tokio::test]
async fn an_index_compressed_by_gzip_is_read() {
    let server = Server::start(|request| match request.path.as_str() {
        "/charts/index.yaml" => {
            Reply::ok(gzipped(b"entries: {demo: [{version: 1.0.0, urls: [../archives/demo.tgz]}]}"))
                .header("Content-Encoding", "gzip")
        }
        "/large/index.yaml" => Reply::ok(gzipped(&b"\n".repeat(2 << 20))),
        "/archives/demo.tgz" => Reply::ok(chart("demo", "1.0.0")),
        _ => Reply::status(404),
    })
    .await;
    let client = Client::with(&[&server], |config| config.limits.index = 1 << 20);
    let read = async |path: &str| {
        let source = repository_at(&format!("http://{}/{path}", server.address()));
        client.artifacts.chart(&source, &Credentials::anonymous()).await
    };
    assert_eq!(read("charts").await.unwrap().metadata.version, "1.0.0");
    let error = read("large").await.unwrap_err();
    assert!(matches!(error, ArtifactError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn the_bound_on_silence_is_not_for_the_first_byte() {
    let server = Server::start(|_| Reply::status(404)).await;
    let client = Client::with(&[&server], |config| config.deadlines.idle = Duration::ZERO);
    let source = repository_at(&format!("http://{}/charts", server.address()));
    let error = client.artifacts.chart(&source, &Credentials::anonymous()).await.unwrap_err();
    assert!(matches!(error, ArtifactError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn refused_addresses_are_reported_with_the_reason() {
    let server = Server::start(|request| match request.path.as_str() {
        "/user" => Reply::status(302).header("Location", format!("http://me:hush@{}/x", request.host)),
        "/scheme" => Reply::status(302).header("Location", "ftp://mirror.example/x"),
        "/http" => Reply::status(302).header("Location", "http://mirror.example/x"),
        "/host" => Reply::status(302).header("Location", "https://mirror.example/x"),
        "/oci/index.yaml" => {
            Reply::ok("entries: {demo: [{version: 1.0.0, urls: ['oci://reg.example/demo:1.0.0']}]}")
        }
        _ => {
            let realm = "Bearer realm=\"http://registry.example/token\"";
            Reply::status(401).header("WWW-Authenticate", realm)
        }
    })
    .await;
    let client = Client::new(&[&server]);
    let address = server.address();
    let anonymous = Credentials::anonymous();
    let archive = |path: &str| ChartSource::Archive {
        url: format!("http://{address}/{path}").parse().unwrap(),
        digest: None,
    };
    let rows = [
        (archive("user"), "user or password in the address"),
        (archive("scheme"), "the scheme ftp"),
        (archive("http"), "http:// address"),
        (
            archive("host"),
            "mirror.example, which is not an allowed host; to allow it, name it in --oci-allowed-hosts",
        ),
        (
            repository_at(&format!("http://{address}/oci")),
            "index.yaml names oci://reg.example/demo:1.0.0 on host reg.example",
        ),
        (oci(&server, "1.0.0"), "names a token service at registry.example, with an http:// address"),
    ];
    for (source, says) in rows {
        let error = client.artifacts.chart(&source, &anonymous).await.unwrap_err();
        assert_eq!(error.reason(), Reason::SourceHostRefused, "{error}");
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains("hush"), "{text}");
    }
}

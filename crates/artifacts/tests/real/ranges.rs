//! Ranges of versions, resolved with a real registry and with an index that helm wrote.

use axum::Router;
use axum::routing::get;
use kyma_api::Reason;
use kyma_artifacts::{Artifacts, ChartSource, ChartVersions, Config, Credentials, Digest};

use crate::Setup;
use crate::charts::{helm, packaged};

const PUSHED: [&str; 6] = ["1.2.0", "1.9.1", "1.10.0+build.3", "1.11.0-rc.1", "2.0.0", "0.1.0"];

#[tokio::test]
async fn registry_range_resolves_to_highest_version_with_its_digest() {
    let setup = Setup::new().await;
    let directory = setup.directory.path();
    let remote = format!("oci://{}/charts", setup.registry.address());
    for version in PUSHED {
        let archive = packaged(directory, version);
        helm(directory, &["push", archive.to_str().unwrap(), &remote, "--plain-http"]);
    }
    let repository = format!("{}/charts/demo", setup.registry.address());
    let versions = ChartVersions::Oci(repository.parse().unwrap());
    let anonymous = Credentials::anonymous();
    for (range, expected) in [
        ("1.x", "1.10.0+build.3"),
        (">=1.2 <1.10", "1.9.1"),
        (">=1.2.0-0 <2", "1.11.0-rc.1"),
        ("*", "2.0.0"),
        ("^0.1 || ~1.2", "1.2.0"),
    ] {
        let found = setup.artifacts.resolve(&versions, &range.parse().unwrap(), &anonymous).await.unwrap();
        assert_eq!(found.version, expected, "{range}");
        let pinned = format!("{repository}@{}", found.digest).parse().unwrap();
        let chart = setup.artifacts.chart(&ChartSource::Oci(pinned), &anonymous).await.unwrap();
        assert_eq!(chart.metadata.version, expected);
    }
    let error = setup.artifacts.resolve(&versions, &">=3".parse().unwrap(), &anonymous).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceNotFound);
}

#[tokio::test]
async fn index_is_requested_for_each_range_and_gives_archive_digest() {
    let setup = Setup::new().await;
    let directory = setup.directory.path().to_owned();
    let archive = packaged(&directory, "1.0.0");
    helm(&directory, &["repo", "index", "."]);
    let served = directory.clone();
    let index = get(move || async move { std::fs::read(served.join("index.yaml")).unwrap() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/index.yaml", index);
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let mut config = Config::new(directory.join("another"));
    config.insecure_hosts = vec![address.to_string()];
    let artifacts = Artifacts::open(&config).unwrap();
    let url = format!("http://{address}").parse().unwrap();
    let versions = ChartVersions::Repository { url, name: "demo".to_owned() };
    let resolve = async || {
        artifacts.resolve(&versions, &"1.x".parse().unwrap(), &Credentials::anonymous()).await.unwrap()
    };
    let found = resolve().await;
    let digest = Digest::of(&std::fs::read(&archive).unwrap());
    assert_eq!((found.version.as_str(), found.digest), ("1.0.0", digest));
    packaged(&directory, "1.1.0");
    helm(&directory, &["repo", "index", "."]);
    assert_eq!(resolve().await.version, "1.1.0");
    serving.abort();
}

//! Charts as the real helm packs, pushes, indexes and pulls them.

use std::{fs, path::Path, process::Command};

use axum::{Router, routing::get};
use kyma_api::Reason;
use kyma_artifacts::{ArtifactError, Artifacts, ChartSource, Config, Credentials, Digest, Limits};
use testbed::Program;

use crate::Setup;

#[tokio::test]
async fn a_chart_that_helm_pushed_is_read() {
    let setup = Setup::new().await;
    let archive = packaged(setup.directory.path(), "1.2.3+build.5");
    let remote = format!("oci://{}/charts", setup.registry.address());
    helm(setup.directory.path(), &["push", archive.to_str().unwrap(), &remote, "--plain-http"]);
    let reference = format!("{}/charts/demo:1.2.3_build.5", setup.registry.address()).parse().unwrap();
    let chart = setup.artifacts.chart(&ChartSource::Oci(reference), &Credentials::anonymous()).await.unwrap();
    assert_eq!(chart.content()[..], fs::read(&archive).unwrap());
    assert_eq!((chart.metadata.name.as_str(), chart.metadata.version.as_str()), ("demo", "1.2.3+build.5"));
    assert_eq!(chart.files(&Limits::default()).unwrap()["values.yaml"], "colour: blue\n");
}

#[tokio::test]
async fn helm_pulls_what_we_push() {
    let setup = Setup::new().await;
    let directory = setup.directory.path();
    let chart = kyma_artifacts::ChartArchive::package(&chart(directory, "0.1.0")).unwrap();
    let parent = format!("{}/ours", setup.registry.address()).parse().unwrap();
    let push = async || setup.artifacts.push_chart(&parent, &chart, &Credentials::anonymous(), &()).await;
    assert_eq!(push().await.unwrap(), push().await.unwrap());
    let remote = format!("oci://{}/ours/demo", setup.registry.address());
    helm(directory, &["pull", &remote, "--version", "0.1.0", "--plain-http"]);
    assert_eq!(fs::read(directory.join("demo-0.1.0.tgz")).unwrap(), chart.content()[..]);
    helm(directory, &["template", "demo-0.1.0.tgz"]);
}

#[tokio::test]
async fn a_repository_is_read_by_its_index() {
    let setup = Setup::new().await;
    let archive = packaged(setup.directory.path(), "1.0.0");
    let content = fs::read(&archive).unwrap();
    helm(setup.directory.path(), &["repo", "index", "."]);
    let index = fs::read(setup.directory.path().join("index.yaml")).unwrap();
    let tampered = Router::new()
        .route("/charts/index.yaml", get(move || async move { index }))
        .route("/charts/demo-1.0.0.tgz", get(move || async move { content }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, tampered).await });
    let mut config = Config::new(setup.directory.path().join("another"));
    config.insecure_hosts = vec![address.to_string()];
    let artifacts = Artifacts::open(&config).unwrap();
    let source = |version: &str, digest| ChartSource::Repository {
        url: format!("http://{address}/charts").parse().unwrap(),
        name: "demo".to_owned(),
        version: version.to_owned(),
        digest,
    };
    let read = async |source| artifacts.chart(&source, &Credentials::anonymous()).await;
    let digest = read(source("1.0.0", None)).await.unwrap().digest;
    assert_eq!(digest, Digest::of(&fs::read(&archive).unwrap()));
    assert_eq!(read(source("v1.0.0", Some(digest))).await.unwrap().digest, digest);
    assert_eq!(read(source("2.0.0", None)).await.unwrap_err().reason(), Reason::SourceNotFound);
    let mismatch = read(source("1.0.0", Some(Digest::of(b"other")))).await.unwrap_err();
    assert!(matches!(mismatch, ArtifactError::DigestMismatch { .. }), "{mismatch}");
    server.abort();
}

#[tokio::test]
async fn an_index_that_names_a_registry_is_followed_to_known_ones() {
    let setup = Setup::new().await;
    let archive = packaged(setup.directory.path(), "1.0.0");
    let remote = format!("oci://{}/moved", setup.registry.address());
    helm(setup.directory.path(), &["push", archive.to_str().unwrap(), &remote, "--plain-http"]);
    let entries = format!(
        "  demo:\n  - {{version: 1.0.0, urls: [\"{remote}/demo\"]}}\n  - {{version: 1.1.0, urls: [\"oci://registry.invalid/demo\"]}}\n"
    );
    let index = format!("apiVersion: v1\nentries:\n{entries}");
    let site = Router::new().route("/index.yaml", get(move || async move { index }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, site).await });
    let mut config = Config::new(setup.directory.path().join("another"));
    config.insecure_hosts = vec![address.to_string(), setup.registry.address().to_owned()];
    let artifacts = Artifacts::open(&config).unwrap();
    let source = |version: &str, digest| ChartSource::Repository {
        url: format!("http://{address}/").parse().unwrap(),
        name: "demo".to_owned(),
        version: version.to_owned(),
        digest,
    };
    let read = async |source| artifacts.chart(&source, &Credentials::anonymous()).await;
    let chart = read(source("1.0.0", None)).await.unwrap();
    assert_eq!(chart.content()[..], fs::read(&archive).unwrap());
    assert!(read(source("1.0.0", Some(chart.digest))).await.is_ok());
    let mismatch = read(source("1.0.0", Some(Digest::of(b"other")))).await.unwrap_err();
    assert!(matches!(mismatch, ArtifactError::DigestMismatch { .. }), "{mismatch}");
    let refused = read(source("1.1.0", None)).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::SourceHostRefused);
    assert!(refused.to_string().contains("oci://registry.invalid/demo"), "{refused}");
    server.abort();
}

pub(crate) fn chart(directory: &Path, version: &str) -> std::path::PathBuf {
    let chart = directory.join("demo");
    fs::create_dir_all(chart.join("templates")).unwrap();
    fs::create_dir_all(directory.join("unpacked")).unwrap();
    fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: demo\nversion: {version}\n")).unwrap();
    fs::write(chart.join("values.yaml"), "colour: blue\n").unwrap();
    let template =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: demo\ndata:\n  c: {{ .Values.colour }}\n";
    fs::write(chart.join("templates/demo.yaml"), template).unwrap();
    chart
}

pub(crate) fn packaged(directory: &Path, version: &str) -> std::path::PathBuf {
    chart(directory, version);
    helm(directory, &["package", "demo"]);
    directory.join(format!("demo-{version}.tgz"))
}

pub(crate) fn helm(directory: &Path, arguments: &[&str]) {
    let output = Command::new(Program::Helm.path().unwrap())
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

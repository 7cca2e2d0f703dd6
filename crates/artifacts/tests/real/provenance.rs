//! Provenance of charts, signed by the real helm.

use std::{fs, path::Path, sync::Arc};

use axum::{Router, extract::State, http::Uri};
use kyma_api::Reason;
use kyma_artifacts::{
    ArtifactError, Artifacts, ChartArchive, ChartSource, Config, Credentials, ManifestsSource, Trust,
};
use pgp::{
    composed::{KeyType, SecretKeyParamsBuilder, SignedSecretKey},
    ser::Serialize as _,
};
use rand::rngs::OsRng;

use crate::{Setup, charts::chart, charts::helm};

/// Returns a key of a type that every helm reads.
fn key(name: &str) -> SignedSecretKey {
    SecretKeyParamsBuilder::default()
        .key_type(KeyType::Rsa(2048))
        .can_certify(true)
        .can_sign(true)
        .primary_user_id(format!("{name} <{name}@example.org>"))
        .build()
        .unwrap()
        .generate(OsRng)
        .unwrap()
}

fn trust(key: &SignedSecretKey) -> Arc<Trust> {
    Arc::new(Trust::nobody().and_keyring(&key.to_public_key().to_bytes().unwrap()).unwrap())
}

/// Packs the chart and signs it with the key.
fn package(directory: &Path, version: &str, key: &SignedSecretKey) {
    chart(directory, version);
    fs::write(directory.join("secret.gpg"), key.to_bytes().unwrap()).unwrap();
    helm(directory, &["package", "demo", "--sign", "--key", "builder", "--keyring", "secret.gpg"]);
}

#[tokio::test]
async fn a_chart_in_a_registry_passes_with_its_provenance_alone() {
    let setup = Setup::new().await;
    let directory = setup.directory.path();
    let builder = key("builder");
    package(directory, "1.0.0", &builder);
    let remote = format!("oci://{}/charts", setup.registry.address());
    helm(directory, &["push", "demo-1.0.0.tgz", &remote, "--plain-http"]);
    chart(directory, "2.0.0");
    helm(directory, &["package", "demo"]);
    helm(directory, &["push", "demo-2.0.0.tgz", &remote, "--plain-http"]);
    let read = async |version: &str, trust: &Arc<Trust>| {
        let reference = format!("{}/charts/demo:{version}", setup.registry.address()).parse().unwrap();
        let source = ChartSource::Oci(reference);
        setup.artifacts.trusting(Arc::clone(trust)).chart(&source, &Credentials::anonymous()).await
    };
    let trusted = trust(&builder);
    let good = read("1.0.0", &trusted).await.unwrap();
    assert_eq!(good.content()[..], fs::read(directory.join("demo-1.0.0.tgz")).unwrap());
    assert_eq!(read("2.0.0", &trusted).await.unwrap_err().reason(), Reason::SignatureMissing);
    let stranger = trust(&key("stranger"));
    assert_eq!(read("1.0.0", &stranger).await.unwrap_err().reason(), Reason::SignatureInvalid);

    // A provenance covers the chart of an artifact, and not its other content.
    let reference = format!("{}/charts/demo:1.0.0", setup.registry.address()).parse().unwrap();
    let manifests = setup.artifacts.trusting(trusted);
    let other = manifests.manifests(&ManifestsSource::Oci(reference), &Credentials::anonymous()).await;
    assert_eq!(other.unwrap_err().reason(), Reason::VerificationInvalid);
}

/// Serves a directory, and returns the address.
async fn serve(directory: &Path) -> std::net::SocketAddr {
    let files = directory.to_owned();
    let routes = Router::new()
        .fallback(async |State(files): State<std::path::PathBuf>, uri: Uri| {
            fs::read(files.join(uri.path().trim_start_matches('/')))
                .map_err(|_| axum::http::StatusCode::NOT_FOUND)
        })
        .with_state(files);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

#[tokio::test]
async fn a_chart_of_a_repository_passes_with_its_provenance_alone() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let builder = key("builder");
    package(directory, "1.0.0", &builder);
    helm(directory, &["repo", "index", "."]);
    let address = serve(directory).await;
    let caches = tempfile::tempdir().unwrap();
    let client = || {
        let mut config = Config::new(tempfile::tempdir_in(caches.path()).unwrap().keep());
        config.insecure_hosts = vec![address.to_string()];
        Artifacts::open(&config).unwrap()
    };
    let source = ChartSource::Repository {
        url: format!("http://{address}").parse().unwrap(),
        name: "demo".to_owned(),
        version: "1.0.0".to_owned(),
        digest: None,
    };
    let read = async |artifacts: &Artifacts, trust: &Arc<Trust>| -> Result<ChartArchive, ArtifactError> {
        artifacts.trusting(Arc::clone(trust)).chart(&source, &Credentials::anonymous()).await
    };
    let trusted = trust(&builder);
    let first = client();
    read(&first, &trusted).await.unwrap();
    let stranger = trust(&key("stranger"));
    assert_eq!(
        read(&first, &stranger).await.unwrap_err().reason(),
        Reason::SignatureInvalid,
        "from the cache"
    );

    // An older version in the place of a newer one.
    let index = fs::read_to_string(directory.join("index.yaml")).unwrap();
    fs::write(directory.join("index.yaml"), index.replace("version: 1.0.0", "version: 1.1.0")).unwrap();
    let newer = ChartSource::Repository {
        url: format!("http://{address}").parse().unwrap(),
        name: "demo".to_owned(),
        version: "1.1.0".to_owned(),
        digest: None,
    };
    let rolled_back = client().trusting(Arc::clone(&trusted));
    let rolled_back = rolled_back.chart(&newer, &Credentials::anonymous()).await.unwrap_err();
    assert_eq!(rolled_back.reason(), Reason::SignatureInvalid);
    assert!(rolled_back.to_string().contains("signed as chart demo 1.0.0"), "{rolled_back}");

    // The chart is packed again, with the former provenance: the time in the archive differs.
    let provenance = fs::read(directory.join("demo-1.0.0.tgz.prov")).unwrap();
    fs::write(directory.join("demo/values.yaml"), "colour: red\n").unwrap();
    helm(directory, &["package", "demo"]);
    helm(directory, &["repo", "index", "."]);
    fs::write(directory.join("demo-1.0.0.tgz.prov"), provenance).unwrap();
    let swapped = read(&client(), &trusted).await.unwrap_err();
    assert_eq!(swapped.reason(), Reason::SignatureInvalid);
    assert!(swapped.to_string().contains("another archive"), "{swapped}");
    fs::remove_file(directory.join("demo-1.0.0.tgz.prov")).unwrap();
    assert_eq!(read(&client(), &trusted).await.unwrap_err().reason(), Reason::SignatureMissing);
}

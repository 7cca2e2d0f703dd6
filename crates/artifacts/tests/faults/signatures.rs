//! Registries that do not respond about signatures, or support the referrers API.

use std::sync::Arc;

use kyma_api::Reason;
use kyma_artifacts::{ArtifactError, Artifacts, ChartSource, Credentials, Digest, ModuleContent, Trust};
use pgp::{
    composed::{KeyType, SecretKeyParamsBuilder},
    ser::Serialize as _,
};
use rand::rngs::OsRng;
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::{
    Client,
    artifacts::chart,
    component::{Component, MANIFEST, NAME, REPOSITORY, VERSION},
    sample::{self, SignatureOptions},
    server::{ReceivedRequest, Reply, Server},
};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn trust(key: &KeyPair) -> Arc<Trust> {
    Arc::new(Trust::nobody().and_keys(key.public_key_pem().as_bytes()).unwrap())
}

async fn read(artifacts: &Artifacts, server: &Server) -> Result<ModuleContent, ArtifactError> {
    artifacts.component(&server.address().parse().unwrap(), NAME, VERSION, &Credentials::anonymous()).await
}

fn digest(component: &Component) -> Digest {
    Digest::of(&component.content[&format!("{REPOSITORY}/manifests/{VERSION}")])
}

#[tokio::test]
async fn failing_registry_does_not_count_as_one_without_signatures() {
    let key = KeyPair::generate().unwrap();
    for (status, reason) in [
        (500, Reason::SourceUnreachable),
        (429, Reason::SourceUnreachable),
        (403, Reason::SourceUnauthorized),
    ] {
        for part in [".sig", "/referrers/"] {
            let component = Component::new();
            let server = Server::start(move |request| {
                if request.path.contains(part) { Reply::status(status) } else { component.serve(request) }
            })
            .await;
            let client = Client::new(&[&server]);
            let error = read(&client.artifacts.trusting(trust(&key)), &server).await.unwrap_err();
            assert_eq!(error.reason(), reason, "{part} {status}: {error}");
        }
    }
}

#[tokio::test]
async fn bundles_are_found_by_the_api_for_what_refers_to_an_artifact() {
    let key = KeyPair::generate().unwrap();
    let component = Component::new();
    let bundle = sample::key_bundle(&key, &SignatureOptions::of(&digest(&component).hex())).to_string();
    let layer = json!({"mediaType": sample::BUNDLE, "digest": Digest::of(bundle.as_bytes()), "size": 1});
    let artifact = json!({"schemaVersion": 2, "config": layer, "layers": [layer]}).to_string();
    let entry = |kind: &str, digest: Digest| {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1,
            "artifactType": kind,
        })
    };
    let found = Digest::of(artifact.as_bytes());
    let others = entry("application/spdx+json", Digest::of(b"what is not read"));
    let page = |entry: Value| json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let (first, second) = (page(others), page(entry(sample::BUNDLE, found)));
    let asked = format!("{REPOSITORY}/referrers/{}?", digest(&component));
    let counted = asked.clone();
    let script = move |request: &ReceivedRequest| {
        if request.path.starts_with(&asked) && request.path.contains("last=") {
            Reply::ok(second.clone()).header("Content-Type", INDEX)
        } else if request.path.starts_with(&asked) {
            let next = format!("<{asked}last=a>; rel=\"next\"");
            Reply::ok(first.clone()).header("Content-Type", INDEX).header("Link", next)
        } else if request.path == format!("{REPOSITORY}/manifests/{found}") {
            Reply::ok(artifact.clone())
        } else if request.path == format!("{REPOSITORY}/blobs/{}", Digest::of(bundle.as_bytes())) {
            Reply::ok(bundle.clone())
        } else {
            component.serve(request)
        }
    };
    let server = Server::start(script).await;
    let client = Client::new(&[&server]);
    let trusting = client.artifacts.trusting(trust(&key));
    let reads = futures::future::join_all((0..50).map(|_| read(&trusting, &server))).await;
    assert!(reads.into_iter().all(|found| found.unwrap().manifest == MANIFEST));
    assert_eq!(server.count(&format!("GET {counted}")), 2, "one search of two pages for all");
    let other = client.artifacts.trusting(trust(&KeyPair::generate().unwrap()));
    assert_eq!(read(&other, &server).await.unwrap_err().reason(), Reason::SignatureInvalid);
}

#[tokio::test]
async fn all_pages_of_referrers_share_one_limit_of_size() {
    let component = Component::new();
    let asked = format!("{REPOSITORY}/referrers/{}?", digest(&component));
    let counted = asked.clone();
    let page =
        json!({"schemaVersion": 2, "manifests": [], "annotations": {"a": "x".repeat(3 << 20)}}).to_string();
    let server = Server::start(move |request| {
        if request.path.starts_with(&asked) {
            let next = format!("<{asked}last=a>; rel=\"next\"");
            Reply::ok(page.clone()).header("Content-Type", INDEX).header("Link", next)
        } else {
            component.serve(request)
        }
    })
    .await;
    let client = Client::new(&[&server]);
    let trusting = client.artifacts.trusting(trust(&KeyPair::generate().unwrap()));
    let error = read(&trusting, &server).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SignatureInvalid, "{error}");
    assert_eq!(server.count(&format!("GET {counted}")), 2, "the second page exceeds the limit");
}

/// The answer may be a page of a proxy, or be corrected at its address.
#[tokio::test]
async fn an_untrusted_provenance_is_requested_again() {
    let key = SecretKeyParamsBuilder::default()
        .key_type(KeyType::Ed25519Legacy)
        .can_certify(true)
        .can_sign(true)
        .primary_user_id("builder <builder@example.org>".to_owned())
        .build()
        .unwrap()
        .generate(OsRng)
        .unwrap();
    let trust = Trust::nobody().and_keyring(&key.to_public_key().to_bytes().unwrap()).unwrap();
    let server = Server::start(|request| match request.path.as_str() {
        "/demo.tgz" => Reply::ok(chart("demo", "1.0.0")),
        _ => Reply::ok("<html>Back soon</html>"),
    })
    .await;
    let client = Client::new(&[&server]);
    let trusting = client.artifacts.trusting(Arc::new(trust));
    let url = format!("http://{}/demo.tgz", server.address()).parse().unwrap();
    let source = ChartSource::Archive { url, digest: None };
    for tries in 1..=2 {
        let error = trusting.chart(&source, &Credentials::anonymous()).await.unwrap_err();
        assert_eq!(error.reason(), Reason::SignatureInvalid, "{error}");
        assert_eq!(server.count("GET /demo.tgz.prov"), tries);
    }
}

#[tokio::test]
async fn nothing_that_an_unsigned_artifact_names_is_read() {
    let component = Component::new();
    let server = Server::start(move |request| component.serve(request)).await;
    let client = Client::new(&[&server]);
    let trusting = client.artifacts.trusting(trust(&KeyPair::generate().unwrap()));
    assert_eq!(read(&trusting, &server).await.unwrap_err().reason(), Reason::SignatureMissing);
    assert_eq!(server.count(&format!("GET {REPOSITORY}/blobs/")), 0);
}

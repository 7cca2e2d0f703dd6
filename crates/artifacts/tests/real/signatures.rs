//! Signed and unsigned artifacts in a real registry.

use std::{fs, sync::Arc};

use axum::body::Bytes;
use kyma_api::Reason;
use kyma_artifacts::{
    ArtifactError, Artifacts, ChartSource, Credentials, Digest, Manifests, ManifestsSource, OciReference,
    Signer, Trust, TrustRoot,
};
use rcgen::KeyPair;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::{
    Setup,
    charts::{helm, packaged},
    components::http,
    sample::{self, ISSUER, SUBJECT, SignatureOptions, Sigstore},
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const YAML: &str = "kind: ConfigMap\n";

/// A repository with one artifact of manifests.
struct SignedRepository {
    setup: Setup,
    digest: Digest,
    manifest: String,
}

impl SignedRepository {
    async fn new() -> Self {
        let setup = Setup::new().await;
        let layers = [blob(&setup, "application/yaml", YAML).await];
        let manifest = manifest(&setup, &layers).await.to_string();
        put(&setup, "1.0.0", MANIFEST, &manifest).await;
        Self { digest: Digest::of(manifest.as_bytes()), manifest, setup }
    }

    fn source(&self) -> ManifestsSource {
        ManifestsSource::Oci(reference(&self.setup, "1.0.0"))
    }

    async fn read(&self, artifacts: &Artifacts) -> Result<Manifests, ArtifactError> {
        artifacts.manifests(&self.source(), &Credentials::anonymous()).await
    }

    async fn read_trusting(&self, trust: Trust) -> Result<Manifests, ArtifactError> {
        self.read(&self.setup.artifacts.trusting(Arc::new(trust))).await
    }

    /// Pushes signatures under cosign's tag, and replaces existing ones.
    async fn cosign(&self, signatures: &[(String, Value)]) {
        let mut layers = Vec::new();
        for (payload, annotations) in signatures {
            let mut layer = blob(&self.setup, PAYLOAD, payload).await;
            layer["annotations"] = annotations.clone();
            layers.push(layer);
        }
        let manifest = manifest(&self.setup, &layers).await;
        put(&self.setup, &format!("sha256-{}.sig", self.digest.hex()), MANIFEST, &manifest.to_string()).await;
    }

    /// Adds a bundle to the referrers tag, which registries without the referrers API use.
    async fn refer(&self, bundle: &Value) {
        let layers = [blob(&self.setup, sample::BUNDLE, &bundle.to_string()).await];
        let mut artifact = manifest(&self.setup, &layers).await;
        artifact["artifactType"] = sample::BUNDLE.into();
        artifact["subject"] =
            json!({"mediaType": MANIFEST, "digest": self.digest, "size": self.manifest.len()});
        let artifact = artifact.to_string();
        let digest = Digest::of(artifact.as_bytes());
        put(&self.setup, &digest.to_string(), MANIFEST, &artifact).await;
        let entry = json!({
            "mediaType": MANIFEST, "digest": digest, "size": artifact.len(), "artifactType": sample::BUNDLE,
        });
        let kind = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": kind, "manifests": [entry]});
        put(&self.setup, &format!("sha256-{}", self.digest.hex()), kind, &index.to_string()).await;
    }
}

#[tokio::test]
async fn only_what_one_of_the_keys_signed_is_read() {
    let repository = SignedRepository::new().await;
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let missing = repository.read_trusting(by(&[&key])).await.unwrap_err();
    assert_eq!(missing.reason(), Reason::SignatureMissing, "{missing}");
    assert!(missing.retry_after().is_some(), "nobody tells of a signature that comes later");

    repository.cosign(&[sample::key_cosign(&other, &repository.digest.hex())]).await;
    let foreign = repository.read_trusting(by(&[&key])).await.unwrap_err();
    assert_eq!(foreign.reason(), Reason::SignatureInvalid, "{foreign}");
    assert_eq!(repository.read_trusting(by(&[&key, &other])).await.unwrap().yaml, YAML);

    repository.cosign(&[sample::key_cosign(&key, &Digest::of(b"elsewhere").hex())]).await;
    let elsewhere = repository.read_trusting(by(&[&key])).await.unwrap_err();
    assert_eq!(elsewhere.reason(), Reason::SignatureInvalid, "{elsewhere}");

    let both = [&other, &key].map(|key| sample::key_cosign(key, &repository.digest.hex()));
    repository.cosign(&both).await;
    assert_eq!(repository.read_trusting(by(&[&key])).await.unwrap().yaml, YAML);
}

#[tokio::test]
async fn cached_content_is_verified_again_for_each_reader_and_key() {
    let repository = SignedRepository::new().await;
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let trusting = |key: &KeyPair| repository.setup.artifacts.trusting(Arc::new(by(&[key])));
    assert_eq!(repository.read(&repository.setup.artifacts).await.unwrap().digest, repository.digest);
    assert_eq!(repository.read(&trusting(&key)).await.unwrap_err().reason(), Reason::SignatureMissing);
    repository.cosign(&[sample::key_cosign(&key, &repository.digest.hex())]).await;
    repository.read(&trusting(&key)).await.unwrap();
    assert_eq!(repository.read(&trusting(&other)).await.unwrap_err().reason(), Reason::SignatureInvalid);
    // A passed check is cached: the signature does not have to stay in the registry.
    repository.cosign(&[]).await;
    repository.read(&trusting(&key)).await.unwrap();
    assert_eq!(repository.read(&trusting(&other)).await.unwrap_err().reason(), Reason::SignatureMissing);
}

#[tokio::test]
async fn bundles_among_the_referrers_count_by_key_and_by_identity() {
    let repository = SignedRepository::new().await;
    let (sigstore, key) = (Sigstore::new(), KeyPair::generate().unwrap());
    let options = SignatureOptions::of(&repository.digest.hex());
    repository.refer(&sample::key_bundle(&key, &options)).await;
    assert_eq!(repository.read_trusting(by(&[&key])).await.unwrap().yaml, YAML);
    let found = repository.read_trusting(by_identity(&sigstore, SUBJECT)).await.unwrap_err();
    assert_eq!(found.reason(), Reason::SignatureInvalid, "{found}");

    repository.refer(&sigstore.bundle(&options)).await;
    assert_eq!(repository.read_trusting(by_identity(&sigstore, SUBJECT)).await.unwrap().yaml, YAML);
    let found =
        repository.read_trusting(by_identity(&sigstore, "https://example.org/another")).await.unwrap_err();
    assert!(found.to_string().contains("by another identity"), "{found}");
}

#[tokio::test]
async fn signatures_without_keys_count_under_cosigns_tag() {
    let repository = SignedRepository::new().await;
    let sigstore = Sigstore::new();
    repository.cosign(&[sigstore.cosign(&SignatureOptions::of(&repository.digest.hex()))]).await;
    assert_eq!(repository.read_trusting(by_identity(&sigstore, SUBJECT)).await.unwrap().yaml, YAML);
    let found = repository.read_trusting(by_identity(&Sigstore::new(), SUBJECT)).await.unwrap_err();
    assert_eq!(found.reason(), Reason::SignatureInvalid, "{found}");
}

#[tokio::test]
async fn oversized_excess_or_unreadable_signatures_are_rejected() {
    let repository = SignedRepository::new().await;
    let key = KeyPair::generate().unwrap();
    let good = sample::key_cosign(&key, &repository.digest.hex());
    let refused = async |problem: &str| {
        let found = repository.read_trusting(by(&[&key])).await.unwrap_err();
        assert_eq!(found.reason(), Reason::SignatureInvalid, "{found}");
        assert!(found.to_string().contains(problem), "{found}");
    };
    repository.cosign(&vec![good.clone(); 65]).await;
    refused("more than 64").await;
    repository.cosign(&[(format!("{}{}", good.0, " ".repeat(256 << 10)), good.1.clone())]).await;
    refused("too large").await;
    let tag = format!("sha256-{}.sig", repository.digest.hex());
    put(
        &repository.setup,
        &tag,
        MANIFEST,
        &json!({"layers": [], "padding": " ".repeat(4 << 20)}).to_string(),
    )
    .await;
    refused("too large").await;
    put(&repository.setup, &tag, MANIFEST, "[]").await;
    refused("invalid").await;
    // None of these invalid bundles prevents a valid one from being accepted.
    repository.refer(&sample::key_bundle(&key, &SignatureOptions::of(&repository.digest.hex()))).await;
    assert_eq!(repository.read_trusting(by(&[&key])).await.unwrap().yaml, YAML);
}

#[tokio::test]
async fn helm_pushed_chart_and_component_version_are_signed_alike() {
    let setup = Setup::new().await;
    let key = KeyPair::generate().unwrap();
    let archive = packaged(setup.directory.path(), "1.2.3");
    let remote = format!("oci://{}", setup.registry.address());
    helm(setup.directory.path(), &["push", archive.to_str().unwrap(), &remote, "--plain-http"]);
    let chart: OciReference = format!("{}/demo:1.2.3", setup.registry.address()).parse().unwrap();
    let component = kyma_artifacts::ComponentVersion {
        name: "example.org/module/a".to_owned(),
        version: "1.0.0".to_owned(),
        manifest: Bytes::from_static(YAML.as_bytes()),
        ..Default::default()
    };
    let anonymous = Credentials::anonymous();
    let pushed = setup.artifacts.push_component(&setup.base(), &component, &anonymous, &()).await.unwrap();
    let trusting = setup.artifacts.trusting(Arc::new(by(&[&key])));
    let charted = async || trusting.chart(&ChartSource::Oci(chart.clone()), &anonymous).await;
    let versioned = async || trusting.component(&setup.base(), &component.name, "1.0.0", &anonymous).await;
    assert_eq!(charted().await.unwrap_err().reason(), Reason::SignatureMissing);
    assert_eq!(versioned().await.unwrap_err().reason(), Reason::SignatureMissing);
    for repository in ["demo", pushed.reference.repository().path()] {
        let tag = if repository == "demo" { "1.2.3" } else { "1.0.0" };
        let base = format!("http://{}/v2/{repository}", setup.registry.address());
        let answer =
            http().get(format!("{base}/manifests/{tag}")).header("Accept", MANIFEST).send().await.unwrap();
        let digest = Digest::of(&answer.bytes().await.unwrap());
        sign(&base, &key, digest).await;
    }
    assert_eq!(charted().await.unwrap().content()[..], fs::read(&archive).unwrap());
    assert_eq!(versioned().await.unwrap().manifest, YAML);
}

#[tokio::test]
async fn signed_chart_is_rejected_as_another_chart_or_version() {
    let setup = Setup::new().await;
    let key = KeyPair::generate().unwrap();
    let archive = packaged(setup.directory.path(), "1.0.0+build.5");
    let remote = format!("oci://{}/charts", setup.registry.address());
    helm(setup.directory.path(), &["push", archive.to_str().unwrap(), &remote, "--plain-http"]);
    let address = |repository: &str| format!("http://{}/v2/charts/{repository}", setup.registry.address());
    let pulled =
        http().get(format!("{}/manifests/1.0.0_build.5", address("demo"))).header("Accept", MANIFEST);
    let manifest = pulled.send().await.unwrap().bytes().await.unwrap();
    let text = std::str::from_utf8(&manifest).unwrap();
    let named: Value = serde_json::from_str(text).unwrap();
    let blobs = [named["config"].clone(), named["layers"][0].clone()];
    for repository in ["demo", "shop"] {
        for blob in &blobs {
            let digest = blob["digest"].as_str().unwrap();
            let content = http().get(format!("{}/blobs/{digest}", address("demo"))).send().await.unwrap();
            let upload = format!("{}/blobs/uploads/?digest={digest}", address(repository));
            let put = http().post(upload).body(content.bytes().await.unwrap()).send().await.unwrap();
            put.error_for_status().unwrap();
        }
        for tag in ["1.0.0_build.5", "1.5.0", "stable", "1.0"] {
            put_at(&address(repository), tag, MANIFEST, text).await;
        }
        sign(&address(repository), &key, Digest::of(&manifest)).await;
    }
    let read = async |artifacts: &kyma_artifacts::Artifacts, at: &str| {
        let reference = format!("{}/charts/{at}", setup.registry.address()).parse().unwrap();
        artifacts.chart(&ChartSource::Oci(reference), &Credentials::anonymous()).await
    };
    let trusting = setup.artifacts.trusting(Arc::new(by(&[&key])));
    let pinned = format!("@{}", Digest::of(&manifest));
    for good in ["demo:1.0.0_build.5", "demo:stable", "demo:1.0", &format!("demo{pinned}")] {
        assert_eq!(read(&trusting, good).await.unwrap().metadata.name, "demo", "{good}");
    }
    let elsewhere = ["shop:1.0.0_build.5", "shop:stable", "demo:1.5.0", &format!("demo:1.5.0{pinned}")];
    for bad in elsewhere.into_iter().chain([&*format!("shop{pinned}")]) {
        let error = read(&trusting, bad).await.unwrap_err();
        assert_eq!(error.reason(), Reason::SignatureInvalid, "{bad}: {error}");
        assert!(error.to_string().contains("signed as chart demo 1.0.0+build.5"), "{error}");
        assert!(read(&setup.artifacts, bad).await.is_ok(), "{bad}: where nobody asks for a signature");
    }
}

#[tokio::test]
async fn content_kinds_without_signatures_are_refused_before_fetch() {
    let setup = Setup::new().await;
    let key = KeyPair::generate().unwrap();
    let trusting = setup.artifacts.trusting(Arc::new(by(&[&key])));
    let url = "https://nowhere.invalid/a".parse().unwrap();
    let source = ManifestsSource::Http { url, digest: None };
    let manifests = trusting.manifests(&source, &Credentials::anonymous()).await.unwrap_err();
    assert_eq!(manifests.reason(), Reason::VerificationInvalid);
    let url = "https://nowhere.invalid/a.tgz".parse().unwrap();
    let source = ChartSource::Archive { url, digest: None };
    let chart = trusting.chart(&source, &Credentials::anonymous()).await.unwrap_err();
    assert_eq!(chart.reason(), Reason::VerificationInvalid);
    let repository = SignedRepository::new().await;
    assert_eq!(
        repository.read_trusting(Trust::nobody()).await.unwrap_err().reason(),
        Reason::VerificationInvalid
    );
}

fn by(keys: &[&KeyPair]) -> Trust {
    let pem: String = keys.iter().map(|key| key.public_key_pem()).collect();
    Trust::nobody().and_keys(pem.as_bytes()).unwrap()
}

fn by_identity(sigstore: &Sigstore, subject: &str) -> Trust {
    let root = TrustRoot::parse(sigstore.trusted_root().to_string().as_bytes()).unwrap();
    let signer = Signer { issuer: ISSUER.to_owned(), subject: subject.to_owned() };
    Trust::nobody().and_signers(Arc::new(root), &[signer]).unwrap()
}

fn reference(setup: &Setup, tag: &str) -> OciReference {
    format!("{}/manifests:{tag}", setup.registry.address()).parse().unwrap()
}

fn base(setup: &Setup) -> String {
    format!("http://{}/v2/manifests", setup.registry.address())
}

async fn blob(setup: &Setup, media_type: &str, content: &str) -> Value {
    blob_at(&base(setup), media_type, content).await
}

async fn blob_at(base: &str, media_type: &str, content: &str) -> Value {
    let digest = Digest::of(content.as_bytes());
    let upload = format!("{base}/blobs/uploads/?digest={digest}");
    http().post(upload).body(content.to_owned()).send().await.unwrap().error_for_status().unwrap();
    json!({"mediaType": media_type, "digest": digest, "size": content.len()})
}

async fn manifest(setup: &Setup, layers: &[Value]) -> Value {
    let config = blob(setup, "application/vnd.oci.empty.v1+json", "{}").await;
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
}

async fn put(setup: &Setup, tag: &str, kind: &str, content: &str) {
    put_at(&base(setup), tag, kind, content).await;
}

async fn put_at(base: &str, tag: &str, kind: &str, content: &str) {
    let put = http().put(format!("{base}/manifests/{tag}")).header(CONTENT_TYPE, kind);
    put.body(content.to_owned()).send().await.unwrap().error_for_status().unwrap();
}

/// Signs a manifest as cosign does.
async fn sign(base: &str, key: &KeyPair, digest: Digest) {
    let (payload, annotations) = sample::key_cosign(key, &digest.hex());
    let mut layer = blob_at(base, PAYLOAD, &payload).await;
    layer["annotations"] = annotations;
    let config = blob_at(base, "application/vnd.oci.empty.v1+json", "{}").await;
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    put_at(base, &format!("sha256-{}.sig", digest.hex()), MANIFEST, &manifest.to_string()).await;
}

//! Signatures by identities, with the test's own trust root, and charts with provenance.

#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#[path = "../../../artifacts/src/trust/sample.rs"]
mod sample;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_artifacts::Digest;
use pgp::composed::{KeyType, SecretKeyParamsBuilder, SignedSecretKey};
use pgp::ser::Serialize as _;
use rand::rngs::OsRng;
use serde_json::{Value, json};

use crate::source::{config, push_yaml};
use crate::verify::{look_again, until_told};
use crate::world::{HUB_NAMESPACE, World, world};
use sample::{ISSUER, SUBJECT, SignatureOptions, Sigstore};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Makes this bundle the only referrer of a tag's manifest, as in registries without a referrers API.
async fn refer(world: &World, repository: &str, tag: &str, bundle: impl Fn(&str) -> Value) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let base = format!("http://{}/v2/{repository}", world.registry.address());
    let found = http.get(format!("{base}/manifests/{tag}")).header("accept", MANIFEST).send().await?;
    let digest = Digest::of(&found.error_for_status()?.bytes().await?);
    let blob = async |content: &str, kind: &str| -> Result<Value> {
        let digest = Digest::of(content.as_bytes());
        let upload = format!("{base}/blobs/uploads/?digest={digest}");
        http.post(upload).body(content.to_owned()).send().await?.error_for_status()?;
        Ok(json!({"mediaType": kind, "digest": digest, "size": content.len()}))
    };
    let put = async |tag: &str, kind: &str, content: String| -> Result<()> {
        let put = http.put(format!("{base}/manifests/{tag}")).header("content-type", kind);
        put.body(content).send().await?.error_for_status()?;
        Ok(())
    };
    let bundle = bundle(&digest.hex()).to_string();
    let config = blob("{}", "application/vnd.oci.empty.v1+json").await?;
    let layer = blob(&bundle, sample::BUNDLE).await?;
    let artifact = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": sample::BUNDLE, "config": config,
        "layers": [layer],
    })
    .to_string();
    let of = Digest::of(artifact.as_bytes());
    let entry = json!({
        "mediaType": MANIFEST, "digest": of, "size": artifact.len(), "artifactType": sample::BUNDLE,
    });
    put(&of.to_string(), MANIFEST, artifact).await?;
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
    put(&format!("sha256-{}", digest.hex()), INDEX, index.to_string()).await
}

#[tokio::test]
async fn content_is_accepted_only_if_signed_by_a_trusted_identity() -> Result<()> {
    let (sigstore, stranger) = (Sigstore::new(), Sigstore::new());
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("trusted_root.json");
    std::fs::write(&file, sigstore.trusted_root().to_string())?;
    let flag: &'static str = format!("--sigstore-trusted-root={}", file.display()).leak();
    let world = &World::start_with(Box::leak(Box::new([flag]))).await?;
    let url = push_yaml(world, "signed/badge", "1.0.0", &config("badge", "one")).await?;
    push_yaml(world, "signed/badge", "2.0.0", &config("badge", "two")).await?;
    let spec = |version: &str| {
        let verify = json!({"identities": [{"issuer": ISSUER, "subject": SUBJECT}]});
        json!({
            "source": {"manifests": {"url": url, "version": version}, "verify": verify},
            "release": {"namespace": "badge"},
        })
    };
    let level = async || -> Result<Option<Value>> {
        let found = world.on_target("v1", "ConfigMap", "badge", "badge").await?;
        Ok(found.map(|found| found.data["data"]["level"].clone()))
    };
    refer(world, "signed/badge", "1.0.0", |digest| stranger.bundle(&SignatureOptions::of(digest))).await?;
    world.apply("badge", spec("1.0.0")).await?;
    until_told(world, "badge", "SignatureInvalid", "not in the trust root").await?;
    let other = |digest: &str| {
        sigstore.bundle(&SignatureOptions {
            issuer: "https://other.example.org".to_owned(),
            ..SignatureOptions::of(digest)
        })
    };
    refer(world, "signed/badge", "1.0.0", other).await?;
    look_again(world, "badge", "2026-01-01T00:00:00Z").await?;
    until_told(world, "badge", "SignatureInvalid", "by another identity").await?;
    assert_eq!(level().await?, None);

    refer(world, "signed/badge", "1.0.0", |digest| sigstore.bundle(&SignatureOptions::of(digest))).await?;
    look_again(world, "badge", "2026-01-02T00:00:00Z").await?;
    world.ready("badge", "True", "Ready").await?;
    assert_eq!(level().await?, Some("one".into()));
    world.apply("badge", spec("2.0.0")).await?;
    world.ready("badge", "False", "SignatureMissing").await?;
    refer(world, "signed/badge", "2.0.0", |digest| sigstore.stamped_bundle(&SignatureOptions::of(digest)))
        .await?;
    look_again(world, "badge", "2026-01-03T00:00:00Z").await?;
    world.ready("badge", "True", "Ready").await?;
    assert_eq!(level().await?, Some("two".into()), "with a timestamp in place of the log's time");
    Ok(())
}

fn key() -> Result<SignedSecretKey> {
    let mut parameters = SecretKeyParamsBuilder::default();
    parameters.key_type(KeyType::Rsa(2048)).can_certify(true).can_sign(true);
    let key = parameters.primary_user_id("builder <builder@example.org>".to_owned()).build()?;
    Ok(key.generate(OsRng)?)
}

/// Adds a chart with its provenance to the file server, as `helm package --sign` makes them.
async fn publish(world: &World, directory: &Path, version: &str, key: &SignedSecretKey) -> Result<String> {
    let chart = directory.join("sigil");
    std::fs::create_dir_all(chart.join("templates"))?;
    let metadata = format!("apiVersion: v2\nname: sigil\nversion: {version}\n");
    std::fs::write(chart.join("Chart.yaml"), metadata)?;
    std::fs::write(chart.join("templates/config.yaml"), config("sigil", version))?;
    std::fs::write(directory.join("secret.gpg"), key.to_bytes()?)?;
    let helm = async |arguments: &[&str]| -> Result<()> {
        let mut helm = tokio::process::Command::new(testbed::Program::Helm.path()?);
        let done = helm.args(arguments).current_dir(directory).env("HOME", directory).output().await?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    };
    helm(&["package", "sigil", "--sign", "--key", "builder", "--keyring", "secret.gpg"]).await?;
    helm(&["repo", "index", "."]).await?;
    let name = format!("sigil-{version}.tgz");
    for file in ["index.yaml", &name, &format!("{name}.prov")] {
        world.file_server.put(&format!("sigil/{file}"), std::fs::read(directory.join(file))?);
    }
    Ok(format!("http://{}/sigil", world.file_server.address()))
}

#[tokio::test]
async fn chart_passes_only_with_provenance_by_a_key_of_the_ring() -> Result<()> {
    let world = world().await?;
    let directory = tempfile::tempdir()?;
    let (builder, stranger) = (key()?, key()?);
    let url = publish(world, directory.path(), "1.0.0", &builder).await?;
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let trust = async |key: &SignedSecretKey| -> Result<()> {
        let ring = STANDARD.encode(key.to_public_key().to_bytes()?);
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sigil-keys"},
            "data": {"pubring.gpg": ring},
        });
        secrets.patch("sigil-keys", &PatchParams::apply("test").force(), &Patch::Apply(object)).await?;
        Ok(())
    };
    let spec = |version: &str| {
        let verify = json!({"keyringSecretRef": {"name": "sigil-keys", "key": "pubring.gpg"}});
        json!({
            "source": {"chart": {"url": url, "name": "sigil", "version": version}, "verify": verify},
            "release": {"namespace": "sigil"},
        })
    };
    trust(&stranger).await?;
    world.apply("sigil", spec("1.0.0")).await?;
    world.ready("sigil", "False", "SignatureInvalid").await?;
    assert!(world.on_target("v1", "ConfigMap", "sigil", "sigil").await?.is_none());
    trust(&builder).await?;
    world.ready("sigil", "True", "Ready").await?;

    // An upgrade that is signed with another key is not installed, and the installed version stays.
    publish(world, directory.path(), "2.0.0", &stranger).await?;
    world.apply("sigil", spec("2.0.0")).await?;
    world.ready("sigil", "False", "SignatureInvalid").await?;
    let found = world.on_target("v1", "ConfigMap", "sigil", "sigil").await?.context("what runs")?;
    assert_eq!(found.data["data"]["level"], "1.0.0");
    Ok(())
}
